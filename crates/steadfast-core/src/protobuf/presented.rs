//! What a value has to tell of itself, so that serde can ask whatever it wants to.

use serde::de::value::{BorrowedStrDeserializer, MapAccessDeserializer, StrDeserializer, StringDeserializer};
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Unexpected, Visitor};
use serde::forward_to_deserialize_any;

use super::embedded::embedded;
use super::error::Error;
use super::wire::Reader;

/// A value as it is in JSON.
pub(crate) trait Presented<'de>: Sized {
    /// Shows what it is.
    fn any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error>;

    /// Whether it is null.
    fn is_null(&self) -> Result<bool, Error> {
        Ok(false)
    }

    /// The text, where the value is JSON as it stands.
    fn json(&self) -> Result<Option<Reader<'de>>, Error> {
        Ok(None)
    }

    /// Passes over it, undecoded.
    fn pass(self) -> Result<(), Error> {
        Ok(())
    }
}

/// A value that is deserialized as `serde_json` deserializes it from JSON.
pub(crate) struct AsJson<P>(pub(crate) P);

impl<'de, P: Presented<'de>> Deserializer<'de> for AsJson<P> {
    type Error = Error;

    #[inline]
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.0.any(visitor)
    }

    #[inline]
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if let Some(json) = self.0.json()? {
            return embedded(json, |json| json.deserialize_option(visitor));
        }
        if self.0.is_null()? { visitor.visit_none() } else { visitor.visit_some(self) }
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
        if let Some(json) = self.0.json()? {
            return embedded(json, |json| json.deserialize_enum(name, variants, visitor));
        }
        self.0.any(Variant(visitor))
    }

    #[inline]
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.0.pass()?;
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier
    }
}

/// The name of a member.
pub(crate) struct Name(pub(crate) &'static str);

impl<'de> Presented<'de> for Name {
    #[inline]
    fn any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_borrowed_str(self.0)
    }
}

/// An enum as it is in JSON: the name of its variant, or an object with that alone.
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
        match members.next_key::<IgnoredAny>()? {
            Some(_) => Err(A::Error::invalid_value(Unexpected::Map, &"an object with one member")),
            None => Ok(value),
        }
    }
}
