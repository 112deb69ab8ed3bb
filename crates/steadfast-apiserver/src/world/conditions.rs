//! Conditions that the simulated controllers write into a status.

use serde_json::{Value, json};

use crate::conditions::find_condition;

/// Returns the condition `kind`. If the status is unchanged, the transition time of the existing condition stays.
pub(super) fn condition(object: &Value, kind: &str, is_true: bool, reason: &str, message: &str, now: &str) -> Value {
    let status = if is_true { "True" } else { "False" };
    let existing = find_condition(object, kind).filter(|existing| existing["status"] == status);
    let since = existing.map_or_else(|| now.into(), |existing| existing["lastTransitionTime"].clone());
    let mut condition = json!({"type": kind, "status": status, "lastTransitionTime": since});
    // Some conditions have no reason or no message.
    for (field, text) in [("reason", reason), ("message", message)] {
        if !text.is_empty() {
            condition[field] = text.into();
        }
    }
    condition
}
