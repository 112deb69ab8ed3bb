//! A configuration as a file has it: values, and the place of each.
//!
//! Both languages are read into the same thing, so that everything behind it knows neither: a value as of JSON, beside it
//! the places by path (`rules[2].when`), as serde's own errors name it.

mod found;
mod parts;
mod toml;
mod yaml;

use std::path::Path;

use serde_json::Value;

use crate::problem::{Place, Problem};
use found::{Stand, Stands};
pub(crate) use parts::{Incomplete, Parsed};

/// A file that was read.
#[derive(Debug)]
pub(crate) struct Document {
    file: String,
    text: String,
    value: Value,
    stands: Stands,
}

impl Document {
    /// Reads `text`, which is TOML or YAML by the ending of the file's name.
    pub(crate) fn read(file: &str, text: &str) -> Result<Self, Problem> {
        let ending = Path::new(file).extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let mut stands = Stands::new();
        let value = match ending.to_ascii_lowercase().as_str() {
            "toml" => toml::read(text, &mut stands),
            // JSON is YAML too.
            "yaml" | "yml" | "json" => yaml::read(text, &mut stands),
            _ => Err((
                Place::START,
                format!("the file's name ends in {ending:?}, so that nobody knows what language it is in"),
                "call it .toml or .yaml".to_owned(),
            )),
        };
        let problem = |(place, what, remedy)| Problem { file: file.to_owned(), place, what, remedy };
        let value = value.map_err(problem)?;
        Ok(Self { file: file.to_owned(), text: text.to_owned(), value, stands })
    }

    /// Returns the problem of an error of serde, with its place.
    fn problem_of(&self, error: &serde_path_to_error::Error<serde_json::Error>) -> Problem {
        let path = error.path().to_string();
        // Whoever writes a secret where its place belongs does not want to read it in a log.
        let is_secret = ["secret", "hmac"].iter().any(|word| path.contains(word));
        let what = if is_secret {
            "it does not say where a secret is to be found, as {file = \"key\"} and {env = \"KEY\"} do".to_owned()
        } else {
            error.inner().to_string()
        };
        // What is unknown is the key, what does not fit is the value.
        let of_key = what.starts_with("unknown field");
        let remedy = if of_key {
            "take it out, or spell it as one of those; `steadfast notify schema` has them all"
        } else if what.starts_with("missing field") {
            "add it; `steadfast notify schema` says what belongs there"
        } else {
            "`steadfast notify schema` says what belongs there"
        };
        let place = if of_key { self.key(&path) } else { self.value(&path) };
        let what = if path == "." { what } else { format!("{path}: {what}") };
        Problem { file: self.file.clone(), place, what, remedy: remedy.to_owned() }
    }

    /// The value below these keys, as written.
    pub(crate) fn at(&self, keys: &[&str]) -> Option<&Value> {
        keys.iter().try_fold(&self.value, |value, key| value.get(key))
    }

    /// Whether it says anything at `path`.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.stands.contains_key(path)
    }

    /// A problem with the value at `path`.
    pub(crate) fn problem(&self, path: &str, what: impl Into<String>, remedy: impl Into<String>) -> Problem {
        Problem { file: self.file.clone(), place: self.value(path), what: what.into(), remedy: remedy.into() }
    }

    /// A problem with the letter at `offset` of the text at `path`.
    pub(crate) fn problem_within(
        &self,
        path: &str,
        written: &str,
        offset: usize,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Problem {
        let mut problem = self.problem(path, what, remedy);
        if let Some(place) = self.within(path, written, offset) {
            problem.place = place;
        }
        problem
    }

    /// The place of the letter at `offset` of the text that is `written` at `path`, where the file has the text as it is:
    /// without escapes, and without indentation that is taken away.
    fn within(&self, path: &str, written: &str, offset: usize) -> Option<Place> {
        let stand = self.stands.get(path)?;
        let rest = self.text.get(stand.offset..)?;
        // At most the quotes, or a block's mark, are before it.
        let (at, _) = rest.match_indices(written).next().filter(|(at, _)| *at <= 4)?;
        let bytes: usize = written.chars().take(offset).map(char::len_utf8).sum();
        Some(Place::of(&self.text, stand.offset + at + bytes))
    }

    fn value(&self, path: &str) -> Place {
        self.nearest(path).map_or(Place::START, |stand| stand.value)
    }

    fn key(&self, path: &str) -> Place {
        self.nearest(path).map_or(Place::START, |stand| stand.key.unwrap_or(stand.value))
    }

    /// What stands at `path`, else what it would be in.
    fn nearest(&self, path: &str) -> Option<Stand> {
        let mut path = path;
        loop {
            if let Some(stand) = self.stands.get(path) {
                return Some(*stand);
            }
            path = &path[..path.rfind(['.', '['])?];
        }
    }
}
