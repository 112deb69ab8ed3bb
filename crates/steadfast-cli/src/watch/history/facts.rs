//! Facts whose time is recorded in an object or in an Event. The state before a fact is unknown.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::changes::phrases::{at, container_statuses, event_message, event_time, list, number, text};

/// A fact with its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DatedFact {
    pub(super) time: Timestamp,
    /// The fact: `Ready True (MinimumReplicasAvailable)`. Not escaped.
    pub(super) text: String,
    /// Part of the object with the time: `condition`.
    pub(super) source: &'static str,
}

/// Collector of facts.
#[derive(Default)]
struct Facts(Vec<DatedFact>);

impl Facts {
    /// Adds a fact if `time` is a valid time.
    fn add(&mut self, source: &'static str, time: &str, text: impl Into<String>) {
        if let Ok(time) = time.parse() {
            self.0.push(DatedFact { time, text: text.into(), source });
        }
    }
}

/// Returns the facts whose times `object` records.
pub(super) fn facts(object: &Value) -> Vec<DatedFact> {
    let mut facts = Facts::default();
    facts.add("creation", text(object, "metadata/creationTimestamp"), "created");
    if let Ok(deadline) = text(object, "metadata/deletionTimestamp").parse::<Timestamp>() {
        // The timestamp is the time of the request plus the grace period.
        let grace = number(object, "metadata/deletionGracePeriodSeconds").clamp(0, i64::from(i32::MAX));
        if let Ok(time) = deadline.checked_sub(SignedDuration::from_secs(grace)) {
            let text = format!("deletion requested (grace period {grace} s)");
            facts.0.push(DatedFact { time, text, source: "deletion" });
        }
    }
    for condition in list(object, "status/conditions") {
        let (kind, status) = (text(condition, "type"), text(condition, "status"));
        let fact = with_reason(format!("{kind} {status}"), text(condition, "reason"));
        facts.add("condition", text(condition, "lastTransitionTime"), fact);
    }
    for status in container_statuses(object) {
        add_container(&mut facts, status);
    }
    if text(object, "kind") == "Job" {
        facts.add("status", text(object, "status/startTime"), "started");
        facts.add("status", text(object, "status/completionTime"), "completed");
    }
    add_last_writes(&mut facts, object);
    facts.0
}

fn add_container(facts: &mut Facts, status: &Value) {
    let name = text(status, "name");
    for state in ["lastState", "state"] {
        let field = |field: &str| text(status, &format!("{state}/{field}"));
        facts.add("container", field("running/startedAt"), format!("container {name} started"));
        facts.add("container", field("terminated/startedAt"), format!("container {name} started"));
        let code = number(status, &format!("{state}/terminated/exitCode"));
        let reason = [field("terminated/reason"), &format!("exit code {code}")].join(", ");
        let reason = reason.trim_start_matches(", ");
        let ended = with_reason(format!("container {name} terminated"), reason);
        facts.add("container", field("terminated/finishedAt"), ended);
    }
}

/// Adds the last write of each field manager, except for the creation and for writes of the status. Conditions and
/// containers have the times of status changes.
fn add_last_writes(facts: &mut Facts, object: &Value) {
    let created = text(object, "metadata/creationTimestamp");
    for entry in list(object, "metadata/managedFields") {
        let (manager, time) = (text(entry, "manager"), text(entry, "time"));
        if time != created && text(entry, "subresource").is_empty() {
            facts.add("field manager", time, format!("last write by {manager}"));
        }
    }
}

fn with_reason(fact: String, reason: &str) -> String {
    if reason.is_empty() { fact } else { format!("{fact} ({reason})") }
}

/// Returns the fact that an Event reports, at its last occurrence.
pub(super) fn event_fact(event: &Value) -> Option<DatedFact> {
    let time = event_time(event)?;
    let counts = ["series/count", "count", "deprecatedCount"].map(|field| number(event, field));
    let count = counts.into_iter().max().filter(|count| *count > 1);
    let repeated = count.map_or(String::new(), |count| format!(" ({count} times)"));
    let (kind, reason, message) = (text(event, "type"), text(event, "reason"), event_message(event));
    Some(DatedFact { time, text: format!("{kind} {reason}: {message}{repeated}"), source: "Event" })
}

/// Returns the UID of the object that an Event reports about.
pub(super) fn event_subject(event: &Value) -> Option<&str> {
    at(event, "regarding/uid").or_else(|| at(event, "involvedObject/uid"))?.as_str()
}

/// Returns the time of the last write to `object`, as far as its field managers record one.
pub(super) fn last_write(object: &Value) -> Option<Timestamp> {
    let times = list(object, "metadata/managedFields").iter().map(|entry| text(entry, "time"));
    let times = times.chain([text(object, "metadata/creationTimestamp")]);
    times.filter_map(|time| time.parse().ok()).max()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn described(facts: Vec<DatedFact>) -> Vec<String> {
        let mut facts = facts;
        facts.sort_by_key(|fact| fact.time);
        facts.into_iter().map(|fact| format!("{:.0} {} [{}]", fact.time, fact.text, fact.source)).collect()
    }

    #[test]
    fn pod_dates_its_life() {
        let pod = json!({
            "kind": "Pod",
            "metadata": {
                "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-01T00:10:30Z",
                "deletionGracePeriodSeconds": 30,
                "managedFields": [
                    {"manager": "controller", "time": "2026-01-01T00:00:00Z"},
                    {"manager": "kubectl", "time": "2026-01-01T00:05:00Z"},
                    {"manager": "kubelet", "subresource": "status", "time": "2026-01-01T00:06:00Z"},
                ],
            },
            "status": {
                "conditions": [
                    {"type": "Ready", "status": "False", "reason": "ContainersNotReady", "lastTransitionTime": "2026-01-01T00:03:00Z"},
                    {"type": "Initialized", "status": "True", "lastTransitionTime": null},
                ],
                "containerStatuses": [{
                    "name": "app",
                    "state": {"running": {"startedAt": "2026-01-01T00:03:01Z"}},
                    "lastState": {"terminated": {
                        "startedAt": "2026-01-01T00:00:02Z", "finishedAt": "2026-01-01T00:02:59Z", "exitCode": 137,
                        "reason": "OOMKilled",
                    }},
                }],
            },
        });
        let expected = [
            "2026-01-01T00:00:00Z created [creation]",
            "2026-01-01T00:00:02Z container app started [container]",
            "2026-01-01T00:02:59Z container app terminated (OOMKilled, exit code 137) [container]",
            "2026-01-01T00:03:00Z Ready False (ContainersNotReady) [condition]",
            "2026-01-01T00:03:01Z container app started [container]",
            "2026-01-01T00:05:00Z last write by kubectl [field manager]",
            "2026-01-01T00:10:00Z deletion requested (grace period 30 s) [deletion]",
        ];
        assert_eq!(described(facts(&pod)), expected);
        assert_eq!(last_write(&pod), "2026-01-01T00:06:00Z".parse().ok());
    }

    #[test]
    fn event_has_last_occurrence() {
        let event = json!({
            "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "lastTimestamp": "2026-01-01T00:04:00Z",
            "count": 5, "type": "Warning", "reason": "BackOff", "message": "restarting", "involvedObject": {"uid": "u"},
        });
        let fact = described(event_fact(&event).into_iter().collect());
        assert_eq!(fact, ["2026-01-01T00:04:00Z Warning BackOff: restarting (5 times) [Event]"]);
        assert_eq!(event_subject(&event), Some("u"));
        assert_eq!(event_fact(&json!({"reason": "x"})), None);
    }
}
