//! Requests that change something.

use serde_json::{Value, json};

use crate::generate::{KINDS, NAMES, Plot};
use crate::script::Step;

/// A creation: mostly of what is not there.
pub fn create(plot: &mut Plot) {
    let kind = plot.kind();
    let name = plot.chance.one(NAMES);
    let mut object = plot.object(kind, name);
    let mut step = Step::new("create", "POST", plot.collection(KINDS[kind]));
    let new = !plot.objects.contains_key(&(kind, name));
    let mut kept = new;
    match plot.chance.below(10) {
        0 => {
            step = step.query("dryRun=All").with("dry run");
            kept = false;
        }
        // One of a kind: the order of two in a list would be chance.
        1 if plot.generated.insert(kind) => {
            object["metadata"]["generateName"] = "made-".into();
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.remove("name");
            }
            step = step.with("generated name");
            kept = false;
        }
        2 | 3 => {
            object["metadata"]["finalizers"] = json!(["steadfast.dev/held"]);
            step = step.with("finalizers");
        }
        4 => {
            object["metadata"]["annotations"] = json!({"note": "n"});
            object["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000".into();
            object["metadata"]["generation"] = 7.into();
            // Fields that a built-in kind does not have are another matter: see "no schemas" in the documentation.
            if KINDS[kind].custom {
                object["status"] = json!({"phase": "Given"});
            }
            step = step.query("fieldManager=script").with("fields of the server's");
        }
        5 => {
            let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "an-owner"});
            object["metadata"]["ownerReferences"] = json!([owner]);
            step = step.with("owner");
        }
        6 => {
            step.accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
            step = step.with("metadata only");
        }
        _ => step = step.with("plain"),
    }
    let step = plot.push(step.json(&object));
    if kept {
        plot.objects.insert((kind, name), step);
        plot.versions.push((kind, step));
    }
}

