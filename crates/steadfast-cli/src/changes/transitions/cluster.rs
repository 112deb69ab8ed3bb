//! Nodes, namespaces, volumes, leases, events, quotas, access, definitions.

use serde_json::{Value, json};

use super::assert_rows;

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({"status": {"conditions": [{"type": kind, "status": status, "reason": reason}]}})
}

#[test]
fn node_transitions() {
    let taints = |taints: Value| json!({"spec": {"taints": taints}});
    let cordon = json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"});
    assert_rows(
        "Node",
        &[
            (json!({"spec": {}}), json!({"spec": {"unschedulable": true, "taints": [cordon]}}), "cordoned"),
            (json!({"spec": {"unschedulable": true}}), json!({"spec": {"unschedulable": null}}), "uncordoned"),
            (
                taints(json!([])),
                taints(json!([{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}])),
                "draining (Karpenter)",
            ),
            (
                taints(json!([])),
                taints(json!([{"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}])),
                "shut down",
            ),
            (
                taints(json!([{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}])),
                taints(json!([])),
                "back in service",
            ),
            (
                taints(json!([])),
                taints(json!([{"key": "gpu", "value": "a100", "effect": "NoExecute"}])),
                "taint +gpu=a100:NoExecute",
            ),
            (
                condition("Ready", "True", "KubeletReady"),
                condition("Ready", "Unknown", "NodeStatusUnknown"),
                "Ready True→Unknown (NodeStatusUnknown)",
            ),
            (
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("MemoryPressure", "True", "KubeletHasInsufficientMemory"),
                "MemoryPressure False→True (KubeletHasInsufficientMemory)",
            ),
            (
                json!({"status": {"nodeInfo": {"kubeletVersion": "v1.36.1"}}}),
                json!({"status": {"nodeInfo": {"kubeletVersion": "v1.37.0"}}}),
                "kubelet v1.36.1→v1.37.0",
            ),
            (
                json!({"status": {"capacity": {"cpu": "4"}}}),
                json!({"status": {"capacity": {"cpu": "8"}}}),
                "capacity cpu 4→8",
            ),
            (
                json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]}}),
                json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:05:00Z"}]}}),
                "",
            ),
            (
                json!({"status": {"volumesAttached": []}}),
                json!({"status": {"volumesAttached": [{"name": "kubernetes.io/csi/driver^pv-1"}]}}),
                "volume +pv-1",
            ),
        ],
    );
}

#[test]
fn storage_and_namespace_transitions() {
    assert_rows(
        "Namespace",
        &[
            (
                json!({"status": {"phase": "Active"}}),
                json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Terminating"}}),
                "deletion requested, phase Active→Terminating",
            ),
            (
                json!({"metadata": {"finalizers": ["a", "b"]}}),
                json!({"metadata": {"finalizers": ["a"]}}),
                "finalizer −b",
            ),
        ],
    );
    assert_rows(
        "PersistentVolumeClaim",
        &[
            (
                json!({"status": {"phase": "Pending"}}),
                json!({"spec": {"volumeName": "pv-1"}, "status": {"phase": "Bound"}}),
                "phase Pending→Bound to pv-1",
            ),
            (
                json!({"spec": {"resources": {"requests": {"storage": "1Gi"}}}}),
                json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}}),
                "request 1Gi→2Gi",
            ),
            (
                json!({"status": {"capacity": {"storage": "1Gi"}}}),
                json!({"status": {"capacity": {"storage": "2Gi"}}}),
                "capacity 1Gi→2Gi",
            ),
        ],
    );
    assert_rows(
        "PersistentVolume",
        &[
            (
                json!({"status": {"phase": "Available"}}),
                json!({"spec": {"claimRef": {"namespace": "shop", "name": "data"}}, "status": {"phase": "Bound"}}),
                "phase Available→Bound to shop/data",
            ),
            (json!({"status": {"phase": "Bound"}}), json!({"status": {"phase": "Released"}}), "phase Bound→Released"),
        ],
    );
    assert_rows(
        "storage.k8s.io/VolumeAttachment",
        &[(
            json!({"spec": {"nodeName": "node-1"}, "status": {"attached": false}}),
            json!({"status": {"attached": true}}),
            "attached to node-1",
        )],
    );
}

#[test]
fn coordination_and_access_transitions() {
    assert_rows(
        "coordination.k8s.io/Lease",
        &[
            (
                json!({"spec": {"holderIdentity": "a", "leaseTransitions": 1, "acquireTime": "1"}}),
                json!({"spec": {"holderIdentity": "b", "leaseTransitions": 2, "acquireTime": "2"}}),
                "holder a→b",
            ),
            (json!({"spec": {"renewTime": "1"}}), json!({"spec": {"renewTime": "2"}}), ""),
        ],
    );
    assert_rows(
        "Event",
        &[(
            json!({"type": "Warning", "reason": "BackOff", "message": "restarting", "count": 3, "lastTimestamp": "1"}),
            json!({"count": 4, "lastTimestamp": "2"}),
            "BackOff 3→4 times: restarting",
        )],
    );
    assert_rows(
        "ResourceQuota",
        &[(
            json!({"status": {"hard": {"pods": "10"}, "used": {"pods": "3"}}}),
            json!({"status": {"used": {"pods": "4"}}}),
            "used pods 3→4 of 10",
        )],
    );
    assert_rows(
        "rbac.authorization.k8s.io/RoleBinding",
        &[(
            json!({"subjects": [{"kind": "User", "name": "ann"}]}),
            json!({"subjects": [{"kind": "User", "name": "ann"}, {"kind": "ServiceAccount", "namespace": "ci", "name": "bot"}]}),
            "subject +ServiceAccount ci/bot",
        )],
    );
    assert_rows(
        "apiextensions.k8s.io/CustomResourceDefinition",
        &[
            (
                condition("Established", "False", "Installing"),
                condition("Established", "True", "InitialNamesAccepted"),
                "Established False→True (InitialNamesAccepted)",
            ),
            (
                json!({"spec": {"versions": [{"name": "v1", "served": true}]}}),
                json!({"spec": {"versions": [{"name": "v1", "served": true}, {"name": "v2", "served": true}]}}),
                "served version +v2",
            ),
        ],
    );
    assert_rows(
        "certificates.k8s.io/CertificateSigningRequest",
        &[(
            json!({"status": {}}),
            json!({"status": {"conditions": [{"type": "Approved", "reason": "AutoApproved"}]}}),
            "Approved True (AutoApproved)",
        )],
    );
    assert_rows(
        "apiregistration.k8s.io/APIService",
        &[(
            condition("Available", "True", "Passed"),
            condition("Available", "False", "MissingEndpoints"),
            "Available True→False (MissingEndpoints)",
        )],
    );
}
