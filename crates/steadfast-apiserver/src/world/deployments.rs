//! Deployments: one `ReplicaSet` for each template, and the replacement of an old one by a new one.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::conditions::condition;
use super::context::Context;
use super::kind::Kind;
use super::plan::Plan;
use super::template;
use super::view::{Key, number, text};
use crate::conditions;
use crate::int_or_percent::{self, Rounding};
use crate::metadata;

const REVISION: &str = "deployment.kubernetes.io/revision";
const HASH: &str = "pod-template-hash";

/// Default of `maxSurge` and `maxUnavailable`.
const DEFAULT_LIMIT: &str = "25%";

/// Maximum number of replicas: the API has 32 bits with a sign.
const MAX_REPLICAS: u64 = i32::MAX as u64;

/// Number of unused `ReplicaSets` that are kept by default.
const HISTORY_LIMIT: u64 = 10;

/// Reason of a condition for a rollout that made no progress until its deadline.
const DEADLINE_EXCEEDED: &str = "ProgressDeadlineExceeded";

/// Default of `progressDeadlineSeconds`.
const PROGRESS_DEADLINE: u64 = 600;

type Listed<'a> = (&'a Key, &'a Arc<Value>);

pub(super) fn reconcile(context: &Context<'_>, key: &Key, deployment: &Value, plan: &mut Plan) {
    let rollout = Rollout::of(context, deployment);
    if deployment["spec"]["paused"] == true {
        // In a paused deployment, only changes of the number of replicas take effect.
        if let Some(active) = rollout.current.or_else(|| rollout.old.iter().copied().max_by_key(|set| revision(set.1)))
        {
            scale(plan, active, rollout.replicas);
        }
    } else if let Some(current) = rollout.current {
        rollout.mark_revision(key, deployment, current, plan);
        if deployment["spec"]["strategy"]["type"] == "Recreate" {
            rollout.recreate(context, current, plan);
        } else {
            rollout.roll(current, plan);
        }
        rollout.clean_up(deployment, plan);
    } else {
        rollout.create_replica_set(context, key, deployment, plan);
    }
    rollout.write_status(context, key, deployment, plan);
}

/// State of a deployment's replacement.
struct Rollout<'a> {
    /// Desired number of pods.
    replicas: u64,
    /// Number of pods that may exist beyond the desired one.
    max_surge: u64,
    /// Number of desired pods that may be unavailable.
    max_unavailable: u64,
    /// The `ReplicaSet` of the current template.
    current: Option<Listed<'a>>,
    old: Vec<Listed<'a>>,
}

impl<'a> Rollout<'a> {
    fn of(context: &Context<'a>, deployment: &Value) -> Self {
        let replicas = desired(deployment);
        let limits = |field: &str| &deployment["spec"]["strategy"]["rollingUpdate"][field];
        let max_surge = limit(limits("maxSurge"), replicas, Rounding::Up);
        let mut max_unavailable = limit(limits("maxUnavailable"), replicas, Rounding::Down);
        if max_surge == 0 && max_unavailable == 0 {
            // With both limits at zero, no pod could be replaced.
            max_unavailable = 1;
        }
        let uid = metadata::text(deployment, "uid");
        let sets = context.view.controlled(uid, Kind::ReplicaSet).filter(|(_, set)| !metadata::is_terminating(set));
        let (same, old): (Vec<_>, Vec<_>) =
            sets.partition(|(_, set)| has_template(set, &deployment["spec"]["template"]));
        // If several sets have the current template, the oldest set is the current one.
        let current = same.iter().copied().min_by_key(|(_, set)| metadata::text(set, "creationTimestamp").to_owned());
        let others = same.into_iter().filter(|(key, _)| current.is_none_or(|(current, _)| current != *key));
        Self { replicas, max_surge, max_unavailable, current, old: old.into_iter().chain(others).collect() }
    }

