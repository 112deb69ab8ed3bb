//! Tables in builds without the feature `tables`: none, since `negotiate` selects another form.

use serde_json::Value;

use crate::clock::Clock;
use crate::resources::ServedResource;

/// Returns no columns.
pub(super) fn definitions(_: &ServedResource, _: &str) -> Vec<Value> {
    Vec::new()
}

/// Returns no cells.
pub(super) fn cells(_: &ServedResource, _: &str, _: &Value, _: &Clock) -> Vec<Value> {
    Vec::new()
}
