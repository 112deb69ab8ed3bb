//! Writes to the history that bypass the API.

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::metadata;
use crate::resources::{DEFINITIONS, ServedResource, missing_feature, version_of};
use crate::status::Status;
use crate::storage::{Deletion, Modification, ObjectKey, Patch, RequestProperties, State, WriteOutcome, WriteTarget};
use crate::write_scope::WriteScope;

/// Creates an object. Returns the object and the API's warnings.
pub(crate) fn create(cluster: &Cluster, object: &impl Serialize) -> Result<(Value, Vec<String>), Status> {
    let object = to_value(object)?;
    let mut target = target_of(cluster, &object)?;
    // A creation takes the name from the object, not from a URL.
    target.name.clear();
    let stored = cluster.store.write(|state| state.create(&target, object))?;
    Ok((in_requested_version(&target, &stored), target.request.warnings.take()))
}

pub(crate) fn replace(cluster: &Cluster, object: &impl Serialize) -> Result<Value, Status> {
    let object = to_value(object)?;
    let target = target_of(cluster, &object)?;
    write(cluster, &target, |state| state.update(&target, &Modification::Replace(object)))
}

pub(crate) fn patch(
    cluster: &Cluster,
    resource: &str,
    namespace: &str,
    name: &str,
    patch: Patch,
) -> Result<Value, Status> {
    let target = named_target(cluster, resource, namespace, name)?;
    write(cluster, &target, |state| state.update(&target, &Modification::Patch(patch)))
}

pub(crate) fn delete(cluster: &Cluster, object: &impl Serialize) -> Result<Value, Status> {
    let object = to_value(object)?;
    let target = target_of(cluster, &object)?;
    // The UID protects a newer object with an equal name.
    let deletion = Deletion { uid: metadata::text(&object, "uid").to_owned(), ..Deletion::default() };
    write(cluster, &target, |state| state.delete(&target, &deletion))
}

/// Deletes an object with preconditions and a propagation policy for its dependents.
#[cfg(feature = "world")]
pub(crate) fn delete_with(
    cluster: &Cluster,
    resource: &str,
    namespace: &str,
    name: &str,
    deletion: &Deletion,
) -> Result<Value, Status> {
    let target = named_target(cluster, resource, namespace, name)?;
    write(cluster, &target, |state| state.delete(&target, deletion))
}

pub(crate) fn delete_named(cluster: &Cluster, resource: &str, namespace: &str, name: &str) -> Result<Value, Status> {
    let target = named_target(cluster, resource, namespace, name)?;
    write(cluster, &target, |state| state.delete(&target, &Deletion::default()))
}

pub(crate) fn get(cluster: &Cluster, resource: &str, namespace: &str, name: &str) -> Result<Value, Status> {
    let target = named_target(cluster, resource, namespace, name)?;
    let key = ObjectKey::new(&target.namespace, name);
    let found = cluster.store.read(|state| state.latest(target.resource.storage_resource(), &key)?.object.clone());
    found
        .map(|stored| in_requested_version(&target, &stored))
        .ok_or_else(|| Status::not_found(&target.resource.name, name))
}

/// Writes an object and returns the result.
fn write(
    cluster: &Cluster,
    target: &WriteTarget,
    write: impl FnOnce(&mut State) -> Result<WriteOutcome, Status>,
) -> Result<Value, Status> {
    cluster.store.write(write).map(|outcome| in_requested_version(target, outcome.object()))
}

fn to_value(object: &impl Serialize) -> Result<Value, Status> {
    serde_json::to_value(object)
        .map_err(|error| Status::bad_request(format_args!("the object cannot be serialized to JSON: {error}")))
}

fn target_of(cluster: &Cluster, object: &Value) -> Result<WriteTarget, Status> {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let found = cluster.store.read(|state| state.registry.find_kind(api_version, kind).cloned());
    let resource = found.ok_or_else(|| {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        missing_feature(group).unwrap_or_else(|| {
            let detail = format!("no resource of kind \"{kind}\" in version \"{api_version}\"");
            Status::of_code(404).with_message(detail)
        })
    })?;
    Ok(write_target(resource, version_of(object), metadata::text(object, "namespace"), metadata::text(object, "name")))
}

fn named_target(cluster: &Cluster, resource: &str, namespace: &str, name: &str) -> Result<WriteTarget, Status> {
    let found = cluster.store.read(|state: &State| {
        // The full name takes precedence over the plural, which several groups may use.
        let exact = state.registry.all().find(|served| served.name.to_string() == resource);
        exact.or_else(|| state.registry.all().find(|served| served.name.resource() == resource)).cloned()
    });
    let resource = found.ok_or_else(|| {
        let is_definition = resource == DEFINITIONS.resource() || resource == DEFINITIONS.to_string();
        let missing = missing_feature(DEFINITIONS.group()).filter(|_| is_definition);
        missing
            .unwrap_or_else(|| Status::of_code(404).with_message(format_args!("there is no resource \"{resource}\"")))
    })?;
    let version = resource.storage_version().to_owned();
    Ok(write_target(resource, &version, namespace, name))
}

fn write_target(resource: Arc<ServedResource>, version: &str, namespace: &str, name: &str) -> WriteTarget {
    let namespace = match (resource.namespaced, namespace) {
        (false, _) => "",
        (true, "") => "default",
        (true, namespace) => namespace,
    };
    let request = RequestProperties { version: version.to_owned(), ..RequestProperties::default() };
    WriteTarget {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        write_scope: WriteScope::Whole,
        is_dry_run: false,
        request,
        resource,
    }
}

/// Converts a stored object to the requested version.
fn in_requested_version(target: &WriteTarget, stored: &Arc<Value>) -> Value {
    Arc::unwrap_or_clone(target.resource.view(stored, target.version()))
}
