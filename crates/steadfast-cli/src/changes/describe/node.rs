//! Nodes: cordon, drain, taints, resources, versions.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::changes::phrases::{DescriptionBuilder, HealthEffect, flag, list, text, transition};
use crate::changes::value_text::short;

/// Taints that take a node out of service, with the descriptions of their addition and of their removal.
const SERVICE_TAINTS: [(&str, &str, &str); 4] = [
    ("karpenter.sh/disrupted", "draining (Karpenter)", "drain ended (Karpenter)"),
    ("ToBeDeletedByClusterAutoscaler", "draining (cluster autoscaler)", "drain ended (cluster autoscaler)"),
    ("node.kubernetes.io/out-of-service", "out of service", "back in service"),
    // The cloud controller sets this taint on a machine that is already off.
    ("node.cloudprovider.kubernetes.io/shutdown", "shut down", "started"),
];

/// Taint that follows from a cordon.
const CORDON_TAINT: &str = "node.kubernetes.io/unschedulable";

pub(super) fn describe(description: &mut DescriptionBuilder<'_>) {
    if description.consume_changed("spec/unschedulable") {
        let is_cordoned = flag(description.new, "spec/unschedulable");
        let (effect, text) =
            if is_cordoned { (HealthEffect::Degraded, "cordoned") } else { (HealthEffect::Improved, "uncordoned") };
        description.add(effect, text);
    }
    describe_taints(description);
    for kind in ["capacity", "allocatable"] {
        for change in description.take_changes(&format!("status/{kind}")) {
            let resource = change.path.last_field().unwrap_or_default();
            let (old, new) = (change.old.as_deref(), change.new.as_deref());
            description.add(HealthEffect::Neutral, transition(&format!("{kind} {resource}"), &short(old), &short(new)));
        }
    }
    if description.consume_changed("status/nodeInfo/bootID")
        && !text(description.old, "status/nodeInfo/bootID").is_empty()
    {
        description.add(HealthEffect::Neutral, "rebooted");
    }
    description.add_field_change("kubelet", "status/nodeInfo/kubeletVersion");
    description.add_field_change("kernel", "status/nodeInfo/kernelVersion");
    description.add_field_change("runtime", "status/nodeInfo/containerRuntimeVersion");
    if description.consume_changed("status/addresses") {
        let (old, new) = (addresses(description.old), addresses(description.new));
        description.add_set_change("address", &old, &new);
    }
    if description.consume_changed("status/images") {
        let (old, new) = (list(description.old, "status/images").len(), list(description.new, "status/images").len());
        description.add_fallback(format!("images {old}→{new}"));
    }
    if description.consume_changed("status/volumesAttached") | description.consume_changed("status/volumesInUse") {
        let (old, new) = (volumes(description.old), volumes(description.new));
        description.add_set_change("volume", &old, &new);
    }
}

fn describe_taints(description: &mut DescriptionBuilder<'_>) {
    if !description.consume_changed("spec/taints") {
        return;
    }
    let (mut old, mut new) = (taints(description.old), taints(description.new));
    for (key, added, removed) in SERVICE_TAINTS {
        let has_key = |taint: &String| taint.split([':', '=']).next() == Some(key);
        let (before, now) = (old.iter().any(has_key), new.iter().any(has_key));
        if before != now {
            let (effect, text) = if now { (HealthEffect::Degraded, added) } else { (HealthEffect::Improved, removed) };
            description.add(effect, text);
        }
        old.retain(|taint| !has_key(taint));
        new.retain(|taint| !has_key(taint));
    }
    let is_cordon = |taint: &String| taint.starts_with(CORDON_TAINT);
    if old.iter().any(is_cordon) != new.iter().any(is_cordon) {
        description.add_fallback("taint of the cordon changed");
    }
    old.retain(|taint| !is_cordon(taint));
    new.retain(|taint| !is_cordon(taint));
    description.add_set_change("taint", &old, &new);
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
