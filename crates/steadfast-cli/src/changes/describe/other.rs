//! Events, leases, role bindings, custom resource definitions, and kinds without a description of their own.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::changes::phrases::{Phrases, Tone, at, event_message, list, number, text, texts, transition};

pub(super) fn describe_event(phrases: &mut Phrases<'_>) {
    let count = |object| number(object, "count").max(number(object, "series/count"));
    if phrases.take_changed("count") | phrases.take_changed("series") {
        let (old, new) = (count(phrases.old), count(phrases.new));
        let tone = if text(phrases.new, "type") == "Warning" { Tone::Bad } else { Tone::Neutral };
        let (reason, message) = (text(phrases.new, "reason"), event_message(phrases.new));
        phrases.say(tone, format!("{reason} {old}→{new} times: {message}"));
        phrases.take_changed("message");
        phrases.take_changed("note");
    }
}

pub(super) fn describe_lease(phrases: &mut Phrases<'_>) {
    if phrases.take_changed("spec/holderIdentity") {
        let holder =
            |object| Some(text(object, "spec/holderIdentity")).filter(|holder| !holder.is_empty()).unwrap_or("none");
        let (old, new) = (holder(phrases.old), holder(phrases.new));
        phrases.say(Tone::Neutral, transition("holder", old, new));
    }
    if phrases.take_changed("spec/leaseTransitions") {
        phrases.say_minor(format!("transitions {}", number(phrases.new, "spec/leaseTransitions")));
    }
}

pub(super) fn describe_binding(phrases: &mut Phrases<'_>) {
    if phrases.take_changed("subjects") {
        let subjects = |object: &Value| -> BTreeSet<String> {
            let subject = |subject: &Value| {
                let namespace = text(subject, "namespace");
                let namespace = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
                format!("{} {namespace}{}", text(subject, "kind"), text(subject, "name"))
            };
            list(object, "subjects").iter().map(subject).collect()
        };
        let (old, new) = (subjects(phrases.old), subjects(phrases.new));
        phrases.say_set_change("subject", &old, &new);
    }
}

pub(super) fn describe_definition(phrases: &mut Phrases<'_>) {
    let versions = |object: &Value| -> BTreeSet<String> {
        let versions = list(object, "spec/versions").iter();
        versions.filter(|version| version["served"] == true).map(|version| text(version, "name").to_owned()).collect()
    };
    let (old, new) = (versions(phrases.old), versions(phrases.new));
    phrases.say_set_change("served version", &old, &new);
    for name in old.symmetric_difference(&new) {
        phrases.mark_element_described("spec/versions", "name", name);
    }
    if phrases.take_changed("status/storedVersions") {
        let (old, new) = (texts(phrases.old, "status/storedVersions"), texts(phrases.new, "status/storedVersions"));
        phrases.say_set_change("stored version", &old, &new);
    }
    if phrases.take_changed("status/acceptedNames") {
        phrases.say_minor("names accepted");
    }
}

/// Describes the phase of a namespace or of a custom resource.
pub(super) fn describe_phase(phrases: &mut Phrases<'_>) {
    if at(phrases.old, "status/phase") != at(phrases.new, "status/phase") && phrases.take_changed("status/phase") {
        let phase = |object| Some(text(object, "status/phase")).filter(|phase| !phase.is_empty()).unwrap_or("none");
        let (old, new) = (phase(phrases.old), phase(phrases.new));
        let tone = match new {
            "Active" | "Ready" | "Running" | "Succeeded" => Tone::Good,
            "Terminating" | "Failed" | "Error" => Tone::Bad,
            _ => Tone::Neutral,
        };
        phrases.say(tone, format!("phase {old}→{new}"));
    }
    if at(phrases.old, "spec/replicas") != at(phrases.new, "spec/replicas") {
        phrases.say_field_change("replicas", "spec/replicas");
    }
}
