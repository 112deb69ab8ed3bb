//! Pruning of objects by their type, and normalization of their values.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::table::{Field, FieldShape, ValueType, fields, type_for_kind};
use super::type_mismatch::bytes;

/// Removes unknown fields and null fields from an object of a built-in kind. Returns the paths of the unknown fields,
/// in order.
pub(crate) fn prune(api_version: &str, kind: &str, object: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    if let (Some(fields), Value::Object(object)) = (type_for_kind(api_version, kind).and_then(fields), object) {
        prune_fields(object, fields, "", &mut unknown);
    }
    unknown
}

fn prune_fields(object: &mut Map<String, Value>, fields: &'static [Field], path: &str, unknown: &mut Vec<String>) {
    object.retain(|key, value| {
        let field_path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let Some(field) = fields.iter().find(|field| field.name == key) else {
            unknown.push(field_path);
            return false;
        };
        // A null field of the type counts as absent. Unknown fields are reported even if they are null.
        if value.is_null() {
            return false;
        }
        match field.shape {
            FieldShape::One(ValueType::Named(name)) => prune_value(value, name, &field_path, unknown),
            FieldShape::List(ValueType::Named(name)) => {
                for (index, item) in value.as_array_mut().into_iter().flatten().enumerate() {
                    prune_value(item, name, &format!("{field_path}[{index}]"), unknown);
                }
            }
            FieldShape::Map(ValueType::Named(name)) => {
                for (key, item) in value.as_object_mut().into_iter().flatten() {
                    prune_value(item, name, &format!("{field_path}.{key}"), unknown);
                }
            }
            FieldShape::One(kind) => normalize_scalar(kind, value),
            FieldShape::Map(kind) => {
                for (_, item) in value.as_object_mut().into_iter().flatten() {
                    normalize_scalar(kind, item);
                }
            }
            _ => {}
        }
        true
    });
}

/// Normalizes bytes and times to the form of a real server.
fn normalize_scalar(kind: ValueType, value: &mut Value) {
    let Value::String(text) = &*value else { return };
    let normalized = match kind {
        ValueType::Bytes => bytes(text).map(|bytes| STANDARD.encode(bytes)),
        // Times lose their fraction, because `metav1.Time` has a precision of seconds.
        ValueType::Time => text.parse::<Timestamp>().ok().map(|time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
        ValueType::MicroTime => {
            text.parse::<Timestamp>().ok().map(|time| time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string())
        }
        _ => None,
    };
    if let Some(normalized) = normalized {
        *value = normalized.into();
    }
}

fn prune_value(value: &mut Value, name: &str, path: &str, unknown: &mut Vec<String>) {
    if let (Some(fields), Value::Object(object)) = (fields(name), value) {
        prune_fields(object, fields, path, unknown);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::prune;

    #[test]
    fn bytes_and_times_are_normalized() {
        let mut secret =
            json!({"data": {"a": "c2Vj\ncmV0"}, "metadata": {"creationTimestamp": "2026-01-01T01:00:00.5+01:00"}});
        assert_eq!(prune("v1", "Secret", &mut secret), Vec::<String>::new());
        let normalized = json!({"data": {"a": "c2VjcmV0"}, "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(secret, normalized);
        let mut lease = json!({"spec": {"renewTime": "2026-01-01T01:00:00.000005+01:00"}});
        prune("coordination.k8s.io/v1", "Lease", &mut lease);
        assert_eq!(lease["spec"]["renewTime"], "2026-01-01T00:00:00.000005Z");
    }

    #[test]
    fn unknown_fields_are_removed_and_reported() {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "labls": {}, "labels": {"any": "thing"}, "creationTimestamp": null},
            "spec": {
                "containers": [{"name": "a", "immage": "b", "resources": {"limits": {"any": "1"}}}],
                "x": 1,
            },
        });
        assert_eq!(prune("v1", "Pod", &mut pod), ["metadata.labls", "spec.containers[0].immage", "spec.x"]);
        assert_eq!(
            pod,
            json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"any": "thing"}},
                "spec": {"containers": [{"name": "a", "resources": {"limits": {"any": "1"}}}]},
            })
        );
    }

    #[test]
    fn unknown_kind_is_left_unchanged() {
        let mut widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "anything": null});
        assert_eq!(prune("example.com/v1", "Widget", &mut widget), Vec::<String>::new());
        assert_eq!(widget["anything"], json!(null));
        assert!(widget.get("anything").is_some());
    }
}
