//! `StatefulSets`: pods with stable names, created, updated and deleted in order.

use std::sync::Arc;

use serde_json::{Value, json};

use super::context::Context;
use super::kind::Kind;
use super::plan::Plan;
use super::template;
use super::view::{Key, number, text};
use crate::metadata;

const REVISION: &str = "controller-revision-hash";

/// Maximum number of pods that one reconcile creates with `podManagementPolicy: Parallel`.
const MAX_PODS_AT_ONCE: usize = 100;

pub(super) fn reconcile(context: &Context<'_>, key: &Key, set: &Value, plan: &mut Plan) {
    let ordered = Ordered::of(context, key, set);
    // Each reconcile makes changes of one kind, to one pod unless the policy is `Parallel`. The next change follows
    // when the changed pod is ready, or was deleted.
    if ordered.create_missing(key, set, context, plan) && ordered.delete_surplus(plan) {
        ordered.update(set, plan);
    }
    ordered.write_status(key, set, plan);
}

/// Pods of a set, by their ordinals.
struct Ordered<'a> {
    /// First ordinal.
    start: u64,
    /// Ordinal after the last one.
    end: u64,
    /// Lowest ordinal that is updated.
    partition: u64,
    is_parallel: bool,
    current_revision: String,
    update_revision: String,
    /// Existing pods, ordered by ordinal.
    pods: Vec<(u64, &'a Key, &'a Arc<Value>)>,
}

impl<'a> Ordered<'a> {
    fn of(context: &Context<'a>, key: &Key, set: &Value) -> Self {
        let start = number(set, "/spec/ordinals/start").unwrap_or_default();
        let end = start.saturating_add(number(set, "/spec/replicas").unwrap_or(1));
        let update_revision = format!("{}-{}", key.name, template::hash(&set["spec"]["template"], 0));
        let current = text(set, "/status/currentRevision");
        let current_revision = if current.is_empty() { update_revision.clone() } else { current.to_owned() };
        let ordinal = |pod: &Key| pod.name.strip_prefix(&key.name)?.strip_prefix('-')?.parse::<u64>().ok();
        let controlled = context.view.controlled(metadata::text(set, "uid"), Kind::Pod);
        let mut pods: Vec<_> = controlled.filter_map(|(key, pod)| Some((ordinal(key)?, key, pod))).collect();
        pods.sort_by_key(|(ordinal, ..)| *ordinal);
        Self {
            start,
            end,
            partition: number(set, "/spec/updateStrategy/rollingUpdate/partition").unwrap_or_default(),
            is_parallel: set["spec"]["podManagementPolicy"] == "Parallel",
            current_revision,
            update_revision,
            pods,
        }
    }

    fn desired(&self) -> impl Iterator<Item = &(u64, &'a Key, &'a Arc<Value>)> {
        self.pods.iter().filter(|(ordinal, ..)| (self.start..self.end).contains(ordinal))
    }

    /// Creates missing pods and deletes finished ones. Returns true if other changes may follow: all pods exist and,
    /// unless the policy is `Parallel`, are ready.
    fn create_missing(&self, key: &Key, set: &Value, context: &Context<'_>, plan: &mut Plan) -> bool {
        let mut created = 0;
        let mut existing = self.desired().peekable();
        for ordinal in self.start..self.end {
            let pod = existing.next_if(|(found, ..)| *found == ordinal);
            let is_ready = match pod {
                Some((_, pod_key, pod)) if matches!(text(pod, "/status/phase"), "Succeeded" | "Failed") => {
                    plan.delete(pod_key, pod);
                    false
                }
                Some((_, _, pod)) => template::is_ready(pod),
                None => {
                    self.create(key, set, ordinal, context, plan);
                    created += 1;
                    false
                }
            };
            if !is_ready && (!self.is_parallel || created == MAX_PODS_AT_ONCE) {
                return false;
            }
        }
        created == 0
    }