    fn all(&self) -> impl Iterator<Item = Listed<'a>> {
        self.current.into_iter().chain(self.old.iter().copied())
    }

    fn create_replica_set(&self, context: &Context<'_>, key: &Key, deployment: &Value, plan: &mut Plan) {
        let template = &deployment["spec"]["template"];
        let is_taken = |name: &str| context.view.get(&Key::new(Kind::ReplicaSet, &key.namespace, name)).is_some();
        // Another template may have the same hash.
        let name_of = |attempt| {
            let hash = template::hash(template, attempt);
            (format!("{}-{hash}", key.name), hash)
        };
        let Some((name, hash)) = (0..100).map(name_of).find(|(name, _)| !is_taken(name)) else { return };
        let mut pod_template = template.clone();
        template::set_label(&mut pod_template, HASH, &hash);
        let mut selector = deployment["spec"]["selector"].clone();
        if !selector["matchLabels"].is_object() {
            selector["matchLabels"] = json!({});
        }
        selector["matchLabels"][HASH] = hash.into();
        let existing: u64 = self.old.iter().map(|(_, set)| desired(set)).sum();
        let allowed = match deployment["spec"]["strategy"]["type"].as_str() {
            Some("Recreate") => {
                if self.has_old_pods(context) {
                    0
                } else {
                    self.replicas
                }
            }
            _ => self.replicas.min((self.replicas + self.max_surge).saturating_sub(existing)),
        };
        let mut annotations = deployment["metadata"]["annotations"].clone();
        if !annotations.is_object() {
            annotations = json!({});
        }
        annotations[REVISION] = self.max_revision().saturating_add(1).to_string().into();
        plan.create(json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {
                "name": name, "namespace": key.namespace,
                "labels": pod_template["metadata"]["labels"], "annotations": annotations,
                "ownerReferences": [template::controller_reference(Kind::Deployment, deployment)],
            },
            "spec": {"replicas": allowed, "selector": selector, "template": pod_template},
        }));
    }

    fn max_revision(&self) -> u64 {
        self.all().map(|(_, set)| revision(set)).max().unwrap_or_default()
    }

    /// Gives the current `ReplicaSet` the highest revision, also after a rollback to an older one.
    fn mark_revision(&self, key: &Key, deployment: &Value, current: Listed<'_>, plan: &mut Plan) {
        let highest_old = self.old.iter().map(|(_, set)| revision(set)).max().unwrap_or_default();
        let mut number = revision(current.1);
        if number <= highest_old || number == 0 {
            number = highest_old.saturating_add(1);
            plan.patch(current.0, current.1, annotation_patch(number));
        }
        plan.patch(key, deployment, annotation_patch(number));
    }

    fn has_old_pods(&self, context: &Context<'_>) -> bool {
        self.old.iter().any(|(_, set)| {
            context
                .view
                .controlled(metadata::text(set, "uid"), Kind::Pod)
                .any(|(_, pod)| !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed"))
        })
    }

    /// Removes all old pods before it creates new ones.
    fn recreate(&self, context: &Context<'_>, current: Listed<'_>, plan: &mut Plan) {
        self.old.iter().for_each(|set| scale(plan, *set, 0));
        if !self.has_old_pods(context) {
            scale(plan, current, self.replicas);
        }
    }

    /// Replaces old pods by new ones, within the limits of the strategy.
    fn roll(&self, current: Listed<'_>, plan: &mut Plan) {
        let total: u64 = self.all().map(|(_, set)| desired(set)).sum();
        let limit = self.replicas + self.max_surge;
        let new = desired(current.1);
        if new > self.replicas {
            scale(plan, current, self.replicas);
        } else if new < self.replicas && total < limit {
            scale(plan, current, self.replicas.min(new + (limit - total)));
        }
        self.scale_old_down(current, total, plan);
    }

    /// Removes as many old pods as the minimum number of available pods allows, those that are unavailable first.
    fn scale_old_down(&self, current: Listed<'_>, total: u64, plan: &mut Plan) {
        let min_available = self.replicas.saturating_sub(self.max_unavailable);
        let new_unavailable = desired(current.1).saturating_sub(available(current.1));
        let mut removable = total.saturating_sub(min_available + new_unavailable);
        let mut targets: Vec<(Listed<'_>, u64)> = self.old.iter().map(|set| (*set, desired(set.1))).collect();
        targets.sort_by_key(|((_, set), _)| revision(set));
        for ((_, set), target) in &mut targets {
            let unavailable = target.saturating_sub(available(set)).min(removable);
            (*target, removable) = (*target - unavailable, removable - unavailable);
        }
        let all_available: u64 = self.all().map(|(_, set)| available(set)).sum();
        let mut removable = all_available.saturating_sub(min_available).min(removable);
        for (_, target) in &mut targets {
            let removed = (*target).min(removable);
            (*target, removable) = (*target - removed, removable - removed);
        }
        for (set, target) in targets {
            scale(plan, set, target);
        }
    }

    /// Deletes the oldest `ReplicaSets` without pods beyond the limit of the history.
    fn clean_up(&self, deployment: &Value, plan: &mut Plan) {
        let limit = number(deployment, "/spec/revisionHistoryLimit").unwrap_or(HISTORY_LIMIT) as usize;
        let mut unused: Vec<_> = self.old.iter().filter(|(_, set)| desired(set) == 0 && actual(set) == 0).collect();
        unused.sort_by_key(|(_, set)| revision(set));
        let surplus = unused.len().saturating_sub(limit);
        for (key, set) in unused.into_iter().take(surplus) {
            plan.delete(key, set);
        }
    }

    fn write_status(&self, context: &Context<'_>, key: &Key, deployment: &Value, plan: &mut Plan) {
        let sum = |count: fn(&Value) -> u64| self.all().map(|(_, set)| count(set)).sum::<u64>();
        let (replicas, available) = (sum(actual), sum(available));
        let updated = self.current.map_or(0, |(_, set)| actual(set));
        let ready = sum(|set| number(set, "/status/readyReplicas").unwrap_or_default());
        let terminating = sum(|set| number(set, "/status/terminatingReplicas").unwrap_or_default());
        let before = |field: &str| number(deployment, &format!("/status/{field}")).unwrap_or_default();
        let is_complete = updated == self.replicas && replicas == self.replicas && available == self.replicas;
        let has_progressed = updated > before("updatedReplicas")
            || available > before("availableReplicas")
            || replicas.saturating_sub(updated) < before("replicas").saturating_sub(before("updatedReplicas"));
        let now = context.timestamp();
        let is_available = available >= self.replicas.saturating_sub(self.max_unavailable);
        let (reason, message) = if is_available {
            ("MinimumReplicasAvailable", "Deployment has minimum availability.")
        } else {
            ("MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
        };
        let mut available_condition = condition(deployment, "Available", is_available, reason, message, &now);
        available_condition["lastUpdateTime"] = available_condition["lastTransitionTime"].clone();
        let progressing = self.progress(context, deployment, is_complete, has_progressed, plan);
        plan.patch_status(
            key,
            deployment,
            json!({
                "observedGeneration": metadata::generation(deployment),
                "replicas": replicas, "updatedReplicas": updated, "readyReplicas": ready, "availableReplicas": available,
                "unavailableReplicas": self.replicas.max(sum(desired)).saturating_sub(available),
                "terminatingReplicas": terminating,
                "conditions": [available_condition, progressing],
            }),
        );
    }

    /// Returns the condition `Progressing`, and requests another run at the deadline of the progress.
    fn progress(
        &self,
        context: &Context<'_>,
        deployment: &Value,
        is_complete: bool,
        has_progressed: bool,
        plan: &mut Plan,
    ) -> Value {
        let now = context.timestamp();
        let name = metadata::text(deployment, "name");
        let set = self.current.map_or_else(String::new, |(key, _)| key.name.clone());
        let deadline = number(deployment, "/spec/progressDeadlineSeconds").unwrap_or(PROGRESS_DEADLINE);
        let existing = conditions::find_condition(deployment, "Progressing");
        // A rollout whose deadline has passed counts as progressing again after its next step.
        let last = existing.filter(|_| !has_progressed).map(|existing| existing["lastUpdateTime"].clone());
        let last_update = last.as_ref().and_then(Value::as_str).unwrap_or(&now).to_owned();
        let age = seconds_between(&last_update, &now);
        // The new reason has a new update time, so a late rollout stays late until its next step.
        let was_late = !has_progressed && existing.is_some_and(|existing| existing["reason"] == DEADLINE_EXCEEDED);
        let is_late = !is_complete && (age >= deadline || was_late) && deployment["spec"]["paused"] != true;
        let (reason, message) = match (is_complete, is_late) {
            (true, _) => ("NewReplicaSetAvailable", format!("ReplicaSet \"{set}\" has successfully progressed.")),
            (_, true) => (DEADLINE_EXCEEDED, format!("ReplicaSet \"{set}\" has timed out progressing.")),
            _ if set.is_empty() => ("NewReplicaSetCreated", format!("Deployment \"{name}\" creates a replica set.")),
            _ => ("ReplicaSetUpdated", format!("ReplicaSet \"{set}\" is progressing.")),
        };
        if !is_complete && !is_late {
            plan.run_again_after(context.now, Duration::from_secs(deadline.saturating_sub(age).max(1)));
        }
        let mut progressing = condition(deployment, "Progressing", !is_late, reason, &message, &now);
        let is_same_reason = existing.is_some_and(|existing| existing["reason"] == reason);
        progressing["lastUpdateTime"] = if is_same_reason { last_update.into() } else { now.into() };
        progressing
    }
}

/// Returns the number of pods of a limit: a number, or a percentage of `replicas`.
fn limit(value: &Value, replicas: u64, rounding: Rounding) -> u64 {
    let total = i64::try_from(replicas).unwrap_or(i64::MAX);
    let resolved = int_or_percent::resolve(value, total, rounding);
    let resolved = resolved.or_else(|| int_or_percent::resolve(&DEFAULT_LIMIT.into(), total, rounding));
    u64::try_from(resolved.unwrap_or_default()).unwrap_or_default().min(MAX_REPLICAS)
}

/// Returns whether a `ReplicaSet` has this template, apart from the label of its hash.
fn has_template(set: &Value, template: &Value) -> bool {
    let mut own = set["spec"]["template"].clone();
    if let Some(labels) = own.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(HASH);
    }
    template::normalized(&own) == template::normalized(template)
}

fn annotation_patch(revision: u64) -> Value {
    json!({"metadata": {"annotations": {REVISION: revision.to_string()}}})
}

fn revision(set: &Value) -> u64 {
    metadata::annotation(set, REVISION).parse().unwrap_or_default()
}

fn scale(plan: &mut Plan, (key, set): Listed<'_>, replicas: u64) {
    plan.patch(key, set, json!({"spec": {"replicas": replicas}}));
}

/// Returns the number of replicas in the specification of a deployment or a set.
fn desired(object: &Value) -> u64 {
    number(object, "/spec/replicas").unwrap_or(1).min(MAX_REPLICAS)
}

fn actual(set: &Value) -> u64 {
    number(set, "/status/replicas").unwrap_or_default()
}

fn available(set: &Value) -> u64 {
    number(set, "/status/availableReplicas").unwrap_or_default()
}

/// Returns the seconds between two timestamps; 0 if one is invalid.
fn seconds_between(start: &str, end: &str) -> u64 {
    let parse = |text: &str| text.parse::<Timestamp>().ok();
    let (Some(start), Some(end)) = (parse(start), parse(end)) else { return 0 };
    u64::try_from(end.as_second() - start.as_second()).unwrap_or_default()
}