/// An update of what is there, mostly.
pub fn update(plot: &mut Plot) {
    let Some((kind, name, last)) = plot.existing() else { return create(plot) };
    let mut object = plot.object(kind, name);
    let mut step = Step::new("update", "PUT", format!("{}/{name}", plot.collection(KINDS[kind])));
    object["metadata"]["resourceVersion"] = format!("<<version:{last}>>").into();
    let mut kept = true;
    match plot.chance.below(11) {
        0 => {
            step = step.query("dryRun=All").with("dry run");
            kept = false;
        }
        1 => {
            object["metadata"]["resourceVersion"] = Value::Null;
            kept = !KINDS[kind].custom;
            step = step.with("unconditional");
        }
        2 => {
            let (_, older) = plot.versions[plot.chance.below(plot.versions.len())];
            object["metadata"]["resourceVersion"] = format!("<<version:{older}>>").into();
            kept = false;
            step = step.with("stale version");
        }
        3 => {
            object["metadata"]["uid"] = format!("<<uid:{last}>>").into();
            step = step.with("uid");
        }
        4 => {
            object["metadata"]["uid"] = "another".into();
            kept = false;
            step = step.with("wrong uid");
        }
        5 => {
            object["metadata"]["finalizers"] = json!(["steadfast.dev/held"]);
            step = step.with("finalizers");
        }
        6 if KINDS[kind].custom => {
            step.path.push_str("/status");
            object["status"] = json!({"phase": plot.chance.one(&["Ready", "Waiting"])});
            step = step.with("status");
        }
        7 => {
            object["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z".into();
            object["metadata"]["generation"] = 40.into();
            if KINDS[kind].custom {
                object["status"] = json!({"phase": "Given"});
            }
            step = step.with("fields of the server's");
        }
        _ => step = step.with("conditional"),
    }
    let step = plot.push(step.json(&object));
    if kept {
        plot.objects.insert((kind, name), step);
        plot.versions.push((kind, step));
    }
}

/// A patch of what is there.
pub fn patch(plot: &mut Plot) {
    let Some((kind, name, last)) = plot.existing() else { return create(plot) };
    let custom = KINDS[kind].custom;
    let text = plot.chance.one(&["one", "two", "three"]);
    let mut step = Step::new("patch", "PATCH", format!("{}/{name}", plot.collection(KINDS[kind])));
    let mut body = match plot.chance.below(8) {
        0 => json!({"metadata": {"labels": {"app": plot.chance.one(&["web", "api"])}}}),
        1 => json!({"metadata": {"labels": {"app": null, "extra": text}}}),
        2 => json!({"metadata": {"annotations": {"note": text}}}),
        3 => json!({"metadata": {"finalizers": null}}),
        4 => json!({"metadata": {"finalizers": ["steadfast.dev/held"]}}),
        5 => json!({"metadata": {"resourceVersion": format!("<<version:{last}>>"), "annotations": {"note": text}}}),
        6 if custom => json!({"spec": {"color": text, "parts": ["r"], "size": null}}),
        _ => json!({"metadata": {"labels": {"app": text}}}),
    };
    match plot.chance.below(10) {
        0..3 => {
            step.content_type = "application/merge-patch+json";
            step = step.with("merge");
        }
        3..6 if !custom => {
            step.content_type = "application/strategic-merge-patch+json";
            step = step.with("strategic merge");
        }
        6 if custom => {
            step.path.push_str("/status");
            step.content_type = "application/merge-patch+json";
            body = json!({"status": {"phase": text}, "spec": {"color": "ignored"}});
            step = step.with("status");
        }
        _ => {
            step.content_type = "application/json-patch+json";
            body = operations(plot, text);
            step = step.with("json");
        }
    }
    let mut kept = true;
    if plot.chance.percent(12) {
        step = step.query("dryRun=All").with("dry run");
        kept = false;
    }
    step.body = body.to_string();
    let step = plot.push(step);
    if kept {
        plot.objects.insert((kind, name), step);
        plot.versions.push((kind, step));
    }
}

fn operations(plot: &mut Plot, text: &str) -> Value {
    match plot.chance.below(6) {
        0 => json!([{"op": "replace", "path": "/metadata/labels/app", "value": text}]),
        1 => json!([{"op": "test", "path": "/metadata/labels/script", "value": plot.namespace},
                    {"op": "add", "path": "/metadata/labels/extra", "value": text}]),
        2 => json!([{"op": "test", "path": "/metadata/labels/script", "value": "other"}]),
        3 => json!([{"op": "remove", "path": "/metadata/annotations"}]),
        4 => json!([{"op": "copy", "from": "/metadata/labels/script", "path": "/metadata/labels/copied"}]),
        _ => json!([{"op": "add", "path": "/metadata/annotations", "value": {"note": text}}]),
    }
}

/// A deletion of what is there.
pub fn delete(plot: &mut Plot) {
    let Some((kind, name, last)) = plot.existing() else { return create(plot) };
    let mut step = Step::new("delete", "DELETE", format!("{}/{name}", plot.collection(KINDS[kind])));
    let mut gone = true;
    match plot.chance.below(9) {
        0 => {
            step = step.query("dryRun=All").with("dry run");
            gone = false;
        }
        1 => step = step.json(&options(&json!({"preconditions": {"uid": format!("<<uid:{last}>>")}}))).with("uid"),
        2 => {
            step = step.json(&options(&json!({"preconditions": {"uid": "another"}}))).with("wrong uid");
            gone = false;
        }
        3 => {
            let version = json!({"preconditions": {"resourceVersion": format!("<<version:{last}>>")}});
            step = step.json(&options(&version)).with("version");
        }
        4 => {
            let version = json!({"preconditions": {"resourceVersion": "1"}});
            step = step.json(&options(&version)).with("wrong version");
            gone = false;
        }
        5 => step = step.json(&options(&json!({"propagationPolicy": "Background"}))).with("propagation"),
        6 => step = step.query("gracePeriodSeconds=0").with("grace period"),
        7 => {
            step = step.json(&options(&json!({"dryRun": ["All"]}))).with("dry run in the body");
            gone = false;
        }
        _ => step = step.with("plain"),
    }
    let step = plot.push(step);
    // What finalizers hold stays, and is met again by chance.
    if gone && plot.chance.percent(60) {
        plot.objects.remove(&(kind, name));
    }
    plot.versions.push((kind, step));
}

fn options(fields: &Value) -> Value {
    let mut options = fields.clone();
    options["kind"] = "DeleteOptions".into();
    options["apiVersion"] = "v1".into();
    options
}

/// A deletion of several.
pub fn delete_collection(plot: &mut Plot) {
    let kind = plot.kind();
    let step = Step::new("delete collection", "DELETE", plot.collection(KINDS[kind]));
    let step = match plot.chance.below(4) {
        0 => step.query("labelSelector=app%3Dweb").with("labels"),
        1 => step.query("fieldSelector=metadata.name%3Da").with("fields"),
        2 => step.query("labelSelector=app%3Dapi").query("dryRun=All").with("dry run"),
        _ => step.with("everything"),
    };
    let everything = step.options.contains(&"everything");
    plot.push(step);
    if everything {
        plot.objects.retain(|&(of, _), _| of != kind);
    }
}
