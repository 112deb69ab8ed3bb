//! Rows of tables: access to an object's fields for its cells.

use serde_json::Value;

use crate::clock::Clock;
use crate::conditions;
use crate::metadata;

/// An object and the current time.
pub(super) struct Row<'a> {
    pub(super) object: &'a Value,
    pub(super) clock: &'a Clock,
}

impl<'a> Row<'a> {
    pub(super) fn metadata_text(&self, key: &str) -> &'a str {
        metadata::text(self.object, key)
    }

    pub(super) fn text(&self, path: &str) -> &'a str {
        self.object.pointer(path).and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn text_or(&self, path: &str, absent: &str) -> String {
        match self.object.pointer(path) {
            Some(Value::String(text)) if !text.is_empty() => text.clone(),
            None | Some(Value::Null | Value::String(_)) => absent.to_owned(),
            Some(other) => other.to_string(),
        }
    }

    pub(super) fn number(&self, path: &str) -> i64 {
        self.number_or(path, 0)
    }

    pub(super) fn number_or(&self, path: &str, absent: i64) -> i64 {
        self.object.pointer(path).and_then(Value::as_i64).unwrap_or(absent)
    }

    pub(super) fn is_true(&self, path: &str) -> bool {
        self.object.pointer(path).and_then(Value::as_bool).unwrap_or(false)
    }

    pub(super) fn items(&self, path: &str) -> &'a [Value] {
        self.object.pointer(path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }

    pub(super) fn count(&self, path: &str) -> usize {
        match self.object.pointer(path) {
            Some(Value::Array(items)) => items.len(),
            Some(Value::Object(items)) => items.len(),
            _ => 0,
        }
    }

    /// Returns whether the object has a deletion timestamp.
    pub(super) fn is_terminating(&self) -> bool {
        !self.metadata_text("deletionTimestamp").is_empty()
    }

    /// Returns the status of a condition; empty if absent.
    pub(super) fn condition(&self, kind: &str) -> &'a str {
        conditions::find_condition(self.object, kind).map(|condition| text_of(condition, "status")).unwrap_or_default()
    }

    pub(super) fn since(&self, timestamp: &str) -> String {
        self.clock.age_of(timestamp)
    }
}

/// Returns a text field of an item; empty if absent.
pub(super) fn text_of<'a>(item: &'a Value, key: &str) -> &'a str {
    item.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Returns a text, or `<none>` for an empty one.
pub(super) fn or_none(text: String) -> String {
    if text.is_empty() { "<none>".to_owned() } else { text }
}
