//! Failed attempt to send a request.

use super::error::TransportError;

/// Error of an attempt, and the safety of a retry.
pub(super) struct Failure {
    pub(super) error: TransportError,
    pub(super) retry_safety: RetrySafety,
}

/// Safety of a retry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RetrySafety {
    /// The server has rejected the request without processing it.
    Safe,
    /// The connection ended before the request was sent.
    Unsent,
    /// The connection ended before the first byte of a response.
    BeforeHead,
    Never,
}

impl Failure {
    /// Creates the failure of a request that the server has rejected without processing it.
    pub(super) fn unprocessed(error: TransportError) -> Self {
        Self { error, retry_safety: RetrySafety::Safe }
    }

    /// Creates the failure of a connection that ended before the request was sent.
    pub(super) fn unsent(error: TransportError) -> Self {
        Self { error, retry_safety: RetrySafety::Unsent }
    }

    /// Creates the failure of a connection that ended before the first byte of a response.
    pub(super) fn before_head(error: TransportError) -> Self {
        Self { error, retry_safety: RetrySafety::BeforeHead }
    }

    /// Returns the error to report without a retry.
    pub(super) fn into_error(self) -> TransportError {
        self.error
    }

    /// Creates any other failure.
    pub(super) fn without_retry(error: TransportError) -> Self {
        Self { error, retry_safety: RetrySafety::Never }
    }
}
