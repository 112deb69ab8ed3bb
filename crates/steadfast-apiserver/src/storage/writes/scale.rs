//! The `scale` subresource: the number of replicas, independent of the kind.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::super::State;
use super::request::{Modification, WriteTarget};
use super::scale_fields::{integer_at, path_steps, value_at};
use super::{unknown, validation};
use crate::field_violation::FieldViolation;
use crate::go;
use crate::metadata;
use crate::resources::{ScalePaths, ServedResource};
use crate::selector;
use crate::status::Status;
use crate::types;
use crate::write_scope::WriteScope;

const SCALE_API_VERSION: &str = "autoscaling/v1";
/// Representation of an absent number of replicas, so that a patch without a number can be detected.
const NO_REPLICAS: i64 = i32::MIN as i64;

impl State {
    /// Scales an object. Returns its new scale.
    pub(crate) fn rescale(&mut self, target: &WriteTarget, update: &Modification) -> Result<Value, Status> {
        let resource = Arc::clone(&target.resource);
        let not_found = || Status::not_found(&resource.name, &target.name);
        let paths = resource.scale(target.version()).ok_or_else(not_found)?;
        let sent_scale = match update {
            Modification::Replace(scale) | Modification::Applied(scale) => {
                Some(check_sent_scale(target, scale.clone())?)
            }
            Modification::Patch(_) => None,
        };
        let stored = self.latest(&resource.name, &target.key()).and_then(|change| change.object.clone());
        let existing = resource.view(&stored.ok_or_else(not_found)?, target.version());
        let mut scale = match (update, sent_scale) {
            (Modification::Patch(patch), _) => {
                // With a placeholder for an absent number, a patch that leaves the number absent differs from a patch
                // that removes the number.
                check_sent_scale(target, patch.apply(&scale_object(&resource, &paths, &existing, NO_REPLICAS)?)?)?
            }
            (_, sent_scale) => sent_scale.unwrap_or_default(),
        };
        if let Some(detail) = types::type_mismatch(SCALE_API_VERSION, "Scale", &scale) {
            return Err(if let Modification::Patch(_) = update {
                validation::invalid_patch_result(&scale, &detail)
            } else {
                validation::undecodable_object("Scale", "v1", detail)
            });
        }
        let unpruned = scale.clone();
        let unknown = types::prune(SCALE_API_VERSION, "Scale", &mut scale);
        let unknown = unknown.into_iter().map(|path| format!("unknown field \"{path}\"")).collect();
        match update {
            Modification::Patch(_) => unknown::check_patched(target, &unpruned, unknown)?,
            _ => unknown::check_scale(target, unknown)?,
        }
        let replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
        // The placeholder survived the patch, so the object has no replicas.
        if replicas == NO_REPLICAS {
            let detail = format!("the spec replicas field {} cannot be empty", go::quoted(&paths.spec_replicas));
            return Err(Status::bad_request(detail));
        }
        // Replicas of custom resources are checked later, at their own path.
        // Built-in kinds report the error at the scale's own path.
        if replicas < 0 && !resource.is_custom {
            let detail = "must be greater than or equal to 0";
            let cause = FieldViolation::invalid("spec.replicas", &replicas.into(), detail);
            return Err(Status::invalid_causes("autoscaling", "Scale", &target.name, &[cause]));
        }
        let mut object = Value::clone(&existing);
        set_at_path(&mut object, &paths.spec_replicas, replicas.into());
        // The version of a scale is the version of its object, so conflicts are detected.
        let version = metadata::text(&scale, "resourceVersion");
        if !version.is_empty() {
            metadata::set(&mut object, "resourceVersion", Some(version.into()));
        }
        validation::check_uid(target, &existing, &scale)?;
        let mut target = WriteTarget { write_scope: WriteScope::Main, ..target.clone() };
        // The violations in the body of the scale were checked above; the object has no others.
        target.request.body_violations.clear();
        if let Some(manager) = &mut target.request.manager {
            manager.subresource = "scale";
        }
        let outcome = self.update(&target, &Modification::Replace(object))?;
        scale_object(&resource, &paths, &resource.view(outcome.object(), target.version()), 0)
    }
}

