//! Fields of writes: pruning, defaults and validation by the schema of a custom resource or the type of a built-in
//! kind.

use serde_json::Value;

use super::request::WriteTarget;
use super::{defaults, schemas, services, validation};
use crate::field_violation::FieldViolation;
use crate::metadata;
use crate::status::Status;
use crate::types;
use crate::write_scope::WriteScope;

/// Returns the message for a field with a wrong type. For custom resources, only the metadata is checked here.
fn type_error(target: &WriteTarget, object: &Value) -> Option<String> {
    if has_builtin_type(target) {
        return types::type_mismatch(&target.resource.api_version(target.version()), &target.resource.kind, object);
    }
    let is_checked =
        target.resource.is_custom && (target.definition().is_some() || target.write_scope != WriteScope::Whole);
    object.get("metadata").filter(|_| is_checked).and_then(types::metadata_type_mismatch)
}

/// Rejects an object with fields of a wrong type. For a patch, the error names the patch.
pub(super) fn check_types(target: &WriteTarget, object: &Value, is_patch: bool) -> Result<(), Status> {
    let Some(detail) = type_error(target, object) else { return Ok(()) };
    Err(if is_patch {
        validation::invalid_patch_result(object, &detail)
    } else {
        validation::undecodable_object(&target.resource.kind, target.version(), detail)
    })
}

/// Prunes an object and sets its defaults. Returns the unknown fields, including those of the metadata.
pub(super) fn prepare(target: &WriteTarget, object: &mut Value, unknown_metadata: Vec<String>) -> Vec<String> {
    let rest = prepare_fields(target, object);
    let mut unknown: Vec<String> = rest.into_iter().map(|path| format!("unknown field \"{path}\"")).collect();
    // The metadata of a custom resource is parsed first; a built-in kind is parsed in the order of its fields.
    let precedes_metadata =
        |field: &String| target.definition().is_none() && field.as_str() < "unknown field \"metadata.";
    // The order of warnings is visible to clients.
    let insert_index = unknown.partition_point(precedes_metadata);
    unknown.splice(insert_index..insert_index, unknown_metadata);
    unknown
}

/// Returns whether the target has a built-in type. Writes that bypass the API are stored unchanged.
fn has_builtin_type(target: &WriteTarget) -> bool {
    !target.resource.is_custom && target.write_scope != WriteScope::Whole
}

fn prepare_fields(target: &WriteTarget, object: &mut Value) -> Vec<String> {
    if has_builtin_type(target) {
        let api_version = target.resource.api_version(target.version());
        return types::prune(&api_version, &target.resource.kind, object);
    }
    schemas::prepare(target, object)
}

/// Rejects an applied object, or its merged result, with fields of a wrong type.
///
/// Custom resources were checked against their schema before. Their metadata is checked when they are stored.
pub(super) fn check_applied(target: &WriteTarget, applied: &Value, object: &Value) -> Result<(), Status> {
    if target.definition().is_some() {
        return Ok(());
    }
    let Some(detail) = type_error(target, object).or_else(|| type_error(target, applied)) else { return Ok(()) };
    let object_name = format!("{}; {}", metadata::namespaced_name(applied), metadata::kind_of(applied));
    Err(Status::new(500, "", format_args!("failed to convert new object ({object_name}) to proper version: {detail}")))
}

/// Sets the defaults of an applied object, and normalizes its values. An applied object has no unknown fields.
pub(super) fn prepare_applied(target: &WriteTarget, object: &mut Value) {
    if has_builtin_type(target) {
        prepare_fields(target, object);
    }
    schemas::set_defaults(target, object);
}

/// Adds the zero values of a status, as a real server writes them.
pub(super) fn complete_status(target: &WriteTarget, object: &mut Value) {
    if has_builtin_type(target) && target.resource.status_subresource {
        types::complete_status(&target.resource.api_version(target.version()), &target.resource.kind, object);
    }
}

/// Returns the invalid ports of an object of a built-in kind.
fn port_violations(target: &WriteTarget, object: &Value) -> Vec<FieldViolation> {
    if !has_builtin_type(target) || target.write_scope == WriteScope::Status {
        return Vec::new();
    }
    let api_version = target.resource.api_version(target.version());
    let invalid_ports = types::port_violations(&api_version, &target.resource.kind, object).into_iter();
    let mut causes: Vec<FieldViolation> = invalid_ports
        .map(|port| match port.number {
            Some(number) => FieldViolation::invalid(port.path, &number.into(), port.detail),
            None => FieldViolation::required(port.path, ""),
        })
        .collect();
    if causes.is_empty() {
        causes.extend(services::node_port_violations(target.group_resource(), object));
    }
    causes
}

/// Returns the violations of an object, or of its status alone. `before` is the object before an update.
pub(super) fn violations(target: &WriteTarget, object: &Value, before: Option<&Value>) -> Vec<FieldViolation> {
    if !target.resource.is_custom {
        return port_violations(target, object);
    }
    schemas::violations(target, object, before)
}

/// Returns whether a write increments the generation.
pub(super) fn counts_generation(target: &WriteTarget, before: &Value, object: &Value) -> bool {
    let resource = &target.resource;
    if !resource.counts_generation {
        return false;
    }
    // A status that is not a subresource counts like any other field.
    let status_counts = resource.definition.is_some() && target.write_scope == WriteScope::Main;
    defaults::is_another_generation(&resource.name, before, object)
        || status_counts && before.get("status") != object.get("status")
}
