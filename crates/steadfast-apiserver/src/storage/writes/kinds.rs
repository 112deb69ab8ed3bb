//! The kinds for which other rules of writing hold than for all others.

use crate::resources::{DEFINITIONS, GroupResource, NAMESPACES};

/// Of a few kinds, an update of what is not there creates it.
pub(super) fn is_created_by_updates(resource: &GroupResource) -> bool {
    match resource.group() {
        "coordination.k8s.io" | "rbac.authorization.k8s.io" | "events.k8s.io" => true,
        "" => matches!(resource.resource(), "events" | "limitranges" | "services"),
        "node.k8s.io" => resource.resource() == "runtimeclasses",
        _ => false,
    }
}

/// Namespaces and definitions stay, terminating, while they hold something.
pub(super) fn holds_contents(resource: &GroupResource) -> bool {
    is_namespace(resource) || is_definition(resource)
}

pub(super) fn is_namespace(resource: &GroupResource) -> bool {
    *resource == *NAMESPACES
}

/// The namespaces that no cluster is without.
pub(super) fn is_immortal(resource: &GroupResource, name: &str) -> bool {
    is_namespace(resource) && matches!(name, "default" | "kube-system" | "kube-public")
}

pub(super) fn is_definition(resource: &GroupResource) -> bool {
    *resource == *DEFINITIONS
}
