//! Pods: phase, node, restarts, states of the containers.

use serde_json::Value;

use super::containers;
use crate::changes::phrases::{DescriptionBuilder, HealthEffect, at, find_condition, list, number, text};

/// Conditions that follow from the phase and from `Ready`.
const IMPLIED_CONDITIONS: [&str; 4] = ["PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady"];

/// Lists of container statuses.
const STATUS_LISTS: [&str; 3] = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];

/// Waiting reasons of a container that is starting normally.
const STARTING_REASONS: [&str; 3] = ["ContainerCreating", "PodInitializing", ""];

/// Fields that the API server, the scheduler and the kubelet set until a pod runs. `describe_phase` describes the node.
/// The other fields need no phrase.
const PLACEMENT_FIELDS: [&str; 6] =
    ["spec/nodeName", "status/startTime", "status/hostIP", "status/hostIPs", "status/podIPs", "status/qosClass"];

pub(super) fn describe(description: &mut DescriptionBuilder<'_>) {
    describe_phase(description);
    for field in STATUS_LISTS {
        describe_statuses(description, field);
    }
    describe_conditions(description);
    if description.consume_changed("status/podIP") {
        description.add_fallback(format!("address {}", text(description.new, "status/podIP")));
    }
    if description.consume_changed("status/reason") | description.consume_changed("status/message") {
        let (reason, message) = (text(description.new, "status/reason"), text(description.new, "status/message"));
        let message = if message.is_empty() { String::new() } else { format!(" ({message})") };
        let old_reason = text(description.old, "status/reason");
        if !reason.is_empty() {
            description.add(HealthEffect::Degraded, format!("{reason}{message}"));
        } else if !message.is_empty() {
            description.add_fallback(format!("message{message}"));
        } else if !old_reason.is_empty() {
            description.add_fallback(format!("no longer {old_reason}"));
        }
    }
    containers::describe(description, "spec");
    for field in PLACEMENT_FIELDS {
        description.consume_changed(field);
    }
}

fn describe_phase(description: &mut DescriptionBuilder<'_>) {
    let node = text(description.new, "spec/nodeName");
    let (old, new) = (text(description.old, "status/phase"), text(description.new, "status/phase"));
    if old != new {
        description.consume_changed("status/phase");
        let node_suffix = if node.is_empty() { String::new() } else { format!(" on {node}") };
        let effect = match new {
            "Running" | "Succeeded" => HealthEffect::Improved,
            "Failed" | "Unknown" => HealthEffect::Degraded,
            _ => HealthEffect::Neutral,
        };
        let old = if old.is_empty() { "none" } else { old };
        description.add(effect, format!("phase {old}→{new}{node_suffix}"));
    } else if text(description.old, "spec/nodeName") != node {
        description.add(HealthEffect::Neutral, format!("scheduled on {node}"));
    }
}

fn describe_statuses(description: &mut DescriptionBuilder<'_>, field: &str) {
    let pattern = format!("status/{field}");
    if !description.consume_changed(&pattern) {
        return;
    }
    let (old, new) = (list(description.old, &pattern), list(description.new, &pattern));
    let names_container = new.len() > 1 || field != "containerStatuses";
    for status in new {
        let name = text(status, "name");
        let label = if names_container { format!(" {name}") } else { String::new() };
        let before = old.iter().find(|before| text(before, "name") == name).unwrap_or(&Value::Null);
        let (old_restarts, new_restarts) = (number(before, "restartCount"), number(status, "restartCount"));
        if old_restarts > new_restarts {
            // The kubelet counts again after it has lost its records of the container.
            description.add_fallback(format!("restarts{label} {old_restarts}→{new_restarts}"));
        } else if old_restarts < new_restarts {
            let reason = at(status, "lastState/terminated").or(at(status, "state/terminated")).map(termination);
            let reason = reason.map_or(String::new(), |reason| format!(" ({reason})"));
            description.add(HealthEffect::Degraded, format!("restarts{label} {old_restarts}→{new_restarts}{reason}"));
        }
        let (old_state, new_state) = (state(before), state(status));
        if old_state != new_state {
            let text = format!("container {name} {new_state}");
            match at(status, "state/waiting/reason").and_then(Value::as_str) {
                Some(reason) if !STARTING_REASONS.contains(&reason) => description.add(HealthEffect::Degraded, text),
                _ if at(status, "state/terminated").is_some() && old_restarts == new_restarts => {
                    let is_failed = number(status, "state/terminated/exitCode") != 0;
                    description.add(if is_failed { HealthEffect::Degraded } else { HealthEffect::Neutral }, text);
                }
                _ => description.add_fallback(text),
            }
        }
    }
    for status in old.iter().filter(|before| new.iter().all(|status| text(status, "name") != text(before, "name"))) {
        description.add_fallback(format!("container {} without status", text(status, "name")));
    }
    let ready = |statuses: &[Value]| statuses.iter().filter(|status| status["ready"] == true).count();
    if ready(old) != ready(new) && field == "containerStatuses" {
        description.add_fallback(format!("ready containers {}→{} of {}", ready(old), ready(new), new.len()));
    }
}

/// Returns the state of a container: `running`, a reason, or the termination.
fn state(status: &Value) -> String {
    if let Some(waiting) = at(status, "state/waiting") {
        let reason = text(waiting, "reason");
        return if reason.is_empty() { "waiting".to_owned() } else { reason.to_owned() };
    }
    if let Some(terminated) = at(status, "state/terminated") {
        return format!("terminated: {}", termination(terminated));
    }
    if at(status, "state/running").is_some() { "running".to_owned() } else { "unknown".to_owned() }
}

/// Returns the reason of a termination: `OOMKilled`, or the exit code if the reason does not explain it.
fn termination(terminated: &Value) -> String {
    let (reason, code) = (text(terminated, "reason"), number(terminated, "exitCode"));
    match (reason, code) {
        ("" | "Error", code) => format!("exit code {code}"),
        (reason, _) => reason.to_owned(),
    }
}

/// Covers the conditions that follow from the phase and from `Ready`, so that they appear only if nothing else does.
/// The module `conditions` describes all others, including later changes of `Ready`.
fn describe_conditions(description: &mut DescriptionBuilder<'_>) {
    let (old, new) = (list(description.old, "status/conditions"), list(description.new, "status/conditions"));
    // The state of a container explains these conditions.
    let is_explained = description.has_any();
    for kind in IMPLIED_CONDITIONS {
        let Some(condition) = find_condition(new, kind) else { continue };
        let before = find_condition(old, kind);
        let is_unschedulable = kind == "PodScheduled" && text(condition, "status") == "False";
        if before == Some(condition) || is_unschedulable {
            continue;
        }
        description.mark_element_described("status/conditions", "type", kind);
        let is_changed = before.map(|before| text(before, "status")) != Some(text(condition, "status"));
        if is_changed && !is_explained {
            description.add_fallback(format!("{kind} {}", text(condition, "status")));
        }
    }
    // The first condition of a new pod is always `Ready False`, so it is printed only if nothing else changed.
    let is_first = find_condition(old, "Ready").is_none();
    if let Some(ready) = find_condition(new, "Ready").filter(|_| is_first)
        && text(ready, "status") == "False"
    {
        description.mark_element_described("status/conditions", "type", "Ready");
        if !is_explained {
            description.add_fallback("Ready False");
        }
    }
}
