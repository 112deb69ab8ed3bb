//! `ReplicaSets`: a number of pods from one template.

use serde_json::{Value, json};

use super::context::Context;
use super::kind::Kind;
use super::plan::Plan;
use super::template;
use super::view::{Key, controller_uid, number, owners, text};
use crate::metadata;
use crate::selector;

/// Maximum number of pods that one reconcile creates or deletes. Their changes start the next reconcile.
const MAX_PODS_AT_ONCE: usize = 100;

pub(super) fn reconcile(context: &Context<'_>, key: &Key, replica_set: &Value, plan: &mut Plan) {
    adopt(context, key, replica_set, plan);
    let uid = metadata::text(replica_set, "uid");
    let mut pods: Vec<_> =
        context.view.controlled(uid, Kind::Pod).filter(|(_, pod)| template::is_active(pod)).collect();
    let replicas = number(replica_set, "/spec/replicas").unwrap_or(1) as usize;
    for _ in pods.len()..replicas.min(pods.len() + MAX_PODS_AT_ONCE) {
        plan.create(template::generated_pod(Kind::ReplicaSet, replica_set));
    }
    if pods.len() > replicas {
        pods.sort_by_cached_key(|(_, pod)| deletion_rank(pod));
        for (pod_key, pod) in pods.iter().take((pods.len() - replicas).min(MAX_PODS_AT_ONCE)) {
            plan.delete(pod_key, pod);
        }
    }
    let terminating = context.view.controlled(uid, Kind::Pod).filter(|(_, pod)| template::is_terminating(pod)).count();
    let ready = pods.iter().filter(|(_, pod)| template::is_ready(pod)).count();
    let labels = replica_set["spec"]["template"]["metadata"]["labels"].as_object();
    let is_labeled = |pod: &Value| {
        labels.into_iter().flatten().all(|(label, value)| pod["metadata"]["labels"].get(label) == Some(value))
    };
    plan.patch_status(
        key,
        replica_set,
        json!({
            "replicas": pods.len(),
            "fullyLabeledReplicas": pods.iter().filter(|(_, pod)| is_labeled(pod)).count(),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "terminatingReplicas": terminating,
            "observedGeneration": metadata::generation(replica_set),
        }),
    );
}

/// Sets the controller of selected pods that have none, for example after an orphaning deletion.
fn adopt(context: &Context<'_>, key: &Key, replica_set: &Value, plan: &mut Plan) {
    let selector = replica_set.pointer("/spec/selector");
    // An empty selector would adopt every pod. A real server rejects it.
    if selector::text(selector.unwrap_or(&Value::Null)).is_empty() {
        return;
    }
    for (pod_key, pod) in context.view.in_namespace(Kind::Pod, &key.namespace) {
        if controller_uid(pod).is_none() && template::is_active(pod) && selector::matches(selector, pod) {
            let mut references: Vec<Value> = owners(pod).cloned().collect();
            references.push(template::controller_reference(Kind::ReplicaSet, replica_set));
            plan.patch(pod_key, pod, json!({"metadata": {"ownerReferences": references}}));
        }
    }
}

/// Returns the order of deletion: pods without a node, then pods that are not ready, then the last changed pods.
fn deletion_rank(pod: &Value) -> (bool, bool, std::cmp::Reverse<u64>) {
    let version = metadata::text(pod, "resourceVersion").parse().unwrap_or_default();
    (!text(pod, "/spec/nodeName").is_empty(), template::is_ready(pod), std::cmp::Reverse(version))
}
