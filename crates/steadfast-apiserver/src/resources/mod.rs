//! What the server serves: resources built in, declared, or defined by a `CustomResourceDefinition`.

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

/// A resource by its API group and plural name, whatever the version: what a history is kept by.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupResource {
    group: Arc<str>,
    resource: Arc<str>,
}

impl GroupResource {
    /// A resource of a group; the core group is the empty string.
    pub fn new(group: &str, resource: &str) -> Self {
        Self { group: group.into(), resource: resource.into() }
    }

    /// The API group, empty for the core group.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The plural name.
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

/// A custom resource that is served from the start, without a `CustomResourceDefinition`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceDeclaration {
    /// The API group; the core group is the empty string.
    pub group: String,
    /// The version under which it is served.
    pub version: String,
    /// The kind of its objects.
    pub kind: String,
    /// The plural name, as it is in paths.
    pub plural: String,
    /// The singular name.
    pub singular: String,
    /// Short names, as `kubectl` takes them.
    pub short_names: Vec<String>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Whether `status` is a subresource of its own.
    pub status_subresource: bool,
}

impl ResourceDeclaration {
    /// A namespaced resource with a status subresource, named after its kind in lower case.
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

    /// A cluster-scoped resource with a status subresource, named after its kind in lower case.
    pub fn cluster_scoped(group: &str, version: &str, kind: &str, plural: &str) -> Self {
        Self { namespaced: false, ..Self::namespaced(group, version, kind, plural) }
    }
}
