//! What a write is refused for.

use serde_json::Value;

use super::super::metadata;
use super::{Part, WriteTarget};
use crate::status::Status;

/// Checks that an object is of the kind, namespace and name it was sent to, and fills in what it left out.
pub(super) fn identify(object: &mut Value, target: &WriteTarget) -> Result<(), Status> {
    let resource = &target.resource;
    let Value::Object(fields) = &mut *object else {
        return Err(Status::bad_request(format_args!(
            "the object provided is unrecognized (must be of type {}): it is no JSON object",
            resource.kind
        )));
    };
    let text = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (kind, api_version) = (text("kind"), text("apiVersion"));
    if !kind.is_empty() && kind != resource.kind {
        return Err(Status::bad_request(format_args!(
            "{kind} in version \"{api_version}\" cannot be handled as a {}: unknown conversion",
            resource.kind
        )));
    }
    let known = resource.versions.iter().any(|version| resource.api_version(version) == api_version);
    if !api_version.is_empty() && !known {
        return Err(Status::bad_request(format_args!(
            "the API version in the data ({api_version}) does not match the expected API version ({})",
            resource.api_version(&resource.versions[0])
        )));
    }
    fields.insert("kind".to_owned(), resource.kind.as_str().into());
    fields.insert("apiVersion".to_owned(), resource.api_version(&resource.versions[0]).into());
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
    metadata::set(object, "namespace", in_namespace);
    Ok(())
}

/// Object names are DNS subdomains; only RBAC allows more.
pub(super) fn check_name(target: &WriteTarget, name: &str) -> Result<(), Status> {
    let resource = &target.resource;
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let label = |label: &str| {
        let bytes = label.as_bytes();
        bytes.first().copied().is_some_and(letter)
            && bytes.last().copied().is_some_and(letter)
            && bytes.iter().all(|&byte| letter(byte) || byte == b'-')
    };
    let valid = if resource.name.group() == "rbac.authorization.k8s.io" {
        !matches!(name, "." | "..") && !name.contains(['/', '%'])
    } else {
        name.len() <= 253 && name.split('.').all(label)
    };
    if valid {
        return Ok(());
    }
    let why = format!(
        "Invalid value: \"{name}\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
         characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex \
         used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    );
    Err(Status::invalid(resource.name.group(), &resource.kind, name, &[("metadata.name", why)]))
}

/// Checks the version and the UID that an update was made for.
pub(super) fn check_preconditions(target: &WriteTarget, existing: &Value, wanted: &Value) -> Result<(), Status> {
    let resource = &target.resource;
    let version = metadata::text(wanted, "resourceVersion");
    if version.is_empty() && resource.custom && target.part != Part::Whole {
        let why = "Invalid value: 0: must be specified for an update".to_owned();
        let causes = [("metadata.resourceVersion", why)];
        return Err(Status::invalid(resource.name.group(), &resource.kind, &target.name, &causes));
    }
    if !version.is_empty() && version != metadata::text(existing, "resourceVersion") {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        return Err(Status::conflict(&resource.name, &target.name, why));
    }
    let uid = metadata::text(wanted, "uid");
    let existing_uid = metadata::text(existing, "uid");
    if !uid.is_empty() && uid != existing_uid {
        let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {existing_uid}");
        return Err(Status::conflict(&resource.name, &target.name, &why));
    }
    Ok(())
}

/// What is being deleted gets no new finalizers.
pub(super) fn check_finalizers(target: &WriteTarget, existing: &Value, wanted: &Value) -> Result<(), Status> {
    let finalizers = |object: &Value| -> Vec<String> {
        let items = object.pointer("/metadata/finalizers").and_then(Value::as_array).into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let before = finalizers(existing);
    let added: Vec<String> = finalizers(wanted).into_iter().filter(|finalizer| !before.contains(finalizer)).collect();
    if added.is_empty() || !metadata::is_terminating(existing) {
        return Ok(());
    }
    let why = format!(
        "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers {added:?}"
    );
    let resource = &target.resource;
    Err(Status::invalid(resource.name.group(), &resource.kind, &target.name, &[("metadata.finalizers", why)]))
}
