//! One-line state of an object, for lines about additions and deletions.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde_json::Value;

use super::columns::Column;
use super::kind::Kind;
use super::phrases::{at, event_message, find_condition, flag, list, number, text};
use super::text::{escape, plural};
use super::value_text::short;

/// Returns the state of `object`; empty if nothing short describes it. The text contains no values of Secrets.
pub(crate) fn state(kind: &Kind, columns: &[Column], object: &Value) -> String {
    let state = match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Pod") => pod(object),
        ("", "Node") => node(object),
        ("apps", "Deployment" | "StatefulSet" | "ReplicaSet") | ("", "ReplicationController") => {
            let desired = at(object, "spec/replicas").and_then(Value::as_i64).unwrap_or(1);
            format!("ready {} of {desired}", number(object, "status/readyReplicas"))
        }
        ("apps", "DaemonSet") => {
            let (ready, desired) = ("status/numberReady", "status/desiredNumberScheduled");
            format!("ready {} of {}", number(object, ready), number(object, desired))
        }
        ("batch", "Job") => job(object),
        ("batch", "CronJob") => {
            let is_suspended = flag(object, "spec/suspend");
            format!("schedule {}{}", text(object, "spec/schedule"), if is_suspended { ", suspended" } else { "" })
        }
        ("", "Service") => service(object),
        ("networking.k8s.io", "Ingress") => ingress(object),
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaler(object),
        ("policy", "PodDisruptionBudget") => {
            format!("allowed disruptions {}", number(object, "status/disruptionsAllowed"))
        }
        ("", "ConfigMap" | "Secret") => data(object),
        ("" | "events.k8s.io", "Event") => event(object),
        ("coordination.k8s.io", "Lease") => labelled("holder", text(object, "spec/holderIdentity")),
        ("discovery.k8s.io", "EndpointSlice") => plural(list(object, "endpoints").len(), "endpoint"),
        ("", "PersistentVolumeClaim" | "PersistentVolume" | "Namespace") => text(object, "status/phase").to_owned(),
        _ => summary(columns, object),
    };
    escape(&state).into_owned()
}

fn labelled(label: &str, value: &str) -> String {
    if value.is_empty() { String::new() } else { format!("{label} {value}") }
}

fn pod(pod: &Value) -> String {
    let statuses = list(pod, "status/containerStatuses");
    let waiting = statuses.iter().find_map(|status| at(status, "state/waiting/reason")?.as_str());
    let terminated = statuses.iter().find_map(|status| at(status, "state/terminated/reason")?.as_str());
    let reason = Some(text(pod, "status/reason")).filter(|reason| !reason.is_empty());
    let summary = reason.or(waiting).or(terminated).unwrap_or(text(pod, "status/phase"));
    let mut state = summary.to_owned();
    if !statuses.is_empty() {
        let ready = statuses.iter().filter(|status| status["ready"] == true).count();
        let _ = write!(state, " {ready}/{}", statuses.len());
    }
    let node = text(pod, "spec/nodeName");
    if !node.is_empty() {
        let _ = write!(state, " on {node}");
    }
    let restarts: i64 = statuses.iter().map(|status| number(status, "restartCount")).sum();
    if restarts > 0 {
        let _ = write!(state, ", {}", plural(restarts, "restart"));
    }
    state.trim_start().to_owned()
}

fn node(node: &Value) -> String {
    let ready = status(node, "Ready").map_or("Unknown", |status| match status {
        "True" => "Ready",
        "False" => "NotReady",
        _ => "Unknown",
    });
    let is_cordoned = flag(node, "spec/unschedulable");
    format!("{ready}{}", if is_cordoned { ", cordoned" } else { "" })
}

fn job(job: &Value) -> String {
    for kind in ["Complete", "Failed", "Suspended"] {
        if status(job, kind) == Some("True") {
            return kind.to_owned();
        }
    }
    let completions =
        at(job, "spec/completions").map_or(Cow::Borrowed("1"), |completions| Cow::Owned(short(Some(completions))));
    format!("succeeded {} of {completions}", number(job, "status/succeeded"))
}

fn service(service: &Value) -> String {
    let ports: Vec<String> = list(service, "spec/ports").iter().map(|port| short(at(port, "port"))).collect();
    let fields = [text(service, "spec/type").to_owned(), text(service, "spec/clusterIP").to_owned(), ports.join(",")];
    let present: Vec<&str> = fields.iter().map(String::as_str).filter(|field| !field.is_empty()).collect();
    present.join(" ")
}

