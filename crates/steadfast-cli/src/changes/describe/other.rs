//! Events, leases, role bindings, custom resource definitions, and kinds without a description of their own.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::changes::phrases::{
    DescriptionBuilder, HealthEffect, at, event_message, list, number, text, texts, transition,
};

pub(super) fn describe_event(description: &mut DescriptionBuilder<'_>) {
    let count = |object| number(object, "count").max(number(object, "series/count"));
    if description.consume_changed("count") | description.consume_changed("series") {
        let (old, new) = (count(description.old), count(description.new));
        let effect =
            if text(description.new, "type") == "Warning" { HealthEffect::Degraded } else { HealthEffect::Neutral };
        let (reason, message) = (text(description.new, "reason"), event_message(description.new));
        description.add(effect, format!("{reason} {old}→{new} times: {message}"));
        description.consume_changed("message");
        description.consume_changed("note");
    }
}

pub(super) fn describe_lease(description: &mut DescriptionBuilder<'_>) {
    if description.consume_changed("spec/holderIdentity") {
        let holder =
            |object| Some(text(object, "spec/holderIdentity")).filter(|holder| !holder.is_empty()).unwrap_or("none");
        let (old, new) = (holder(description.old), holder(description.new));
        description.add(HealthEffect::Neutral, transition("holder", old, new));
    }
    if description.consume_changed("spec/leaseTransitions") {
        description.add_fallback(format!("transitions {}", number(description.new, "spec/leaseTransitions")));
    }
}

pub(super) fn describe_binding(description: &mut DescriptionBuilder<'_>) {
    if description.consume_changed("subjects") {
        let subjects = |object: &Value| -> BTreeSet<String> {
            let subject = |subject: &Value| {
                let namespace = text(subject, "namespace");
                let namespace = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
                format!("{} {namespace}{}", text(subject, "kind"), text(subject, "name"))
            };
            list(object, "subjects").iter().map(subject).collect()
        };
        let (old, new) = (subjects(description.old), subjects(description.new));
        description.add_set_change("subject", &old, &new);
    }
}

pub(super) fn describe_definition(description: &mut DescriptionBuilder<'_>) {
    let versions = |object: &Value| -> BTreeSet<String> {
        let versions = list(object, "spec/versions").iter();
        versions.filter(|version| version["served"] == true).map(|version| text(version, "name").to_owned()).collect()
    };
    let (old, new) = (versions(description.old), versions(description.new));
    description.add_set_change("served version", &old, &new);
    for name in old.symmetric_difference(&new) {
        description.mark_element_described("spec/versions", "name", name);
    }
    if description.consume_changed("status/storedVersions") {
        let (old, new) =
            (texts(description.old, "status/storedVersions"), texts(description.new, "status/storedVersions"));
        description.add_set_change("stored version", &old, &new);
    }
    if description.consume_changed("status/acceptedNames") {
        description.add_fallback("names accepted");
    }
}

/// Describes the phase of a namespace or of a custom resource.
pub(super) fn describe_phase(description: &mut DescriptionBuilder<'_>) {
    if at(description.old, "status/phase") != at(description.new, "status/phase")
        && description.consume_changed("status/phase")
    {
        let phase = |object| Some(text(object, "status/phase")).filter(|phase| !phase.is_empty()).unwrap_or("none");
        let (old, new) = (phase(description.old), phase(description.new));
        let effect = match new {
            "Active" | "Ready" | "Running" | "Succeeded" => HealthEffect::Improved,
            "Terminating" | "Failed" | "Error" => HealthEffect::Degraded,
            _ => HealthEffect::Neutral,
        };
        description.add(effect, format!("phase {old}→{new}"));
    }
    if at(description.old, "spec/replicas") != at(description.new, "spec/replicas") {
        description.add_field_change("replicas", "spec/replicas");
    }
}
