//! Served resources: built in, declared, or defined by a `CustomResourceDefinition`.

mod autoscaling;
mod builtin;
mod collections;
mod defined;
mod definition;
mod events;
mod registry;
mod served;

use std::fmt;
use std::sync::Arc;

pub(crate) use collections::{DEFINITIONS, NAMESPACES};
pub(crate) use defined::{Definition, PrinterColumn, ScalePaths, version_of};
pub(crate) use definition::{defined_name, established};
pub(crate) use registry::Registry;
pub(crate) use served::ServedResource;

/// Resource by its API group and plural name, independent of the version. Key of a history.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupResource {
    group: Arc<str>,
    resource: Arc<str>,
}

impl GroupResource {
    /// Creates the name of a resource. The core group is the empty string.
    pub fn new(group: &str, resource: &str) -> Self {
        Self { group: group.into(), resource: resource.into() }
    }

    /// Returns the API group; empty for the core group.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Returns the plural name.
    pub fn resource(&self) -> &str {
        &self.resource
    }
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() { f.write_str(&self.resource) } else { write!(f, "{}.{}", self.resource, self.group) }
    }
}

impl fmt::Debug for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Custom resource that is served from the start, without a `CustomResourceDefinition`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceDeclaration {
    /// API group. The core group is the empty string.
    pub group: String,
    /// Served version.
    pub version: String,
    /// Kind of the objects.
    pub kind: String,
    /// Plural name, as in paths.
    pub plural: String,
    /// Singular name.
    pub singular: String,
    /// Short names for `kubectl`.
    pub short_names: Vec<String>,
    /// True if objects have a namespace.
    pub namespaced: bool,
    /// True if `status` is a subresource.
    pub status_subresource: bool,
}

impl ResourceDeclaration {
    /// Creates a namespaced resource with a status subresource. The singular name is the kind in lower case.
    pub fn namespaced(group: &str, version: &str, kind: &str, plural: &str) -> Self {
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
            singular: kind.to_lowercase(),
            short_names: Vec::new(),
            namespaced: true,
            status_subresource: true,
        }
    }

    /// Creates a cluster-scoped resource with a status subresource. The singular name is the kind in lower case.
    pub fn cluster_scoped(group: &str, version: &str, kind: &str, plural: &str) -> Self {
        Self { namespaced: false, ..Self::namespaced(group, version, kind, plural) }
    }
}
