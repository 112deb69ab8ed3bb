//! Checks of selected fields against the `OpenAPI` v3 document of a cluster.

use serde_json::{Map, Value};

use crate::expression::{SelectedField, SelectionStep};
use crate::plan::Plan;
use crate::problem::Problem;
use crate::rule::CompiledRule;

/// Maximum number of consecutive references. Schemas of custom resources may be recursive.
const MAX_REFERENCES: usize = 32;

/// Maximum length of names in similarity comparisons.
const MAX_NAME_LENGTH: usize = 128;

/// Maximum number of different characters in a suggested name.
const MAX_EDIT_DISTANCE: usize = 3;

/// Schemas of one group and version.
#[derive(Debug)]
pub struct Schemas {
    schemas: Map<String, Value>,
}

/// Resource of a rule, with schemas.
#[derive(Clone, Copy, Debug)]
pub struct TypedResource<'a> {
    /// Name of the resource with the group, such as `deployments.apps`.
    pub resource: &'a str,
    /// API group. Empty for the core group.
    pub group: &'a str,
    /// API version.
    pub version: &'a str,
    /// Kind.
    pub kind: &'a str,
    /// The schemas of this group and version.
    pub schemas: &'a Schemas,
}

/// A step to a field that does not exist.
#[derive(Debug, PartialEq, Eq)]
struct UnknownField {
    /// Index of the unknown step.
    step: usize,
    description: String,
}

impl Schemas {
    /// Parses a document of `/openapi/v3/…`. Returns `None` without schemas.
    pub fn read(mut document: Value) -> Option<Self> {
        match document.get_mut("components")?.get_mut("schemas")?.take() {
            Value::Object(schemas) => Some(Self { schemas }),
            _ => None,
        }
    }

    /// Returns the schema of a kind.
    fn kind(&self, group: &str, version: &str, kind: &str) -> Option<&Value> {
        let is_kind = |types: &Value| types["group"] == group && types["version"] == version && types["kind"] == kind;
        // The schema of OpenAPI v2 and v3 marks each kind with group, version and kind.
        self.schemas.values().find(|schema| {
            let kinds = schema["x-kubernetes-group-version-kind"].as_array();
            // Types such as DeleteOptions belong to several groups.
            kinds.is_some_and(|kinds| kinds.len() == 1 && kinds.iter().any(is_kind))
        })
    }

    /// Resolves references, and a single-item `allOf`, which adds a description to a reference.
    fn resolve_reference<'a>(&'a self, mut schema: &'a Value) -> Option<&'a Value> {
        for _ in 0..MAX_REFERENCES {
            if let Some(reference) = schema["$ref"].as_str() {
                schema = self.schemas.get(reference.rsplit('/').next()?)?;
            } else if let Some([only]) = schema["allOf"].as_array().map(Vec::as_slice)
                && schema["properties"].is_null()
            {
                schema = only;
            } else {
                return Some(schema);
            }
        }
        None
    }

    /// Follows `steps` from `root_schema`, and returns the first step to an unknown field. `None` if all fields exist,
    /// or the schema allows any field.
    fn find_unknown(&self, root_schema: &Value, steps: &[SelectionStep]) -> Option<UnknownField> {
        let mut schema = self.resolve_reference(root_schema)?;
        let mut path = String::new();
        for (number, step) in steps.iter().enumerate() {
            let unknown = |description: String| Some(UnknownField { step: number, description });
            // An IntOrString has no fixed type, so its fields are unknown.
            if schema["x-kubernetes-int-or-string"] == true {
                return None;
            }
            let next = match (step, schema["type"].as_str()) {
                (SelectionStep::Item, Some("array")) => schema.get("items"),
                (SelectionStep::Field(name), Some("array")) => {
                    return unknown(format!("`{path}` is a list, and has no field `{name}`"));
                }
                (SelectionStep::Field(name), Some(kind @ ("string" | "integer" | "number" | "boolean"))) => {
                    return unknown(format!("`{path}` is of type {kind}, and has no field `{name}`"));
                }
                (SelectionStep::Item, _) => schema.get("additionalProperties"),
                (SelectionStep::Field(name), _) => {
                    let properties = schema["properties"].as_object();
                    let property = properties.and_then(|properties| properties.get(name));
                    // `additionalProperties: false` forbids further fields instead of typing them.
                    let property = property.or_else(|| schema.get("additionalProperties").filter(|any| **any != false));
                    if property.is_none()
                        && schema["x-kubernetes-preserve-unknown-fields"] != true
                        && let Some(properties) = properties
                    {
                        let nearest = nearest(name, properties.keys());
                        let nearest = nearest.map(|name| format!(", did you mean `{name}`?")).unwrap_or_default();
                        let dot = if path.is_empty() { "" } else { "." };
                        return unknown(format!("no field `{path}{dot}{name}`{nearest}"));
                    }
                    property
                }
            };
            match step {
                SelectionStep::Field(name) if path.is_empty() => path.clone_from(name),
                SelectionStep::Field(name) => path = format!("{path}.{name}"),
                SelectionStep::Item => path.push_str("[]"),
            }
            schema = self.resolve_reference(next?)?;
        }
        None
    }
}

