//! Lines of added, replaced and deleted objects.

use serde_json::{Value, json};
use steadfast::{Call, Certainty, DeleteReason};

use super::super::tests::plain_style;
use super::{condition, subject, without_time};
use crate::watch::owners::OwnerChain;
use crate::watch::watched::{DecodedEvent, Deletion, EventTime};

/// Returns the line of an event about the object `path` of `resource`.
fn line(
    (kind, resource, path): (&str, &str, &str),
    content: Value,
    deletion: Option<(Certainty, DeleteReason)>,
    replacement: Option<&str>,
) -> String {
    let mut object = content;
    let (namespace, name) =
        path.split_once('/').map_or((Value::Null, path), |(namespace, name)| (json!(namespace), name));
    let entry = json!({"manager": "kubectl", "operation": "Update", "time": "2026-01-01T00:00:00Z"});
    object["metadata"] = json!({"namespace": namespace, "name": name, "uid": "u-1", "managedFields": [entry]});
    let mut call = Call::default();
    call.changes = 1;
    let event = DecodedEvent {
        name: if deletion.is_some() { "Deleted" } else { "Added" },
        old: None,
        object,
        deletion: deletion.map(|(certainty, reason)| Deletion { version: None, certainty, reason }),
        call,
        owners: OwnerChain::default(),
        time: EventTime::Now,
    };
    let line = plain_style().event(&subject(kind, resource, Vec::new()), &event, replacement);
    without_time(&line.text.expect("a line")).to_owned()
}

#[test]
fn added_object_has_exact_line() {
    let ready = json!([condition("Ready", "True", "KubeletReady", 1)]);
    let rows = [
        (
            ("Pod", "pods", "shop/web-0"),
            json!({"status": {"phase": "Pending"}}),
            "+ pods shop/web-0 Pending by kubectl",
        ),
        (
            ("apps/Deployment", "deployments.apps", "shop/web"),
            json!({"spec": {"replicas": 3}, "status": {}}),
            "+ deployments.apps shop/web ready 0 of 3 by kubectl",
        ),
        (("Node", "nodes", "node-3"), json!({"status": {"conditions": ready}}), "+ nodes node-3 Ready by kubectl"),
        (
            ("Service", "services", "shop/front"),
            json!({"spec": {"type": "ClusterIP", "clusterIP": "10.96.0.12", "ports": [{"port": 80}]}}),
            "+ services shop/front ClusterIP 10.96.0.12 80 by kubectl",
        ),
        (
            ("Secret", "secrets", "shop/db"),
            json!({"data": {"password": "cGxhbnRlZA=="}}),
            "+ secrets shop/db 1 key by kubectl",
        ),
        (
            ("Event", "events", "shop/web-0.18a"),
            json!({"type": "Warning", "reason": "BackOff", "message": "restarting",
                "involvedObject": {"kind": "Pod", "name": "web-0"}}),
            "+ events shop/web-0.18a Warning BackOff Pod/web-0: restarting by kubectl",
        ),
        (
            ("autoscaling/HorizontalPodAutoscaler", "horizontalpodautoscalers.autoscaling", "shop/web"),
            json!({"spec": {"minReplicas": 3, "maxReplicas": 5}, "status": {"currentReplicas": 3}}),
            "+ horizontalpodautoscalers.autoscaling shop/web replicas 3 of 3 to 5 by kubectl",
        ),
    ];
    for (object, content, expected) in rows {
        assert_eq!(line(object, content, None, None), expected);
    }
}

#[test]
fn deletion_has_certainty_and_last_state() {
    let pod = ("Pod", "pods", "shop/web-2");
    let status = json!({"ready": true, "restartCount": 2, "state": {"running": {}}});
    let content =
        || json!({"spec": {"nodeName": "node-1"}, "status": {"phase": "Running", "containerStatuses": [status]}});
    let rows = [
        (Certainty::Observed, DeleteReason::Deleted, "(observed: deleted)"),
        (Certainty::Observed, DeleteReason::Replaced, "(observed: replaced)"),
        (Certainty::Inferred, DeleteReason::Deleted, "(inferred: deleted)"),
        (Certainty::Inferred, DeleteReason::Replaced, "(inferred: replaced)"),
        (Certainty::Observed, DeleteReason::DeletedOrLeft, "(observed: deleted or left the selector)"),
    ];
    for (certainty, reason, brackets) in rows {
        let expected = format!("- pods shop/web-2 Running 1/1 on node-1, 2 restarts {brackets}");
        assert_eq!(line(pod, content(), Some((certainty, reason)), None), expected);
    }
}

#[test]
fn replacement_under_same_name_is_marked() {
    for text in ["recreated under the same name after 2.3 s", "replaces the object of the same name"] {
        let line = line(("Pod", "pods", "shop/web-2"), json!({"status": {"phase": "Pending"}}), None, Some(text));
        assert_eq!(line, format!("+ pods shop/web-2 Pending ({text}) by kubectl"));
    }
}
