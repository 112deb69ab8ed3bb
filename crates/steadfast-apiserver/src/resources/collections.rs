//! Collections whose objects determine which other objects are valid.

use std::sync::LazyLock;

use super::GroupResource;

/// Namespaces.
pub(crate) static NAMESPACES: LazyLock<GroupResource> = LazyLock::new(|| GroupResource::new("", "namespaces"));

/// Definitions of custom resources.
pub(crate) static DEFINITIONS: LazyLock<GroupResource> =
    LazyLock::new(|| GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions"));
