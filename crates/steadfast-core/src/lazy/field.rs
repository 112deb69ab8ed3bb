//! Decoding of a single field by serde.

use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Path of a field, and the decoded value.
pub(super) struct FieldSeed<'a, T> {
    /// Names of the path, the outermost first.
    pub(super) names: &'a [Box<str>],
    /// Decoded value; `None` if the field is missing or null.
    pub(super) found: &'a mut Option<T>,
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for FieldSeed<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.names.is_empty() {
            *self.found = Option::deserialize(deserializer)?;
            return Ok(());
        }
        deserializer.deserialize_any(self)
    }
}

/// Comparison of a member's name without a copy of it.
struct NameEquals<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for NameEquals<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for NameEquals<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}

/// Searches an object for the member with the next name of the path. Any other value has no members, so the field is
/// missing.
impl<'de, T: Deserialize<'de>> Visitor<'de> for FieldSeed<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let Some((name, inner)) = self.names.split_first() else { return Ok(()) };
        while let Some(is_wanted) = members.next_key_seed(NameEquals(name))? {
            if is_wanted {
                // The last of duplicate members counts, as in a `serde_json::Value`.
                *self.found = None;
                members.next_value_seed(FieldSeed { names: inner, found: &mut *self.found })?;
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        while elements.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }
}
