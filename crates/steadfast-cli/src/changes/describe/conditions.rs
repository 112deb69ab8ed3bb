//! Conditions of any kind: `Ready False→True (MinimumReplicasAvailable)`.

use serde_json::Value;

use crate::changes::path::{Path, Segment};
use crate::changes::phrases::{DescriptionBuilder, HealthEffect, find_condition, list, text};

/// Path of the conditions.
const CONDITIONS_PATTERN: &str = "status/conditions";

/// Conditions that are bad while they are true.
const BAD_SUFFIXES: [&str; 8] =
    ["Pressure", "Unavailable", "Failed", "Failure", "Stalled", "Degraded", "FailureTarget", "Suspended"];

/// Describes the changed conditions that no phrase describes yet.
pub(super) fn describe(description: &mut DescriptionBuilder<'_>) {
    let taken = description.take_changes(CONDITIONS_PATTERN);
    if taken.is_empty() {
        return;
    }
    // If the types are not unique, the whole list is one change, and all conditions are compared.
    let types: Option<Vec<&Value>> = taken.iter().map(|change| type_of(&change.path)).collect();
    let is_changed = |kind: &str| types.as_ref().is_none_or(|types| types.iter().any(|taken| **taken == *kind));
    let (old, new) = (list(description.old, CONDITIONS_PATTERN), list(description.new, CONDITIONS_PATTERN));
    // `Ready` comes first: a narrow terminal shows only the start of the line.
    let (ready, others): (Vec<&Value>, Vec<&Value>) =
        new.iter().partition(|condition| text(condition, "type") == "Ready");
    for condition in ready.into_iter().chain(others) {
        let kind = text(condition, "type");
        let before = find_condition(old, kind);
        if is_changed(kind) && before != Some(condition) {
            describe_transition(description, kind, before, condition);
        }
    }
    for condition in old {
        let kind = text(condition, "type");
        if is_changed(kind) && find_condition(new, kind).is_none() {
            description.add(HealthEffect::Neutral, format!("condition {kind} removed"));
        }
    }
}

/// Returns the type of the condition at `path`.
fn type_of<'a>(path: &Path<'a>) -> Option<&'a Value> {
    match path.0.get(2)? {
        Segment::Element(keys) => keys.first().and_then(|(_, value)| *value),
        _ => None,
    }
}

fn describe_transition(
    description: &mut DescriptionBuilder<'_>,
    kind: &str,
    before: Option<&Value>,
    condition: &Value,
) {
    // The condition of a certificate request has no status; it exists only if it is true.
    let status = |condition: &Value| condition.get("status").and_then(Value::as_str).unwrap_or("True").to_owned();
    let (new, reason) = (status(condition), text(condition, "reason"));
    let in_brackets = |reason: &str| if reason.is_empty() { String::new() } else { format!(" ({reason})") };
    let Some(before) = before else {
        let (effect, text) = (effect_of(kind, &new), format!("{kind} {new}{}", in_brackets(reason)));
        // A controller that starts to report `…Failure False` reports no change for a reader.
        if new == "False" && effect == HealthEffect::Improved {
            description.add_fallback(text);
        } else {
            description.add(effect, text);
        }
        return;
    };
    let (old, reason_before) = (status(before), text(before, "reason"));
    if old != new {
        description.add(effect_of(kind, &new), format!("{kind} {old}→{new}{}", in_brackets(reason)));
    } else if reason != reason_before {
        let reasons = [reason_before, reason].map(|reason| if reason.is_empty() { "none" } else { reason });
        description.add(HealthEffect::Neutral, format!("{kind} {new} ({}→{})", reasons[0], reasons[1]));
    } else if text(condition, "message") != text(before, "message") {
        description.add_fallback(format!("{kind} {new}: {}", text(condition, "message")));
    }
}

fn effect_of(kind: &str, status: &str) -> HealthEffect {
    let is_bad_if_true = BAD_SUFFIXES.iter().any(|suffix| kind.ends_with(suffix));
    match (status, is_bad_if_true) {
        ("True", false) | ("False", true) => HealthEffect::Improved,
        ("False", false) | ("True", true) => HealthEffect::Degraded,
        _ => HealthEffect::Neutral,
    }
}
