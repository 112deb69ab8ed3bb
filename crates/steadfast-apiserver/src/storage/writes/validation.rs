//! Validation of writes.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use super::request::WriteTarget;
use crate::field_violation::FieldViolation;
use crate::go;
use crate::metadata;
use crate::status::Status;
use crate::write_scope::WriteScope;

/// Checks the kind, the namespace and the name of an object against its request, and sets absent ones.
pub(super) fn complete_identity(object: &mut Value, target: &WriteTarget) -> Result<(), Status> {
    let resource = &target.resource;
    let Value::Object(fields) = &mut *object else {
        let words = "couldn't get version/kind; json parse error: the value is not an object";
        return Err(Status::bad_request(format_args!(
            "the object provided is unrecognized (must be of type {}): {words}",
            resource.kind
        )));
    };
    for key in ["kind", "apiVersion"] {
        if fields.get(key).is_some_and(|value| !value.is_null() && !value.is_string()) {
            return Err(Status::bad_request(format_args!(
                "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error: \
                 {key} is not a string",
                resource.kind
            )));
        }
    }
    let text = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (kind, api_version) = (text("kind"), text("apiVersion"));
    let expected = resource.api_version(target.version());
    let is_expected_version = api_version == expected;
    let (has_other_kind, has_other_version) =
        (!kind.is_empty() && kind != resource.kind, !api_version.is_empty() && !is_expected_version);
    // Custom resources report a wrong kind as a field error below.
    if (has_other_kind || has_other_version) && !resource.is_custom {
        let version = api_version.rsplit('/').next().unwrap_or_default();
        return Err(Status::bad_request(format_args!(
            "{kind} in version \"{version}\" cannot be handled as a {}: no kind \"{kind}\" is registered for version \
             \"{api_version}\"",
            resource.kind
        )));
    }
    if has_other_kind {
        let detail = format!("Invalid value: \"{kind}\": must be {}", resource.kind);
        let name = fields.get("metadata").and_then(|metadata| metadata.get("name")).and_then(Value::as_str);
        return Err(Status::invalid(resource.name.group(), &kind, name.unwrap_or_default(), &[("kind", detail)]));
    }
    if has_other_version {
        return Err(Status::bad_request(format_args!(
            "the API version in the data ({api_version}) does not match the expected API version ({expected})"
        )));
    }
    fields.insert("kind".to_owned(), resource.kind.as_str().into());
    fields.insert("apiVersion".to_owned(), expected.into());
    let metadata_field = fields.get("metadata").filter(|metadata| !metadata.is_null());
    let namespace =
        metadata_field.and_then(|metadata| metadata.get("namespace")).filter(|namespace| !namespace.is_null());
    if metadata_field.is_some_and(|metadata| !metadata.is_object())
        || namespace.is_some_and(|namespace| !namespace.is_string())
    {
        // The check of field types rejects this value later.
        return Ok(());
    }
    let namespace = metadata::text(object, "namespace");
    if !namespace.is_empty() && namespace != target.namespace {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    let name = metadata::text(object, "name");
    if !target.name.is_empty() && !name.is_empty() && name != target.name {
        return Err(Status::bad_request(format_args!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            target.name
        )));
    }
    let in_namespace = resource.namespaced.then(|| target.namespace.as_str().into());
    // The namespace of the request takes precedence, and cluster-scoped objects have none.
    metadata::set(object, "namespace", in_namespace);
    Ok(())
}

/// Creates the status for an object that cannot be decoded.
pub(super) fn undecodable_object(kind: &str, version: &str, detail: impl fmt::Display) -> Status {
    Status::bad_request(format_args!("{kind} in version \"{version}\" cannot be handled as a {kind}: {detail}"))
}

/// Creates the status for a patch with an invalid result.
pub(super) fn invalid_patch_result(object: &Value, detail: &str) -> Status {
    Status::invalid_causes("", "", "", &[FieldViolation::invalid("patch", &go::json(object).into(), detail)])
}

/// Rejects a write with its violations, if any.
pub(super) fn reject(target: &WriteTarget, name: &str, causes: &[FieldViolation]) -> Result<(), Status> {
    // CEL rules of the object are still being evaluated. This attempt ends without a change, and another one follows.
    if target.request.rule_results.is_pending() {
        // No client receives this status.
        return Err(Status::of_code(500).with_message("the rules of the object have not been evaluated"));
    }
    if causes.is_empty() {
        return Ok(());
    }
    let resource = &target.resource;
    Err(Status::invalid_causes(resource.name.group(), &resource.kind, name, causes))
}

/// Returns whether updates of a built-in kind must contain a version, as on a real server.
fn requires_version_in_update(group: &str, kind: &str) -> bool {
    match group {
        "admissionregistration.k8s.io" | "coordination.k8s.io" | "node.k8s.io" | "policy" => true,
        "storage.k8s.io" => kind != "StorageClass",
        _ => false,
    }
}

/// Checks the version in the update against the existing object.
pub(super) fn check_version(target: &WriteTarget, existing: &Value, updated: &Value) -> Result<(), Status> {
    let resource = &target.resource;
    let version = metadata::text(updated, "resourceVersion");
    if !version.is_empty() && version != metadata::text(existing, "resourceVersion") {
        let detail = "the object has been modified; please apply your changes to the latest version and try again";
        return Err(Status::conflict(&resource.name, &target.name, detail));
    }
    Ok(())
}

