//! Presentation of values to serde.

use serde::de::value::{BorrowedStrDeserializer, MapAccessDeserializer, StrDeserializer, StringDeserializer};
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Unexpected, Visitor};
use serde::forward_to_deserialize_any;

use super::embedded::embedded;
use super::error::Error;
use super::wire::Reader;

/// Value as it appears in JSON.
pub(crate) trait JsonView<'de>: Sized {
    /// Presents the value to any visitor.
    fn any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error>;

    /// Presents the value to a visitor that expects a text. Implementations for texts override this method with a faster
    /// path.
    #[inline]
    fn text<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.any(visitor)
    }

    /// Presents the value to a visitor that expects an object.
    #[inline]
    fn object<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.any(visitor)
    }

    /// Returns the presence of the value.
    #[inline]
    fn presence(&self) -> Result<Presence<'de>, Error> {
        Ok(Presence::Present)
    }

    /// Skips the value.
    fn pass(self) -> Result<(), Error> {
        Ok(())
    }
}

/// Presence of a value.
pub(crate) enum Presence<'de> {
    /// The value is present.
    Present,
    /// The value is null.
    Null,
    /// The value is present and contains verbatim JSON.
    Json(Reader<'de>),
}

/// Deserializer that behaves like `serde_json` for the value.
pub(crate) struct AsJson<P>(pub(crate) P);

impl<'de, P: JsonView<'de>> Deserializer<'de> for AsJson<P> {
    type Error = Error;

    #[inline]
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.0.any(visitor)
    }

    #[inline]
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0.presence()? {
            Presence::Present => visitor.visit_some(self),
            Presence::Null => visitor.visit_none(),
            Presence::Json(json) => embedded(json, |json| json.deserialize_option(visitor)),
        }
    }

    #[inline]
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.0.text(visitor)
    }

    #[inline]
    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.0.text(visitor)
    }

    #[inline]
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.object(visitor)
    }

    #[inline]
    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0.presence()? {
            Presence::Json(json) => embedded(json, |json| json.deserialize_enum(name, variants, visitor)),
            Presence::Present | Presence::Null => self.0.any(Variant(visitor)),
        }
    }

    #[inline]
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.0.pass()?;
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct seq tuple tuple_struct map
        identifier
    }
}

/// Name of a member.
pub(crate) struct MemberName(pub(crate) &'static str);

impl<'de> JsonView<'de> for MemberName {
    #[inline]
    fn any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_borrowed_str(self.0)
    }
}

/// Enum in JSON: the name of the variant, or an object whose only member has this name.
struct Variant<V>(V);

impl<'de, V: Visitor<'de>> Visitor<'de> for Variant<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.expecting(f)
    }

    fn visit_borrowed_str<E: serde::de::Error>(self, name: &'de str) -> Result<V::Value, E> {
        self.0.visit_enum(BorrowedStrDeserializer::new(name))
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<V::Value, E> {
        self.0.visit_enum(StrDeserializer::new(name))
    }

    fn visit_string<E: serde::de::Error>(self, name: String) -> Result<V::Value, E> {
        self.0.visit_enum(StringDeserializer::new(name))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<V::Value, A::Error> {
        let value = self.0.visit_enum(MapAccessDeserializer::new(&mut members))?;
        // The object of an enum value has a single member, the variant.
        match members.next_key::<IgnoredAny>()? {
            Some(_) => Err(A::Error::invalid_value(Unexpected::Map, &"an object with one member")),
            None => Ok(value),
        }
    }
}
