//! Nodes, namespaces, leases, events and access.

use serde_json::{Value, json};

use super::{Row, Table, condition};

pub(super) fn tables() -> Vec<Table> {
    vec![nodes(), namespaces(), leases(), events(), bindings(), quotas()]
}

/// Returns the conditions of a node: of the pressures, and of `Ready` with this reason.
fn conditions(pressure: &str, ready: &str, reason: &str, seconds: u32) -> Value {
    let of_pressure =
        |kind: &str| condition(kind, pressure, if pressure == "Unknown" { reason } else { kind }, seconds);
    let mut conditions: Vec<Value> = ["MemoryPressure", "DiskPressure", "PIDPressure"].map(of_pressure).to_vec();
    conditions.push(condition("Ready", ready, reason, seconds));
    for condition in &mut conditions {
        condition["lastHeartbeatTime"] = json!(format!("2026-01-01T00:00:{seconds:02}Z"));
    }
    json!(conditions)
}

fn taint(key: &str, effect: &str) -> Value {
    json!({"key": key, "effect": effect, "timeAdded": "2026-01-01T00:00:05Z"})
}

fn nodes() -> Table {
    let ready = || json!({"spec": {}, "status": {"conditions": conditions("False", "True", "KubeletReady", 1)}});
    let unknown = conditions("Unknown", "Unknown", "NodeStatusUnknown", 40);
    let cordon = taint("node.kubernetes.io/unschedulable", "NoSchedule");
    let info = |kubelet: &str, boot: &str| json!({"status": {"nodeInfo": {"kubeletVersion": kubelet, "bootID": boot}}});
    let sizes = |cpu: &str, allocatable: &str| json!({"status": {"capacity": {"cpu": cpu, "pods": "110"}, "allocatable": {"cpu": allocatable, "pods": "110"}}});
    let taints = |taints: Value| json!({"spec": {"taints": taints}});
    let rows = [
        (
            "kube-controller-manager",
            ready(),
            json!({"status": {"conditions": unknown}}),
            "~ nodes node-3 Ready True→Unknown (NodeStatusUnknown), MemoryPressure False→Unknown (NodeStatusUnknown), \
             DiskPressure False→Unknown (NodeStatusUnknown), PIDPressure False→Unknown (NodeStatusUnknown) \
             by kube-controller-manager",
        ),
        (
            "kubelet",
            ready(),
            json!({"status": {"conditions": conditions("False", "False", "KubeletNotReady", 9)}}),
            "~ nodes node-3 Ready True→False (KubeletNotReady) by kubelet",
        ),
        (
            "kubelet",
            json!({"status": {"conditions": [condition("MemoryPressure", "False", "KubeletHasSufficientMemory", 1)]}}),
            json!({"status": {"conditions": [condition("MemoryPressure", "True", "KubeletHasInsufficientMemory", 9)]}}),
            "~ nodes node-3 MemoryPressure False→True (KubeletHasInsufficientMemory) by kubelet",
        ),
        ("kubelet", ready(), json!({"status": {"conditions": conditions("False", "True", "KubeletReady", 9)}}), ""),
        (
            "kubectl-cordon",
            ready(),
            json!({"spec": {"unschedulable": true}}),
            "~ nodes node-3 cordoned by kubectl-cordon",
        ),
        (
            "kube-controller-manager",
            json!({"spec": {"unschedulable": true}}),
            json!({"spec": {"taints": [cordon]}}),
            "~ nodes node-3 taint of the cordon changed by kube-controller-manager",
        ),
        (
            "kubectl-uncordon",
            json!({"spec": {"unschedulable": true, "taints": [cordon]}}),
            json!({"spec": {"unschedulable": null, "taints": null}}),
            "~ nodes node-3 uncordoned by kubectl-uncordon",
        ),
        (
            "karpenter",
            taints(json!([])),
            taints(json!([taint("karpenter.sh/disrupted", "NoSchedule")])),
            "~ nodes node-3 draining (Karpenter) by karpenter",
        ),
        (
            "kube-controller-manager",
            taints(json!([])),
            taints(json!([
                taint("node.kubernetes.io/unreachable", "NoSchedule"),
                taint("node.kubernetes.io/unreachable", "NoExecute")
            ])),
            "~ nodes node-3 taint +node.kubernetes.io/unreachable:NoExecute \
             +node.kubernetes.io/unreachable:NoSchedule by kube-controller-manager",
        ),
        (
            "kubelet",
            sizes("4", "3920m"),
            sizes("8", "7910m"),
            "~ nodes node-3 capacity cpu 4→8, allocatable cpu 3920m→7910m by kubelet",
        ),
        (
            "kubelet",
            info("v1.36.1", "b-1"),
            info("v1.37.0", "b-2"),
            "~ nodes node-3 rebooted, kubelet v1.36.1→v1.37.0 by kubelet",
        ),
        (
            "kube-controller-manager",
            json!({"status": {"volumesAttached": []}}),
            json!({"status": {"volumesAttached": [{"name": "kubernetes.io/csi/driver^pv-1", "devicePath": ""}]}}),
            "~ nodes node-3 volume +pv-1 by kube-controller-manager",
        ),
    ];
    Table::new("Node", "nodes node-3", rows.to_vec())
}

