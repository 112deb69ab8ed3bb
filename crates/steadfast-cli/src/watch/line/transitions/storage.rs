//! Volumes, their claims and attachments.

use serde_json::json;

use super::{Row, Table, condition};

pub(super) fn tables() -> Vec<Table> {
    vec![claims(), volumes(), attachments()]
}

fn claims() -> Table {
    let pending = json!({"spec": {"resources": {"requests": {"storage": "1Gi"}}}, "status": {"phase": "Pending"}});
    let bound = json!({
        "spec": {"volumeName": "pv-1", "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}},
    });
    let rows: Vec<Row> = vec![
        (
            "kube-scheduler",
            pending.clone(),
            json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "node-3"}}}),
            "~ persistentvolumeclaims shop/data annotation +volume.kubernetes.io/selected-node=node-3 by kube-scheduler",
        ),
        (
            "kube-controller-manager",
            pending,
            json!({
                "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes",
                    "pv.kubernetes.io/bound-by-controller": "yes"}},
                "spec": {"volumeName": "pv-1"},
            }),
            "~ persistentvolumeclaims shop/data volume pv-1 by kube-controller-manager",
        ),
        (
            "kube-controller-manager",
            json!({"spec": {"volumeName": "pv-1"}, "status": {"phase": "Pending"}}),
            json!({"status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}}),
            "~ persistentvolumeclaims shop/data phase Pending→Bound to pv-1, capacity none→1Gi \
             by kube-controller-manager",
        ),
        (
            "kubectl",
            bound.clone(),
            json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}}),
            "~ persistentvolumeclaims shop/data request 1Gi→2Gi by kubectl",
        ),
        (
            "csi-resizer",
            bound.clone(),
            json!({"status": {"conditions": [condition("FileSystemResizePending", "True", "", 5)]}}),
            "~ persistentvolumeclaims shop/data FileSystemResizePending True by csi-resizer",
        ),
        (
            "kube-controller-manager",
            bound,
            json!({"status": {"phase": "Lost"}}),
            "~ persistentvolumeclaims shop/data phase Bound→Lost by kube-controller-manager",
        ),
    ];
    Table::new("PersistentVolumeClaim", "persistentvolumeclaims shop/data", rows)
}

fn volumes() -> Table {
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "shop", "name": "data",
        "uid": "u-7", "resourceVersion": "9"});
    let rows: Vec<Row> = vec![
        (
            "kube-controller-manager",
            json!({"status": {"phase": "Available"}}),
            json!({"spec": {"claimRef": claim}, "metadata": {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}}}),
            "~ persistentvolumes pv-1 claimed by shop/data by kube-controller-manager",
        ),
        (
            "kube-controller-manager",
            json!({"spec": {"claimRef": claim}, "status": {"phase": "Available"}}),
            json!({"status": {"phase": "Bound", "lastPhaseTransitionTime": "2026-01-01T00:00:05Z"}}),
            "~ persistentvolumes pv-1 phase Available→Bound to shop/data by kube-controller-manager",
        ),
        (
            "kube-controller-manager",
            json!({"spec": {"claimRef": claim}, "status": {"phase": "Bound"}}),
            json!({"status": {"phase": "Released"}}),
            "~ persistentvolumes pv-1 phase Bound→Released by kube-controller-manager",
        ),
        (
            "kubectl",
            json!({"spec": {"claimRef": claim}, "status": {"phase": "Released"}}),
            json!({"spec": {"claimRef": null}}),
            "~ persistentvolumes pv-1 claim released by kubectl",
        ),
    ];
    Table::new("PersistentVolume", "persistentvolumes pv-1", rows)
}

fn attachments() -> Table {
    let rows: Vec<Row> = vec![(
        "csi-attacher",
        json!({"spec": {"nodeName": "node-1"}, "status": {"attached": false}}),
        json!({"status": {"attached": true, "attachmentMetadata": {"devicePath": "/dev/sdb"}}}),
        "~ volumeattachments.storage.k8s.io csi-1 attached to node-1 by csi-attacher",
    )];
    Table::new("storage.k8s.io/VolumeAttachment", "volumeattachments.storage.k8s.io csi-1", rows)
}