impl Plan {
    /// Returns problems for selected fields in the expressions of `rule` that exist in none of `resources`, the
    /// complete list of the rule's resources.
    pub fn unknown_fields(&self, rule: &CompiledRule, resources: &[TypedResource<'_>]) -> Vec<Problem> {
        let mut problems = Vec::new();
        let expressions = [("when", &rule.when, &rule.config.when), ("send", &rule.send, &rule.config.send)];
        for (field, expression, text) in expressions {
            let (Some(expression), Some(text)) = (expression, text) else { continue };
            for selected in &expression.uses.selected_fields {
                let unknown = resources.iter().map(|typed| {
                    let schema = typed.schemas.kind(typed.group, typed.version, typed.kind)?;
                    let unknown = typed.schemas.find_unknown(schema, &selected.steps)?;
                    Some((typed.resource, unknown))
                });
                // A rule for several resources may check the resource before selecting a field, so one matching
                // resource is enough.
                let Some(unknown) = unknown.collect::<Option<Vec<_>>>() else { continue };
                let Some((resource, unknown)) = unknown.into_iter().next() else { continue };
                let description = format!("{field}: {resource}: {}", unknown.description);
                let path = format!("rules[{}].{field}", rule.number);
                let remedy = "correct the name; `kubectl explain` lists the fields";
                let offset = offset(text, selected, unknown.step);
                let problem = self.document().problem_within(&path, text, offset, description, remedy);
                if !problems.contains(&problem) {
                    problems.push(problem);
                }
            }
        }
        problems
    }
}

/// Returns the offset in `text`, in characters, of the step of `selected` with the index `step`.
pub(crate) fn offset(text: &str, selected: &SelectedField, step: usize) -> usize {
    let mut position = selected.offset;
    for step in selected.steps.get(selected.inherited_steps..=step).unwrap_or_default() {
        let SelectionStep::Field(name) = step else { continue };
        // Search after the previous field or the variable.
        let Some(found) = text.get(position..).and_then(|rest| rest.find(name.as_str())) else { break };
        position += found;
    }
    text.get(..position).map_or(0, |before| before.chars().count())
}

/// Returns the most similar of `names`, if any is similar enough.
pub(crate) fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a String>) -> Option<&'a str> {
    let similar_names = names.filter_map(|other| {
        let edit_distance = edit_distance(name, other)?;
        // A short name may only differ in few characters.
        (edit_distance <= MAX_EDIT_DISTANCE && edit_distance * 2 <= name.len().max(2))
            .then_some((edit_distance, other.as_str()))
    });
    similar_names.min().map(|(_, other)| other)
}

/// Returns the number of characters to insert, remove or replace (Levenshtein distance), ignoring case. `None` for very
/// long names.
fn edit_distance(left: &str, right: &str) -> Option<usize> {
    if left.len() > MAX_NAME_LENGTH || right.len() > MAX_NAME_LENGTH {
        return None;
    }
    let right: Vec<char> = right.to_lowercase().chars().collect();
    // Levenshtein distance with a single row.
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (number, character) in left.to_lowercase().chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = number + 1;
        for (column, right_character) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(character != *right_character);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row.last().copied()
}

#[cfg(test)]
mod tests;
