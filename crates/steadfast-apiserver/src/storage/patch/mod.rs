//! Formats of patches.

use serde_json::{Map, Value, json};

use crate::status::Status;

mod operations;
mod strategic;

/// Maximum number of operations in a JSON patch.
const MAX_OPERATIONS: usize = 10_000;

/// Patch in one of the formats of a Kubernetes API server.
#[derive(Clone, Debug)]
pub(crate) enum Patch {
    /// RFC 6902, with the deviations of the real server.
    Json(Vec<Value>),
    /// RFC 7396.
    Merge(Value),
    /// Strategic merge patch of Kubernetes: lists are merged by the keys of their items.
    Strategic(Value),
    /// Invalid patch. A missing object is reported before the invalid patch.
    Invalid(Status),
}

impl Patch {
    /// Parses a patch of this content type.
    pub(crate) fn parse(content_type: &str, body: &[u8], is_custom: bool) -> Result<Self, Status> {
        // The error is kept until the object is found: a real server reports a missing object first.
        let invalid_patch = |error: serde_json::Error| {
            Self::Invalid(Status::bad_request(format_args!("error decoding patch: {error}")))
        };
        match content_type {
            "application/json-patch+json" => {
                Ok(serde_json::from_value(parse_json(body)?).map_or_else(invalid_patch, Self::from_operations))
            }
            "application/merge-patch+json" => parse_json(body).map(Self::Merge),
            "application/strategic-merge-patch+json" if !is_custom => parse_json(body).map(Self::Strategic),
            _ if is_custom => Err(Status::new(
                415,
                "UnsupportedMediaType",
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            )),
            _ => Err(Status::new(415, "UnsupportedMediaType", "415: Unsupported Media Type").with_details(json!({}))),
        }
    }

    fn from_operations(operations: Vec<Value>) -> Self {
        if operations.len() <= MAX_OPERATIONS {
            return Self::Json(operations);
        }
        Self::Invalid(Status::of_code(413).with_message(format_args!(
            "Request entity too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        )))
    }

    /// Applies the patch to `object`. Returns the new object.
    pub(crate) fn apply(&self, object: &Value) -> Result<Value, Status> {
        let mut patched = object.clone();
        match self {
            Self::Json(patch) => {
                let rejected = |_| Status::of_code(422).with_details(json!({}));
                operations::apply(&mut patched, patch).map_err(rejected)?;
            }
            Self::Merge(patch) if !patch.is_object() => {
                return Err(Status::bad_request(format_args!("error decoding patch: {patch} is not an object")));
            }
            Self::Strategic(patch) if !patch.is_object() => {
                let actual_type = match patch {
                    Value::Bool(_) => "bool",
                    Value::Number(_) => "number",
                    Value::String(_) => "string",
                    _ => "array",
                };
                let into = "into Go value of type map[string]interface {}";
                return Err(Status::bad_request(format_args!("json: cannot unmarshal {actual_type} {into}")));
            }
            Self::Merge(patch) => merge(&mut patched, patch),
            Self::Strategic(patch) => strategic::merge(&mut patched, patch)?,
            Self::Invalid(status) => return Err(status.clone()),
        }
        if patched.is_object() { Ok(patched) } else { Err(Status::bad_request("the patched value is not an object")) }
    }
}

/// Parses the JSON of a patch. The content is checked later, when the patch is applied.
fn parse_json(body: &[u8]) -> Result<Value, Status> {
    serde_json::from_slice(body).map_err(|_| Status::bad_request("invalid JSON patch"))
}

/// Applies a merge patch of RFC 7396: null removes a field.
fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let Value::Object(fields) = object else { return };
    for (key, value) in patch {
        if value.is_null() {
            fields.remove(key);
            continue;
        }
        match fields.get_mut(key) {
            Some(existing @ Value::Object(_)) => merge(existing, value),
            // As in the library of a real server, a new value loses its nulls, also within lists.
            _ => drop(fields.insert(key.clone(), without_nulls(value))),
        }
    }
}

/// Removes null fields at every depth. Null items of lists stay.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            Value::Object(fields.map(|(key, value)| (key.clone(), without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::merge;

    #[test]
    fn merge_patch_drops_nulls_within_new_values() {
        let mut object = json!({"list": [1], "map": {"a": 1, "b": 2}, "text": "x"});
        let patch = json!({
            "list": [{"a": null, "b": [{"c": null, "d": 1}, null]}], "map": {"a": null, "new": {"x": null, "y": 1}},
            "text": {"z": null}, "map2": {"b": null},
        });
        merge(&mut object, &patch);
        assert_eq!(
            object,
            json!({"list": [{"b": [{"d": 1}, null]}], "map": {"b": 2, "new": {"y": 1}}, "text": {}, "map2": {}})
        );
        let mut object = json!({"map": {"a": 1}});
        merge(&mut object, &json!({"map": [{"a": null}]}));
        assert_eq!(object, json!({"map": [{"a": null}]}), "a replacement of an object stays unchanged");
    }
}
