//! Tables of transitions of built-in kinds and custom resources, with the description of each.

mod cluster;
mod configuration;
mod network;
mod pods;
mod workloads;

use serde_json::Value;

use super::describe::{Content, describe};
use super::kind::Kind;

/// Applies a JSON merge patch, so that a row has only the changed fields.
pub(crate) fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = Value::Object(serde_json::Map::new());
    }
    let fields = object.as_object_mut().expect("an object");
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Asserts the description of each row: previous fields, changed fields, and the expected text.
fn assert_rows(kind: &str, rows: &[(Value, Value, &str)]) {
    let (group, kind) = kind.rsplit_once('/').unwrap_or(("", kind));
    for (old, patch, expected) in rows {
        let mut new = old.clone();
        merge(&mut new, patch);
        let description = describe(&Kind::new(group, kind), &[], old, &new, Content::default());
        let phrases: Vec<&str> = description.phrases.iter().map(|phrase| phrase.text.as_str()).collect();
        assert_eq!(phrases.join(", "), *expected, "{kind}: {old} with {patch}");
    }
}
