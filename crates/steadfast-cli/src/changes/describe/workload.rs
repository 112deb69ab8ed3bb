//! Deployments, `ReplicaSets`, `StatefulSets` and `DaemonSets`: size, rollout, readiness.

use serde_json::Value;

use super::containers;
use crate::changes::phrases::{Phrases, Tone, at, by_path, flag, number, text};

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

pub(super) fn describe_deployment(phrases: &mut Phrases<'_>) {
    describe_size(phrases);
    if phrases.take_changed("spec/paused") {
        let is_paused = flag(phrases.new, "spec/paused");
        phrases.say(Tone::Neutral, if is_paused { "paused" } else { "resumed" });
    }
    describe_template(phrases);
    describe_rollout(phrases, &REPLICAS);
}

pub(super) fn describe_stateful_set(phrases: &mut Phrases<'_>) {
    describe_size(phrases);
    describe_template(phrases);
    phrases.say_field_change("partition", "spec/updateStrategy/rollingUpdate/partition");
    describe_revisions(phrases);
    describe_rollout(phrases, &REPLICAS);
}

pub(super) fn describe_daemon_set(phrases: &mut Phrases<'_>) {
    describe_template(phrases);
    phrases.say_count_change("nodes", "status/desiredNumberScheduled", Tone::Neutral);
    phrases.say_count_change("misscheduled", "status/numberMisscheduled", Tone::Bad);
    describe_rollout(phrases, &DAEMONS);
}

pub(super) fn describe_replica_set(phrases: &mut Phrases<'_>) {
    describe_size(phrases);
    describe_template(phrases);
    let is_changed = take_status_changed(phrases);
    if is_changed {
        describe_ready(phrases, &REPLICAS);
        let (old, new) = (number(phrases.old, "status/replicas"), number(phrases.new, "status/replicas"));
        if old != new {
            phrases.say_minor(format!("pods {old}→{new}"));
        }
    }
}

fn describe_size(phrases: &mut Phrases<'_>) {
    if phrases.take_changed("spec/replicas") {
        let (old, new) = (desired(phrases.old, &REPLICAS), desired(phrases.new, &REPLICAS));
        phrases.say(Tone::Neutral, format!("replicas {old}→{new}"));
    }
}

fn describe_template(phrases: &mut Phrases<'_>) {
    containers::describe(phrases, "spec/template/spec");
    let restarted_at = |object| {
        at(object, "spec/template/metadata/annotations")
            .and_then(|annotations| annotations.get(RESTARTED_AT_ANNOTATION))
    };
    if restarted_at(phrases.old) != restarted_at(phrases.new) {
        for change in phrases.take_changes("spec/template/metadata/annotations") {
            if change.path.last_field() == Some(RESTARTED_AT_ANNOTATION) {
                phrases.say(Tone::Neutral, "restart requested");
            } else {
                phrases.say(Tone::Neutral, by_path(change));
            }
        }
    }
}

/// Describes the revisions of a `StatefulSet`, without the name of the set.
fn describe_revisions(phrases: &mut Phrases<'_>) {
    phrases.take_changed("status/currentRevision");
    if phrases.take_changed("status/updateRevision") {
        let hash = |object| text(object, "status/updateRevision").rsplit('-').next().unwrap_or_default().to_owned();
        let (old, new) = (hash(phrases.old), hash(phrases.new));
        if !old.is_empty() && old != new {
            phrases.say_minor(format!("update revision {old}→{new}"));
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

fn take_status_changed(phrases: &mut Phrases<'_>) -> bool {
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
        is_changed |= phrases.take_changed(&format!("status/{counter}"));
    }
    is_changed
}

fn describe_rollout(phrases: &mut Phrases<'_>, counters: &Counters) {
    if !take_status_changed(phrases) {
        return;
    }
    let (old, new) = (phrases.old, phrases.new);
    let desired_count = desired(new, counters);
    let (updated_before, updated) = (number(old, counters.updated), number(new, counters.updated));
    let has_updated = at(new, counters.updated).is_some() || at(old, counters.updated).is_some();
    if has_updated && is_rolling(new, counters) {
        let old_pods = number(new, counters.total) - updated;
        if updated_before != updated || old_pods <= 0 {
            phrases.say(Tone::Neutral, format!("rollout {updated}/{desired_count} updated"));
        } else {
            phrases.say(Tone::Neutral, format!("rollout {updated}/{desired_count} updated, {old_pods} old"));
        }
    } else if has_updated && is_rolling(old, counters) && number(new, counters.ready) >= desired_count {
        phrases.say(Tone::Good, format!("rollout complete: {updated}/{desired_count} updated"));
    } else if has_updated && is_rolling(old, counters) {
        phrases.say(Tone::Neutral, format!("rollout {updated}/{desired_count} updated"));
    }
    describe_ready(phrases, counters);
    let available = |object| number(object, "status/availableReplicas").max(number(object, "status/numberAvailable"));
    let (before, now) = (available(old), available(new));
    if before != now && number(old, counters.ready) == number(new, counters.ready) {
        phrases.say_minor(format!("available {before}→{now} of {desired_count}"));
    }
    let (before, now) = (number(old, counters.total), number(new, counters.total));
    if before != now {
        phrases.say_minor(format!("pods {before}→{now}"));
    }
}

fn describe_ready(phrases: &mut Phrases<'_>, counters: &Counters) {
    let (before, now) = (number(phrases.old, counters.ready), number(phrases.new, counters.ready));
    let desired_count = desired(phrases.new, counters);
    // More ready pods than desired are normal during a rollout, and are not reported.
    let is_surplus = before >= desired_count && now >= desired_count;
    if before != now && !is_surplus {
        let tone = if now < before && now < desired_count { Tone::Bad } else { Tone::Good };
        phrases.say(tone, format!("ready {before}→{now} of {desired_count}"));
    }
}
