//! Pods: phase, node, restarts, states of the containers.

use serde_json::Value;

use super::containers;
use crate::changes::phrases::{Phrases, Tone, at, find_condition, list, number, text};

/// Conditions that follow from the phase and from `Ready`.
const IMPLIED_CONDITIONS: [&str; 4] = ["PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady"];

/// Lists of container statuses.
const STATUS_LISTS: [&str; 3] = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];

/// Waiting reasons of a container that is starting normally.
const STARTING_REASONS: [&str; 3] = ["ContainerCreating", "PodInitializing", ""];

/// Fields that the kubelet sets together with the phase.
const PLACEMENT_FIELDS: [&str; 6] =
    ["spec/nodeName", "status/startTime", "status/hostIP", "status/hostIPs", "status/podIPs", "status/qosClass"];

pub(super) fn describe(phrases: &mut Phrases<'_>) {
    describe_phase(phrases);
    for field in STATUS_LISTS {
        describe_statuses(phrases, field);
    }
    describe_conditions(phrases);
    if phrases.take_changed("status/podIP") {
        phrases.say_minor(format!("address {}", text(phrases.new, "status/podIP")));
    }
    if phrases.take_changed("status/reason") | phrases.take_changed("status/message") {
        let (reason, message) = (text(phrases.new, "status/reason"), text(phrases.new, "status/message"));
        let message = if message.is_empty() { String::new() } else { format!(" ({message})") };
        if !reason.is_empty() {
            phrases.say(Tone::Bad, format!("{reason}{message}"));
        }
    }
    containers::describe(phrases, "spec");
    for field in PLACEMENT_FIELDS {
        phrases.take_changed(field);
    }
}

fn describe_phase(phrases: &mut Phrases<'_>) {
    let node = text(phrases.new, "spec/nodeName");
    let (old, new) = (text(phrases.old, "status/phase"), text(phrases.new, "status/phase"));
    if old != new {
        phrases.take_changed("status/phase");
        let node_suffix = if node.is_empty() { String::new() } else { format!(" on {node}") };
        let tone = match new {
            "Running" | "Succeeded" => Tone::Good,
            "Failed" | "Unknown" => Tone::Bad,
            _ => Tone::Neutral,
        };
        let old = if old.is_empty() { "none" } else { old };
        phrases.say(tone, format!("phase {old}→{new}{node_suffix}"));
    } else if text(phrases.old, "spec/nodeName") != node {
        phrases.say(Tone::Neutral, format!("scheduled on {node}"));
    }
}

fn describe_statuses(phrases: &mut Phrases<'_>, field: &str) {
    let pattern = format!("status/{field}");
    if !phrases.take_changed(&pattern) {
        return;
    }
    let (old, new) = (list(phrases.old, &pattern), list(phrases.new, &pattern));
    let names_container = new.len() > 1 || field != "containerStatuses";
    for status in new {
        let name = text(status, "name");
        let label = if names_container { format!(" {name}") } else { String::new() };
        let before = old.iter().find(|before| text(before, "name") == name).unwrap_or(&Value::Null);
        let (old_restarts, new_restarts) = (number(before, "restartCount"), number(status, "restartCount"));
        if old_restarts != new_restarts {
            let reason = at(status, "lastState/terminated").or(at(status, "state/terminated")).map(termination);
            let reason = reason.map_or(String::new(), |reason| format!(" ({reason})"));
            phrases.say(Tone::Bad, format!("restarts{label} {old_restarts}→{new_restarts}{reason}"));
        }
        let (old_state, new_state) = (state(before), state(status));
        if old_state != new_state {
            let text = format!("container {name} {new_state}");
            match at(status, "state/waiting/reason").and_then(Value::as_str) {
                Some(reason) if !STARTING_REASONS.contains(&reason) => phrases.say(Tone::Bad, text),
                _ if at(status, "state/terminated").is_some() && old_restarts == new_restarts => {
                    let is_failed = number(status, "state/terminated/exitCode") != 0;
                    phrases.say(if is_failed { Tone::Bad } else { Tone::Neutral }, text);
                }
                _ => phrases.say_minor(text),
            }
        }
    }
    let ready = |statuses: &[Value]| statuses.iter().filter(|status| status["ready"] == true).count();
    if ready(old) != ready(new) && field == "containerStatuses" {
        phrases.say_minor(format!("ready containers {}→{} of {}", ready(old), ready(new), new.len()));
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
fn describe_conditions(phrases: &mut Phrases<'_>) {
    let (old, new) = (list(phrases.old, "status/conditions"), list(phrases.new, "status/conditions"));
    for kind in IMPLIED_CONDITIONS {
        let Some(condition) = find_condition(new, kind) else { continue };
        let before = find_condition(old, kind);
        let is_unschedulable = kind == "PodScheduled" && text(condition, "status") == "False";
        if before == Some(condition) || is_unschedulable {
            continue;
        }
        phrases.mark_element_described("status/conditions", "type", kind);
        if before.map(|before| text(before, "status")) != Some(text(condition, "status")) {
            phrases.say_minor(format!("{kind} {}", text(condition, "status")));
        }
    }
    // The first condition of a new pod is always `Ready False`, so it is printed only if nothing else changed.
    let is_first = find_condition(old, "Ready").is_none();
    if let Some(ready) = find_condition(new, "Ready").filter(|_| is_first)
        && text(ready, "status") == "False"
    {
        phrases.mark_element_described("status/conditions", "type", "Ready");
        phrases.say_minor("Ready False");
    }
}
