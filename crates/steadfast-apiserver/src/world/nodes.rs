//! Simulated nodes, and the choice of a node for a pod.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::kind::Kind;
use super::view::{View, text};
use crate::cluster::Cluster;
use crate::conditions;
use crate::direct;
use crate::metadata;

/// Creates the nodes `node-1`, `node-2` and so on, except for nodes of a snapshot.
pub(super) fn create(cluster: &Cluster, nodes: u16) {
    for number in 1..=nodes {
        match direct::create(cluster, &node(cluster, number)) {
            // A node of a snapshot keeps its state, such as its labels.
            Err(status) if status.code == 409 => {}
            // The creation fails only after a change of the server's validation of nodes.
            Err(status) => tracing::warn!(%status, "the simulated node {number} was not created"),
            Ok(_) => {}
        }
    }
}

fn node(cluster: &Cluster, number: u16) -> Value {
    let name = format!("node-{number}");
    let now = cluster.clock.timestamp();
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": "simulated",
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        })
    };
    let resources = json!({"cpu": "8", "memory": "32Gi", "pods": "110"});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
        }},
        "spec": {},
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": format!("10.0.{}.{}", number / 250, number % 250 + 1)},
                {"type": "Hostname", "address": name},
            ],
            "allocatable": resources, "capacity": resources,
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("Ready", "True", "KubeletReady"),
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "simulated://1",
                "kernelVersion": "simulated", "kubeProxyVersion": "", "kubeletVersion": "v1.37.0",
                "machineID": "", "operatingSystem": "linux", "osImage": "simulated", "systemUUID": "",
            },
        },
    })
}

/// Returns whether a node accepts pods.
pub(super) fn is_schedulable(node: &Value) -> bool {
    // A node that a client created has no conditions, and counts as ready.
    let is_ready = conditions::find_condition(node, "Ready").is_none_or(|condition| condition["status"] == "True");
    is_ready && node.pointer("/spec/unschedulable") != Some(&Value::Bool(true)) && !metadata::is_terminating(node)
}

/// Returns whether the labels of a node satisfy the `nodeSelector` of a pod's specification.
pub(super) fn is_selected(node: &Value, spec: &Value) -> bool {
    let wanted = spec.get("nodeSelector").and_then(Value::as_object);
    wanted.into_iter().flatten().all(|(label, value)| node["metadata"]["labels"].get(label) == Some(value))
}

/// Returns the suitable node with the fewest pods.
pub(super) fn choose<'a>(view: &'a View, pod: &Value) -> Option<&'a str> {
    let suitable = view.all(Kind::Node).filter(|(_, node)| is_schedulable(node) && is_selected(node, &pod["spec"]));
    let mut pods_of = HashMap::new();
    for (_, other) in view.all(Kind::Pod) {
        *pods_of.entry(text(other, "/spec/nodeName")).or_insert(0_usize) += 1;
    }
    suitable.map(|(key, _)| key.name.as_str()).min_by_key(|name| pods_of.get(name).copied().unwrap_or_default())
}
