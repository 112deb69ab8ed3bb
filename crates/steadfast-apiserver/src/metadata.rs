//! Access to the metadata of an object.

use serde_json::{Map, Value};

/// Path of the managers.
pub(crate) const MANAGED_FIELDS: &str = "/metadata/managedFields";

/// Returns a text field of the metadata; empty if absent.
pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get("metadata").and_then(|metadata| metadata.get(field)).and_then(Value::as_str).unwrap_or_default()
}

/// Returns an annotation; empty if absent.
pub(crate) fn annotation<'a>(object: &'a Value, name: &str) -> &'a str {
    let annotations = object.get("metadata").and_then(|metadata| metadata.get("annotations"));
    annotations.and_then(|annotations| annotations.get(name)).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the metadata. Replaces a value that is not an object.
pub(crate) fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    let fields = as_map(object);
    as_map(fields.entry("metadata").or_insert(Value::Null))
}

/// Sets a metadata field; removes it if `value` is `None`.
pub(crate) fn set(object: &mut Value, field: &str, value: Option<Value>) {
    let metadata = metadata_mut(object);
    match value {
        Some(value) => metadata.insert(field.to_owned(), value),
        None => metadata.remove(field),
    };
}

/// Copies a metadata field of another object, or its absence.
pub(crate) fn copy(object: &mut Value, from: &Value, field: &str) {
    set(object, field, from.get("metadata").and_then(|metadata| metadata.get(field)).cloned());
}

/// Returns whether finalizers block the removal of the object.
pub(crate) fn has_finalizers(object: &Value) -> bool {
    let finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    finalizers.is_some_and(|finalizers| !finalizers.is_empty())
}

/// Returns whether deletion was requested.
pub(crate) fn is_terminating(object: &Value) -> bool {
    !text(object, "deletionTimestamp").is_empty()
}

/// Returns the generation; 0 if absent.
pub(crate) fn generation(object: &Value) -> u64 {
    object.pointer("/metadata/generation").and_then(Value::as_u64).unwrap_or_default()
}

/// Returns whether two objects differ outside of their metadata and status.
pub(crate) fn desired_state_differs(one: &Value, other: &Value) -> bool {
    fn desired_fields(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
        let fields = object.as_object().into_iter().flatten();
        fields.filter(|(key, _)| !matches!(key.as_str(), "metadata" | "status" | "kind" | "apiVersion"))
    }
    desired_fields(one).count() != desired_fields(other).count()
        || desired_fields(one).any(|(key, value)| other.get(key) != Some(value))
}

/// Returns `group/version, Kind=kind`.
pub(crate) fn kind_of(object: &Value) -> String {
    let field = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = field("apiVersion").split_once('/').unwrap_or(("", field("apiVersion")));
    format!("{group}/{version}, Kind={}", field("kind"))
}

/// Returns `namespace/name`.
pub(crate) fn namespaced_name(object: &Value) -> String {
    format!("{}/{}", text(object, "namespace"), text(object, "name"))
}

fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("it was just made an object"),
    }
}
