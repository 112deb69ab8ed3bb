//! `DaemonSets`: one pod on each suitable node.

use serde_json::{Value, json};

use super::context::Context;
use super::kind::Kind;
use super::plan::Plan;
use super::view::{Key, text};
use super::{nodes, template};
use crate::metadata;

const REVISION: &str = "controller-revision-hash";

pub(super) fn reconcile(context: &Context<'_>, key: &Key, set: &Value, plan: &mut Plan) {
    let revision = template::hash(&set["spec"]["template"], 0);
    let spec = &set["spec"]["template"]["spec"];
    let mut pods: Vec<_> = context.view.controlled(metadata::text(set, "uid"), Kind::Pod).collect();
    pods.retain(|(_, pod)| !metadata::is_terminating(pod));
    let (mut desired, mut scheduled, mut ready, mut updated) = (0, 0, 0, 0);
    let mut old = None;
    let mut misplaced = pods.len();
    for (node, found) in context.view.all(Kind::Node) {
        // A cordoned node keeps its pod, and receives a missing one, as with Kubernetes' default tolerations.
        if metadata::is_terminating(found) {
            continue;
        }
        if !nodes::is_selected(found, spec) {
            // These pods are part of numberMisscheduled until they are removed.
            for (pod_key, pod) in pods.iter().filter(|(_, pod)| text(pod, "/spec/nodeName") == node.name) {
                plan.delete(pod_key, pod);
            }
            continue;
        }
        desired += 1;
        let Some((pod_key, pod)) = pods.iter().find(|(_, pod)| text(pod, "/spec/nodeName") == node.name) else {
            let mut pod = template::generated_pod(Kind::DaemonSet, set);
            template::set_label(&mut pod, REVISION, &revision);
            pod["spec"]["nodeName"] = node.name.as_str().into();
            plan.create(pod);
            continue;
        };
        (scheduled, misplaced) = (scheduled + 1, misplaced - 1);
        ready += u64::from(template::is_ready(pod));
        if !template::is_active(pod) {
            plan.delete(pod_key, pod);
        } else if template::label(pod, REVISION) == revision {
            updated += 1;
        } else {
            old = Some((*pod_key, *pod));
        }
    }
    // One outdated pod is replaced at a time. A ready pod is replaced only if all pods are ready.
    if let Some((pod_key, pod)) = old
        && set["spec"]["updateStrategy"]["type"] != "OnDelete"
        && (ready == desired || !template::is_ready(pod))
    {
        plan.delete(pod_key, pod);
    }
    plan.patch_status(
        key,
        set,
        json!({
            "observedGeneration": metadata::generation(set),
            "desiredNumberScheduled": desired, "currentNumberScheduled": scheduled, "numberMisscheduled": misplaced,
            "numberReady": ready, "numberAvailable": ready, "updatedNumberScheduled": updated,
            "numberUnavailable": desired - ready,
        }),
    );
}
