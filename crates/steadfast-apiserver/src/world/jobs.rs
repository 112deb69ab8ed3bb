//! Jobs: pods that run until enough of them have succeeded.

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
use crate::metadata;
use crate::storage::Dependents;

/// Default of `backoffLimit`.
const BACKOFF_LIMIT: u64 = 6;

/// Maximum number of pods that one reconcile creates.
const MAX_PODS_AT_ONCE: u64 = 100;

pub(super) fn reconcile(context: &Context<'_>, key: &Key, job: &Value, plan: &mut Plan) {
    if is_finished(job) {
        delete_expired(context, key, job, plan);
        return;
    }
    let pods: Vec<_> = context.view.controlled(metadata::text(job, "uid"), Kind::Pod).collect();
    let count_in_phase =
        |phase: &str| pods.iter().filter(|(_, pod)| text(pod, "/status/phase") == phase).count() as u64;
    let (succeeded, failed) = (count_in_phase("Succeeded"), count_in_phase("Failed"));
    let active: Vec<_> = pods.iter().filter(|(_, pod)| template::is_active(pod)).collect();
    let terminating = pods.iter().filter(|(_, pod)| template::is_terminating(pod)).count();
    let ready = active.iter().filter(|(_, pod)| template::is_ready(pod)).count();
    let parallelism = number(job, "/spec/parallelism").unwrap_or(1);
    let completions = number(job, "/spec/completions");
    let is_failed = failed > number(job, "/spec/backoffLimit").unwrap_or(BACKOFF_LIMIT);
    // Without a number of completions, one success is enough when all pods have ended.
    let is_complete = completions.map_or(succeeded > 0 && active.is_empty(), |completions| succeeded >= completions);
    let is_suspended = job["spec"]["suspend"] == true;
    let missing = completions.map_or(if succeeded > 0 { 0 } else { parallelism }, |all| all.saturating_sub(succeeded));
    let wanted = if is_failed || is_complete || is_suspended { 0 } else { parallelism.min(missing) };
    let count = active.len() as u64;
    for _ in count..wanted.min(count + MAX_PODS_AT_ONCE) {
        plan.create(pod(key, job));
    }
    // A job without a number of completions lets its remaining pods end.
    if completions.is_some() || is_failed || is_suspended {
        for (pod_key, pod) in active.iter().skip(usize::try_from(wanted).unwrap_or(usize::MAX)) {
            plan.delete(pod_key, pod);
        }
    }
    let now = context.timestamp();
    let started = match text(job, "/status/startTime") {
        "" if is_suspended => Value::Null,
        "" => now.as_str().into(),
        started => started.into(),
    };
    let mut status = json!({
        "active": count, "ready": ready, "succeeded": succeeded, "failed": failed, "terminating": terminating,
        "startTime": started, "uncountedTerminatedPods": {},
    });
    let final_conditions = |kinds: [&str; 2], reason: &str, message: &str| -> Value {
        let conditions = kinds.into_iter().map(|kind| {
            let mut condition = condition(job, kind, true, reason, message, &now);
            condition["lastProbeTime"] = condition["lastTransitionTime"].clone();
            condition
        });
        conditions.collect()
    };
    if is_failed {
        let message = "Job has reached the specified backoff limit";
        status["conditions"] = final_conditions(["FailureTarget", "Failed"], "BackoffLimitExceeded", message);
        (status["active"], status["terminating"]) = (0.into(), 0.into());
    } else if is_complete {
        let message = "Reached expected number of succeeded pods";
        status["conditions"] = final_conditions(["SuccessCriteriaMet", "Complete"], "CompletionsReached", message);
        status["completionTime"] = now.as_str().into();
        // The status of a complete job is final, so the count must be 0 already. A real cluster completes a job after
        // its last pod has ended.
        status["terminating"] = 0.into();
    }
    plan.patch_status(key, job, status);
}

fn pod(key: &Key, job: &Value) -> Value {
    let mut pod = template::generated_pod(Kind::Job, job);
    let uid = metadata::text(job, "uid");
    for prefix in ["", "batch.kubernetes.io/"] {
        template::set_label(&mut pod, &format!("{prefix}controller-uid"), uid);
        template::set_label(&mut pod, &format!("{prefix}job-name"), &key.name);
    }
    pod
}

fn is_finished(job: &Value) -> bool {
    conditions::is_true(job, "Complete") || conditions::is_true(job, "Failed")
}

/// Deletes a finished job after `ttlSecondsAfterFinished`.
fn delete_expired(context: &Context<'_>, key: &Key, job: &Value, plan: &mut Plan) {
    let Some(ttl) = number(job, "/spec/ttlSecondsAfterFinished") else { return };
    let finished = ["Complete", "Failed"].iter().find_map(|kind| conditions::find_condition(job, kind));
    let Some(Ok(finished)) = finished.map(|condition| text(condition, "/lastTransitionTime").parse::<Timestamp>())
    else {
        return;
    };
    let age = u64::try_from(context.clock.seconds() - finished.as_second()).unwrap_or_default();
    if age >= ttl {
        plan.delete_with(key, job, Dependents::Foreground);
    } else {
        plan.run_again_after(context.now, Duration::from_secs(ttl - age));
    }
}
