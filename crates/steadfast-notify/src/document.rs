//! A configuration file as values with positions.
//!
//! TOML and YAML are parsed into the same representation: a JSON value, and the positions by path (`rules[2].when`),
//! in the syntax of serde's errors. Later stages do not depend on the file format.

mod parts;
mod positions;
mod toml;
mod yaml;

use std::path::Path;

use serde_json::Value;

use crate::problem::{FilePosition, Problem};
pub(crate) use parts::{Incomplete, Parsed};
use positions::{ValuePosition, ValuePositions};

/// A parsed file.
#[derive(Debug)]
pub(crate) struct Document {
    file: String,
    text: String,
    value: Value,
    positions: ValuePositions,
}

impl Document {
    /// Parses `text` as TOML or YAML, by the extension of the file name.
    pub(crate) fn parse(file: &str, text: &str) -> Result<Self, Problem> {
        let extension = Path::new(file).extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        let mut positions = ValuePositions::new();
        let value = match extension.to_ascii_lowercase().as_str() {
            "toml" => toml::read(text, &mut positions),
            // JSON is a subset of YAML.
            "yaml" | "yml" | "json" => yaml::read(text, &mut positions),
            _ => Err((
                FilePosition::START,
                format!("the file extension {extension:?} is neither TOML nor YAML"),
                "rename the file to .toml or .yaml".to_owned(),
            )),
        };
        let problem =
            |(position, description, remedy)| Problem { file: file.to_owned(), position, description, remedy };
        let value = value.map_err(problem)?;
        Ok(Self { file: file.to_owned(), text: text.to_owned(), value, positions })
    }

    /// Converts an error of serde into a problem with a position.
    fn problem_of(&self, error: &serde_path_to_error::Error<serde_json::Error>) -> Problem {
        let path = error.path().to_string();
        // A secret written literally must not appear in a log, so the value is not quoted.
        let is_secret = ["secret", "hmac"].iter().any(|word| path.contains(word));
        let description = if is_secret {
            "expected a reference to a secret, as {file = \"key\"} or {env = \"KEY\"}".to_owned()
        } else {
            error.inner().to_string()
        };
        // An error about an unknown field points to the key, any other error to the value.
        let is_about_key = description.starts_with("unknown field");
        let remedy = if is_about_key {
            "remove or correct the field; `steadfast notify schema` lists all fields"
        } else if description.starts_with("missing field") {
            "add the field; `steadfast notify schema` describes it"
        } else {
            "`steadfast notify schema` describes the expected value"
        };
        let position = if is_about_key { self.key_position(&path) } else { self.value_position(&path) };
        let description = if path == "." { description } else { format!("{path}: {description}") };
        Problem { file: self.file.clone(), position, description, remedy: remedy.to_owned() }
    }

    /// Returns the unconverted value at this path of keys.
    pub(crate) fn value_at(&self, keys: &[&str]) -> Option<&Value> {
        keys.iter().try_fold(&self.value, |value, key| value.get(key))
    }

    /// Returns true if the file has a value at `path`.
    pub(crate) fn has_path(&self, path: &str) -> bool {
        self.positions.contains_key(path)
    }

    /// Creates a problem with the value at `path`.
    pub(crate) fn problem(&self, path: &str, description: impl Into<String>, remedy: impl Into<String>) -> Problem {
        Problem {
            file: self.file.clone(),
            position: self.value_position(path),
            description: description.into(),
            remedy: remedy.into(),
        }
    }

    /// Creates a problem with the character at `offset` of the text at `path`.
    pub(crate) fn problem_within(
        &self,
        path: &str,
        written: &str,
        offset: usize,
        description: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Problem {
        let mut problem = self.problem(path, description, remedy);
        if let Some(position) = self.position_within(path, written, offset) {
            problem.position = position;
        }
        problem
    }

    /// Returns the position of the character at `offset` of the text `written` at `path`. `None` if the file has
    /// escapes in the text, or indentation that the parser removes.
    fn position_within(&self, path: &str, written: &str, offset: usize) -> Option<FilePosition> {
        let position = self.positions.get(path)?;
        let rest = self.text.get(position.offset..)?;
        // Only quotes or a block marker can precede the text.
        let (start, _) = rest.match_indices(written).next().filter(|(start, _)| *start <= 4)?;
        let bytes: usize = written.chars().take(offset).map(char::len_utf8).sum();
        Some(FilePosition::at_offset(&self.text, position.offset + start + bytes))
    }

    fn value_position(&self, path: &str) -> FilePosition {
        self.nearest_position(path).map_or(FilePosition::START, |position| position.value)
    }

    fn key_position(&self, path: &str) -> FilePosition {
        self.nearest_position(path).map_or(FilePosition::START, |position| position.key.unwrap_or(position.value))
    }

    /// Returns the position of `path`, or else of the nearest existing parent.
    fn nearest_position(&self, path: &str) -> Option<ValuePosition> {
        let mut path = path;
        // A missing value has no position. The nearest existing parent is shown instead.
        loop {
            if let Some(position) = self.positions.get(path) {
                return Some(*position);
            }
            path = &path[..path.rfind(['.', '['])?];
        }
    }
}
