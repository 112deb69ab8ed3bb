//! Scheduler and kubelets: the stages of a pod, from creation to its end.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::conditions::condition;
use super::context::Context;
use super::kind::Kind;
use super::nodes;
use super::options::World;
use super::plan::Plan;
use super::view::{Key, number, text};
use crate::metadata;

const READY_AFTER: &str = "world.steadfast.dev/ready-after";
const EXIT_AFTER: &str = "world.steadfast.dev/exit-after";
const EXIT_CODE: &str = "world.steadfast.dev/exit-code";

/// Delay of the first restart of a container, as of a real kubelet. It doubles with each restart.
const FIRST_BACKOFF: Duration = Duration::from_secs(10);

/// Maximum delay of a restart.
const MAX_BACKOFF: Duration = Duration::from_secs(300);

/// Maximum of a duration in an annotation: a year.
const MAX_SECONDS: f64 = 31_536_000.0;

/// The kubelets of all nodes.
pub(super) struct Kubelet {
    world: World,
    /// Time of the next stage of each pod, by UID. `None`: the stage lasts until the end of the pod.
    due: HashMap<String, Option<Duration>>,
    /// Number of the next address.
    addresses: u32,
}

/// Stage of a pod on its node.
enum Stage {
    Unscheduled,
    Scheduled,
    Creating,
    Running,
    Crashed,
    Finished,
}

impl Stage {
    fn of(pod: &Value) -> Self {
        match text(pod, "/status/phase") {
            _ if text(pod, "/spec/nodeName").is_empty() => Self::Unscheduled,
            "Succeeded" | "Failed" => Self::Finished,
            "Running" if pod.pointer("/status/containerStatuses/0/state/waiting").is_some() => Self::Crashed,
            "Running" => Self::Running,
            _ if text(pod, "/status/startTime").is_empty() => Self::Scheduled,
            _ => Self::Creating,
        }
    }
}