fn namespaces() -> Table {
    let deleted =
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:05Z"}, "status": {"phase": "Terminating"}});
    let rows: Vec<Row> = vec![
        (
            "",
            json!({"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}),
            deleted.clone(),
            "~ namespaces shop deletion requested, phase Active→Terminating",
        ),
        (
            "kube-controller-manager",
            deleted,
            json!({"status": {"conditions": [
                condition("NamespaceDeletionDiscoveryFailure", "False", "ResourcesDiscovered", 6),
                condition("NamespaceDeletionContentFailure", "False", "ContentDeleted", 6),
                condition("NamespaceContentRemaining", "True", "SomeResourcesRemain", 6)]}}),
            "~ namespaces shop NamespaceContentRemaining True (SomeResourcesRemain) by kube-controller-manager",
        ),
        (
            "kubectl-annotate",
            json!({}),
            json!({"metadata": {"annotations": {"team": "cart"}}}),
            "~ namespaces shop annotation +team=cart by kubectl-annotate",
        ),
    ];
    Table::new("Namespace", "namespaces shop", rows)
}

fn leases() -> Table {
    let lease = |holder: &str, transitions: u32, time: u32| {
        let time = format!("2026-01-01T00:00:{time:02}.000000Z");
        json!({"spec": {"holderIdentity": holder, "leaseTransitions": transitions, "renewTime": time,
            "acquireTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 15}})
    };
    let rows: Vec<Row> = vec![
        ("scheduler", lease("a", 1, 1), lease("a", 1, 3), ""),
        (
            "scheduler",
            lease("a", 1, 1),
            lease("b", 2, 20),
            "~ leases.coordination.k8s.io kube-system/scheduler holder a→b by scheduler",
        ),
        (
            "scheduler",
            lease("a", 1, 1),
            lease("", 1, 2),
            "~ leases.coordination.k8s.io kube-system/scheduler holder a→none by scheduler",
        ),
    ];
    Table::new("coordination.k8s.io/Lease", "leases.coordination.k8s.io kube-system/scheduler", rows)
}

fn events() -> Table {
    let rows: Vec<Row> = vec![(
        "kubelet",
        json!({"type": "Warning", "reason": "BackOff", "message": "restarting failed container", "count": 3,
            "lastTimestamp": "2026-01-01T00:00:01Z"}),
        json!({"count": 4, "lastTimestamp": "2026-01-01T00:00:05Z"}),
        "~ events shop/web-0.18a BackOff 3→4 times: restarting failed container by kubelet",
    )];
    Table::new("Event", "events shop/web-0.18a", rows)
}

fn bindings() -> Table {
    let rows: Vec<Row> = vec![(
        "kubectl",
        json!({"subjects": [{"kind": "User", "name": "ann"}]}),
        json!({"subjects": [{"kind": "User", "name": "ann"}, {"kind": "ServiceAccount", "namespace": "ci", "name": "bot"}]}),
        "~ rolebindings.rbac.authorization.k8s.io shop/edit subject +ServiceAccount ci/bot by kubectl",
    )];
    Table::new("rbac.authorization.k8s.io/RoleBinding", "rolebindings.rbac.authorization.k8s.io shop/edit", rows)
}

fn quotas() -> Table {
    let rows: Vec<Row> = vec![(
        "kube-controller-manager",
        json!({"status": {"hard": {"pods": "10"}, "used": {"pods": "3"}}}),
        json!({"status": {"used": {"pods": "4"}}}),
        "~ resourcequotas shop/all used pods 3→4 of 10 by kube-controller-manager",
    )];
    Table::new("ResourceQuota", "resourcequotas shop/all", rows)
}
