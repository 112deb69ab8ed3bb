//! Resources that are only served with a cargo feature.

use super::collections::DEFINITIONS;
use crate::status::Status;

/// Returns the status for a resource of `group` if the group needs a feature that is not enabled.
pub(crate) fn missing_feature(group: &str) -> Option<Status> {
    let is_missing = cfg!(not(feature = "crd")) && group == DEFINITIONS.group();
    is_missing.then(|| Status::without_feature(404, "NotFound", &DEFINITIONS.to_string(), "crd"))
}