impl Kubelet {
    /// Creates the kubelets. `pods` are those of a snapshot; their addresses are not assigned again.
    pub(super) fn new<'a>(world: World, pods: impl Iterator<Item = &'a Value>) -> Self {
        let used = pods.filter_map(|pod| address_number(text(pod, "/status/podIP"))).max();
        Self { world, due: HashMap::new(), addresses: used.map_or(0, |highest| highest + 1) }
    }

    /// Forgets a deleted object.
    pub(super) fn forget(&mut self, uid: &str) {
        self.due.remove(uid);
    }

    /// Forgets the times of all stages.
    pub(super) fn clear(&mut self) {
        self.due.clear();
    }

    /// Moves a pod to its next stage, if it is due.
    pub(super) fn reconcile(&mut self, context: &Context<'_>, key: &Key, pod: &Value, plan: &mut Plan) {
        let node = text(pod, "/spec/nodeName");
        if !node.is_empty() && context.view.get(&Key::new(Kind::Node, "", node)).is_none() {
            // Pods of a deleted node are lost.
            plan.delete(key, pod);
            return;
        }
        match Stage::of(pod) {
            Stage::Unscheduled => schedule(context, key, pod, plan),
            Stage::Scheduled => {
                // The time to readiness starts with the start of the pod.
                self.due.insert(uid(pod), self.ready_at(context, pod));
                plan.patch(key, pod, json!({"status": creating(context, pod)}));
            }
            Stage::Creating => {
                let ready_at = self.ready_at(context, pod);
                if self.is_due(context, pod, ready_at, plan) {
                    self.run(context, key, pod, plan);
                }
            }
            Stage::Running => {
                let exit_at = self.exit_after(pod).map(|delay| context.now + delay);
                if self.is_due(context, pod, exit_at, plan) {
                    self.exit(context, key, pod, plan);
                }
            }
            Stage::Crashed => {
                if self.is_due(context, pod, Some(context.now), plan) {
                    self.run(context, key, pod, plan);
                }
            }
            Stage::Finished => self.forget(metadata::text(pod, "uid")),
        }
    }

    /// Returns whether the current stage of a pod has ended, and removes its time. `default` is the end of a stage
    /// without a recorded end, for example after a restore or after a client wrote the status.
    fn is_due(&mut self, context: &Context<'_>, pod: &Value, default: Option<Duration>, plan: &mut Plan) -> bool {
        let Some(due) = *self.due.entry(uid(pod)).or_insert(default) else { return false };
        if due > context.now {
            plan.run_again_at(due);
            return false;
        }
        self.due.remove(metadata::text(pod, "uid"));
        true
    }

    fn ready_at(&self, context: &Context<'_>, pod: &Value) -> Option<Duration> {
        let delay = match metadata::annotation(pod, READY_AFTER) {
            "" => self.start_delay(metadata::text(pod, "uid")),
            "never" => return None,
            seconds => parse_seconds(seconds)?,
        };
        Some(context.now + delay)
    }

    /// Returns a delay within the configured bounds. It only depends on the UID, so that runs with equal seeds are
    /// equal.
    fn start_delay(&self, uid: &str) -> Duration {
        let bounds = &self.world.pod_start;
        let spread = bounds.end.saturating_sub(bounds.start).as_millis().max(1);
        let sum = uid.bytes().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
        bounds.start + Duration::from_millis((u128::from(sum) % spread) as u64)
    }

    /// Returns the time from readiness to the exit of the containers; `None` if they run forever.
    fn exit_after(&self, pod: &Value) -> Option<Duration> {
        match metadata::annotation(pod, EXIT_AFTER) {
            "" => (!restarts_always(pod)).then_some(self.world.pod_run),
            "never" => None,
            seconds => parse_seconds(seconds),
        }
    }

    /// Starts the containers, or restarts them after a crash.
    fn run(&mut self, context: &Context<'_>, key: &Key, pod: &Value, plan: &mut Plan) {
        let now = context.timestamp();
        let address = match text(pod, "/status/podIP") {
            "" => self.next_address(),
            existing => existing.to_owned(),
        };
        let mut status = json!({
            "phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
            "conditions": conditions(pod, true, &now),
            "containerStatuses": containers(pod, |status| {
                status.insert("ready".to_owned(), true.into());
                status.insert("started".to_owned(), true.into());
                status.insert("state".to_owned(), json!({"running": {"startedAt": now}}));
            }),
        });
        if pod["spec"]["initContainers"].is_array() {
            let ended = json!({"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": now}});
            let statuses = named(pod, "initContainers").map(|(name, image)| {
                json!({
                    "name": name, "image": image, "imageID": "", "ready": true, "restartCount": 0, "state": ended,
                })
            });
            status["initContainerStatuses"] = statuses.collect();
        }
        self.due.insert(uid(pod), self.exit_after(pod).map(|delay| context.now + delay));
        plan.patch(key, pod, json!({"status": status}));
    }

    /// Ends the containers: the pod finishes, or restarts after a delay.
    fn exit(&mut self, context: &Context<'_>, key: &Key, pod: &Value, plan: &mut Plan) {
        let now = context.timestamp();
        let code: i64 = metadata::annotation(pod, EXIT_CODE).parse().unwrap_or(0);
        let reason = match code {
            0 => "Completed",
            137 => "OOMKilled",
            _ => "Error",
        };
        let ended = json!({"terminated": {"exitCode": code, "reason": reason, "finishedAt": now}});
        let is_final = match text(pod, "/spec/restartPolicy") {
            "Never" => true,
            "OnFailure" => code == 0,
            _ => false,
        };
        let restarts = number(pod, "/status/containerStatuses/0/restartCount").unwrap_or_default();
        let backoff = FIRST_BACKOFF * 2_u32.saturating_pow(restarts.min(8) as u32);
        let statuses = containers(pod, |status| {
            status.insert("ready".to_owned(), false.into());
            status.insert("started".to_owned(), false.into());
            if is_final {
                status.insert("state".to_owned(), ended.clone());
            } else {
                let message = format!("back-off {}s restarting failed container", backoff.min(MAX_BACKOFF).as_secs());
                status
                    .insert("state".to_owned(), json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}}));
                status.insert("lastState".to_owned(), ended.clone());
                status.insert("restartCount".to_owned(), (restarts + 1).into());
            }
        });
        let phase = match (is_final, code) {
            (false, _) => "Running",
            (true, 0) => "Succeeded",
            (true, _) => "Failed",
        };
        if !is_final {
            self.due.insert(uid(pod), Some(context.now + backoff.min(MAX_BACKOFF)));
        }
        let status = json!({"phase": phase, "conditions": conditions(pod, false, &now), "containerStatuses": statuses});
        plan.patch(key, pod, json!({"status": status}));
    }

    fn next_address(&mut self) -> String {
        let number = self.addresses % (250 * 250);
        self.addresses = self.addresses.wrapping_add(1);
        format!("10.244.{}.{}", number / 250, number % 250 + 1)
    }
}

