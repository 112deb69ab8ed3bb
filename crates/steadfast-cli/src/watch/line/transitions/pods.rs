//! Pods, from their creation to their deletion.

use serde_json::{Value, json};

use super::{Row, Table, condition};

pub(super) fn tables() -> Vec<Table> {
    let rows = [start(), containers(), end(), specification()].into_iter().flatten().collect();
    vec![Table::new("Pod", "pods shop/web-0", rows)]
}

/// Returns the five conditions that the kubelet writes, with the status of `Ready`.
fn conditions(ready: &str, reason: &str, seconds: u32) -> Vec<Value> {
    vec![
        condition("PodReadyToStartContainers", "True", "", 2),
        condition("Initialized", "True", "", 1),
        condition("Ready", ready, reason, seconds),
        condition("ContainersReady", ready, reason, seconds),
        condition("PodScheduled", "True", "", 1),
    ]
}

fn container(name: &str, state: &Value, restarts: u32, is_ready: bool) -> Value {
    json!({
        "name": name, "image": "shop/app:1.4", "imageID": "shop/app@sha256:aa", "containerID": format!("c://{restarts}"),
        "state": state, "lastState": {}, "restartCount": restarts, "ready": is_ready, "started": is_ready,
    })
}

fn restarted(state: &Value, restarts: u32, is_ready: bool, last: &Value) -> Value {
    let mut status = container("app", state, restarts, is_ready);
    status["lastState"] = last.clone();
    status
}

fn running() -> Value {
    json!({"running": {"startedAt": "2026-01-01T00:00:03Z"}})
}

fn waiting(reason: &str) -> Value {
    json!({"waiting": {"reason": reason, "message": format!("message of {reason}")}})
}

fn terminated(reason: &str, code: u32) -> Value {
    json!({"terminated": {"reason": reason, "exitCode": code, "startedAt": "2026-01-01T00:00:03Z",
        "finishedAt": "2026-01-01T00:00:09Z"}})
}

/// Returns the pod on its node, with this status of its only container.
fn pod(phase: &str, status: &Value, ready: &str) -> Value {
    let reason = if ready == "True" { "" } else { "ContainersNotReady" };
    json!({
        "spec": {"nodeName": "node-3", "containers": [{"name": "app", "image": "shop/app:1.4"}]},
        "status": {"phase": phase, "qosClass": "Burstable", "hostIP": "192.0.2.3", "podIP": "10.0.0.7",
            "podIPs": [{"ip": "10.0.0.7"}], "startTime": "2026-01-01T00:00:01Z",
            "conditions": conditions(ready, reason, 2), "containerStatuses": [status]},
    })
}

fn ready_pod() -> Value {
    pod("Running", &container("app", &running(), 0, true), "True")
}

