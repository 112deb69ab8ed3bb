//! Unknown and duplicate fields of a write: ignored, reported by a warning, or rejected.

use serde_json::Value;

use super::request::{FieldValidation, WriteTarget};
use super::validation;
use crate::status::Status;

/// Warns of, or rejects, unknown and duplicate fields of a sent object.
pub(super) fn check(target: &WriteTarget, unknown: &[String]) -> Result<(), Status> {
    // The content of an unknown field of a built-in kind is not decoded, so its duplicates are not reported.
    let unknown_paths: Vec<&str> = unknown.iter().filter_map(|violation| violation.split('"').nth(1)).collect();
    let is_decoded = |violation: &&String| {
        let path = violation.split('"').nth(1).unwrap_or_default();
        let is_below = |unknown: &str| path.strip_prefix(unknown).is_some_and(|rest| rest.starts_with(['.', '[']));
        target.resource.is_custom || !unknown_paths.iter().any(|unknown| is_below(unknown))
    };
    let violations: Vec<String> =
        target.request.body_violations.iter().filter(is_decoded).chain(unknown).cloned().collect();
    report_violations(target, violations, |detail| {
        validation::undecodable_object(&target.resource.kind, target.version(), strict_error(&detail))
    })
}

/// Warns of, or rejects, unknown and duplicate fields of a patched object. The error names the patch.
pub(super) fn check_patched(target: &WriteTarget, patched: &Value, unknown: Vec<String>) -> Result<(), Status> {
    let violations = target.request.body_violations.iter().cloned().chain(unknown).collect();
    report_violations(target, violations, |detail| validation::invalid_patch_result(patched, &strict_error(&detail)))
}

/// Warns of, or rejects, unknown and duplicate fields of a scale.
pub(super) fn check_scale(target: &WriteTarget, unknown: Vec<String>) -> Result<(), Status> {
    let violations = target.request.body_violations.iter().cloned().chain(unknown).collect();
    report_violations(target, violations, |detail| validation::undecodable_object("Scale", "v1", strict_error(&detail)))
}

/// Warns of, or rejects, duplicate fields of an applied document. Its unknown fields were checked before.
pub(super) fn check_applied(target: &WriteTarget) -> Result<(), Status> {
    report_violations(target, target.request.body_violations.clone(), |detail| {
        Status::bad_request(format_args!("error strict decoding patch: {detail}"))
    })
}

fn strict_error(detail: &str) -> String {
    format!("strict decoding error: {detail}")
}

fn report_violations(
    target: &WriteTarget,
    violations: Vec<String>,
    rejection: impl FnOnce(String) -> Status,
) -> Result<(), Status> {
    match target.request.field_validation {
        FieldValidation::Strict if !violations.is_empty() => return Err(rejection(violations.join(", "))),
        FieldValidation::Warn => target.request.warnings.add(violations),
        FieldValidation::Strict | FieldValidation::Ignore => {}
    }
    Ok(())
}
