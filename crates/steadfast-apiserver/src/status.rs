//! `Status` objects: errors of the API.

use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::field_violation::FieldViolation;
use crate::group_resource::GroupResource;

/// Error of the Kubernetes API.
///
/// Error type of direct writes, and body of a failed HTTP response.
#[derive(Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Status {
    /// HTTP status code.
    pub code: u16,
    /// Machine-readable reason (`NotFound`, `Conflict`, `Expired`, …); empty if the API sets none.
    pub reason: String,
    /// Human-readable message.
    pub message: String,
    /// The `details` object; `Value::Null` if absent.
    pub details: Value,
    /// Requested delay before a retry, sent in whole seconds.
    pub retry_after: Option<Duration>,
    /// Continue token in the `metadata`, sent with an expired list.
    pub continue_token: Option<Box<str>>,
}

impl Status {
    /// Creates a status with a code, a reason and a message.
    pub fn new(code: u16, reason: &str, message: impl fmt::Display) -> Self {
        Self {
            code,
            reason: reason.to_owned(),
            message: message.to_string(),
            details: Value::Null,
            retry_after: None,
            continue_token: None,
        }
    }

    /// Creates the status of a Kubernetes API server for an HTTP code, with the usual reason and message.
    pub fn of_code(code: u16) -> Self {
        let (reason, message) = match code {
            400 => ("BadRequest", "the server rejected our request for an unknown reason"),
            401 => ("Unauthorized", "Unauthorized"),
            403 => ("Forbidden", "forbidden"),
            404 => ("NotFound", "the server could not find the requested resource"),
            409 => ("Conflict", "the server reported a conflict"),
            410 => ("Expired", "The resourceVersion for the provided watch is too old."),
            413 => ("RequestEntityTooLarge", "the request body is too large"),
            422 => ("Invalid", "the server rejected our request due to an error in our request"),
            429 => ("TooManyRequests", "Too many requests, please try again later."),
            500 => ("InternalError", "Internal error occurred"),
            503 => ("ServiceUnavailable", "the server is currently unable to handle the request"),
            504 => ("Timeout", "Timeout: request did not complete within the allotted time"),
            _ => ("", "an error on the server has prevented the request from succeeding"),
        };
        Self::new(code, reason, message)
    }

    /// Sets the requested delay before a retry. The header contains whole seconds, rounded up.
    #[must_use]
    pub fn with_retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Sets the reason, such as `Gone` instead of `Expired`.
    #[must_use]
    pub fn with_reason(mut self, reason: &str) -> Self {
        reason.clone_into(&mut self.reason);
        self
    }

    /// Sets the human-readable message.
    #[must_use]
    pub fn with_message(mut self, message: impl fmt::Display) -> Self {
        self.message = message.to_string();
        self
    }

    /// Sets the `details` object.
    #[must_use]
    pub fn with_details(mut self, details: Value) -> Self {
        self.details = details;
        self
    }

    pub(crate) fn with_object(mut self, resource: &GroupResource, name: &str) -> Self {
        self.details = object_details(resource, name);
        self
    }

    pub(crate) fn not_found(resource: &GroupResource, name: &str) -> Self {
        Self::new(404, "NotFound", format_args!("{resource} \"{name}\" not found")).with_object(resource, name)
    }

