//! What is wrong with a value, as it is found.

use serde_json::Value;

use super::{Cause, go};

/// What was found so far, and how many checks passed: of several alternatives the one that fits best is reported.
#[derive(Debug, Default)]
pub(super) struct Findings {
    found: Vec<Finding>,
    pub(super) passed: usize,
}

impl Findings {
    /// Adds a finding, unless its words were said before.
    pub(super) fn add(&mut self, finding: Finding) {
        if !self.found.iter().any(|known| known.words == finding.words) {
            self.found.push(finding);
        }
    }

    /// Adds what was found, and counts what passed, elsewhere.
    pub(super) fn merge(&mut self, other: Self) {
        self.passed += other.passed;
        for finding in other.found {
            self.add(finding);
        }
    }

    pub(super) fn is_valid(&self) -> bool {
        self.found.is_empty()
    }

    /// Takes back all complaints; what passed still counts.
    pub(super) fn forgive(&mut self) {
        self.found.clear();
    }

    /// The complaints as the causes of a refusal; `prefix` is the path of the whole.
    pub(super) fn causes(self, prefix: &str) -> Vec<Cause> {
        self.found.into_iter().map(|finding| finding.cause(prefix)).collect()
    }
}

/// What kind of complaint it is.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Type,
    Required,
    Unsupported(Vec<String>),
    TooLong(i64),
    TooMany(i64),
    Invalid,
    /// Said of the whole, without a path.
    Plain,
}

/// Something that is wrong.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    kind: Kind,
    path: String,
    value: Value,
    words: String,
}

impl Finding {
    pub(super) fn plain(words: String) -> Self {
        Self { kind: Kind::Plain, path: String::new(), value: "".into(), words }
    }

    pub(super) fn invalid(path: &str, value: Value, words: String) -> Self {
        Self::of(Kind::Invalid, path, value, words)
    }

    pub(super) fn of(kind: Kind, path: &str, value: Value, words: String) -> Self {
        Self { kind, path: path.to_owned(), value, words }
    }

    /// A value of another type: `is` says of which.
    pub(super) fn other_type(path: &str, wanted: &str, is: &str) -> Self {
        let words = format!("{path} in body must be of type {wanted}: {}", go::quoted(is));
        Self::of(Kind::Type, path, is.into(), words)
    }

    fn cause(self, prefix: &str) -> Cause {
        let path = self.path.strip_prefix('.').unwrap_or(&self.path);
        let whole = if prefix.is_empty() { "<nil>" } else { prefix };
        let field = match (path, prefix) {
            ("", _) => whole.to_owned(),
            (path, "") => path.to_owned(),
            (path, prefix) => format!("{prefix}.{path}"),
        };
        match self.kind {
            Kind::Type => Cause::new(
                "FieldValueTypeInvalid",
                field,
                go::complaint("Invalid value", Some(&self.value), &self.words),
            ),
            Kind::Required => Cause::required(field, ""),
            Kind::Unsupported(values) => Cause::not_supported(field, &self.value, &values),
            Kind::TooLong(most) => {
                let bytes = if most == 1 { "byte" } else { "bytes" };
                let message = format!("Too long: may not be more than {most} {bytes}");
                Cause::new("FieldValueTooLong", field, message)
            }
            Kind::TooMany(most) => {
                let items = if most == 1 { "item" } else { "items" };
                let message = format!("Too many: {}: must have at most {most} {items}", self.value);
                Cause::new("FieldValueTooMany", field, message)
            }
            Kind::Invalid => Cause::invalid(field, &self.value, &self.words),
            Kind::Plain => Cause::invalid(whole, &self.value, &self.words),
        }
    }
}
