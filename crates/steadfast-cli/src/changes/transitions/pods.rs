//! Pods.

use serde_json::{Value, json};

use super::assert_rows;

fn container(state: &Value, restarts: u32, ready: bool) -> Value {
    json!({"name": "app", "state": state, "restartCount": restarts, "ready": ready})
}

fn statuses(container: &Value) -> Value {
    json!({"status": {"containerStatuses": [container]}})
}

fn ready(status: &str, reason: &str) -> Value {
    let reason = if reason.is_empty() { Value::Null } else { json!(reason) };
    let condition = |kind: &str| json!({"type": kind, "status": status, "reason": reason});
    json!({"status": {"conditions": [condition("Ready"), condition("ContainersReady")]}})
}

#[test]
fn pod_phase_transitions() {
    assert_rows(
        "Pod",
        &[
            (
                json!({"spec": {"nodeName": "node-3"}, "status": {"phase": "Pending"}}),
                json!({"status": {"phase": "Running", "podIP": "10.0.0.7", "podIPs": [{"ip": "10.0.0.7"}], "hostIP": "192.0.2.1"}}),
                "phase Pending→Running on node-3",
            ),
            (json!({"status": {"phase": "Pending"}}), json!({"spec": {"nodeName": "node-1"}}), "scheduled on node-1"),
            (
                json!({"status": {"phase": "Running"}}),
                json!({"status": {"phase": "Succeeded"}}),
                "phase Running→Succeeded",
            ),
            (
                json!({"spec": {"nodeName": "node-1"}, "status": {"phase": "Running"}}),
                json!({"status": {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}}),
                "phase Running→Failed on node-1, Evicted (low on memory)",
            ),
            (json!({"status": {"phase": "Running"}}), json!({"status": {"podIP": "10.0.0.7"}}), "address 10.0.0.7"),
            (
                json!({"metadata": {"name": "web-0"}}),
                json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30}}),
                "deletion requested (grace period 30 s)",
            ),
            (
                json!({"metadata": {"labels": {"app": "web"}}}),
                json!({"metadata": {"labels": {"app": null, "tier": "front"}}}),
                "label −app, label +tier=front",
            ),
            (
                json!({"spec": {"containers": [{"name": "app"}]}}),
                json!({"spec": {"ephemeralContainers": [{"name": "debugger", "image": "busybox"}]}}),
                "ephemeral container +debugger",
            ),
            (
                json!({"status": {"startTime": "2026-01-01T00:00:00Z"}}),
                json!({"metadata": {"resourceVersion": "7"}}),
                "",
            ),
        ],
    );
}

#[test]
fn pod_container_transitions() {
    let running = json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}});
    let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
    let terminated = |reason: &str, code: u32| json!({"terminated": {"reason": reason, "exitCode": code}});
    let restarted = |last: Value| {
        let mut status = container(&running, 3, true);
        status["lastState"] = last;
        statuses(&status)
    };
    let before = statuses(&container(&running, 2, true));
    let two = |restarts: u32| {
        let other = json!({"name": "proxy", "state": {"running": {}}, "restartCount": restarts, "ready": true});
        json!({"status": {"containerStatuses": [container(&json!({"running": {}}), 0, true), other]}})
    };
    assert_rows(
        "Pod",
        &[
            (before.clone(), restarted(terminated("OOMKilled", 137)), "restarts 2→3 (OOMKilled)"),
            (before.clone(), restarted(terminated("Error", 1)), "restarts 2→3 (exit code 1)"),
            (two(0), two(1), "restarts proxy 0→1"),
            (two(3), two(0), "restarts proxy 3→0"),
            (before.clone(), json!({"status": {"reason": "Evicted"}}), "Evicted"),
            (
                before.clone(),
                json!({"status": {"containerStatuses": null}}),
                "container app without status, ready containers 1→0 of 0",
            ),
            (json!({"status": {"reason": "NodeLost"}}), json!({"status": {"reason": null}}), "no longer NodeLost"),
            (json!({"status": {}}), json!({"status": {"message": "slow"}}), "message (slow)"),
            (
                before.clone(),
                statuses(&container(&waiting("CrashLoopBackOff"), 2, false)),
                "container app CrashLoopBackOff",
            ),
            (
                statuses(&container(&waiting("ContainerCreating"), 0, false)),
                statuses(&container(&waiting("ImagePullBackOff"), 0, false)),
                "container app ImagePullBackOff",
            ),
            (
                statuses(&container(&waiting("ContainerCreating"), 0, false)),
                statuses(&container(&running, 0, true)),
                "container app running, ready containers 0→1 of 1",
            ),
            (
                before.clone(),
                statuses(&container(&terminated("Completed", 0), 2, false)),
                "container app terminated: Completed",
            ),
            (
                json!({"status": {"initContainerStatuses": [container(&running, 0, false)]}}),
                json!({"status": {"initContainerStatuses": [container(&terminated("Error", 2), 0, false)]}}),
                "container app terminated: exit code 2",
            ),
        ],
    );
}

#[test]
fn pod_condition_transitions() {
    let scheduled = |status: &str, reason: &str| json!({"status": {"conditions": [{"type": "PodScheduled", "status": status, "reason": reason}]}});
    assert_rows(
        "Pod",
        &[
            (ready("False", "ContainersNotReady"), ready("True", ""), "Ready False→True"),
            (ready("True", ""), ready("False", "ContainersNotReady"), "Ready True→False (ContainersNotReady)"),
            (json!({"status": {}}), scheduled("False", "Unschedulable"), "PodScheduled False (Unschedulable)"),
            (json!({"status": {}}), ready("False", "ContainersNotReady"), "ContainersReady False, Ready False"),
            (
                json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastProbeTime": "2026-01-01T00:00:00Z"}]}}),
                json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastProbeTime": "2026-01-01T00:00:09Z"}]}}),
                "",
            ),
        ],
    );
}
