//! Duplicates in lists that are sets or maps.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{ListType, Schema};
use crate::field_violation::FieldViolation;
use crate::go;

impl Schema {
    /// Returns the duplicate items of sets and the duplicate keys of maps.
    pub(crate) fn duplicates(&self, object: &Value) -> Vec<FieldViolation> {
        let mut causes = Vec::new();
        self.walk("", object, &mut causes);
        causes
    }

    fn walk(&self, path: &str, value: &Value, causes: &mut Vec<FieldViolation>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    if let Some(schema) = self.additional_schema() {
                        schema.walk(&format!("{path}[{name}]"), value, causes);
                    }
                    if let Some(schema) = self.properties.get(name) {
                        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                        schema.walk(&path, value, causes);
                    }
                }
            }
            Value::Array(items) => {
                match self.list_type {
                    Some(ListType::Set) => {
                        report_duplicates(items, causes, |index| (format!("{path}[{index}]"), items[index].clone()));
                    }
                    Some(ListType::Map) => self.report_duplicate_keys(path, items, causes),
                    Some(ListType::Atomic) | None => {}
                }
                if let Some(schema) = &self.items {
                    for (index, item) in items.iter().enumerate() {
                        schema.walk(&format!("{path}[{index}]"), item, causes);
                    }
                }
            }
            _ => {}
        }
    }

    fn report_duplicate_keys(&self, path: &str, items: &[Value], causes: &mut Vec<FieldViolation>) {
        // Items that are not objects have no keys. Only the first such item is reported, and no keys are compared.
        let non_object = items.iter().position(|item| !item.is_null() && !item.is_object());
        if let Some(index) = non_object {
            let detail = "must be an object for an array of list-type map";
            causes.push(FieldViolation::invalid(format!("{path}[{index}]"), &items[index], detail));
            return;
        }
        let keys_of = |item: &Value| -> Value {
            let keys = self.list_map_keys.iter();
            keys.filter_map(|key| Some((key.clone(), item.get(key)?.clone()))).collect::<Map<_, _>>().into()
        };
        let keys: Vec<Value> = items.iter().map(keys_of).collect();
        report_duplicates(&keys, causes, |index| (format!("{path}[{index}]"), keys[index].clone()));
    }
}

/// Reports each repeated value once, at its second position.
fn report_duplicates(values: &[Value], causes: &mut Vec<FieldViolation>, describe: impl Fn(usize) -> (String, Value)) {
    let mut counts: HashMap<String, usize> = HashMap::new();
    for (index, value) in values.iter().enumerate() {
        // The canonical text finds equal values in linear time.
        let count = counts.entry(go::json(value)).or_default();
        *count += 1;
        // Further duplicates of a value are not reported again.
        if *count == 2 {
            let (path, value) = describe(index);
            causes.push(FieldViolation::duplicate(path, &value));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Schema;

    #[test]
    fn duplicates_are_reported_once() {
        let schema = Schema::parse(&json!({"properties": {
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n", "p"],
                    "items": {"type": "object"}},
        }}));
        let object = json!({"set": ["a", "b", "a", "a"], "map": [{"n": 1}, {"n": 1, "p": 2}, {"n": 1, "x": 3}]});
        let causes = schema.expect("a schema").duplicates(&object);
        let found: Vec<_> = causes.iter().map(|cause| (cause.field.as_str(), cause.message.as_str())).collect();
        assert_eq!(found, [("map[2]", "Duplicate value: {\"n\":1}"), ("set[2]", "Duplicate value: \"a\"")]);
    }
}
