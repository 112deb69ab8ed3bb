//! Values with a wrong type, and repeated fields.

use serde_json::{Value, json};

use crate::differential::generate::ScriptBuilder;
use crate::differential::kinds::KINDS;
use crate::differential::script::Step;

/// Adds an object of a built-in kind, or a patch, with a value of a wrong type.
pub fn add_wrong_type(builder: &mut ScriptBuilder) {
    let wrong_values = wrong_values();
    let (kind, pointer, value, option) = wrong_values[builder.rng.below(wrong_values.len())].clone();
    let index = KINDS.iter().position(|known_kind| known_kind.kind == kind).unwrap_or_default();
    let by_patch = builder.rng.percent(40) && !pointer.contains("/0");
    let step = if by_patch {
        // The existence of the object does not affect the comparison.
        let patch = pointer.rsplit('/').filter(|key| !key.is_empty()).fold(value, |inner, key| json!({key: inner}));
        let mut step = Step::new("odd type", "PATCH", builder.path_of(index, "a")).json(&patch).label("patch");
        step.content_type = match builder.rng.below(2) {
            // With this patch type, a real server truncates a number that is too large.
            0 if option != "number too large" => "application/strategic-merge-patch+json",
            _ => "application/merge-patch+json",
        };
        step
    } else {
        let mut object = builder.object(index, "bad");
        if let Some(field) = object.pointer_mut(pointer) {
            *field = value;
        } else if let Some((parent, key)) = pointer.rsplit_once('/')
            && let Some(parent) = object.pointer_mut(parent)
        {
            parent[key] = value;
        }
        Step::new("odd type", "POST", builder.collection(index)).json(&object)
    };
    builder.push(step.label(option).query("dryRun=All"));
}

fn wrong_values() -> Vec<(&'static str, &'static str, Value, &'static str)> {
    vec![
        ("ConfigMap", "/data", json!(["a"]), "list for a map"),
        ("ConfigMap", "/data/text", json!(7), "number for text"),
        ("ConfigMap", "/data/text", json!({}), "object for text"),
        ("ConfigMap", "/immutable", json!("yes"), "text for a boolean"),
        ("ConfigMap", "/binaryData", json!({"a": "?"}), "no base64"),
        ("Secret", "/data/key", json!("no secret!"), "no base64"),
        ("Secret", "/data/key", json!("YWJj\nZGVm"), "base64 in lines"),
        ("Secret", "/type", json!(true), "boolean for text"),
        ("Lease", "/spec", json!("held"), "text for an object"),
        ("Lease", "/spec/leaseDurationSeconds", json!("15"), "text for a number"),
        ("Lease", "/spec/leaseDurationSeconds", json!(1.5), "part of a number"),
        ("Lease", "/spec/leaseDurationSeconds", json!(3_000_000_000_u32), "number too large"),
        ("Lease", "/spec/renewTime", json!("yesterday"), "no time"),
        ("Lease", "/spec/renewTime", json!("2026-01-01T00:00:00Z"), "time in seconds"),
        ("Lease", "/spec/renewTime", json!("2026-01-01T00:00:00.000000Z"), "time in microseconds"),
        ("Lease", "/spec/renewTime", json!("2026-01-01T01:30:00.250000+01:30"), "time in microseconds"),
        ("Lease", "/spec/renewTime", json!(5), "number for a time"),
        ("Secret", "/data/key", json!("YR=="), "base64 with bits to spare"),
        ("ConfigMap", "/metadata", json!("text"), "text for an object"),
        ("ConfigMap", "/metadata/namespace", json!(7), "number for text"),
        ("Widget", "/metadata/annotations", json!({"a": 1}), "number for text"),
        ("Widget", "/metadata/ownerReferences", json!("x"), "text for a list"),
        ("Lease", "/metadata/creationTimestamp", json!("soon"), "no time"),
        ("Deployment", "/spec/replicas", json!("3"), "text for a number"),
        ("Deployment", "/spec/replicas", json!([3]), "list for a number"),
        ("Deployment", "/spec/paused", json!(1), "number for a boolean"),
        ("Deployment", "/spec/selector", json!([]), "list for an object"),
        ("Pod", "/spec/containers", json!({"name": "c"}), "object for a list"),
        ("Pod", "/spec/containers/0/name", json!(7), "number for text"),
        ("Pod", "/spec/containers/0/resources", json!({"limits": {"cpu": "much"}}), "no quantity"),
        ("Pod", "/spec/containers/0/resources", json!({"limits": {"cpu": [1]}}), "list for a quantity"),
        ("Service", "/spec/ports/0/port", json!("web"), "text for a number"),
        ("Service", "/spec/ports/0/targetPort", json!(true), "boolean for a port"),
        ("CronJob", "/spec/suspend", json!("no"), "text for a boolean"),
        ("PodDisruptionBudget", "/spec/maxUnavailable", json!(1.5), "part of a number"),
        ("Role", "/rules", json!("all"), "text for a list"),
        ("Role", "/rules/0/verbs", json!("get"), "text for a list"),
    ]
}

/// Adds an object or a patch with a repeated field.
pub fn add_duplicate_fields(builder: &mut ScriptBuilder) {
    let index = builder.kind();
    let (option, query) = builder.rng.pick(&[
        ("warned", ""),
        ("strict", "fieldValidation=Strict"),
        ("ignored", "fieldValidation=Ignore"),
    ]);
    let twice = "\"annotations\":{\"twice\":\"one\",\"twice\":\"two\"}";
    let (what, method, path, content_type, body) = match builder.rng.below(5) {
        0 | 1 => {
            let mut object = builder.object(index, "bad");
            object["metadata"]["annotations"] = json!({});
            let body = object.to_string().replace("\"annotations\":{}", twice);
            ("object", "POST", builder.collection(index), "application/json", body)
        }
        2 => {
            let body = format!("{{\"metadata\":{{{twice}}}}}");
            ("merge patch", "PATCH", builder.path_of(index, "a"), "application/merge-patch+json", body)
        }
        3 if !KINDS[index].is_custom => {
            let body = format!("{{\"metadata\":{{{twice}}}}}");
            ("strategic patch", "PATCH", builder.path_of(index, "a"), "application/strategic-merge-patch+json", body)
        }
        _ => {
            let field = builder.rng.pick(&["\"path\":\"/metadata/labels/extra\"", "\"note\":\"nothing\""]);
            let path = "\"path\":\"/metadata/labels/extra\"";
            let body = format!("[{{\"op\":\"add\",{field},{path},\"value\":\"yes\"}}]");
            ("JSON patch", "PATCH", builder.path_of(index, "a"), "application/json-patch+json", body)
        }
    };
    let mut step = Step::new("duplicate", method, path).query("dryRun=All").label(option).label(what);
    step.content_type = content_type;
    step.body = body;
    builder.push(if query.is_empty() { step } else { step.query(query) });
}
