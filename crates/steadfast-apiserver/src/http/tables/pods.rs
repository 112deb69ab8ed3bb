//! Cells of pods.

use serde_json::Value;

use super::row::{Row, or_none, text_of};

/// Summary of the statuses of a pod's containers.
#[derive(Default)]
struct PodSummary {
    reason: String,
    ready_containers: usize,
    restarts: i64,
    /// Time at which a container last ended before a restart.
    last_end: String,
}

pub(super) fn ready(row: &Row) -> Value {
    format!("{}/{}", summary(row).ready_containers, row.count("/spec/containers") + sidecars(row).len()).into()
}

pub(super) fn status(row: &Row) -> Value {
    summary(row).reason.into()
}

pub(super) fn restarts(row: &Row) -> Value {
    let summary = summary(row);
    if summary.restarts > 0 && !summary.last_end.is_empty() {
        return format!("{} ({} ago)", summary.restarts, row.since(&summary.last_end)).into();
    }
    summary.restarts.to_string().into()
}

pub(super) fn address(row: &Row) -> Value {
    or_none(row.items("/status/podIPs").first().map(|address| text_of(address, "ip").to_owned()).unwrap_or_default())
        .into()
}

pub(super) fn readiness_gates(row: &Row) -> Value {
    let gates = row.items("/spec/readinessGates");
    if gates.is_empty() {
        return "<none>".into();
    }
    let met_gates = gates.iter().filter(|gate| row.condition(text_of(gate, "conditionType")) == "True").count();
    format!("{met_gates}/{}", gates.len()).into()
}

/// Returns the names of the sidecars: init containers that keep running.
fn sidecars<'a>(row: &Row<'a>) -> Vec<&'a str> {
    // Init containers with this policy are sidecars.
    let is_restarted = |container: &&Value| text_of(container, "restartPolicy") == "Always";
    row.items("/spec/initContainers").iter().filter(is_restarted).map(|container| text_of(container, "name")).collect()
}

fn summary(row: &Row) -> PodSummary {
    let phase = row.text("/status/phase");
    let reason = row.text("/status/reason");
    let mut summary =
        PodSummary { reason: if reason.is_empty() { phase } else { reason }.to_owned(), ..PodSummary::default() };
    let is_gated = row.items("/status/conditions").iter().any(|condition| {
        text_of(condition, "type") == "PodScheduled" && text_of(condition, "reason") == "SchedulingGated"
    });
    // A scheduling gate takes precedence over phase and reason.
    if is_gated {
        "SchedulingGated".clone_into(&mut summary.reason);
    }
    let is_initializing = add_init_containers(row, &mut summary);
    if !is_initializing || row.condition("Initialized") == "True" {
        // Restarts of completed init containers no longer count.
        (summary.restarts, summary.last_end) = (0, String::new());
        let names = sidecars(row);
        for status in row.items("/status/initContainerStatuses") {
            if names.contains(&text_of(status, "name")) {
                summary.count_restarts(status);
            }
        }
        add_main_containers(row, &mut summary);
    }
    if row.is_terminating() {
        // The node is unreachable, so it is unknown whether the pod has ended.
        if reason == "NodeLost" {
            "Unknown".clone_into(&mut summary.reason);
        } else if !matches!(phase, "Succeeded" | "Failed") {
            "Terminating".clone_into(&mut summary.reason);
        }
    }
    summary
}

/// Adds the init containers to the summary. Returns whether the pod is still initialising.
fn add_init_containers(row: &Row, summary: &mut PodSummary) -> bool {
    let (count, sidecars) = (row.count("/spec/initContainers"), sidecars(row));
    for (index, status) in row.items("/status/initContainerStatuses").iter().enumerate() {
        summary.count_restarts(status);
        let ended = status.pointer("/state/terminated");
        // After an init container has ended successfully, the next one starts.
        if ended.is_some_and(|ended| ended.get("exitCode").and_then(Value::as_i64).unwrap_or(0) == 0) {
            continue;
        }
        if sidecars.contains(&text_of(status, "name")) && status.get("started").and_then(Value::as_bool) == Some(true) {
            summary.ready_containers += usize::from(is_ready(status));
            continue;
        }
        let waiting = status.pointer("/state/waiting").map(|waiting| text_of(waiting, "reason")).unwrap_or_default();
        summary.reason = match ended {
            Some(ended) => format!("Init:{}", end_reason(ended)),
            None if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
            None => format!("Init:{index}/{count}"),
        };
        return true;
    }
    false
}

/// Adds the main containers to the summary. The reason of the first container takes precedence.
fn add_main_containers(row: &Row, summary: &mut PodSummary) {
    let mut is_running = false;
    for status in row.items("/status/containerStatuses").iter().rev() {
        summary.count_restarts(status);
        let waiting = status.pointer("/state/waiting").map(|waiting| text_of(waiting, "reason")).unwrap_or_default();
        if !waiting.is_empty() {
            waiting.clone_into(&mut summary.reason);
        } else if let Some(ended) = status.pointer("/state/terminated") {
            summary.reason = end_reason(ended);
        } else if is_ready(status) && status.pointer("/state/running").is_some() {
            is_running = true;
            summary.ready_containers += 1;
        }
    }
    // Another container still runs, although the first one has completed.
    if summary.reason == "Completed" && is_running {
        let reason = if row.condition("Ready") == "True" { "Running" } else { "NotReady" };
        reason.clone_into(&mut summary.reason);
    }
}

impl PodSummary {
    fn count_restarts(&mut self, status: &Value) {
        self.restarts += status.get("restartCount").and_then(Value::as_i64).unwrap_or(0);
        let end = status.pointer("/lastState/terminated").map(|ended| text_of(ended, "finishedAt")).unwrap_or_default();
        // The timestamps have one format, so their order equals the order of the texts.
        if end > self.last_end.as_str() {
            end.clone_into(&mut self.last_end);
        }
    }
}

fn is_ready(status: &Value) -> bool {
    status.get("ready").and_then(Value::as_bool) == Some(true)
}

/// Returns the reason for a container's end.
fn end_reason(ended: &Value) -> String {
    let number = |key| ended.get(key).and_then(Value::as_i64).unwrap_or(0);
    match (text_of(ended, "reason"), number("signal")) {
        ("", 0) => format!("ExitCode:{}", number("exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}
