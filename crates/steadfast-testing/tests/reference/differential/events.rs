//! Events, which two API groups serve with different field names.

use serde_json::{Value, json};

use crate::differential::generate::ScriptBuilder;
use crate::differential::kinds::{Kind, built_in};
use crate::differential::script::Step;

/// Both representations of the collection.
pub const EVENTS: [Kind; 2] = [
    built_in("/api/v1", "v1", "Event", "events"),
    built_in("/apis/events.k8s.io/v1", "events.k8s.io/v1", "Event", "events"),
];

/// Adds a request for events through one of their two groups.
pub fn add_lifecycle(builder: &mut ScriptBuilder) {
    let number = builder.rng.below(8);
    // A patch uses the core group only. In the newer group, nearly all fields are immutable, and the embedded server
    // validates only metadata.
    let group_index = if number == 4 { 0 } else { builder.rng.below(2) };
    let Kind { root, plural, .. } = EVENTS[group_index];
    let group = if group_index == 0 { "core" } else { "events group" };
    let name = builder.rng.pick(&["e", "f"]);
    let collection = format!("{root}/namespaces/{}/{plural}", builder.namespace);
    let at = format!("{collection}/{name}");
    let step = match number {
        0..=2 => Step::new("event", "POST", collection).label("created").json(&event(builder, group_index, name)),
        3 => Step::new("event", "GET", at).label("read"),
        4 => {
            let mut step =
                Step::new("event", "PATCH", at).label("changed").json(&json!({"message": "again", "count": 7}));
            step.content_type = "application/merge-patch+json";
            step
        }
        5 => Step::new("event", "GET", collection).label("listed"),
        6 => {
            let selector = match (group_index, builder.rng.below(4)) {
                (0, 0) => "source%3Ddifferential",
                (0, 1) => "source%3Dsteadfast.dev%2Fdifferential",
                (0, 2) => "involvedObject.name%3Dq",
                (0, _) => "involvedObject.name%3Dp",
                (_, 0) => "reportingController%3Dsteadfast.dev%2Fdifferential",
                (_, 1) => "regarding.name%3Dq",
                _ => "regarding.name%3Dp",
            };
            Step::new("event", "GET", collection).query(&format!("fieldSelector={selector}")).label("selected")
        }
        _ => Step::new("event", "DELETE", at).label("deleted"),
    };
    builder.push(step.label(group));
}

fn event(builder: &mut ScriptBuilder, group_index: usize, name: &str) -> Value {
    let regarding = json!({"kind": "Pod", "namespace": builder.namespace, "name": builder.rng.pick(&["p", "q"])});
    let time = "2026-01-01T00:00:00Z";
    let mut event = if group_index == 0 {
        json!({
            "involvedObject": regarding, "message": "it began", "source": {"component": "differential"}, "count": 2,
            "firstTimestamp": time, "lastTimestamp": time,
        })
    } else {
        json!({
            "regarding": regarding, "note": "it began", "action": "Begin", "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "steadfast.dev/differential", "reportingInstance": "differential-1",
        })
    };
    event["apiVersion"] = EVENTS[group_index].api_version.into();
    event["kind"] = EVENTS[group_index].kind.into();
    event["metadata"] = json!({"name": name, "namespace": builder.namespace});
    event["reason"] = "Begun".into();
    event["type"] = builder.rng.pick(&["Normal", "Warning"]).into();
    event
}
