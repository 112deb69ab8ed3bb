//! Violations of fields.

use serde_json::Value;

use crate::go;

/// Violation of a field, as a cause of a rejection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldViolation {
    /// Reason, such as `FieldValueInvalid`.
    pub(crate) reason: &'static str,
    /// Path of the field.
    pub(crate) field: String,
    /// Message.
    pub(crate) message: String,
}

impl FieldViolation {
    pub(crate) fn new(reason: &'static str, field: impl Into<String>, message: String) -> Self {
        Self { reason, field: field.into(), message }
    }

    pub(crate) fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::new("FieldValueInvalid", field, go::field_error("Invalid value", Some(value), detail))
    }

    pub(crate) fn required(field: impl Into<String>, detail: &str) -> Self {
        Self::new("FieldValueRequired", field, go::field_error("Required value", None, detail))
    }

    pub(crate) fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::new("FieldValueForbidden", field, go::field_error("Forbidden", None, detail))
    }

    pub(crate) fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::new("FieldValueDuplicate", field, go::field_error("Duplicate value", Some(value), ""))
    }

    /// Creates a cause for a value that is not one of the supported values.
    pub(crate) fn not_supported(field: impl Into<String>, value: &Value, supported: &[String]) -> Self {
        let supported: Vec<String> = supported.iter().map(|value| go::quoted(value)).collect();
        let detail = format!("supported values: {}", supported.join(", "));
        Self::new("FieldValueNotSupported", field, go::field_error("Unsupported value", Some(value), &detail))
    }
}
