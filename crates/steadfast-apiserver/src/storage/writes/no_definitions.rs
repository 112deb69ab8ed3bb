//! `CustomResourceDefinition`s in builds without the feature `crd`: they are not served, so no write contains a
//! definition.

use serde_json::Value;

use super::request::WriteTarget;
use crate::field_violation::FieldViolation;

pub(super) fn set_defaults(_: &mut Value) {}

pub(super) fn new_status(_: &Value) -> Value {
    Value::Null
}

pub(super) fn established_status(_: &Value, _: &str) -> Value {
    Value::Null
}

pub(super) fn update_status(_: &mut Value) {}

pub(super) fn mark_terminating(_: &mut Value, _: &str) {}

/// Returns no violations.
pub(super) fn violations(_: &WriteTarget, _: &str, _: &Value) -> Vec<FieldViolation> {
    Vec::new()
}

/// Adds no warnings.
pub(super) fn warn(_: &WriteTarget, _: &Value) {}
