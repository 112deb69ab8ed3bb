//! Findings of a validation.

use serde_json::Value;

use crate::field_violation::FieldViolation;
use crate::go;

/// Findings so far, and the number of passed checks. Among invalid alternatives, only the one with the most passed
/// checks is reported.
#[derive(Debug, Default)]
pub(super) struct Findings {
    findings: Vec<Finding>,
    pub(super) passed_checks: usize,
}

impl Findings {
    /// Adds a finding, unless one with the same message exists.
    pub(super) fn add(&mut self, finding: Finding) {
        if !self.findings.iter().any(|known| known.message == finding.message) {
            self.findings.push(finding);
        }
    }

    /// Adds the findings and the passed checks of another validation.
    pub(super) fn merge(&mut self, other: Self) {
        self.passed_checks += other.passed_checks;
        for finding in other.findings {
            self.add(finding);
        }
    }

    pub(super) fn is_valid(&self) -> bool {
        self.findings.is_empty()
    }

    /// Removes all findings; passed checks still count.
    pub(super) fn clear(&mut self) {
        self.findings.clear();
    }

    /// Converts the findings to causes of a rejection. `prefix` is the path of the validated value.
    pub(super) fn causes(self, prefix: &str) -> Vec<FieldViolation> {
        self.findings.into_iter().map(|finding| finding.cause(prefix)).collect()
    }
}

/// Kind of a finding.
#[derive(Clone, Debug)]
pub(super) enum FindingKind {
    Type,
    Required,
    Unsupported(Vec<String>),
    TooLong(i64),
    TooMany(i64),
    Invalid,
    /// A message about the whole value, without a path.
    Plain,
}

/// Violation of a schema.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    kind: FindingKind,
    path: String,
    value: Value,
    message: String,
}

impl Finding {
    pub(super) fn plain(message: String) -> Self {
        Self { kind: FindingKind::Plain, path: String::new(), value: "".into(), message }
    }

    pub(super) fn invalid(path: &str, value: Value, message: String) -> Self {
        Self::new(FindingKind::Invalid, path, value, message)
    }

    pub(super) fn new(kind: FindingKind, path: &str, value: Value, message: String) -> Self {
        Self { kind, path: path.to_owned(), value, message }
    }

    /// Creates a finding for a value of another type. `actual` is the actual type.
    pub(super) fn other_type(path: &str, expected: &str, actual: &str) -> Self {
        let message = format!("{path} in body must be of type {expected}: {}", go::quoted(actual));
        Self::new(FindingKind::Type, path, actual.into(), message)
    }

    fn cause(self, prefix: &str) -> FieldViolation {
        let path = self.path.strip_prefix('.').unwrap_or(&self.path);
        let root_path = if prefix.is_empty() { "<nil>" } else { prefix };
        let field = match (path, prefix) {
            ("", _) => root_path.to_owned(),
            (path, "") => path.to_owned(),
            (path, prefix) => format!("{prefix}.{path}"),
        };
        match self.kind {
            FindingKind::Type => FieldViolation::new(
                "FieldValueTypeInvalid",
                field,
                go::field_error("Invalid value", Some(&self.value), &self.message),
            ),
            FindingKind::Required => FieldViolation::required(field, ""),
            FindingKind::Unsupported(values) => FieldViolation::not_supported(field, &self.value, &values),
            FindingKind::TooLong(max) => {
                let bytes = if max == 1 { "byte" } else { "bytes" };
                let message = format!("Too long: may not be more than {max} {bytes}");
                FieldViolation::new("FieldValueTooLong", field, message)
            }
            FindingKind::TooMany(max) => {
                let items = if max == 1 { "item" } else { "items" };
                let message = format!("Too many: {}: must have at most {max} {items}", self.value);
                FieldViolation::new("FieldValueTooMany", field, message)
            }
            FindingKind::Invalid => FieldViolation::invalid(field, &self.value, &self.message),
            FindingKind::Plain => FieldViolation::invalid(root_path, &self.value, &self.message),
        }
    }
}
