//! Definitions in builds without the feature `crd`: they define no resource.

use serde_json::Value;

use super::{GroupResource, ServedResource};

/// Returns no name.
pub(crate) fn defined_name(_: &Value) -> Option<GroupResource> {
    None
}

/// Returns no resource.
pub(super) fn served_by(_: &Value) -> Option<ServedResource> {
    None
}
