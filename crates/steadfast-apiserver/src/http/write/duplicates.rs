//! Fields that are in a JSON object twice: of those the last one counts, and whoever wrote them is reported. What is made of
//! the object does not show them.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::apply;

/// How many are named.
const MOST: usize = 100;

/// The paths of fields that are there twice, in their order.
pub(super) fn duplicates(json: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(json);
    // What cannot be read is refused by whoever reads it.
    let _ = Looker { path: String::new(), found: &mut found }.deserialize(&mut reader);
    found.truncate(MOST);
    found
}

/// What is wrong with a JSON patch in which every operation can be read: fields that are there twice or mean nothing.
pub(super) fn of_operations(json: &[u8]) -> Vec<String> {
    let operations: Vec<Value> = serde_json::from_slice(json).unwrap_or_default();
    let known = ["op", "path", "from", "value"];
    let unknown = operations.iter().enumerate().flat_map(|(index, operation)| {
        let fields = operation.as_object().into_iter().flat_map(|fields| fields.keys());
        let unknown = fields.filter(|field| !known.contains(&field.as_str()));
        unknown.map(move |field| format!("unknown field \"[{index}].{field}\""))
    });
    duplicates(json).into_iter().chain(unknown).take(MOST).map(|flaw| format!("json patch {flaw}")).collect()
}

/// What is wrong with the fields that are twice in what is applied, JSON or YAML, as one complaint.
pub(super) fn of_applied(body: &[u8]) -> Vec<String> {
    let told = match serde_json::from_slice::<IgnoredAny>(body) {
        Ok(_) => Some(duplicates(body).join(", ")).filter(|told| !told.is_empty()),
        Err(_) => apply::flaw(body),
    };
    told.map(|told| format!("error converting YAML to JSON: {told}")).into_iter().collect()
}

struct Looker<'a> {
    path: String,
    found: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Looker<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Looker<'_> {
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
        while self.found.len() < MOST {
            let inner = Looker { path: format!("{}[{index}]", self.path), found: &mut *self.found };
            if items.next_element_seed(inner)?.is_none() {
                return Ok(());
            }
            index += 1;
        }
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(name) = fields.next_key::<String>()? {
            let path = if self.path.is_empty() { name.clone() } else { format!("{}.{name}", self.path) };
            if !seen.insert(name) {
                let told = format!("duplicate field \"{path}\"");
                if !self.found.contains(&told) && self.found.len() < MOST {
                    self.found.push(told);
                }
            }
            fields.next_value_seed(Looker { path, found: &mut *self.found })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{duplicates, of_operations};

    #[test]
    fn what_is_there_twice_is_told_by_its_path() {
        let json = br#"{"a": {"b": 1, "b": [{"c": 1, "c": 2}], "x": null}, "d": 1, "d": true}"#;
        let told = ["duplicate field \"a.b\"", "duplicate field \"a.b[0].c\"", "duplicate field \"d\""];
        assert_eq!(duplicates(json), told);
    }

    #[test]
    fn an_operation_has_no_other_fields_than_its_own() {
        let json = br#"[{"op": "remove", "path": "/a"}, {"op": "test", "path": "/b", "path": "/c", "note": 1}]"#;
        let told = ["json patch duplicate field \"[1].path\"", "json patch unknown field \"[1].note\""];
        assert_eq!(of_operations(json), told);
    }

    #[test]
    fn what_cannot_be_read_is_not_told_of() {
        assert_eq!(duplicates(b"{\"a\":"), Vec::<String>::new());
    }
}
