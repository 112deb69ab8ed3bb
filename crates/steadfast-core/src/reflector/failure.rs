//! Failures of requests and streams, and their consequences.

use std::sync::Arc;
use std::time::Duration;

use crate::record::Status;
use crate::text;

/// Cause of a failed request or a broken stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Kind of the failure, which determines the reaction.
    pub kind: FailureKind,
    /// Message for logs: the failure and the object of the failed operation, such as an address.
    pub message: Arc<str>,
    /// Delay that the server requested.
    pub retry_after: Option<Duration>,
    /// Status code of the response, or of a status within a stream; 0 for none.
    pub code: u16,
    /// Reason of the server's `Status`, such as `Forbidden`; `None` without one.
    pub reason: Option<Arc<str>>,
}

/// Kinds of failures, by the reaction to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// No response, or an incomplete one: a failure of the network or the server.
    Unreachable,
    /// The server no longer has the requested version. Only a new list helps (`410`, `Gone`, `Expired`).
    Expired,
    /// The server has not reached the requested version: a lagging replica, or another history.
    ResourceVersionTooLarge,
    /// The server requests a delay (`429`, `5xx`).
    Busy,
    /// The server rejects the request (`401`, `403`, `404`, `405`, `406`, `415`, `501`).
    Denied,
    /// The server does not accept the request in this form (`400`, `422`).
    Invalid,
    /// The response cannot be decoded: malformed, too large, or of another type.
    Unreadable,
    /// The collection exceeds the limit of the cache.
    CacheFull,
}

/// Maximum length of a server's message in reports, in bytes: enough for a sentence with a name in it.
const MAX_MESSAGE_BYTES: usize = 1024;

/// Longest `Retry-After` that the reflector respects (R11). Longer values are shortened to it.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

impl Failure {
    /// Creates a failure of the network or of a connection.
    pub fn unreachable(message: impl Into<Arc<str>>) -> Self {
        Self::of(FailureKind::Unreachable, message)
    }

    /// Creates a failure for a response that cannot be decoded.
    pub fn unreadable(message: impl Into<Arc<str>>) -> Self {
        Self::of(FailureKind::Unreadable, message)
    }

    /// Creates a failure for a request that cannot be sent, such as one with a too long URI. A repetition does not help, as
    /// after a rejection by the server.
    pub fn unsendable(message: impl Into<Arc<str>>) -> Self {
        Self::of(FailureKind::Denied, message)
    }

    /// Creates a failure for a collection that exceeds the limit of the cache. A repeated full list is expensive for
    /// the server and rarely helps.
    pub fn full(message: impl Into<Arc<str>>) -> Self {
        Self { retry_after: Some(MAX_RETRY_AFTER), ..Self::of(FailureKind::CacheFull, message) }
    }

    /// Creates a failure of this kind that no response of the server caused.
    pub(super) fn of(kind: FailureKind, message: impl Into<Arc<str>>) -> Self {
        Self { kind, message: message.into(), retry_after: None, code: 0, reason: None }
    }

    /// Returns whether the server rejects the request, so that another form of request may help. Neither missing
    /// credentials (`401`) nor a requested delay counts.
    pub(super) fn is_rejection(&self) -> bool {
        matches!(self.kind, FailureKind::Denied | FailureKind::Invalid) && self.code != 401
    }

    /// Returns whether the server, or a component in front of it, requested a delay.
    pub(super) fn requests_delay(&self) -> bool {
        self.kind == FailureKind::Busy && (self.retry_after.is_some() || matches!(self.code, 408 | 429 | 502..=504))
    }

    /// Creates the failure for a `Status`, or for an HTTP response without a `Status`. `retry_after` is the value of
    /// the response's `Retry-After` header.
    pub fn from_status(status: &Status, retry_after: Option<Duration>) -> Self {
        // kube-apiserver reports this condition as a `504` timeout with a cause; old releases only
        // set the message.
        let too_large = status.causes.iter().any(|cause| cause == "ResourceVersionTooLarge")
            || status.reason == "ResourceVersionTooLarge"
            || status.message.to_ascii_lowercase().contains("too large resource version");
        let kind = match (status.code, status.reason.as_str()) {
            _ if too_large => FailureKind::ResourceVersionTooLarge,
            // Expiry arrives either as HTTP status `410`, or as an `ERROR` event with one of these
            // reasons.
            (410, _) | (_, "Expired" | "Gone") => FailureKind::Expired,
            (401 | 403..=406 | 415 | 501, _) | (_, "Unauthorized" | "Forbidden" | "NotFound" | "MethodNotAllowed") => {
                FailureKind::Denied
            }
            (400 | 422, _) => FailureKind::Invalid,
            // Unknown codes count as temporary: repeating a read with backoff is always safe.
            _ => FailureKind::Busy,
        };
        // A `Status` inside a stream has no header, only `retryAfterSeconds`.
        let status_retry_after = status.retry_after_seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs);
        let printable_reason = text::printable(&status.reason, MAX_MESSAGE_BYTES);
        let reason_field = (!printable_reason.is_empty()).then(|| Arc::from(&*printable_reason));
        let reason = match (status.code, printable_reason) {
            (code @ 300..400, _) => {
                format!(
                    "the server responded with {code}, a redirect, which is not followed; use the URL of the API server itself"
                )
            }
            (0, reason) if reason.is_empty() => String::new(),
            (code, reason) if reason.is_empty() => format!("the server responded with {code}"),
            (0, reason) => reason.into_owned(),
            (code, reason) => format!("{code} {reason}"),
        };
        let server_message = text::printable(&status.message, MAX_MESSAGE_BYTES);
        let message = match (reason.is_empty(), server_message.is_empty()) {
            (true, true) => "the server reported a failure without a code, reason or message".to_owned(),
            (true, false) => server_message.into_owned(),
            (false, true) => reason,
            (false, false) => format!("{reason}: {server_message}"),
        };
        let retry_after = retry_after.or(status_retry_after).map(|wait| wait.min(MAX_RETRY_AFTER));
        Self { kind, message: message.into(), retry_after, code: status.code, reason: reason_field }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(code: u16, reason: &str, message: &str, cause: &str) -> FailureKind {
        let causes = if cause.is_empty() { vec![] } else { vec![cause.to_owned()] };
        let status = Status { code, reason: reason.into(), message: message.into(), causes, retry_after_seconds: None };
        Failure::from_status(&status, None).kind
    }