    fn create(&self, key: &Key, set: &Value, ordinal: u64, context: &Context<'_>, plan: &mut Plan) {
        let name = format!("{}-{ordinal}", key.name);
        let mut pod = template::pod(Kind::StatefulSet, set);
        metadata::set(&mut pod, "name", Some(name.as_str().into()));
        // Unlike on a real cluster, older templates are not stored, so each created pod has the newest template.
        template::set_label(&mut pod, REVISION, &self.update_revision);
        template::set_label(&mut pod, "statefulset.kubernetes.io/pod-name", &name);
        template::set_label(&mut pod, "apps.kubernetes.io/pod-index", &ordinal.to_string());
        pod["spec"]["hostname"] = name.as_str().into();
        let claims = set["spec"]["volumeClaimTemplates"].as_array();
        for claim in claims.into_iter().flatten() {
            create_claim(key, claim, &name, &mut pod, context, plan);
        }
        plan.create(pod);
    }

    /// Deletes the pod with the highest ordinal outside of the desired range; with `Parallel`, all pods outside of this
    /// range. Returns true if no such pod exists.
    fn delete_surplus(&self, plan: &mut Plan) -> bool {
        let mut surplus = self.pods.iter().filter(|(ordinal, ..)| !(self.start..self.end).contains(ordinal)).rev();
        let count = if self.is_parallel { usize::MAX } else { 1 };
        let mut has_none = true;
        for (_, key, pod) in surplus.by_ref().take(count) {
            plan.delete(key, pod);
            has_none = false;
        }
        has_none
    }

    /// Deletes the pod with the highest ordinal among those of an older template, so that it is created again.
    fn update(&self, set: &Value, plan: &mut Plan) {
        if set["spec"]["updateStrategy"]["type"] == "OnDelete" {
            return;
        }
        let is_old = |pod: &Value| template::label(pod, REVISION) != self.update_revision;
        let old = self.desired().filter(|(ordinal, _, pod)| *ordinal >= self.partition && is_old(pod)).last();
        if let Some((_, key, pod)) = old {
            plan.delete(key, pod);
        }
    }

    fn write_status(&self, key: &Key, set: &Value, plan: &mut Plan) {
        let count = |counts: &dyn Fn(&Value) -> bool| self.pods.iter().filter(|(_, _, pod)| counts(pod)).count();
        let replicas = count(&template::is_active);
        let ready = count(&template::is_ready);
        let of_revision =
            |revision: &str| count(&|pod| template::is_active(pod) && template::label(pod, REVISION) == revision);
        let updated = of_revision(&self.update_revision);
        let desired = self.end - self.start;
        let is_complete = [updated, ready, replicas].iter().all(|number| *number as u64 == desired);
        let current = if is_complete { &self.update_revision } else { &self.current_revision };
        plan.patch_status(
            key,
            set,
            json!({
                "observedGeneration": metadata::generation(set),
                "replicas": replicas, "readyReplicas": ready, "availableReplicas": ready,
                "currentReplicas": of_revision(current), "updatedReplicas": updated,
                "currentRevision": current, "updateRevision": self.update_revision, "collisionCount": 0,
            }),
        );
    }
}

/// Creates a volume claim of a pod, unless it exists, and adds the volume to the pod.
fn create_claim(key: &Key, claim: &Value, pod_name: &str, pod: &mut Value, context: &Context<'_>, plan: &mut Plan) {
    let template_name = metadata::text(claim, "name");
    let name = format!("{template_name}-{pod_name}");
    if context.view.get(&Key::new(Kind::PersistentVolumeClaim, &key.namespace, &name)).is_none() {
        let mut created = claim.clone();
        created["apiVersion"] = "v1".into();
        created["kind"] = Kind::PersistentVolumeClaim.name().into();
        metadata::set(&mut created, "name", Some(name.as_str().into()));
        metadata::set(&mut created, "namespace", Some(key.namespace.as_str().into()));
        created["status"] = json!({
            "phase": "Bound",
            "accessModes": created["spec"]["accessModes"],
            "capacity": created["spec"]["resources"]["requests"],
        });
        plan.create(created);
    }
    let volume = json!({"name": template_name, "persistentVolumeClaim": {"claimName": name}});
    let volumes = &mut pod["spec"]["volumes"];
    match volumes.as_array_mut() {
        Some(volumes) => {
            // The claim replaces a volume of the same name.
            volumes.retain(|other| other["name"] != template_name);
            volumes.push(volume);
        }
        None => *volumes = json!([volume]),
    }
}