/// Returns the scale of an object.
pub(crate) fn scale_of(resource: &ServedResource, version: &str, object: &Value) -> Result<Value, Status> {
    let paths = resource.scale(version).unwrap_or_default();
    if resource.is_custom && value_at(object, &paths.spec_replicas) == Ok(None) {
        let path = go::quoted(&paths.spec_replicas);
        let detail = format!("Internal error occurred: the spec replicas field {path} does not exist");
        let cause = json!({"message": format!("the spec replicas field {path} does not exist")});
        return Err(Status::new(500, "InternalError", detail).with_details(json!({"causes": [cause]})));
    }
    scale_object(resource, &paths, object, 0)
}

fn scale_object(
    resource: &ServedResource,
    paths: &ScalePaths,
    object: &Value,
    absent_replicas: i64,
) -> Result<Value, Status> {
    let count = |path: &str, absent_count: i64| match integer_at(object, path) {
        Ok(count) => Ok(count.unwrap_or(absent_count)),
        Err(detail) => Err(Status::new(500, "", detail)),
    };
    // Built-in kinds default to one replica.
    let replicas = count(&paths.spec_replicas, if resource.is_custom { absent_replicas } else { 1 })?;
    let mut metadata = Map::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        let value = object.get("metadata").and_then(|metadata| metadata.get(field));
        metadata.extend(value.map(|value| (field.to_owned(), value.clone())));
    }
    let mut scale = json!({
        "kind": "Scale", "apiVersion": SCALE_API_VERSION, "metadata": metadata, "spec": {},
        "status": {"replicas": count(&paths.status_replicas, 0)?},
    });
    // Go omits a zero.
    if replicas != 0 {
        scale["spec"]["replicas"] = replicas.into();
    }
    let selector = if paths.selector.is_empty() { None } else { value_at(object, &paths.selector).unwrap_or_default() };
    let selector = match selector {
        Some(Value::String(text)) => text.clone(),
        Some(other) => selector::text(other),
        None => String::new(),
    };
    if !selector.is_empty() {
        scale["status"]["selector"] = selector.into();
    }
    Ok(scale)
}

/// Checks that the sent object is the scale of this object.
fn check_sent_scale(target: &WriteTarget, scale: Value) -> Result<Value, Status> {
    let text = |key: &str| scale.get(key).and_then(Value::as_str).unwrap_or_default();
    let (kind, api_version) = (text("kind"), text("apiVersion"));
    if kind != "Scale" && !kind.is_empty() || api_version != SCALE_API_VERSION && !api_version.is_empty() {
        if target.resource.is_custom {
            return Err(Status::bad_request(
                "no kind is registered for the type v1.Scale in scheme \"pkg/runtime/scheme.go:111\"",
            ));
        }
        let version = api_version.rsplit('/').next().unwrap_or_default();
        return Err(Status::bad_request(format_args!(
            "{kind} in version \"{version}\" cannot be handled as a Scale: no kind \"{kind}\" is registered for version \
             \"{api_version}\""
        )));
    }
    let (name, namespace) = (metadata::text(&scale, "name"), metadata::text(&scale, "namespace"));
    if !name.is_empty() && name != target.name {
        return Err(Status::bad_request(format_args!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            target.name
        )));
    }
    if !namespace.is_empty() && namespace != target.namespace {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(scale)
}

fn set_at_path(object: &mut Value, path: &str, value: Value) {
    let mut parent = object;
    for step in path_steps(path) {
        if !parent.is_object() {
            *parent = Value::Object(Map::new());
        }
        parent = &mut parent[step];
    }
    *parent = value;
}
