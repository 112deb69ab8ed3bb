//! Parsing of a configuration part by part, so that one error does not hide other errors.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Document;
use crate::problem::Problem;

/// Maximum number of errors in one report.
const MAX_PROBLEMS: usize = 100;

/// A configuration and the errors in the file.
pub(crate) struct Parsed<T> {
    /// The configuration without the erroneous values. `None` if the top level cannot be parsed.
    pub(crate) value: Option<T>,
    pub(crate) problems: Vec<Problem>,
    pub(crate) incomplete: Incomplete,
}

/// Incomplete parts of a configuration, by path: `sinks.web`, `rules[2]`.
#[derive(Default)]
pub(crate) struct Incomplete {
    /// Parts without some of their values.
    reduced_parts: BTreeSet<String>,
    /// Parts that were replaced by empty parts.
    replaced_parts: BTreeSet<String>,
}

impl Incomplete {
    /// Returns true if a problem at `path` may result from a removed value. This applies to all problems within a
    /// replaced part, and to a problem of a whole part that lacks some values.
    pub(crate) fn covers(&self, path: &str) -> bool {
        let mut suffixes = self.replaced_parts.iter().filter_map(|part| path.strip_prefix(part.as_str()));
        self.reduced_parts.contains(path) || suffixes.any(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    }
}

impl Document {
    /// Parses the configuration as `T`. An error removes only the erroneous value. If this value cannot be removed, a
    /// minimal part replaces the whole sink, rule or cluster.
    pub(crate) fn parse_parts<T: DeserializeOwned>(&self) -> Parsed<T> {
        let (mut value, mut problems, mut incomplete) = (self.value.clone(), Vec::new(), Incomplete::default());
        // serde stops at the first error. Each round removes one erroneous value and parses again.
        while problems.len() < MAX_PROBLEMS {
            let error = match serde_path_to_error::deserialize::<_, T>(&value) {
                Ok(config) => return Parsed { value: Some(config), problems, incomplete },
                Err(error) => error,
            };
            let path = error.path().to_string();
            let is_missing = error.inner().to_string().starts_with("missing field");
            let part = part(&path).filter(|part| value_at_path(&mut value, part).is_some());
            // A missing field is not reported if an earlier round removed the field.
            if !is_missing || part.as_ref().is_none_or(|part| !incomplete.reduced_parts.contains(part)) {
                problems.push(self.problem_of(&error));
            }
            let removed = !is_missing && remove(&mut value, &path);
            let Some(part) = part else {
                // If the top level cannot be parsed, further errors cannot be determined.
                if removed {
                    continue;
                }
                break;
            };
            if !removed {
                replace(&mut value, &part, self);
                incomplete.replaced_parts.insert(part.clone());
            }
            incomplete.reduced_parts.insert(part);
        }
        Parsed { value: None, problems, incomplete }
    }
}

/// Returns the sink, rule or cluster that contains a path.
fn part(path: &str) -> Option<String> {
    if let Some(rest) = path.strip_prefix("rules[") {
        return Some(format!("rules[{}]", rest.split_once(']')?.0));
    }
    let (section, rest) = path.split_once('.').filter(|(section, _)| ["sinks", "clusters"].contains(section))?;
    let name = rest.split(['.', '[']).next().filter(|name| !name.is_empty())?;
    Some(format!("{section}.{name}"))
}

/// Splits a path of serde into names and indexes.
fn path_steps(path: &str) -> impl Iterator<Item = &str> {
    path.split(['.', '[']).map(|step| step.trim_end_matches(']')).filter(|step| !step.is_empty())
}

fn value_at_path<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    path_steps(path).try_fold(value, |value, step| match value {
        Value::Array(items) => items.get_mut(step.parse::<usize>().ok()?),
        Value::Object(fields) => fields.get_mut(step),
        _ => None,
    })
}

/// Removes the value at `path`, unless the value is a whole part. If the value is an item of a list, removes the whole
/// list, so that the indexes of other items stay valid.
fn remove(value: &mut Value, path: &str) -> bool {
    let (mut parent, mut path) = (String::new(), path);
    while let Some(step_start) = path.rfind(['.', '[']) {
        path[..step_start].clone_into(&mut parent);
        if part(path).as_deref() == Some(path) || ["rules", "sinks", "clusters"].contains(&path) {
            return false;
        }
        if !path[step_start..].starts_with('[') {
            break;
        }
        path = &path[..step_start];
    }
    let step = path.rsplit('.').next().unwrap_or(path);
    match value_at_path(value, &parent) {
        Some(Value::Object(fields)) if !path.is_empty() => fields.remove(step).is_some(),
        _ => false,
    }
}

/// Replaces a part by a valid minimal part.
fn replace(value: &mut Value, path: &str, document: &Document) {
    let sinks = document.value_at(&["sinks"]).and_then(Value::as_object);
    let sinks: Vec<String> = sinks.map(|sinks| sinks.keys().cloned().collect()).unwrap_or_default();
    let Some(part) = value_at_path(value, path) else { return };
    *part = if path.starts_with("rules") {
        let name = part["name"].as_str().map_or_else(|| path.replace(['[', ']'], "-"), str::to_owned);
        let listed_sinks =
            part["to"].as_array().map(|to| to.iter().filter(|to| to.is_string()).cloned().collect::<Vec<_>>());
        // Without a valid `to`, the rule may send to any sink.
        json!({"name": name, "resources": ["pods"], "to": listed_sinks.map_or_else(|| json!(sinks), Value::from)})
    } else {
        json!({})
    };
}
