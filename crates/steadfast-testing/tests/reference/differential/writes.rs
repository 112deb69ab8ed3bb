//! Requests that write.

use serde_json::{Value, json};

use crate::differential::generate::{NAMES, Plot};
use crate::differential::kinds::{KINDS, takes_labels_only};
use crate::differential::script::Step;

/// Adds a creation, mostly of a new object.
pub fn create(plot: &mut Plot) {
    let kind = plot.kind();
    let mut name = plot.chance.pick(NAMES);
    if takes_labels_only(&KINDS[kind]) {
        name = plot.chance.pick(&NAMES[..3]);
    }
    let mut object = plot.object(kind, name);
    let mut step = Step::new("create", "POST", plot.collection(kind));
    let new = !plot.objects.contains_key(&(kind, name));
    let mut kept = new;
    match plot.chance.below(10) {
        0 => {
            step = step.query("dryRun=All").with("dry run");
            kept = false;
        }
        // Only one object per kind, because the order of two generated names in a list would be random.
        1 if plot.generated.insert(kind) => {
            object["metadata"]["generateName"] = plot.name(kind, "made-").into();
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
            // Unknown fields of built-in kinds are excluded: see "no schemas" in the documentation.
            if KINDS[kind].kind == "Widget" {
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
        plot.wrote(kind, name, step);
    }
}

/// Adds an update, mostly of an existing object.
pub fn update(plot: &mut Plot) {
    let Some((kind, name, last)) = plot.existing() else { return create(plot) };
    let mut object = plot.object(kind, name);
    let mut step = Step::new("update", "PUT", plot.at(kind, name));
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
        6 if KINDS[kind].kind == "Widget" => {
            step.path.push_str("/status");
            object["status"] = json!({"phase": plot.chance.pick(&["Ready", "Waiting"])});
            step = step.with("status");
        }
        7 => {
            object["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z".into();
            object["metadata"]["generation"] = 40.into();
            if KINDS[kind].kind == "Widget" {
                object["status"] = json!({"phase": "Given"});
            }
            step = step.with("fields of the server's");
        }
        _ => step = step.with("conditional"),
    }
    let step = plot.push(step.json(&object));
    if kept {
        plot.wrote(kind, name, step);
    }
}

/// Adds a deletion of an existing object.
pub fn delete(plot: &mut Plot) {
    let Some((kind, name, last)) = plot.existing() else { return create(plot) };
    let mut step = Step::new("delete", "DELETE", plot.at(kind, name));
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
        5 => {
            let policies = [("Background", "propagation"), ("Foreground", "foreground"), ("Orphan", "orphans")];
            let (policy, word) = plot.chance.pick(&policies);
            step = step.json(&options(&json!({"propagationPolicy": policy}))).with(word);
            gone = policy == "Background";
        }
        6 => step = step.query("gracePeriodSeconds=0").with("grace period"),
        7 => {
            step = step.json(&options(&json!({"dryRun": ["All"]}))).with("dry run in the body");
            gone = false;
        }
        _ => step = step.with("plain"),
    }
    let step = plot.push(step);
    // An object that its finalizers keep may be used again.
    if gone && plot.chance.percent(60) {
        plot.objects.remove(&(kind, name));
    }
    plot.versions.push((kind, step));
}

/// Returns the body of a deletion.
pub fn options(fields: &Value) -> Value {
    let mut options = fields.clone();
    options["kind"] = "DeleteOptions".into();
    options["apiVersion"] = "v1".into();
    options
}

/// Adds a deletion of several objects.
pub fn delete_collection(plot: &mut Plot) {
    let kind = plot.kind();
    let step = Step::new("delete collection", "DELETE", plot.collection(kind));
    let step = match plot.chance.below(6) {
        0 => step.query("labelSelector=app%3Dweb").with("labels"),
        1 => step.query("fieldSelector=metadata.name%3Da").with("fields"),
        2 => step.query("labelSelector=app%3Dapi").query("dryRun=All").with("dry run"),
        3 => step.json(&options(&json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"}))).with("options"),
        4 => step.query("labelSelector=rank+in+%283%2C20%29").with("label in"),
        _ => step.with("everything"),
    };
    let everything = step.options.contains(&"everything") || step.options.contains(&"options");
    let step = plot.only_own(kind, step);
    plot.push(step);
    if everything {
        plot.objects.retain(|&(of, _), _| of != kind);
    }
}
