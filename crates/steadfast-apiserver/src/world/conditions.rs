//! Conditions of a status.

use serde_json::{Value, json};

/// Returns the condition with this type.
pub(super) fn find<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().find(|condition| condition["type"] == kind)
}

/// Returns whether the condition with this type is true.
pub(super) fn is_true(object: &Value, kind: &str) -> bool {
    find(object, kind).is_some_and(|condition| condition["status"] == "True")
}

/// Returns a condition. If the status of the existing condition is the same, its transition time stays.
pub(super) fn condition(object: &Value, kind: &str, is_true: bool, reason: &str, message: &str, now: &str) -> Value {
    let status = if is_true { "True" } else { "False" };
    let existing = find(object, kind).filter(|existing| existing["status"] == status);
    let since = existing.map_or_else(|| now.into(), |existing| existing["lastTransitionTime"].clone());
    let mut condition = json!({"type": kind, "status": status, "lastTransitionTime": since});
    // Some conditions have neither.
    for (field, text) in [("reason", reason), ("message", message)] {
        if !text.is_empty() {
            condition[field] = text.into();
        }
    }
    condition
}
