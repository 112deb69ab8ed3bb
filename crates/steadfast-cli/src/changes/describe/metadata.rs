//! Metadata of any kind: deletion, finalizers, labels, annotations and owners.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::changes::phrases::{Phrases, Tone, at, difference, list, text, texts, transition};
use crate::changes::value_text::short;

/// Annotations that tools write in addition to the change itself.
const BOOKKEEPING_ANNOTATIONS: [&str; 2] =
    ["kubectl.kubernetes.io/last-applied-configuration", "deployment.kubernetes.io/max-replicas"];

/// Describes the start of a deletion.
pub(super) fn describe_lifecycle(phrases: &mut Phrases<'_>) {
    if !phrases.take_changed("metadata/deletionTimestamp") {
        return;
    }
    phrases.take_changed("metadata/deletionGracePeriodSeconds");
    if at(phrases.old, "metadata/deletionTimestamp").is_some() {
        return phrases.say_minor("deletion time changed");
    }
    let grace = at(phrases.new, "metadata/deletionGracePeriodSeconds").and_then(Value::as_i64);
    let grace = grace.filter(|grace| *grace > 0).map(|grace| format!("grace period {grace} s"));
    let finalizers = list(phrases.new, "metadata/finalizers").iter().filter_map(Value::as_str);
    let finalizers: Vec<&str> = finalizers.collect();
    let wait = (!finalizers.is_empty()).then(|| format!("waits for {}", finalizers.join(", ")));
    let details: Vec<String> = grace.into_iter().chain(wait).collect();
    let suffix = if details.is_empty() { String::new() } else { format!(" ({})", details.join("; ")) };
    phrases.say(Tone::Bad, format!("deletion requested{suffix}"));
}

/// Describes the other metadata.
pub(super) fn describe(phrases: &mut Phrases<'_>) {
    if phrases.take_changed("metadata/finalizers") {
        let (old, new) = (texts(phrases.old, "metadata/finalizers"), texts(phrases.new, "metadata/finalizers"));
        phrases.say_set_change("finalizer", &old, &new);
    }
    if phrases.take_changed("metadata/ownerReferences") {
        let owners = |object: &Value| -> BTreeSet<String> {
            let owners = list(object, "metadata/ownerReferences").iter();
            owners.map(|owner| format!("{}/{}", text(owner, "kind"), text(owner, "name"))).collect()
        };
        let (old, new) = (owners(phrases.old), owners(phrases.new));
        match difference("owner", &old, &new) {
            Some(text) => phrases.say(Tone::Neutral, text),
            None => phrases.say_minor("owner reference changed"),
        }
    }
    for change in phrases.take_changes("metadata/labels") {
        let name = change.path.last_field().unwrap_or_default();
        phrases.say(Tone::Neutral, pair_change("label", name, change.old.as_deref(), change.new.as_deref()));
    }
    for change in phrases.take_changes("metadata/annotations") {
        let name = change.path.last_field().unwrap_or_default();
        let (old, new) = (change.old.as_deref(), change.new.as_deref());
        match name {
            "deployment.kubernetes.io/revision" => {
                phrases.say(Tone::Neutral, transition("revision", &short(old), &short(new)));
            }
            "kubernetes.io/change-cause" => phrases.say(Tone::Neutral, format!("cause {}", short(new))),
            name if BOOKKEEPING_ANNOTATIONS.contains(&name) => phrases.say_minor(format!("annotation {name} changed")),
            name => phrases.say(Tone::Neutral, pair_change("annotation", name, old, new)),
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
