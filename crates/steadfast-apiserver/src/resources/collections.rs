//! The collections whose objects say what others there can be.

use std::sync::LazyLock;

use super::GroupResource;

/// Namespaces.
pub(crate) static NAMESPACES: LazyLock<GroupResource> = LazyLock::new(|| GroupResource::new("", "namespaces"));

/// The definitions of custom resources.
pub(crate) static DEFINITIONS: LazyLock<GroupResource> =
    LazyLock::new(|| GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions"));
