//! Metadata of any kind: deletion, finalizers, labels, annotations and owners.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::changes::phrases::{DescriptionBuilder, HealthEffect, at, difference, list, text, texts, transition};
use crate::changes::value_text::short;

/// Annotations that tools write in addition to the change itself.
const BOOKKEEPING_ANNOTATIONS: [&str; 4] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    "deployment.kubernetes.io/max-replicas",
    "pv.kubernetes.io/bind-completed",
    "pv.kubernetes.io/bound-by-controller",
];

/// Describes the start of a deletion.
pub(super) fn describe_lifecycle(description: &mut DescriptionBuilder<'_>) {
    if !description.consume_changed("metadata/deletionTimestamp") {
        return;
    }
    description.consume_changed("metadata/deletionGracePeriodSeconds");
    if at(description.old, "metadata/deletionTimestamp").is_some() {
        return description.add_fallback("deletion time changed");
    }
    let grace = at(description.new, "metadata/deletionGracePeriodSeconds").and_then(Value::as_i64);
    let grace = grace.filter(|grace| *grace > 0).map(|grace| format!("grace period {grace} s"));
    let finalizers = list(description.new, "metadata/finalizers").iter().filter_map(Value::as_str);
    let finalizers: Vec<&str> = finalizers.collect();
    let wait = (!finalizers.is_empty()).then(|| format!("waits for {}", finalizers.join(", ")));
    let details: Vec<String> = grace.into_iter().chain(wait).collect();
    let suffix = if details.is_empty() { String::new() } else { format!(" ({})", details.join("; ")) };
    description.add(HealthEffect::Degraded, format!("deletion requested{suffix}"));
}

/// Describes the other metadata.
pub(super) fn describe(description: &mut DescriptionBuilder<'_>) {
    if description.consume_changed("metadata/finalizers") {
        let (old, new) = (texts(description.old, "metadata/finalizers"), texts(description.new, "metadata/finalizers"));
        description.add_set_change("finalizer", &old, &new);
    }
    if description.consume_changed("metadata/ownerReferences") {
        let owners = |object: &Value| -> BTreeSet<String> {
            let owners = list(object, "metadata/ownerReferences").iter();
            owners.map(|owner| format!("{}/{}", text(owner, "kind"), text(owner, "name"))).collect()
        };
        let (old, new) = (owners(description.old), owners(description.new));
        match difference("owner", &old, &new) {
            Some(text) => description.add(HealthEffect::Neutral, text),
            None => description.add_fallback("owner reference changed"),
        }
    }
    for change in description.take_changes("metadata/labels") {
        let name = change.path.last_field().unwrap_or_default();
        description
            .add(HealthEffect::Neutral, pair_change("label", name, change.old.as_deref(), change.new.as_deref()));
    }
    for change in description.take_changes("metadata/annotations") {
        let name = change.path.last_field().unwrap_or_default();
        let (old, new) = (change.old.as_deref(), change.new.as_deref());
        match name {
            "deployment.kubernetes.io/revision" => {
                description.add(HealthEffect::Neutral, transition("revision", &short(old), &short(new)));
            }
            "kubernetes.io/change-cause" => description.add(HealthEffect::Neutral, format!("cause {}", short(new))),
            name if BOOKKEEPING_ANNOTATIONS.contains(&name) => {
                description.add_bookkeeping(format!("annotation {name} changed"));
            }
            name => description.add(HealthEffect::Neutral, pair_change("annotation", name, old, new)),
        }
    }
}

/// Returns `label +name=value`, `label −name` or `label name old→new`.
fn pair_change(label: &str, name: &str, old: Option<&Value>, new: Option<&Value>) -> String {
    match (old, new) {
        (None, new) => format!("{label} +{name}={}", short(new)),
        (Some(_), None) => format!("{label} −{name}"),
        (old, new) => transition(&format!("{label} {name}"), &short(old), &short(new)),
    }
}
