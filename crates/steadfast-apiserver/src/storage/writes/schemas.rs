//! Fields of custom resources, by the schemas of their definitions: pruning, defaults and validation.

use serde_json::Value;

use super::request::WriteTarget;
use super::scale_fields;
use crate::field_violation::FieldViolation;
use crate::resources::DefinedVersion;
use crate::schema;
use crate::write_scope::WriteScope;

fn version(target: &WriteTarget) -> Option<&DefinedVersion> {
    target.definition()?.version(target.version())
}

/// Prunes an object and sets its defaults. Returns the paths of the unknown fields.
pub(super) fn prepare(target: &WriteTarget, object: &mut Value) -> Vec<String> {
    let Some(version) = version(target) else { return Vec::new() };
    let unknown = version.schema.prune(object);
    // A null in a field that is not nullable counts as absent, so that its default applies.
    version.schema.prune_nulls(object);
    // Defaults come last, since a pruned or null field may have a default.
    version.schema.fill_defaults(object);
    unknown
}

/// Sets the defaults of an object.
pub(super) fn set_defaults(target: &WriteTarget, object: &mut Value) {
    if let Some(version) = version(target) {
        version.schema.fill_defaults(object);
    }
}

/// Returns the violations of an object, or of its status alone. `before` is the object before an update.
pub(super) fn violations(target: &WriteTarget, object: &Value, before: Option<&Value>) -> Vec<FieldViolation> {
    let Some(version) = version(target) else { return Vec::new() };
    let schema = &version.schema;
    let mut causes = match target.write_scope {
        // Writes that bypass the API are stored unchanged.
        WriteScope::Whole => return Vec::new(),
        WriteScope::Main => schema.validate("", object, before),
        WriteScope::Status => match (schema.field("status"), object.get("status")) {
            (Some(schema), Some(status)) => {
                schema.validate("status", status, before.and_then(|before| before.get("status")))
            }
            _ => Vec::new(),
        },
    };
    if let Some(paths) = &version.scale {
        causes.extend(scale_fields::violations(paths, object, target.write_scope == WriteScope::Status));
    }
    if target.write_scope != WriteScope::Status {
        causes.extend(schema.embedded_object_causes(object));
    }
    // Existing duplicates in a list are not rejected.
    if before.is_none_or(|before| schema.duplicates(before).is_empty()) {
        causes.extend(schema.duplicates(object));
    }
    if let (true, Some(definition)) = (schema.has_rules, &target.resource.definition) {
        // Rules assume a valid structure, so structural errors prevent their evaluation.
        if causes.iter().any(schema::is_blocking) {
            causes.push(schema::skipped_rules_cause());
        } else if let Some(verdict) = target.request.rule_results.about(definition, target.version(), object, before) {
            causes.extend(verdict.causes);
            target.request.warnings.add(verdict.warnings);
        }
    }
    causes
}
