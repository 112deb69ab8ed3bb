//! Decoding of the fields that the columns of a table show.
//!
//! The managed fields of an object are skipped. They are about a third of its bytes, and a row is decoded after each
//! change.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};

/// Decodes an object without `metadata.managedFields`. Bytes that are no JSON object become `null`.
pub(super) fn decode_without_managed_fields(bytes: &[u8]) -> Value {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let object = Fields::Object.deserialize(&mut reader);
    // The metadata may have an unexpected form, such as `null`.
    object.unwrap_or_else(|_| serde_json::from_slice(bytes).unwrap_or_default())
}

/// JSON object that is decoded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fields {
    /// The whole object.
    Object,
    /// Its metadata.
    Metadata,
}

impl<'de> DeserializeSeed<'de> for Fields {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Fields {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            let value = match (self, name.as_str()) {
                (Self::Metadata, "managedFields") => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                (Self::Object, "metadata") => map.next_value_seed(Self::Metadata)?,
                _ => map.next_value()?,
            };
            if fields.insert(name, value).is_some() {
                // The last of several equal names counts, as in a complete decoding, which then replaces this one.
                return Err(A::Error::custom("a name occurs twice"));
            }
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_managed_fields_are_skipped() {
        let object = json!({
            "metadata": { "name": "web", "labels": { "a": "b" }, "managedFields": [{ "manager": "kubectl" }] },
            "spec": { "managedFields": 1, "metadata": { "managedFields": 2 } },
        });
        let mut expected = object.clone();
        expected["metadata"].as_object_mut().expect("metadata").remove("managedFields");
        assert_eq!(decode_without_managed_fields(object.to_string().as_bytes()), expected);
    }

    #[test]
    fn unexpected_forms_are_decoded_completely() {
        for text in
            [r#"{"metadata":null,"a":1}"#, r#"{"a":1,"a":2}"#, r#"{"metadata":{"managedFields":1,"b":1,"b":2}}"#, "[1]"]
        {
            let expected: Value = serde_json::from_str(text).expect("JSON");
            assert_eq!(decode_without_managed_fields(text.as_bytes()), expected, "{text}");
        }
        assert_eq!(decode_without_managed_fields(b"{\"a\":"), Value::Null);
    }
}
