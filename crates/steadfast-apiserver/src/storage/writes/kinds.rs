//! Kinds with special rules for writes.

use serde_json::Value;

use crate::resources::{DEFINITIONS, GroupResource, NAMESPACES};

/// Finalizer that keeps a definition until all of its objects are removed.
pub(super) const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Returns whether an update of an absent object of this kind creates the object.
pub(super) fn is_created_by_updates(resource: &GroupResource) -> bool {
    match resource.group() {
        "coordination.k8s.io" | "rbac.authorization.k8s.io" | "events.k8s.io" => true,
        "" => matches!(resource.resource(), "events" | "limitranges" | "services"),
        "node.k8s.io" => resource.resource() == "runtimeclasses",
        _ => false,
    }
}

/// Returns whether objects of this kind have contents, as namespaces and definitions do. After a deletion, such objects
/// stay terminating until their contents are removed.
pub(super) fn holds_contents(resource: &GroupResource) -> bool {
    is_namespace(resource) || is_definition(resource)
}

pub(super) fn is_namespace(resource: &GroupResource) -> bool {
    *resource == *NAMESPACES
}

/// Returns whether the object is a namespace that cannot be deleted.
pub(super) fn is_undeletable(resource: &GroupResource, name: &str) -> bool {
    is_namespace(resource) && matches!(name, "default" | "kube-system" | "kube-public")
}

pub(super) fn is_definition(resource: &GroupResource) -> bool {
    *resource == *DEFINITIONS
}

/// Returns whether the object has finalizers other than the finalizer of the server.
pub(super) fn has_user_finalizers(object: &Value) -> bool {
    let finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    // The server removes its own finalizer together with the last object.
    finalizers.into_iter().flatten().any(|finalizer| finalizer != CLEANUP_FINALIZER)
}
