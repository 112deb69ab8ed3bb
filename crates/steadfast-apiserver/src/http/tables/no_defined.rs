//! Table columns of definitions in builds without the feature `crd`: no definition declares columns.

use serde_json::Value;

use crate::clock::Clock;
use crate::resources::ServedResource;

/// Returns no column definitions.
pub(super) fn definitions(_: &ServedResource, _: &str) -> Option<Vec<Value>> {
    None
}

/// Returns no cells.
pub(super) fn cells(_: &ServedResource, _: &str, _: &Value, _: &Clock) -> Option<Vec<Value>> {
    None
}
