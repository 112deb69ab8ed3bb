//! Defaults of built-in kinds, limited to fields that clients wait for or select by.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::kinds::is_namespace;
use crate::metadata;
use crate::resources::GroupResource;

/// Sets the defaults of an object that is created at the time `now`.
pub(super) fn on_create(resource: &GroupResource, now: &str, object: &mut Value) {
    if is_namespace(resource) {
        // The finalizer keeps a namespace until its contents are deleted.
        object["spec"] = json!({"finalizers": ["kubernetes"]});
        object["status"] = json!({"phase": "Active"});
    }
    let is_volume = is_core(resource, "persistentvolumes");
    let has_phase = is_volume || is_core(resource, "pods") || is_core(resource, "persistentvolumeclaims");
    if has_phase && object.pointer("/status/phase").is_none() {
        if !object["status"].is_object() {
            object["status"] = json!({});
        }
        object["status"]["phase"] = "Pending".into();
        if is_volume {
            object["status"]["lastPhaseTransitionTime"] = now.into();
        }
    }
}

/// Returns whether a change increments the generation. A few kinds count other fields.
pub(super) fn is_another_generation(resource: &GroupResource, existing: &Value, object: &Value) -> bool {
    let differs = |field: &str| existing["metadata"][field] != object["metadata"][field];
    match (resource.group(), resource.resource()) {
        // The strategies of these kinds also count changes of metadata.
        ("apps", "deployments") => metadata::desired_state_differs(existing, object) || differs("annotations"),
        ("discovery.k8s.io", "endpointslices") => {
            metadata::desired_state_differs(existing, object) || differs("labels")
        }
        ("scheduling.k8s.io", "priorityclasses") => false,
        // Metadata does not count: labels and annotations change without a new generation.
        _ => metadata::desired_state_differs(existing, object),
    }
}

/// Sets the fields of every written object: the name label of namespaces, the type of secrets, and the encoded form of
/// secrets in plain text.
pub(super) fn on_write(resource: &GroupResource, name: &str, object: &mut Value) {
    if is_namespace(resource) {
        // The real server sets this label on every write.
        let labels = metadata::metadata_mut(object).entry("labels").or_insert_with(|| json!({}));
        if !labels.is_object() {
            *labels = json!({});
        }
        labels["kubernetes.io/metadata.name"] = name.into();
    }
    if !is_core(resource, "secrets") {
        return;
    }
    if object.get("type").is_none() {
        object["type"] = "Opaque".into();
    }
    // `stringData` is write-only: merged into `data` and never stored.
    let string_data = object.as_object_mut().and_then(|fields| fields.remove("stringData"));
    for (key, text) in string_data.as_ref().and_then(Value::as_object).into_iter().flatten() {
        if !object["data"].is_object() {
            object["data"] = json!({});
        }
        object["data"][key] = STANDARD.encode(text.as_str().unwrap_or_default()).into();
    }
}

fn is_core(resource: &GroupResource, plural: &str) -> bool {
    resource.group().is_empty() && resource.resource() == plural
}
