//! Errors of registries, each with advice.

use hyper::StatusCode;

use crate::step_runner;

/// Reason that items of a registry cannot be read or changed. Errors contain no header, and no query of a URL.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// The mark is empty.
    #[error("a mirror in a registry needs a mark, which identifies its items; set one")]
    EmptyMark,
    /// The URL is invalid in this layout.
    #[error("{url:?} {reason}")]
    Url {
        /// URL without secret parts.
        url: String,
        /// Violated rule.
        reason: &'static str,
    },
    /// A server could confuse the URL of the item with the URL of another item.
    #[error("{key:?} cannot be an item's key: {reason}; send another key")]
    Key {
        /// The key.
        key: String,
        /// The rule that the key violates.
        reason: &'static str,
    },
    /// The registry did not respond in time.
    #[error("the registry did not respond to `{request}` within {}", step_runner::format_seconds(*.within))]
    Timeout {
        /// Method and URL of the request, or the key of the item.
        request: String,
        /// The deadline.
        within: std::time::Duration,
    },
    /// Several items could not be changed.
    #[error("{first}; {}", step_runner::describe_others(others))]
    Several {
        /// The first error.
        first: Box<Self>,
        /// The keys of the other items.
        others: Vec<String>,
    },
    /// The connection to the registry failed.
    #[error("the request `{request}` failed: {reason}")]
    Unreachable {
        /// Method and URL of the request.
        request: String,
        /// Error of the connection.
        reason: String,
    },
    /// Another client created, changed or deleted the item since the last read. The item was not changed.
    #[error("another client changed {key:?} since the last read; the mirror did not change it, and reads it again")]
    Conflict {
        /// Key of the item.
        key: String,
    },
    /// The registry rejected the request.
    #[error("the registry responded to `{request}` with {status}{}", remedy(*.status))]
    Rejected {
        /// Method and URL of the request.
        request: String,
        /// Response status.
        status: StatusCode,
    },
    /// A response has an unknown form.
    #[error("the response of the registry to `{request}` has an unknown form: {reason}")]
    Unexpected {
        /// Method and URL of the request.
        request: String,
        /// Unknown part of the response.
        reason: String,
    },
}

debug_as_message!(RegistryError);

impl RegistryError {
    /// Combines the errors of one run, each with the key of its item.
    pub(super) fn combined(errors: Vec<(String, Self)>) -> Result<(), Self> {
        let mut errors = errors.into_iter();
        let Some((_, first)) = errors.next() else { return Ok(()) };
        let others: Vec<_> = errors.map(|(key, _)| key).collect();
        Err(if others.is_empty() { first } else { Self::Several { first: Box::new(first), others } })
    }

    /// Returns true if an error of a step concerns one item only.
    ///
    /// Other errors, such as status 500 or no response, may concern one item or the whole registry. They count
    /// against the registry only until the next step succeeds, or fails with an error of one item: see `StepRunner`.
    pub(super) fn concerns_one_item(&self) -> bool {
        let registry_failures = [
            StatusCode::UNAUTHORIZED,
            StatusCode::PROXY_AUTHENTICATION_REQUIRED,
            StatusCode::REQUEST_TIMEOUT,
            StatusCode::TOO_MANY_REQUESTS,
        ];
        match self {
            // A list with an unknown form is an error of `read`, not of a step.
            Self::Conflict { .. } | Self::Key { .. } | Self::Unexpected { .. } => true,
            Self::Rejected { status, .. } => status.is_client_error() && !registry_failures.contains(status),
            Self::EmptyMark
            | Self::Url { .. }
            | Self::Unreachable { .. }
            | Self::Timeout { .. }
            | Self::Several { .. } => false,
        }
    }
}

/// Returns advice for a response status.
fn remedy(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "; the registry needs credentials: set a header",
        StatusCode::FORBIDDEN => "; the credentials lack the permission: grant it in the registry",
        StatusCode::NOT_FOUND => "; the URL does not exist: correct it",
        StatusCode::METHOD_NOT_ALLOWED => "; the registry must accept PUT and DELETE at the URL of each item",
        StatusCode::TOO_MANY_REQUESTS => "; the request is retried later",
        status if status.is_redirection() => "; redirects are not followed: configure the final URL",
        _ => "",
    }
}
