//! Unknown and duplicate fields of a write: ignored, reported by a warning, or rejected.

use serde_json::Value;

use super::request::{Strictness, WriteTarget};
use super::validation;
use crate::status::Status;

/// Warns of, or rejects, unknown and duplicate fields of a sent object.
pub(super) fn check(target: &WriteTarget, unknown: &[String]) -> Result<(), Status> {
    // The content of an unknown field of a built-in kind is not decoded, so its duplicates are not reported.
    let places: Vec<&str> = unknown.iter().filter_map(|violation| violation.split('"').nth(1)).collect();
    let is_read = |violation: &&String| {
        let place = violation.split('"').nth(1).unwrap_or_default();
        let is_below = |unknown: &str| place.strip_prefix(unknown).is_some_and(|rest| rest.starts_with(['.', '[']));
        target.resource.is_custom || !places.iter().any(|unknown| is_below(unknown))
    };
    let found: Vec<String> = target.request.body_violations.iter().filter(is_read).chain(unknown).cloned().collect();
    report_violations(target, found, |detail| {
        validation::unreadable(&target.resource.kind, target.version(), strictly(&detail))
    })
}

/// Warns of, or rejects, unknown and duplicate fields of a patched object. The error names the patch.
pub(super) fn check_patched(target: &WriteTarget, patched: &Value, unknown: Vec<String>) -> Result<(), Status> {
    let found = target.request.body_violations.iter().cloned().chain(unknown).collect();
    report_violations(target, found, |detail| validation::unreadable_patch(patched, &strictly(&detail)))
}

/// Warns of, or rejects, unknown and duplicate fields of a scale.
pub(super) fn check_scale(target: &WriteTarget, unknown: Vec<String>) -> Result<(), Status> {
    let found = target.request.body_violations.iter().cloned().chain(unknown).collect();
    report_violations(target, found, |detail| validation::unreadable("Scale", "v1", strictly(&detail)))
}

/// Warns of, or rejects, duplicate fields of an applied document. Its unknown fields were checked before.
pub(super) fn check_applied(target: &WriteTarget) -> Result<(), Status> {
    report_violations(target, target.request.body_violations.clone(), |detail| {
        Status::bad_request(format_args!("error strict decoding patch: {detail}"))
    })
}

fn strictly(detail: &str) -> String {
    format!("strict decoding error: {detail}")
}

fn report_violations(
    target: &WriteTarget,
    found: Vec<String>,
    rejection: impl FnOnce(String) -> Status,
) -> Result<(), Status> {
    match target.request.strictness {
        Strictness::Strict if !found.is_empty() => return Err(rejection(found.join(", "))),
        Strictness::Warn => target.request.warnings.add(found),
        Strictness::Strict | Strictness::Ignore => {}
    }
    Ok(())
}
