//! Data of `ConfigMaps` and Secrets. The values of Secrets are hidden before the description.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::Value;

use crate::changes::diff::Change;
use crate::changes::phrases::{DescriptionBuilder, HealthEffect, by_path};
use crate::changes::secrets::HIDDEN;

pub(super) fn describe_data(description: &mut DescriptionBuilder<'_>) {
    for field in ["data", "binaryData", "stringData"] {
        for change in description.take_changes(field) {
            let (effect, text) = (HealthEffect::Neutral, describe_entry(change));
            description.add(effect, text);
        }
    }
    if description.consume_changed("immutable") {
        description.add(HealthEffect::Neutral, "immutable");
    }
}

fn describe_entry(change: &Change<'_>) -> String {
    let name = change.path.short();
    let value = |value: &Option<Cow<'_, Value>>| value.as_deref().and_then(Value::as_str).map(str::to_owned);
    match (value(&change.old), value(&change.new)) {
        (None, Some(new)) if new == HIDDEN || new.contains('\n') => format!("+{name}"),
        (Some(old), Some(new)) if old.contains('\n') || new.contains('\n') => {
            let (added, removed) = changed_lines(&old, &new);
            format!("{name} +{added} −{removed} lines")
        }
        _ => by_path(change),
    }
}

/// Returns the number of lines that only `new` has, and of those that only `old` has. Each repetition of a line counts.
fn changed_lines(old: &str, new: &str) -> (usize, usize) {
    let mut lines: HashMap<&str, i64> = HashMap::new();
    for line in new.lines() {
        *lines.entry(line).or_default() += 1;
    }
    for line in old.lines() {
        *lines.entry(line).or_default() -= 1;
    }
    let sum = |sign: i64| lines.values().map(|count| usize::try_from(count * sign).unwrap_or(0)).sum();
    (sum(1), sum(-1))
}
