//! Conditions of a status.

use serde_json::Value;

/// Returns the condition with this type.
pub(crate) fn find_condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().find(|condition| condition["type"] == kind)
}

/// Returns whether the condition with this type is true.
pub(crate) fn is_true(object: &Value, kind: &str) -> bool {
    find_condition(object, kind).is_some_and(|condition| condition["status"] == "True")
}