fn start() -> Vec<Row> {
    let new =
        json!({"spec": {"containers": [{"name": "app"}]}, "status": {"phase": "Pending", "qosClass": "Burstable"}});
    let scheduled = json!({"spec": {"nodeName": "node-3", "containers": [{"name": "app"}]},
        "status": {"phase": "Pending", "conditions": [condition("PodScheduled", "True", "", 1)]}});
    let creating = pod("Pending", &container("app", &waiting("ContainerCreating"), 0, false), "False");
    vec![
        (
            "kube-scheduler",
            new.clone(),
            json!({"spec": {"nodeName": "node-3"}, "status": {"conditions": [condition("PodScheduled", "True", "", 1)]}}),
            "~ pods shop/web-0 scheduled on node-3 by kube-scheduler",
        ),
        (
            "kube-scheduler",
            new,
            json!({"status": {"conditions": [condition("PodScheduled", "False", "Unschedulable", 1)]}}),
            "~ pods shop/web-0 PodScheduled False (Unschedulable) by kube-scheduler",
        ),
        (
            "kubelet",
            scheduled,
            json!({"status": {"hostIP": "192.0.2.3", "startTime": "2026-01-01T00:00:01Z",
                "conditions": conditions("False", "ContainersNotReady", 1),
                "containerStatuses": [container("app", &waiting("ContainerCreating"), 0, false)]}}),
            "~ pods shop/web-0 container app ContainerCreating by kubelet",
        ),
        (
            "kubelet",
            creating.clone(),
            json!({"status": {"phase": "Running", "conditions": conditions("True", "", 4),
                "containerStatuses": [container("app", &running(), 0, true)]}}),
            "~ pods shop/web-0 phase Pending→Running on node-3, Ready False→True by kubelet",
        ),
        (
            "kubelet",
            creating.clone(),
            json!({"status": {"containerStatuses": [container("app", &waiting("ErrImagePull"), 0, false)]}}),
            "~ pods shop/web-0 container app ErrImagePull by kubelet",
        ),
        (
            "kubelet",
            pod("Pending", &container("app", &waiting("ErrImagePull"), 0, false), "False"),
            json!({"status": {"containerStatuses": [container("app", &waiting("ImagePullBackOff"), 0, false)]}}),
            "~ pods shop/web-0 container app ImagePullBackOff by kubelet",
        ),
        (
            "kubelet",
            json!({"status": {"initContainerStatuses": [container("migrate", &running(), 0, false)],
                "conditions": [condition("Initialized", "False", "ContainersNotInitialized", 1)]}}),
            json!({"status": {"initContainerStatuses": [container("migrate", &terminated("Completed", 0), 0, true)],
                "conditions": [condition("Initialized", "True", "", 5)]}}),
            "~ pods shop/web-0 container migrate terminated: Completed by kubelet",
        ),
    ]
}

fn containers() -> Vec<Row> {
    let crashed = terminated("Error", 1);
    let two = |restarts: u32, last: Value| {
        let mut proxy = container("proxy", &running(), restarts, true);
        proxy["lastState"] = last;
        json!({"status": {"containerStatuses": [container("app", &running(), 0, true), proxy]}})
    };
    vec![
        (
            "kubelet",
            pod("Running", &container("app", &running(), 0, false), "False"),
            json!({"status": {"conditions": conditions("True", "", 8),
                "containerStatuses": [container("app", &running(), 0, true)]}}),
            "~ pods shop/web-0 Ready False→True by kubelet",
        ),
        (
            "kubelet",
            ready_pod(),
            json!({"status": {"conditions": conditions("False", "ContainersNotReady", 8),
                "containerStatuses": [container("app", &running(), 0, false)]}}),
            "~ pods shop/web-0 Ready True→False (ContainersNotReady) by kubelet",
        ),
        (
            "kubelet",
            ready_pod(),
            json!({"status": {"conditions": conditions("False", "ContainersNotReady", 8),
                "containerStatuses": [container("app", &crashed, 0, false)]}}),
            "~ pods shop/web-0 container app terminated: exit code 1, Ready True→False (ContainersNotReady) by kubelet",
        ),
        (
            "kubelet",
            pod("Running", &container("app", &crashed, 0, false), "False"),
            json!({"status": {"conditions": conditions("True", "", 12),
                "containerStatuses": [restarted(&running(), 1, true, &crashed)]}}),
            "~ pods shop/web-0 restarts 0→1 (exit code 1), Ready False→True by kubelet",
        ),
        (
            "kubelet",
            ready_pod(),
            json!({"status": {"containerStatuses": [restarted(&running(), 1, true, &terminated("OOMKilled", 137))]}}),
            "~ pods shop/web-0 restarts 0→1 (OOMKilled) by kubelet",
        ),
        (
            "kubelet",
            pod("Running", &restarted(&crashed, 3, false, &crashed), "False"),
            json!({"status": {"containerStatuses": [restarted(&waiting("CrashLoopBackOff"), 3, false, &crashed)]}}),
            "~ pods shop/web-0 container app CrashLoopBackOff by kubelet",
        ),
        (
            "kubelet",
            two(0, json!({})),
            two(1, terminated("Error", 2)),
            "~ pods shop/web-0 restarts proxy 0→1 (exit code 2) by kubelet",
        ),
    ]
}

