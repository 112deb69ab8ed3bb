//! Result of a check: one statement about one subject, with its reason and remedy.

use std::fmt::Display;

use serde::Serialize;
use serde_json::Value;

/// Severity of a finding, from harmless to serious.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum FindingSeverity {
    /// The check found no problem.
    Ok,
    /// The check could not be made, so its result is unknown.
    NotChecked,
    /// Informers work, but slower, at a higher cost, or only for now.
    Warning,
    /// Informers do not work, or show old data.
    Failure,
}

impl FindingSeverity {
    /// Returns the word in text output.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::NotChecked => "not checked",
            Self::Warning => "warning",
            Self::Failure => "failure",
        }
    }
}

/// Result of a check for one subject. Texts of the server are verbatim; the report escapes them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Finding {
    pub(super) severity: FindingSeverity,
    /// Name of the check: `permissions`.
    pub(super) check: &'static str,
    /// Checked object: an address, a resource, an API group.
    pub(super) subject: String,
    /// The statement.
    pub(super) message: String,
    /// Effect on informers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) effect: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remedy: Option<String>,
    /// Manifest or rule in YAML that belongs to the remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) manifest: Option<String>,
    /// Measured values, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) data: Option<Value>,
}

impl Finding {
    fn new(severity: FindingSeverity, check: &'static str, subject: impl Display, message: impl Display) -> Self {
        let (subject, message) = (subject.to_string(), message.to_string());
        Self { severity, check, subject, message, effect: None, remedy: None, manifest: None, data: None }
    }

    /// Creates the result of a check without a problem.
    pub(super) fn ok(check: &'static str, subject: impl Display, message: impl Display) -> Self {
        Self::new(FindingSeverity::Ok, check, subject, message)
    }

    /// Creates the result of a check that could not be made, with the reason.
    pub(super) fn not_checked(check: &'static str, subject: impl Display, reason: impl Display) -> Self {
        Self::new(FindingSeverity::NotChecked, check, subject, reason)
    }

    /// Creates a warning.
    pub(super) fn warning(
        check: &'static str,
        subject: impl Display,
        message: impl Display,
        effect: &'static str,
        remedy: impl Display,
    ) -> Self {
        let finding = Self::new(FindingSeverity::Warning, check, subject, message);
        Self { effect: Some(effect), remedy: Some(remedy.to_string()), ..finding }
    }

    /// Creates a failure.
    pub(super) fn failure(
        check: &'static str,
        subject: impl Display,
        message: impl Display,
        effect: &'static str,
        remedy: impl Display,
    ) -> Self {
        Self { severity: FindingSeverity::Failure, ..Self::warning(check, subject, message, effect, remedy) }
    }

    /// Adds a manifest or rule in YAML.
    pub(super) fn with_manifest(self, manifest: String) -> Self {
        Self { manifest: Some(manifest), ..self }
    }

    /// Adds measured values.
    pub(super) fn with_data(self, data: Value) -> Self {
        Self { data: Some(data), ..self }
    }
}