fn ingress(ingress: &Value) -> String {
    let hosts = list(ingress, "spec/rules").iter().map(|rule| text(rule, "host")).filter(|host| !host.is_empty());
    hosts.collect::<Vec<_>>().join(",")
}

fn autoscaler(autoscaler: &Value) -> String {
    // The server's default is 1.
    let min = at(autoscaler, "spec/minReplicas").and_then(Value::as_i64).unwrap_or(1);
    let (current, max) = (number(autoscaler, "status/currentReplicas"), number(autoscaler, "spec/maxReplicas"));
    format!("replicas {current} of {min} to {max}")
}

fn data(object: &Value) -> String {
    let keys = |field| at(object, field).and_then(Value::as_object).map_or(0, serde_json::Map::len);
    plural(keys("data") + keys("binaryData") + keys("stringData"), "key")
}

fn event(event: &Value) -> String {
    let object_field = if at(event, "regarding").is_some() { "regarding" } else { "involvedObject" };
    let object_text = |field| text(event, &format!("{object_field}/{field}"));
    let (kind, reason) = (text(event, "type"), text(event, "reason"));
    format!("{kind} {reason} {}/{}: {}", object_text("kind"), object_text("name"), event_message(event))
}

/// Returns the printer columns, or else the phase or the condition that summarizes the object.
fn summary(columns: &[Column], object: &Value) -> String {
    let values =
        columns.iter().filter_map(|column| Some(format!("{} {}", column.name, short(Some(column.value(object)?)))));
    let values: Vec<String> = values.collect();
    if !values.is_empty() {
        return values.join(", ");
    }
    let phase = text(object, "status/phase");
    if !phase.is_empty() {
        return phase.to_owned();
    }
    let kinds = ["Ready", "Available", "Established", "Complete", "Accepted", "Synced"];
    let condition = kinds.into_iter().find_map(|kind| Some(format!("{kind} {}", status(object, kind)?)));
    condition.unwrap_or_default()
}

/// Returns the status of the condition `kind`.
fn status<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    find_condition(list(object, "status/conditions"), kind).map(|condition| text(condition, "status"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn state_summarizes_known_kinds() {
        let statuses = json!([
            {"ready": true, "restartCount": 2, "state": {"running": {}}},
            {"ready": false, "restartCount": 1, "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
        ]);
        let pod = json!({"spec": {"nodeName": "n1"}, "status": {"phase": "Running", "containerStatuses": statuses}});
        let conditions = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let secret = json!({"data": {"password": "cGxhbnRlZA=="}});
        let event = json!({
            "type": "Warning", "reason": "BackOff", "message": "restarting\u{1b}[2J",
            "involvedObject": {"kind": "Pod", "name": "web-0"},
        });
        for (group, kind, object, expected) in [
            ("", "Pod", &pod, "CrashLoopBackOff 1/2 on n1, 3 restarts"),
            ("", "Pod", &json!({"status": {"phase": "Pending"}}), "Pending"),
            ("", "Node", &conditions, "Ready"),
            ("apps", "Deployment", &json!({"spec": {"replicas": 3}, "status": {"readyReplicas": 2}}), "ready 2 of 3"),
            ("apps", "DaemonSet", &json!({"status": {"numberReady": 2, "desiredNumberScheduled": 5}}), "ready 2 of 5"),
            ("batch", "Job", &json!({"status": {"succeeded": 1}, "spec": {"completions": 3}}), "succeeded 1 of 3"),
            ("batch", "Job", &json!({"status": {"conditions": [{"type": "Failed", "status": "True"}]}}), "Failed"),
            (
                "batch",
                "CronJob",
                &json!({"spec": {"schedule": "0 * * * *", "suspend": true}}),
                "schedule 0 * * * *, suspended",
            ),
            (
                "",
                "Service",
                &json!({"spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1", "ports": [{"port": 80}]}}),
                "ClusterIP 10.0.0.1 80",
            ),
            ("", "Secret", &secret, "1 key"),
            ("", "Event", &event, "Warning BackOff Pod/web-0: restarting\\u{1b}[2J"),
            ("coordination.k8s.io", "Lease", &json!({"spec": {"holderIdentity": "a"}}), "holder a"),
            ("example.com", "Widget", &conditions, "Ready True"),
            ("example.com", "Widget", &json!({}), ""),
        ] {
            assert_eq!(state(&Kind::new(group, kind), &[], object), expected, "{kind}");
        }
        let column = Column { name: "Size".to_owned(), pattern: "spec/size".to_owned() };
        assert_eq!(state(&Kind::new("example.com", "Widget"), &[column], &json!({"spec": {"size": 3}})), "Size 3");
    }
}