    pub(crate) fn already_exists(resource: &GroupResource, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format_args!("{resource} \"{name}\" already exists"))
            .with_object(resource, name)
    }

    pub(crate) fn conflict(resource: &GroupResource, name: &str, detail: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} \"{name}\": {detail}");
        Self::new(409, "Conflict", message).with_object(resource, name)
    }

    pub(crate) fn forbidden(resource: &GroupResource, name: &str, detail: &str) -> Self {
        let message = if name.is_empty() {
            format!("{resource} is forbidden: {detail}")
        } else {
            format!("{resource} \"{name}\" is forbidden: {detail}")
        };
        Self::new(403, "Forbidden", message).with_object(resource, name)
    }

    pub(crate) fn bad_request(message: impl fmt::Display) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// Creates the status of a rejected object. `causes` are pairs of a field and a message.
    pub(crate) fn invalid(group: &str, kind: &str, name: &str, causes: &[(&str, String)]) -> Self {
        let causes: Vec<FieldViolation> = causes
            .iter()
            .map(|(field, detail)| FieldViolation {
                reason: cause_reason(detail),
                field: (*field).to_owned(),
                message: detail.clone(),
            })
            .collect();
        Self::invalid_causes(group, kind, name, &causes)
    }

    /// Creates the status of a rejected object with its causes.
    pub(crate) fn invalid_causes(group: &str, kind: &str, name: &str, causes: &[FieldViolation]) -> Self {
        let qualified_kind = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let mut violations: Vec<String> = Vec::new();
        for cause in causes {
            let violation = format!("{}: {}", cause.field, cause.message);
            // The real server reports equal violations once.
            if !violations.contains(&violation) {
                violations.push(violation);
            }
        }
        let list = match violations.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let mut details = Map::new();
        for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                details.insert(key.to_owned(), value.into());
            }
        }
        let causes: Vec<Value> = causes
            .iter()
            .map(|cause| json!({"reason": cause.reason, "message": cause.message, "field": cause.field}))
            .collect();
        details.insert("causes".to_owned(), causes.into());
        Self::new(422, "Invalid", format_args!("{qualified_kind} \"{name}\" is invalid: {list}"))
            .with_details(Value::Object(details))
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
            .with_details(json!({}))
    }

    /// Creates the status for a request that needs a cargo feature which is not enabled.
    pub(crate) fn without_feature(code: u16, reason: &str, operation: &str, feature: &str) -> Self {
        let detail = format_args!(
            "{operation}: this server was built without the feature `{feature}` of steadfast-apiserver; enable the feature"
        );
        Self::new(code, reason, detail)
    }

    pub(crate) fn too_large_resource_version(requested: u64, current: u64) -> Self {
        Self::new(504, "Timeout", format_args!("Timeout: Too large resource version: {requested}, current: {current}"))
            .with_details(json!({
                "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
                "retryAfterSeconds": 1,
            }))
            .with_retry_after(Duration::from_secs(1))
    }

    pub(crate) fn too_old_resource_version(requested: u64, oldest: u64) -> Self {
        Self::new(410, "Expired", format_args!("too old resource version: {requested} ({oldest})"))
    }

    pub(crate) fn etcd_timeout() -> Self {
        Self::new(504, "Timeout", "Timeout: request did not complete within the allotted time").with_details(json!({}))
    }

    /// Returns the object for an HTTP body or an `ERROR` event.
    pub fn to_value(&self) -> Value {
        let mut metadata = Map::new();
        if let Some(token) = &self.continue_token {
            metadata.insert("continue".to_owned(), token.as_ref().into());
        }
        let mut body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": metadata, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            body["reason"] = self.reason.as_str().into();
        }
        let mut details = self.details.clone();
        // The body contains the delay as well, for a status inside a stream.
        if let Some(wait) = self.retry_after {
            if !details.is_object() {
                details = json!({});
            }
            details["retryAfterSeconds"] = whole_seconds(wait).into();
        }
        if !details.is_null() {
            body["details"] = details;
        }
        body
    }
}

/// Rounds up to whole seconds, so that `Retry-After` is never shorter than requested.
pub(crate) fn whole_seconds(wait: Duration) -> u64 {
    // `Retry-After` has a resolution of seconds, so the delay is rounded up.
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

pub(crate) fn object_details(resource: &GroupResource, name: &str) -> Value {
    let mut details = Map::new();
    for (key, value) in [("name", name), ("group", resource.group()), ("kind", resource.resource())] {
        if !value.is_empty() {
            details.insert(key.to_owned(), value.into());
        }
    }
    Value::Object(details)
}

fn cause_reason(violation: &str) -> &'static str {
    let reasons = [
        ("Forbidden", "FieldValueForbidden"),
        ("Required", "FieldValueRequired"),
        ("Too long", "FieldValueTooLong"),
        ("Duplicate", "FieldValueDuplicate"),
        ("Unsupported", "FieldValueNotSupported"),
        ("Too long", "FieldValueTooLong"),
    ];
    reasons.iter().find(|(start, _)| violation.starts_with(start)).map_or("FieldValueInvalid", |(_, reason)| reason)
}

debug_as_message!(Status);