/// Returns the conditions with the one that states the reason of an eviction.
fn disrupted(reason: &str, mut conditions: Vec<Value>) -> Vec<Value> {
    conditions.insert(0, condition("DisruptionTarget", "True", reason, 8));
    conditions
}

fn end() -> Vec<Row> {
    let evicted = "The node was low on resource: memory.";
    vec![
        (
            "",
            ready_pod(),
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:40Z", "deletionGracePeriodSeconds": 30,
                "generation": 2}}),
            "~ pods shop/web-0 deletion requested (grace period 30 s)",
        ),
        (
            "",
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:40Z", "deletionGracePeriodSeconds": 30}}),
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:12Z", "deletionGracePeriodSeconds": 0}}),
            "~ pods shop/web-0 deletion time changed",
        ),
        (
            "kube-apiserver",
            ready_pod(),
            json!({"status": {"conditions": disrupted("EvictionByEvictionAPI", conditions("True", "", 2))}}),
            "~ pods shop/web-0 DisruptionTarget True (EvictionByEvictionAPI) by kube-apiserver",
        ),
        (
            "kubelet",
            ready_pod(),
            json!({"status": {"phase": "Failed", "reason": "Evicted", "message": evicted,
                "containerStatuses": [container("app", &terminated("Error", 137), 0, false)],
                "conditions": disrupted("TerminationByKubelet", conditions("False", "PodFailed", 8))}}),
            "~ pods shop/web-0 phase Running→Failed on node-3, container app terminated: exit code 137, \
             Evicted (The node was low on resource: memory.), Ready True→False (PodFailed), \
             DisruptionTarget True (TerminationByKubelet) by kubelet",
        ),
        (
            "kubelet",
            ready_pod(),
            json!({"status": {"phase": "Succeeded", "conditions": conditions("False", "PodCompleted", 8),
                "containerStatuses": [container("app", &terminated("Completed", 0), 0, false)]}}),
            "~ pods shop/web-0 phase Running→Succeeded on node-3, container app terminated: Completed, \
             Ready True→False (PodCompleted) by kubelet",
        ),
        (
            "kube-controller-manager",
            ready_pod(),
            json!({"status": {"conditions": conditions("False", "", 8)}}),
            "~ pods shop/web-0 Ready True→False by kube-controller-manager",
        ),
    ]
}

fn specification() -> Vec<Row> {
    let sized = |cpu: &str| json!({"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": cpu}}}]}});
    vec![
        (
            "kubectl",
            ready_pod(),
            json!({"spec": {"containers": [{"name": "app", "image": "shop/app:1.5"}]}}),
            "~ pods shop/web-0 image app 1.4→1.5 by kubectl",
        ),
        ("kubectl", sized("1"), sized("2"), "~ pods shop/web-0 app request cpu 1→2 by kubectl"),
        (
            "kubectl-debug",
            ready_pod(),
            json!({"spec": {"ephemeralContainers": [{"name": "debugger", "image": "busybox", "stdin": true}]}}),
            "~ pods shop/web-0 ephemeral container +debugger by kubectl-debug",
        ),
        (
            "kube-controller-manager",
            json!({"metadata": {"labels": {"app": "web"}}}),
            json!({"metadata": {"ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d9f", "uid": "u-2", "controller": true}]}}),
            "~ pods shop/web-0 owner +ReplicaSet/web-7d9f by kube-controller-manager",
        ),
        (
            "kubectl-label",
            json!({"metadata": {"labels": {"app": "web", "tier": "front"}}}),
            json!({"metadata": {"labels": {"app": "web-2", "tier": null, "color": "blue"}}}),
            "~ pods shop/web-0 label app web→web-2, label −tier, label +color=blue by kubectl-label",
        ),
    ]
}