/// Returns the number of an assigned address; `None` for other addresses.
fn address_number(address: &str) -> Option<u32> {
    let (high, low) = address.strip_prefix("10.244.")?.split_once('.')?;
    let (high, low): (u8, u8) = (high.parse().ok()?, low.parse().ok()?);
    Some(u32::from(high) * 250 + u32::from(low.checked_sub(1)?))
}

/// Assigns a node to a pod, or records why there is none. A change of a node starts another attempt.
fn schedule(context: &Context<'_>, key: &Key, pod: &Value, plan: &mut Plan) {
    let now = context.timestamp();
    if let Some(node) = nodes::choose(context.view, pod) {
        let scheduled = condition(pod, "PodScheduled", true, "", "", &now);
        let status = json!({"phase": "Pending", "conditions": [scheduled]});
        plan.patch(key, pod, json!({"spec": {"nodeName": node}, "status": status}));
    } else {
        let count = context.view.all(Kind::Node).count();
        let message =
            format!("0/{count} nodes are available: no node is ready, schedulable and selected by nodeSelector.");
        let unscheduled = condition(pod, "PodScheduled", false, "Unschedulable", &message, &now);
        plan.patch(key, pod, json!({"status": {"phase": "Pending", "conditions": [unscheduled]}}));
    }
}

/// Returns the status of a pod whose containers are being created.
fn creating(context: &Context<'_>, pod: &Value) -> Value {
    let now = context.timestamp();
    json!({
        "phase": "Pending", "startTime": now, "qosClass": "BestEffort",
        "conditions": conditions(pod, false, &now),
        "containerStatuses": containers(pod, |status| {
            status.insert("ready".to_owned(), false.into());
            status.insert("started".to_owned(), false.into());
            status.insert("state".to_owned(), json!({"waiting": {"reason": "ContainerCreating"}}));
        }),
    })
}

fn conditions(pod: &Value, is_ready: bool, now: &str) -> Value {
    let (reason, message) = if is_ready { ("", "") } else { ("ContainersNotReady", "containers are not ready") };
    json!([
        condition(pod, "PodScheduled", true, "", "", now),
        condition(pod, "Initialized", true, "", "", now),
        condition(pod, "ContainersReady", is_ready, reason, message, now),
        condition(pod, "Ready", is_ready, reason, message, now),
    ])
}

/// Returns the statuses of all containers, each changed by `change`.
fn containers(pod: &Value, change: impl Fn(&mut Map<String, Value>)) -> Value {
    let existing = pod.pointer("/status/containerStatuses").and_then(Value::as_array);
    named(pod, "containers")
        .map(|(name, image)| {
            let known = existing.into_iter().flatten().find(|status| status["name"] == name);
            let mut status = known.and_then(Value::as_object).cloned().unwrap_or_default();
            for (field, value) in [("name", name.into()), ("image", image.into()), ("imageID", Value::from(""))] {
                status.insert(field.to_owned(), value);
            }
            status.entry("restartCount").or_insert(0.into());
            change(&mut status);
            Value::Object(status)
        })
        .collect()
}

/// Returns the names and images of containers.
fn named<'a>(pod: &'a Value, field: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let containers = pod["spec"][field].as_array();
    let text = |container: &'a Value, field: &str| container[field].as_str().unwrap_or_default();
    containers.into_iter().flatten().map(move |container| (text(container, "name"), text(container, "image")))
}

fn restarts_always(pod: &Value) -> bool {
    matches!(text(pod, "/spec/restartPolicy"), "" | "Always")
}

fn uid(pod: &Value) -> String {
    metadata::text(pod, "uid").to_owned()
}

/// Parses a number of seconds, with or without the suffix `s`. Returns `None` if the text is not a number from 0 to
/// [`MAX_SECONDS`]; the stage then never ends.
fn parse_seconds(text: &str) -> Option<Duration> {
    let seconds: f64 = text.strip_suffix('s').unwrap_or(text).parse().ok()?;
    (0.0..=MAX_SECONDS).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
}
