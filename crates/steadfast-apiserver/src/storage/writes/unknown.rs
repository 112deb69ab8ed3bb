//! Unknown and duplicate fields of a write: ignored, reported by a warning, or rejected.

use serde_json::Value;

use super::request::{Strictness, WriteTarget};
use super::validation;
use crate::status::Status;

/// Warns of, or rejects, unknown and duplicate fields of a sent object.
pub(super) fn judge(target: &WriteTarget, unknown: &[String]) -> Result<(), Status> {
    // The content of an unknown field of a built-in kind is not decoded, so its duplicates are not reported.
    let places: Vec<&str> = unknown.iter().filter_map(|flaw| flaw.split('"').nth(1)).collect();
    let is_read = |flaw: &&String| {
        let place = flaw.split('"').nth(1).unwrap_or_default();
        let is_below = |unknown: &str| place.strip_prefix(unknown).is_some_and(|rest| rest.starts_with(['.', '[']));
        target.resource.custom || !places.iter().any(|unknown| is_below(unknown))
    };
    let found: Vec<String> = target.asked.flaws.iter().filter(is_read).chain(unknown).cloned().collect();
    conclude(target, found, |why| validation::unreadable(&target.resource.kind, target.version(), strictly(&why)))
}

/// Warns of, or rejects, unknown and duplicate fields of a patched object. The error names the patch.
pub(super) fn judge_patched(target: &WriteTarget, patched: &Value, unknown: Vec<String>) -> Result<(), Status> {
    let found = target.asked.flaws.iter().cloned().chain(unknown).collect();
    conclude(target, found, |why| validation::unreadable_patch(patched, &strictly(&why)))
}

/// Warns of, or rejects, unknown and duplicate fields of a scale.
pub(super) fn judge_scale(target: &WriteTarget, unknown: Vec<String>) -> Result<(), Status> {
    let found = target.asked.flaws.iter().cloned().chain(unknown).collect();
    conclude(target, found, |why| validation::unreadable("Scale", "v1", strictly(&why)))
}

/// Warns of, or rejects, duplicate fields of an applied document. Its unknown fields were checked before.
pub(super) fn judge_applied(target: &WriteTarget) -> Result<(), Status> {
    conclude(target, target.asked.flaws.clone(), |why| {
        Status::bad_request(format_args!("error strict decoding patch: {why}"))
    })
}

fn strictly(why: &str) -> String {
    format!("strict decoding error: {why}")
}

fn conclude(target: &WriteTarget, found: Vec<String>, refusal: impl FnOnce(String) -> Status) -> Result<(), Status> {
    match target.asked.strictness {
        Strictness::Strict if !found.is_empty() => return Err(refusal(found.join(", "))),
        Strictness::Warn => target.asked.warnings.add(found),
        Strictness::Strict | Strictness::Ignore => {}
    }
    Ok(())
}
