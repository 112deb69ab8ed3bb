//! Nodes: cordon, drain, taints, resources, versions.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::changes::phrases::{Phrases, Tone, flag, list, text, transition};
use crate::changes::value_text::short;

/// Taints that start a drain, with the tool that sets each.
const DRAIN_TAINTS: [(&str, &str); 4] = [
    ("karpenter.sh/disrupted", "Karpenter"),
    ("ToBeDeletedByClusterAutoscaler", "cluster autoscaler"),
    ("node.kubernetes.io/out-of-service", "out of service"),
    ("node.cloudprovider.kubernetes.io/shutdown", "shut down"),
];

/// Taint that follows from a cordon.
const CORDON_TAINT: &str = "node.kubernetes.io/unschedulable";

pub(super) fn describe(phrases: &mut Phrases<'_>) {
    if phrases.take_changed("spec/unschedulable") {
        let is_cordoned = flag(phrases.new, "spec/unschedulable");
        let (tone, text) = if is_cordoned { (Tone::Bad, "cordoned") } else { (Tone::Good, "uncordoned") };
        phrases.say(tone, text);
    }
    describe_taints(phrases);
    for kind in ["capacity", "allocatable"] {
        for change in phrases.take_changes(&format!("status/{kind}")) {
            let resource = change.path.last_field().unwrap_or_default();
            let (old, new) = (change.old.as_deref(), change.new.as_deref());
            phrases.say(Tone::Neutral, transition(&format!("{kind} {resource}"), &short(old), &short(new)));
        }
    }
    phrases.say_field_change("kubelet", "status/nodeInfo/kubeletVersion");
    phrases.say_field_change("kernel", "status/nodeInfo/kernelVersion");
    phrases.say_field_change("runtime", "status/nodeInfo/containerRuntimeVersion");
    if phrases.take_changed("status/addresses") {
        let (old, new) = (addresses(phrases.old), addresses(phrases.new));
        phrases.say_set_change("address", &old, &new);
    }
    if phrases.take_changed("status/images") {
        let (old, new) = (list(phrases.old, "status/images").len(), list(phrases.new, "status/images").len());
        phrases.say_minor(format!("images {old}→{new}"));
    }
    if phrases.take_changed("status/volumesAttached") | phrases.take_changed("status/volumesInUse") {
        let (old, new) = (volumes(phrases.old), volumes(phrases.new));
        phrases.say_set_change("volume", &old, &new);
    }
}

fn describe_taints(phrases: &mut Phrases<'_>) {
    if !phrases.take_changed("spec/taints") {
        return;
    }
    let (mut old, mut new) = (taints(phrases.old), taints(phrases.new));
    for (key, tool) in DRAIN_TAINTS {
        let is_drain = |taint: &String| taint.split([':', '=']).next() == Some(key);
        let (before, now) = (old.iter().any(is_drain), new.iter().any(is_drain));
        if before != now {
            let (tone, text) = if now { (Tone::Bad, "draining") } else { (Tone::Good, "drain ended") };
            phrases.say(tone, format!("{text} ({tool})"));
        }
        old.retain(|taint| !is_drain(taint));
        new.retain(|taint| !is_drain(taint));
    }
    let is_cordon = |taint: &String| taint.starts_with(CORDON_TAINT);
    if old.iter().any(is_cordon) != new.iter().any(is_cordon) {
        phrases.say_minor("taint of the cordon changed");
    }
    old.retain(|taint| !is_cordon(taint));
    new.retain(|taint| !is_cordon(taint));
    phrases.say_set_change("taint", &old, &new);
}

fn taints(node: &Value) -> BTreeSet<String> {
    let taint = |taint: &Value| {
        let value = text(taint, "value");
        let value = if value.is_empty() { String::new() } else { format!("={value}") };
        format!("{}{value}:{}", text(taint, "key"), text(taint, "effect"))
    };
    list(node, "spec/taints").iter().map(taint).collect()
}

fn addresses(node: &Value) -> BTreeSet<String> {
    list(node, "status/addresses").iter().map(|address| text(address, "address").to_owned()).collect()
}

fn volumes(node: &Value) -> BTreeSet<String> {
    let attached = list(node, "status/volumesAttached").iter().map(|volume| text(volume, "name"));
    let used = list(node, "status/volumesInUse").iter().filter_map(Value::as_str);
    let names = attached.chain(used).map(|name| name.rsplit(['^', '/']).next().unwrap_or(name).to_owned());
    names.collect()
}
