//! Fields of custom resources in builds without the feature `crd`: no resource has a schema.

use serde_json::Value;

use super::request::WriteTarget;
use crate::field_violation::FieldViolation;

/// Returns no unknown fields.
pub(super) fn prepare(_: &WriteTarget, _: &mut Value) -> Vec<String> {
    Vec::new()
}

/// Sets no defaults.
pub(super) fn set_defaults(_: &WriteTarget, _: &mut Value) {}

/// Returns no violations.
pub(super) fn violations(_: &WriteTarget, _: &Value, _: Option<&Value>) -> Vec<FieldViolation> {
    Vec::new()
}
