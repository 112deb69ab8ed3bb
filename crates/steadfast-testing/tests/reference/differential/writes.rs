//! Requests that write.

use serde_json::{Value, json};

use crate::differential::generate::{NAMES, ScriptBuilder};
use crate::differential::kinds::{KINDS, requires_dns_label};
use crate::differential::script::Step;

/// Adds a creation, mostly of a new object.
pub fn create(builder: &mut ScriptBuilder) {
    let kind = builder.kind();
    let mut name = builder.rng.pick(NAMES);
    if requires_dns_label(&KINDS[kind]) {
        name = builder.rng.pick(&NAMES[..3]);
    }
    let mut object = builder.object(kind, name);
    let mut step = Step::new("create", "POST", builder.collection(kind));
    let is_new = !builder.objects.contains_key(&(kind, name));
    let mut is_written = is_new;
    match builder.rng.below(10) {
        0 => {
            step = step.query("dryRun=All").label("dry run");
            is_written = false;
        }
        // Only one object per kind has a generated name, because the order of two generated names in a list would be
        // random.
        1 if builder.generated.insert(kind) => {
            object["metadata"]["generateName"] = builder.name(kind, "made-").into();
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.remove("name");
            }
            step = step.label("generated name");
            is_written = false;
        }
        2 | 3 => {
            object["metadata"]["finalizers"] = json!(["steadfast.dev/held"]);
            step = step.label("finalizers");
        }
        4 => {
            object["metadata"]["annotations"] = json!({"note": "n"});
            object["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000".into();
            object["metadata"]["generation"] = 7.into();
            // Unknown fields of built-in kinds are excluded: see "few validation rules" in
            // `docs/embedded-server.md`.
            if KINDS[kind].kind == "Widget" {
                object["status"] = json!({"phase": "Given"});
            }
            step = step.query("fieldManager=script").label("fields of the server's");
        }
        5 => {
            let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "an-owner"});
            object["metadata"]["ownerReferences"] = json!([owner]);
            step = step.label("owner");
        }
        6 => {
            step.accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
            step = step.label("metadata only");
        }
        _ => step = step.label("plain"),
    }
    let step = builder.push(step.json(&object));
    if is_written {
        builder.record_write(kind, name, step);
    }
}

/// Adds an update, mostly of an existing object.
pub fn update(builder: &mut ScriptBuilder) {
    let Some((kind, name, last)) = builder.existing_object() else { return create(builder) };
    let mut object = builder.object(kind, name);
    let mut step = Step::new("update", "PUT", builder.path_of(kind, name));
    object["metadata"]["resourceVersion"] = format!("<<version:{last}>>").into();
    let mut is_written = true;
    match builder.rng.below(11) {
        0 => {
            step = step.query("dryRun=All").label("dry run");
            is_written = false;
        }
        1 => {
            object["metadata"]["resourceVersion"] = Value::Null;
            is_written = !KINDS[kind].is_custom;
            step = step.label("unconditional");
        }
        2 => {
            let (_, older_step) = builder.versions[builder.rng.below(builder.versions.len())];
            object["metadata"]["resourceVersion"] = format!("<<version:{older_step}>>").into();
            is_written = false;
            step = step.label("stale version");
        }
        3 => {
            object["metadata"]["uid"] = format!("<<uid:{last}>>").into();
            step = step.label("uid");
        }
        4 => {
            object["metadata"]["uid"] = "another".into();
            is_written = false;
            step = step.label("wrong uid");
        }
        5 => {
            object["metadata"]["finalizers"] = json!(["steadfast.dev/held"]);
            step = step.label("finalizers");
        }
        6 if KINDS[kind].kind == "Widget" => {
            step.path.push_str("/status");
            object["status"] = json!({"phase": builder.rng.pick(&["Ready", "Waiting"])});
            step = step.label("status");
        }
        7 => {
            object["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z".into();
            object["metadata"]["generation"] = 40.into();
            if KINDS[kind].kind == "Widget" {
                object["status"] = json!({"phase": "Given"});
            }
            step = step.label("fields of the server's");
        }
        _ => step = step.label("conditional"),
    }
    let step = builder.push(step.json(&object));
    if is_written {
        builder.record_write(kind, name, step);
    }
}

/// Adds a deletion of an existing object.
pub fn delete(builder: &mut ScriptBuilder) {
    let Some((kind, name, last)) = builder.existing_object() else { return create(builder) };
    let mut step = Step::new("delete", "DELETE", builder.path_of(kind, name));
    let mut is_deleted = true;
    match builder.rng.below(9) {
        0 => {
            step = step.query("dryRun=All").label("dry run");
            is_deleted = false;
        }
        1 => step = step.json(&options(&json!({"preconditions": {"uid": format!("<<uid:{last}>>")}}))).label("uid"),
        2 => {
            step = step.json(&options(&json!({"preconditions": {"uid": "another"}}))).label("wrong uid");
            is_deleted = false;
        }
        3 => {
            let version = json!({"preconditions": {"resourceVersion": format!("<<version:{last}>>")}});
            step = step.json(&options(&version)).label("version");
        }
        4 => {
            let version = json!({"preconditions": {"resourceVersion": "1"}});
            step = step.json(&options(&version)).label("wrong version");
            is_deleted = false;
        }
        5 => {
            let policies = [("Background", "propagation"), ("Foreground", "foreground"), ("Orphan", "orphans")];
            let (policy, word) = builder.rng.pick(&policies);
            step = step.json(&options(&json!({"propagationPolicy": policy}))).label(word);
            is_deleted = policy == "Background";
        }
        6 => step = step.query("gracePeriodSeconds=0").label("grace period"),
        7 => {
            step = step.json(&options(&json!({"dryRun": ["All"]}))).label("dry run in the body");
            is_deleted = false;
        }
        _ => step = step.label("plain"),
    }
    let step = builder.push(step);
    // Finalizers may keep the object, so some later steps use the object again.
    if is_deleted && builder.rng.percent(60) {
        builder.objects.remove(&(kind, name));
    }
    builder.versions.push((kind, step));
}

/// Returns the body of a deletion.
pub fn options(fields: &Value) -> Value {
    let mut options = fields.clone();
    options["kind"] = "DeleteOptions".into();
    options["apiVersion"] = "v1".into();
    options
}

/// Adds a deletion of several objects.
pub fn delete_collection(builder: &mut ScriptBuilder) {
    let kind = builder.kind();
    let step = Step::new("delete collection", "DELETE", builder.collection(kind));
    let step = match builder.rng.below(6) {
        0 => step.query("labelSelector=app%3Dweb").label("labels"),
        1 => step.query("fieldSelector=metadata.name%3Da").label("fields"),
        2 => step.query("labelSelector=app%3Dapi").query("dryRun=All").label("dry run"),
        3 => step.json(&options(&json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"}))).label("options"),
        4 => step.query("labelSelector=rank+in+%283%2C20%29").label("label in"),
        _ => step.label("everything"),
    };
    let deletes_all = step.options.contains(&"everything") || step.options.contains(&"options");
    let step = builder.limit_to_own_objects(kind, step);
    builder.push(step);
    if deletes_all {
        builder.objects.retain(|&(of, _), _| of != kind);
    }
}