/// Returns the violations of the UID in a patched object.
pub(super) fn uid_violations(target: &WriteTarget, existing: &Value, updated: &Value) -> Vec<FieldViolation> {
    let uid = metadata::text(updated, "uid");
    if uid.is_empty() || uid == metadata::text(existing, "uid") {
        return Vec::new();
    }
    twice_where_custom(target, || FieldViolation::invalid("metadata.uid", &uid.into(), "field is immutable"))
}

/// Checks that an update contains a version if its kind requires one.
pub(super) fn check_version_present(target: &WriteTarget, updated: &Value) -> Result<(), Status> {
    let resource = &target.resource;
    let version = metadata::text(updated, "resourceVersion");
    // Updates of other kinds are unconditional if they have no version.
    let requires_version = resource.is_custom || requires_version_in_update(resource.name.group(), &resource.kind);
    if version.is_empty() && requires_version && target.write_scope != WriteScope::Whole {
        let detail = "Invalid value: 0: must be specified for an update".to_owned();
        let causes = [("metadata.resourceVersion", detail)];
        return Err(Status::invalid(resource.name.group(), resource.name.resource(), &target.name, &causes));
    }
    Ok(())
}

/// Checks the UID in the update against the existing object.
pub(super) fn check_uid(target: &WriteTarget, existing: &Value, updated: &Value) -> Result<(), Status> {
    let resource = &target.resource;
    let uid = metadata::text(updated, "uid");
    let existing_uid = metadata::text(existing, "uid");
    if !uid.is_empty() && uid != existing_uid {
        let detail = format!(
            "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: \
             UID in precondition: {uid}, UID in object meta: {existing_uid}",
            etcd_key(target)
        );
        return Err(Status::conflict(&resource.name, &target.name, &detail));
    }
    Ok(())
}

/// Returns the key of the object in etcd.
fn etcd_key(target: &WriteTarget) -> String {
    let name = &target.resource.name;
    let group = if target.resource.is_custom { name.group() } else { "" };
    // Paths in etcd keep historical names of resources.
    let plural = match (name.group(), name.resource()) {
        ("", "endpoints") => "services/endpoints",
        ("", "nodes") => "minions",
        ("", "replicationcontrollers") => "controllers",
        ("", "services") => "services/specs",
        ("networking.k8s.io", "ingresses") => "ingress",
        (_, plural) => plural,
    };
    let steps = [group, plural, &target.namespace, &target.name];
    let steps: Vec<&str> = steps.into_iter().filter(|step| !step.is_empty()).collect();
    format!("/registry/{}", steps.join("/"))
}

/// Returns the violations of finalizers. A terminating object must not receive new ones.
pub(super) fn finalizer_violations(target: &WriteTarget, existing: &Value, updated: &Value) -> Vec<FieldViolation> {
    let finalizers = |object: &Value| -> Vec<String> {
        let items = object.pointer("/metadata/finalizers").and_then(Value::as_array).into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let before = finalizers(existing);
    let added: BTreeSet<String> =
        finalizers(updated).into_iter().filter(|finalizer| !before.contains(finalizer)).collect();
    // Removals are allowed: controllers release a terminating object in this way.
    if added.is_empty() || !metadata::is_terminating(existing) {
        return Vec::new();
    }
    let listed: Vec<String> = added.iter().map(|finalizer| format!("{finalizer:?}")).collect();
    let detail = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        listed.join(", ")
    );
    twice_where_custom(target, || FieldViolation::forbidden("metadata.finalizers", &detail))
}

/// Returns the violations of `deletionTimestamp` and `deletionGracePeriodSeconds`. Only a deletion sets these fields.
pub(super) fn deletion_violations(target: &WriteTarget, existing: &Value, updated: &Value) -> Vec<FieldViolation> {
    let change = |field: &str| {
        let field_value = |object: &Value| object.get("metadata").and_then(|metadata| metadata.get(field)).cloned();
        (field_value(existing), field_value(updated))
    };
    let mut causes = Vec::new();
    let mut reject = |field: &str, value: &Value| {
        let field = format!("metadata.{field}");
        causes.extend(twice_where_custom(target, || {
            FieldViolation::invalid(field.as_str(), value, "field is immutable")
        }));
    };
    // Changes of an existing timestamp are ignored instead of rejected.
    if let (None, Some(time)) = change("deletionTimestamp") {
        reject("deletionTimestamp", &time);
    }
    match change("deletionGracePeriodSeconds") {
        (before, Some(seconds)) if before.as_ref() != Some(&seconds) => reject("deletionGracePeriodSeconds", &seconds),
        _ => {}
    }
    causes
}

/// Returns a cause about metadata, twice for custom resources: a real server validates their metadata twice.
fn twice_where_custom(target: &WriteTarget, cause: impl Fn() -> FieldViolation) -> Vec<FieldViolation> {
    let repetitions = if target.resource.is_custom { 2 } else { 1 };
    (0..repetitions).map(|_| cause()).collect()
}
