//! The patch formats.

use json_patch::{AddOperation, PatchOperation};
use serde_json::{Value, json};

use super::strategic;
use crate::status::Status;

/// A patch in one of the formats a Kubernetes API server takes.
#[derive(Clone, Debug)]
pub(crate) enum Patch {
    /// RFC 6902.
    Json(json_patch::Patch),
    /// RFC 7396.
    Merge(Value),
    /// Kubernetes' own: lists are merged by the keys of their items.
    Strategic(Value),
}

impl Patch {
    /// Reads a patch of the content type it came with.
    pub(crate) fn parse(content_type: &str, body: &[u8], custom_resource: bool) -> Result<Self, Status> {
        let unreadable = |error| Status::bad_request(format_args!("error decoding patch: {error}"));
        match content_type {
            "application/json-patch+json" => serde_json::from_slice(body).map(Self::Json).map_err(unreadable),
            "application/merge-patch+json" => fields(body).map(Self::Merge).map_err(unreadable),
            "application/strategic-merge-patch+json" if !custom_resource => {
                fields(body).map(Self::Strategic).map_err(unreadable)
            }
            "application/apply-patch+yaml" | "application/apply-patch+cbor" => Err(Status::new(
                415,
                "UnsupportedMediaType",
                "415: Unsupported Media Type: server-side apply is not offered by this server",
            )),
            _ if custom_resource => Err(Status::new(
                415,
                "UnsupportedMediaType",
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            )),
            _ => Err(Status::new(415, "UnsupportedMediaType", "415: Unsupported Media Type").with_details(json!({}))),
        }
    }

    /// The object as patched.
    pub(crate) fn apply(&self, object: &Value) -> Result<Value, Status> {
        let mut patched = object.clone();
        match self {
            Self::Json(patch) => {
                for operation in &patch.0 {
                    if !is_test_for_absence(operation, &patched) {
                        apply_operation(&mut patched, operation)
                            .map_err(|_| Status::of_code(422).with_details(json!({})))?;
                    }
                }
            }
            Self::Merge(patch) => json_patch::merge(&mut patched, patch),
            Self::Strategic(patch) => strategic::merge(&mut patched, patch),
        }
        if patched.is_object() { Ok(patched) } else { Err(Status::bad_request("the patched object is no object")) }
    }
}

/// Whether this is a test for null, and its object has no such field: a real server lets that pass, against RFC 6902,
/// and kube adds its first finalizer by it.
fn is_test_for_absence(operation: &PatchOperation, object: &Value) -> bool {
    let PatchOperation::Test(test) = operation else { return false };
    let path = test.path.as_str();
    let within = path.rsplit_once('/').and_then(|(parent, _)| object.pointer(parent));
    test.value.is_null() && within.is_some_and(Value::is_object) && object.pointer(path).is_none()
}

/// One step of a JSON patch; as the real server has it, a field that is not there can be replaced.
fn apply_operation(object: &mut Value, operation: &PatchOperation) -> Result<(), json_patch::PatchError> {
    if let PatchOperation::Replace(replace) = operation
        && replace.path.resolve(object).is_err()
        && let Some((parent, _)) = replace.path.split_back()
        && parent.resolve(object).is_ok_and(Value::is_object)
    {
        let add = AddOperation { path: replace.path.clone(), value: replace.value.clone() };
        return json_patch::patch(object, &[PatchOperation::Add(add)]);
    }
    json_patch::patch(object, std::slice::from_ref(operation))
}

/// A patch that merges is an object.
fn fields(body: &[u8]) -> Result<Value, serde_json::Error> {
    serde_json::from_slice(body).map(Value::Object)
}