    #[test]
    fn too_large_is_detected_in_all_spellings() {
        let message = "Too large resource version: 9, current: 5";
        assert_eq!(kind(504, "Timeout", message, "ResourceVersionTooLarge"), FailureKind::ResourceVersionTooLarge);
        assert_eq!(
            kind(504, "Timeout", "Timeout: Too large resource version: 9, current: 5", ""),
            FailureKind::ResourceVersionTooLarge
        );
        assert_eq!(kind(500, "ResourceVersionTooLarge", "", ""), FailureKind::ResourceVersionTooLarge);
    }

    #[test]
    fn expired_is_detected_by_code_and_reason() {
        assert_eq!(kind(410, "Expired", "too old", ""), FailureKind::Expired);
        assert_eq!(kind(410, "Gone", "", ""), FailureKind::Expired);
        assert_eq!(kind(0, "Expired", "", ""), FailureKind::Expired);
    }

    #[test]
    fn rejections_errors_and_bad_requests_are_distinguished() {
        assert_eq!(kind(403, "Forbidden", "", ""), FailureKind::Denied);
        assert_eq!(kind(404, "NotFound", "", ""), FailureKind::Denied);
        assert_eq!(kind(429, "TooManyRequests", "", ""), FailureKind::Busy);
        assert_eq!(kind(500, "InternalError", "", ""), FailureKind::Busy);
        assert_eq!(kind(422, "Invalid", "", ""), FailureKind::Invalid);
    }

    #[test]
    fn rejection_excludes_credentials_and_delays() {
        let of = |code: u16| Failure::from_status(&Status { code, ..Status::default() }, None);
        assert!([400, 403, 404, 405, 406, 415, 422, 501].into_iter().all(|code| of(code).is_rejection()));
        assert!(![401, 410, 429, 500, 503].into_iter().any(|code| of(code).is_rejection()));
        assert!([429, 502, 503, 504].into_iter().all(|code| of(code).requests_delay()));
        assert!(![403, 500, 599].into_iter().any(|code| of(code).requests_delay()));
        let later = Failure::from_status(&Status { code: 500, ..Status::default() }, Some(Duration::from_secs(1)));
        assert!(later.requests_delay());
    }

    #[test]
    fn server_message_is_shortened_to_one_line() {
        let status =
            Status { code: 500, message: format!("a\nb\u{1b}[31m{}", "x".repeat(1 << 20)), ..Status::default() };
        let message = Failure::from_status(&status, None).message;
        assert!(
            message.len() < 1200 && message.starts_with("the server responded with 500: a\\nb\\u{1b}[31mxxx"),
            "{message}"
        );
    }

    #[test]
    fn status_reason_is_kept_in_one_line() {
        let of = |reason: &str| Status { code: 403, reason: reason.to_owned(), ..Status::default() };
        assert_eq!(Failure::from_status(&of("Forbidden"), None).reason.as_deref(), Some("Forbidden"));
        assert_eq!(Failure::from_status(&of("a\nb"), None).reason.as_deref(), Some("a\\nb"));
        assert_eq!(Failure::from_status(&of(""), None).reason, None);
    }

    #[test]
    fn redirect_error_names_the_remedy() {
        let status = Status { code: 302, ..Status::default() };
        assert!(Failure::from_status(&status, None).message.contains("302, a redirect, which is not followed"));
    }

    #[test]
    fn retry_after_is_capped_at_a_minute() {
        let status = Status { code: 503, retry_after_seconds: Some(3600), ..Status::default() };
        assert_eq!(Failure::from_status(&status, None).retry_after, Some(MAX_RETRY_AFTER));
    }
}
