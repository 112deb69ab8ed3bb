//! Duplicate fields in JSON objects. The last value takes precedence, and the client is warned. The decoded object does
//! not show duplicates.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::apply;

/// Maximum number of reported duplicates.
const MAX_REPORTED_VIOLATIONS: usize = 100;

/// Returns the paths of duplicate fields, in order.
pub(super) fn duplicates(json: &[u8]) -> Vec<String> {
    let mut violations = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(json);
    // The decoder of the object reports invalid JSON.
    let _ = DuplicateVisitor { path: String::new(), violations: &mut violations }.deserialize(&mut reader);
    violations.truncate(MAX_REPORTED_VIOLATIONS);
    violations
}

/// Returns the duplicate and unknown fields in the operations of a JSON patch, which must otherwise be valid.
pub(super) fn patch_violations(json: &[u8]) -> Vec<String> {
    let operations: Vec<Value> = serde_json::from_slice(json).unwrap_or_default();
    let known_fields = ["op", "path", "from", "value"];
    let unknown = operations.iter().enumerate().flat_map(|(index, operation)| {
        let fields = operation.as_object().into_iter().flat_map(|fields| fields.keys());
        let unknown = fields.filter(|field| !known_fields.contains(&field.as_str()));
        unknown.map(move |field| format!("unknown field \"[{index}].{field}\""))
    });
    duplicates(json)
        .into_iter()
        .chain(unknown)
        .take(MAX_REPORTED_VIOLATIONS)
        .map(|violation| format!("json patch {violation}"))
        .collect()
}

/// Returns the duplicate fields of an applied document, JSON or YAML, as one message.
pub(super) fn applied_duplicates(body: &[u8]) -> Vec<String> {
    let message = match serde_json::from_slice::<IgnoredAny>(body) {
        Ok(_) => Some(duplicates(body).join(", ")).filter(|message| !message.is_empty()),
        Err(_) => apply::duplicate_field(body),
    };
    message.map(|message| format!("error converting YAML to JSON: {message}")).into_iter().collect()
}

struct DuplicateVisitor<'a> {
    path: String,
    violations: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for DuplicateVisitor<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for DuplicateVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
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

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut index = 0;
        // The first violations suffice.
        while self.violations.len() < MAX_REPORTED_VIOLATIONS {
            let inner = DuplicateVisitor { path: format!("{}[{index}]", self.path), violations: &mut *self.violations };
            if items.next_element_seed(inner)?.is_none() {
                return Ok(());
            }
            index += 1;
        }
        // The decoder requires the whole sequence to be read.
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(name) = fields.next_key::<String>()? {
            let path = if self.path.is_empty() { name.clone() } else { format!("{}.{name}", self.path) };
            if !seen.insert(name) {
                let message = format!("duplicate field \"{path}\"");
                if !self.violations.contains(&message) && self.violations.len() < MAX_REPORTED_VIOLATIONS {
                    self.violations.push(message);
                }
            }
            fields.next_value_seed(DuplicateVisitor { path, violations: &mut *self.violations })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{duplicates, patch_violations};

    #[test]
    fn duplicate_fields_are_reported_by_path() {
        let json = br#"{"a": {"b": 1, "b": [{"c": 1, "c": 2}], "x": null}, "d": 1, "d": true}"#;
        let expected = ["duplicate field \"a.b\"", "duplicate field \"a.b[0].c\"", "duplicate field \"d\""];
        assert_eq!(duplicates(json), expected);
    }

    #[test]
    fn duplicate_and_unknown_patch_fields_are_reported() {
        let json = br#"[{"op": "remove", "path": "/a"}, {"op": "test", "path": "/b", "path": "/c", "note": 1}]"#;
        let expected = ["json patch duplicate field \"[1].path\"", "json patch unknown field \"[1].note\""];
        assert_eq!(patch_violations(json), expected);
    }

    #[test]
    fn invalid_documents_report_no_duplicates() {
        assert_eq!(duplicates(b"{\"a\":"), Vec::<String>::new());
    }
}
