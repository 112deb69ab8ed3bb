//! What the schema of a custom resource, or the type of a built-in kind, makes of a write: what it does not know is
//! dropped, what is missing is filled in, and what is wrong is refused.

use serde_json::Value;

use super::request::{Part, WriteTarget};
use super::{defaults, validation};
use crate::apply;
use crate::schema::Cause;
use crate::status::Status;
use crate::types;

/// What in an object its kind cannot have, in few words: of a custom resource the metadata are looked at here.
fn malformed(target: &WriteTarget, object: &Value) -> Option<String> {
    if has_builtin_type(target) {
        return types::misfit(&target.resource.api_version(target.version()), &target.resource.kind, object);
    }
    let is_checked = target.resource.custom && (target.definition().is_some() || target.part != Part::Whole);
    object.get("metadata").filter(|_| is_checked).and_then(types::misfit_of_metadata)
}

/// Refuses an object that cannot be read as one of its kind; a patch is refused for what it makes.
pub(super) fn check_types(target: &WriteTarget, object: &Value, patched: bool) -> Result<(), Status> {
    let Some(why) = malformed(target, object) else { return Ok(()) };
    Err(if patched {
        validation::unreadable_patch(object, &why)
    } else {
        validation::unreadable(&target.resource.kind, target.version(), why)
    })
}

/// Takes an object in: drops what is unknown, and fills in what is missing. Returns what is unknown, that of its metadata
/// too.
pub(super) fn take_in(target: &WriteTarget, object: &mut Value, of_metadata: Vec<String>) -> Vec<String> {
    let rest = take_in_fields(target, object);
    let mut unknown: Vec<String> = rest.into_iter().map(|path| format!("unknown field \"{path}\"")).collect();
    // The metadata of a custom resource is read first; a built-in kind is read in the order of its fields.
    let before = |field: &String| target.definition().is_none() && field.as_str() < "unknown field \"metadata.";
    let at = unknown.partition_point(before);
    unknown.splice(at..at, of_metadata);
    unknown
}

/// What is written past the API is kept as it is.
fn has_builtin_type(target: &WriteTarget) -> bool {
    !target.resource.custom && target.part != Part::Whole
}

fn take_in_fields(target: &WriteTarget, object: &mut Value) -> Vec<String> {
    if has_builtin_type(target) {
        let api_version = target.resource.api_version(target.version());
        return types::prune(&api_version, &target.resource.kind, object);
    }
    let Some(version) = target.definition().and_then(|definition| definition.version(target.version())) else {
        return Vec::new();
    };
    let unknown = version.schema.prune(object);
    version.schema.prune_nulls(object);
    version.schema.fill_in(object);
    unknown
}

/// Refuses what an apply has made, or what was applied where nothing is known of its type, and no reader can read. Whoever
/// reads by a definition has looked at the fields by then, and leaves metadata to whoever stores them.
pub(super) fn check_applied(target: &WriteTarget, applied: &Value, object: &Value) -> Result<(), Status> {
    if target.definition().is_some() {
        return Ok(());
    }
    let Some(why) = malformed(target, object).or_else(|| malformed(target, applied)) else { return Ok(()) };
    let what = format!("{}; {}", apply::place_of(applied), apply::kind_of(applied));
    Err(Status::new(500, "", format_args!("failed to convert new object ({what}) to proper version: {why}")))
}

/// Fills in what is missing in an object that an apply has made, and writes what it has as its type does: it has no unknown
/// fields.
pub(super) fn take_in_applied(target: &WriteTarget, object: &mut Value) {
    if has_builtin_type(target) {
        take_in_fields(target, object);
    }
    if let Some(version) = target.definition().and_then(|definition| definition.version(target.version())) {
        version.schema.fill_in(object);
    }
}

/// What is wrong with an object, or with its status alone; `before` is what it was before an update.
pub(super) fn wrong(target: &WriteTarget, object: &Value, before: Option<&Value>) -> Vec<Cause> {
    let Some(version) = target.definition().and_then(|definition| definition.version(target.version())) else {
        return Vec::new();
    };
    let schema = &version.schema;
    let mut causes = match target.part {
        // What is written past the API is kept as it is.
        Part::Whole => return Vec::new(),
        Part::Main => schema.validate("", object, before),
        Part::Status => match (schema.field("status"), object.get("status")) {
            (Some(schema), Some(status)) => {
                schema.validate("status", status, before.and_then(|before| before.get("status")))
            }
            _ => Vec::new(),
        },
    };
    if let Some(paths) = &version.scale {
        causes.extend(super::scale::wrong(paths, object, target.part == Part::Status));
    }
    if target.part != Part::Status {
        causes.extend(schema.nameless(object));
    }
    // A list that had duplicates may keep them.
    if before.is_none_or(|before| schema.duplicates(before).is_empty()) {
        causes.extend(schema.duplicates(object));
    }
    if let (true, Some(definition)) = (schema.has_rules, &target.resource.definition) {
        if causes.iter().any(crate::schema::is_blocking) {
            causes.push(crate::schema::unchecked());
        } else if let Some(verdict) = target.asked.verdicts.about(definition, target.version(), object, before) {
            causes.extend(verdict.causes);
            target.asked.warnings.add(verdict.warnings);
        }
    }
    causes
}

/// Whether a write counts as a change of what is wanted.
pub(super) fn counts_generation(target: &WriteTarget, before: &Value, object: &Value) -> bool {
    let resource = &target.resource;
    if !resource.counts_generation {
        return false;
    }
    // Where the status is no part of its own, it is as much wanted as all else.
    let status_counts = resource.definition.is_some() && target.part == Part::Main;
    defaults::is_another_generation(&resource.name, before, object)
        || status_counts && before.get("status") != object.get("status")
}
