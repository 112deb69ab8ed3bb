//! Pods from templates, and revisions of templates.

use serde_json::{Value, json};

use super::kind::Kind;
use super::view::text;
use crate::conditions;
use crate::metadata;
use crate::random::NAME_LETTERS;

/// Number of letters of a hash. [`NAME_LETTERS`] has 27 letters, and 27^7 is more than 2^32, so each hash has a text of
/// its own.
const HASH_LETTERS: usize = 7;

/// Returns a pod of the template of its controller `owner`. The pod has no name yet.
pub(super) fn pod(kind: Kind, owner: &Value) -> Value {
    let template = &owner["spec"]["template"];
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": template.get("metadata").cloned().unwrap_or_else(|| json!({})),
        "spec": template.get("spec").cloned().unwrap_or_else(|| json!({})),
    });
    metadata::set(&mut pod, "namespace", Some(metadata::text(owner, "namespace").into()));
    metadata::set(&mut pod, "ownerReferences", Some(json!([controller_reference(kind, owner)])));
    pod
}

/// Returns a pod of the template of its controller `owner`. The server completes the name of the pod.
pub(super) fn generated_pod(kind: Kind, owner: &Value) -> Value {
    let mut pod = pod(kind, owner);
    metadata::set(&mut pod, "generateName", Some(format!("{}-", metadata::text(owner, "name")).into()));
    pod
}

/// Returns the reference of a dependent to its controller.
pub(super) fn controller_reference(kind: Kind, owner: &Value) -> Value {
    json!({
        "apiVersion": kind.api_version(), "kind": kind.name(),
        "name": metadata::text(owner, "name"), "uid": metadata::text(owner, "uid"),
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// Sets a label.
pub(super) fn set_label(object: &mut Value, label: &str, value: &str) {
    let labels = metadata::metadata_mut(object).entry("labels").or_insert_with(|| json!({}));
    if !labels.is_object() {
        *labels = json!({});
    }
    labels[label] = value.into();
}

/// Returns a label; empty if absent.
pub(super) fn label<'a>(object: &'a Value, label: &str) -> &'a str {
    object["metadata"]["labels"].get(label).and_then(Value::as_str).unwrap_or_default()
}

/// Returns a template without null and empty fields. Clients that decode a template and write it again, such as
/// `kubectl rollout undo`, add such fields, and a real server ignores them in its comparison.
pub(super) fn normalized(template: &Value) -> Value {
    let is_set = |value: &Value| match value {
        Value::Null => false,
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => true,
    };
    match template {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (name.clone(), normalized(value)));
            Value::Object(fields.filter(|(_, value)| is_set(value)).collect())
        }
        // Items keep their positions, even if they are empty.
        Value::Array(items) => items.iter().map(normalized).collect(),
        other => other.clone(),
    }
}

/// Returns a short hash of a template, for names and labels. `attempt` distinguishes templates with equal hashes.
pub(super) fn hash(template: &Value, attempt: u64) -> String {
    // FNV-1a of 32 bits. Names need no stronger hash, since templates are compared too.
    let mut hash = 0x811c_9dc5_u32;
    for byte in normalized(template).to_string().bytes().chain(attempt.to_le_bytes()) {
        hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    }
    letters(hash)
}

/// Writes a number with the letters of generated names.
fn letters(mut number: u32) -> String {
    let mut text = String::new();
    for _ in 0..HASH_LETTERS {
        let base = NAME_LETTERS.len() as u32;
        text.push(char::from(NAME_LETTERS[(number % base) as usize]));
        number /= base;
    }
    text
}

/// Returns whether a pod still counts for its controller: not finished, and not being deleted.
pub(super) fn is_active(pod: &Value) -> bool {
    !metadata::is_terminating(pod) && !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// Returns whether a pod is being deleted and has not finished.
pub(super) fn is_terminating(pod: &Value) -> bool {
    metadata::is_terminating(pod) && !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// Returns whether a pod is ready.
pub(super) fn is_ready(pod: &Value) -> bool {
    conditions::is_true(pod, "Ready") && !metadata::is_terminating(pod)
}
