//! Served resources: built in, declared, or defined by a `CustomResourceDefinition`.

mod autoscaling;
mod builtin;
mod collections;
#[cfg(feature = "crd")]
mod defined;
#[cfg(feature = "crd")]
mod definition;
mod events;
mod missing;
#[cfg(not(feature = "crd"))]
mod no_defined;
#[cfg(not(feature = "crd"))]
mod no_definition;
mod registry;
mod scale_paths;
mod served;

use serde_json::Value;

pub(crate) use collections::{DEFINITIONS, NAMESPACES};
pub(crate) use defined::Definition;
#[cfg(feature = "crd")]
pub(crate) use defined::{DefinedVersion, PrinterColumn};
pub(crate) use definition::defined_name;
pub(crate) use missing::missing_feature;
#[cfg(not(feature = "crd"))]
use no_defined as defined;
#[cfg(not(feature = "crd"))]
use no_definition as definition;
pub(crate) use registry::Registry;
pub(crate) use scale_paths::ScalePaths;
pub(crate) use served::ServedResource;

pub(crate) use crate::group_resource::GroupResource;

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

/// Returns the version in an object's `apiVersion`.
pub(crate) fn version_of(object: &Value) -> &str {
    let api_version = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    api_version.rsplit('/').next().unwrap_or_default()
}
