//! Deployments, `ReplicaSets`, `StatefulSets` and `DaemonSets`: size, rollout, readiness.

use serde_json::Value;

use super::containers;
use crate::changes::phrases::{DescriptionBuilder, HealthEffect, at, by_path, flag, number, text};

/// Annotation of a pod template that `kubectl rollout restart` writes.
const RESTARTED_AT_ANNOTATION: &str = "kubectl.kubernetes.io/restartedAt";

/// Names of the counters in a status.
struct Counters {
    desired: &'static str,
    total: &'static str,
    updated: &'static str,
    ready: &'static str,
}

const REPLICAS: Counters = Counters {
    desired: "spec/replicas",
    total: "status/replicas",
    updated: "status/updatedReplicas",
    ready: "status/readyReplicas",
};

const DAEMONS: Counters = Counters {
    desired: "status/desiredNumberScheduled",
    total: "status/currentNumberScheduled",
    updated: "status/updatedNumberScheduled",
    ready: "status/numberReady",
};

pub(super) fn describe_deployment(description: &mut DescriptionBuilder<'_>) {
    describe_size(description);
    if description.consume_changed("spec/paused") {
        let is_paused = flag(description.new, "spec/paused");
        description.add(HealthEffect::Neutral, if is_paused { "paused" } else { "resumed" });
    }
    describe_template(description);
    describe_rollout(description, &REPLICAS);
}

pub(super) fn describe_stateful_set(description: &mut DescriptionBuilder<'_>) {
    describe_size(description);
    describe_template(description);
    description.add_field_change("partition", "spec/updateStrategy/rollingUpdate/partition");
    describe_revisions(description);
    describe_rollout(description, &REPLICAS);
}

pub(super) fn describe_daemon_set(description: &mut DescriptionBuilder<'_>) {
    describe_template(description);
    description.add_count_change("nodes", "status/desiredNumberScheduled", HealthEffect::Neutral);
    description.add_count_change("misscheduled", "status/numberMisscheduled", HealthEffect::Degraded);
    describe_rollout(description, &DAEMONS);
}

pub(super) fn describe_replica_set(description: &mut DescriptionBuilder<'_>) {
    describe_size(description);
    describe_template(description);
    let is_changed = take_status_changed(description);
    if is_changed {
        describe_ready(description, &REPLICAS);
        let (old, new) = (number(description.old, "status/replicas"), number(description.new, "status/replicas"));
        if old != new {
            description.add_fallback(format!("pods {old}→{new}"));
        }
    }
}

fn describe_size(description: &mut DescriptionBuilder<'_>) {
    if description.consume_changed("spec/replicas") {
        let (old, new) = (desired(description.old, &REPLICAS), desired(description.new, &REPLICAS));
        description.add(HealthEffect::Neutral, format!("replicas {old}→{new}"));
    }
}

fn describe_template(description: &mut DescriptionBuilder<'_>) {
    containers::describe(description, "spec/template/spec");
    let restarted_at = |object| {
        at(object, "spec/template/metadata/annotations")
            .and_then(|annotations| annotations.get(RESTARTED_AT_ANNOTATION))
    };
    if restarted_at(description.old) != restarted_at(description.new) {
        for change in description.take_changes("spec/template/metadata/annotations") {
            if change.path.last_field() == Some(RESTARTED_AT_ANNOTATION) {
                description.add(HealthEffect::Neutral, "restart requested");
            } else {
                description.add(HealthEffect::Neutral, by_path(change));
            }
        }
    }
}

/// Describes the revisions of a `StatefulSet`, without the name of the set.
fn describe_revisions(description: &mut DescriptionBuilder<'_>) {
    description.consume_changed("status/currentRevision");
    if description.consume_changed("status/updateRevision") {
        let hash = |object| text(object, "status/updateRevision").rsplit('-').next().unwrap_or_default().to_owned();
        let (old, new) = (hash(description.old), hash(description.new));
        if !old.is_empty() && old != new {
            description.add_fallback(format!("update revision {old}→{new}"));
        }
    }
}

fn desired(object: &Value, counters: &Counters) -> i64 {
    // The server's default is 1; a DaemonSet always reports its number.
    at(object, counters.desired).and_then(Value::as_i64).unwrap_or(i64::from(counters.desired == "spec/replicas"))
}

/// Returns whether pods of an older template exist, or pods of the current one are missing.
fn is_rolling(object: &Value, counters: &Counters) -> bool {
    let updated = number(object, counters.updated);
    at(object, "status").is_some() && (updated < desired(object, counters) || number(object, counters.total) > updated)
}

fn take_status_changed(description: &mut DescriptionBuilder<'_>) -> bool {
    let mut is_changed = false;
    for counter in [
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "fullyLabeledReplicas",
        "currentReplicas",
        "collisionCount",
        "currentNumberScheduled",
        "desiredNumberScheduled",
        "updatedNumberScheduled",
        "numberReady",
        "numberAvailable",
        "numberUnavailable",
    ] {
        is_changed |= description.consume_changed(&format!("status/{counter}"));
    }
    is_changed
}

fn describe_rollout(description: &mut DescriptionBuilder<'_>, counters: &Counters) {
    if !take_status_changed(description) {
        return;
    }
    let (old, new) = (description.old, description.new);
    let desired_count = desired(new, counters);
    let (updated_before, updated) = (number(old, counters.updated), number(new, counters.updated));
    let has_updated = at(new, counters.updated).is_some() || at(old, counters.updated).is_some();
    if has_updated && is_rolling(new, counters) {
        let old_pods = number(new, counters.total) - updated;
        if updated_before != updated || old_pods <= 0 {
            description.add(HealthEffect::Neutral, format!("rollout {updated}/{desired_count} updated"));
        } else {
            description
                .add(HealthEffect::Neutral, format!("rollout {updated}/{desired_count} updated, {old_pods} old"));
        }
    } else if has_updated && is_rolling(old, counters) && number(new, counters.ready) >= desired_count {
        description.add(HealthEffect::Improved, format!("rollout complete: {updated}/{desired_count} updated"));
    } else if has_updated && is_rolling(old, counters) {
        description.add(HealthEffect::Neutral, format!("rollout {updated}/{desired_count} updated"));
    }
    describe_ready(description, counters);
    let available = |object| number(object, "status/availableReplicas").max(number(object, "status/numberAvailable"));
    let (before, now) = (available(old), available(new));
    if before != now && number(old, counters.ready) == number(new, counters.ready) {
        description.add_fallback(format!("available {before}→{now} of {desired_count}"));
    }
    let (before, now) = (number(old, counters.total), number(new, counters.total));
    if before != now {
        description.add_fallback(format!("pods {before}→{now}"));
    }
}

fn describe_ready(description: &mut DescriptionBuilder<'_>, counters: &Counters) {
    let (before, now) = (number(description.old, counters.ready), number(description.new, counters.ready));
    let desired_count = desired(description.new, counters);
    // More ready pods than desired are normal during a rollout, and are not reported.
    let is_surplus = before >= desired_count && now >= desired_count;
    if before != now && !is_surplus {
        let effect = if now < before && now < desired_count { HealthEffect::Degraded } else { HealthEffect::Improved };
        description.add(effect, format!("ready {before}→{now} of {desired_count}"));
    }
}
