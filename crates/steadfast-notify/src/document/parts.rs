//! Parsing of a configuration part by part, so that one mistake does not hide the others.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Document;
use crate::problem::Problem;

/// Mistakes that are reported at once.
const MAX_PROBLEMS: usize = 100;

/// A configuration, and what is wrong with it.
pub(crate) struct Parsed<T> {
    /// The configuration without its mistakes. `None` if it cannot be told what is missing.
    pub(crate) value: Option<T>,
    pub(crate) problems: Vec<Problem>,
    pub(crate) incomplete: Incomplete,
}

/// Parts of a configuration that lack something, by path: `sinks.web`, `rules[2]`.
#[derive(Default)]
pub(crate) struct Incomplete {
    /// Parts without some of their values.
    reduced: BTreeSet<String>,
    /// Parts that are replaced by empty ones.
    replaced: BTreeSet<String>,
}

impl Incomplete {
    /// Whether a problem with what is at `path` may follow from what is missing: with any value of a part that was replaced, and
    /// with a part as a whole that lacks a value.
    pub(crate) fn explains(&self, path: &str) -> bool {
        let mut rests = self.replaced.iter().filter_map(|part| path.strip_prefix(part.as_str()));
        self.reduced.contains(path) || rests.any(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    }
}

impl Document {
    /// Parses the configuration as `T`; a mistake costs only the value that has it, or else its sink, rule or cluster.
    pub(crate) fn parse_parts<T: DeserializeOwned>(&self) -> Parsed<T> {
        let (mut value, mut problems, mut incomplete) = (self.value.clone(), Vec::new(), Incomplete::default());
        while problems.len() < MAX_PROBLEMS {
            let error = match serde_path_to_error::deserialize::<_, T>(&value) {
                Ok(config) => return Parsed { value: Some(config), problems, incomplete },
                Err(error) => error,
            };
            let path = error.path().to_string();
            let is_missing = error.inner().to_string().starts_with("missing field");
            let part = part(&path).filter(|part| lookup(&mut value, part).is_some());
            // What misses a value that was removed before is not another mistake.
            if !is_missing || part.as_ref().is_none_or(|part| !incomplete.reduced.contains(part)) {
                problems.push(self.problem_of(&error));
            }
            let removed = !is_missing && remove(&mut value, &path);
            let Some(part) = part else {
                // Without its top level, nothing more can be told.
                if removed {
                    continue;
                }
                break;
            };
            if !removed {
                replace(&mut value, &part, self);
                incomplete.replaced.insert(part.clone());
            }
            incomplete.reduced.insert(part);
        }
        Parsed { value: None, problems, incomplete }
    }
}

/// The sink, rule or cluster that a path leads into.
fn part(path: &str) -> Option<String> {
    if let Some(rest) = path.strip_prefix("rules[") {
        return Some(format!("rules[{}]", rest.split_once(']')?.0));
    }
    let (of, rest) = path.split_once('.').filter(|(of, _)| ["sinks", "clusters"].contains(of))?;
    let name = rest.split(['.', '[']).next().filter(|name| !name.is_empty())?;
    Some(format!("{of}.{name}"))
}

/// The steps of a path of serde: names and numbers.
fn steps(path: &str) -> impl Iterator<Item = &str> {
    path.split(['.', '[']).map(|step| step.trim_end_matches(']')).filter(|step| !step.is_empty())
}

fn lookup<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    steps(path).try_fold(value, |value, step| match value {
        Value::Array(items) => items.get_mut(step.parse::<usize>().ok()?),
        Value::Object(fields) => fields.get_mut(step),
        _ => None,
    })
}

/// Removes what is at `path`, unless it is a part as a whole. Items of lists have to keep their numbers: their list goes as a whole.
fn remove(value: &mut Value, path: &str) -> bool {
    let (mut parent, mut path) = (String::new(), path);
    while let Some(at) = path.rfind(['.', '[']) {
        path[..at].clone_into(&mut parent);
        if part(path).as_deref() == Some(path) || ["rules", "sinks", "clusters"].contains(&path) {
            return false;
        }
        if !path[at..].starts_with('[') {
            break;
        }
        path = &path[..at];
    }
    let step = path.rsplit('.').next().unwrap_or(path);
    match lookup(value, &parent) {
        Some(Value::Object(fields)) if !path.is_empty() => fields.remove(step).is_some(),
        _ => false,
    }
}

/// Replaces a part by one of which nothing is wrong but that it is empty.
fn replace(value: &mut Value, path: &str, document: &Document) {
    let sinks = document.at(&["sinks"]).and_then(Value::as_object);
    let sinks: Vec<String> = sinks.map(|sinks| sinks.keys().cloned().collect()).unwrap_or_default();
    let Some(part) = lookup(value, path) else { return };
    *part = if path.starts_with("rules") {
        let name = part["name"].as_str().map_or_else(|| path.replace(['[', ']'], "-"), str::to_owned);
        let named = part["to"].as_array().map(|to| to.iter().filter(|to| to.is_string()).cloned().collect::<Vec<_>>());
        // It may feed any of them.
        json!({"name": name, "resources": ["pods"], "to": named.map_or_else(|| json!(sinks), Value::from)})
    } else {
        json!({})
    };
}
