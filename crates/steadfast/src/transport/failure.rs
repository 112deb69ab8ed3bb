//! An attempt to send a request that failed.

use super::error::TransportError;

/// Why an attempt failed, and whether another is safe.
pub(super) struct Failure {
    pub(super) error: TransportError,
    pub(super) again: Again,
}

/// Whether another attempt is safe.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    /// The server has not looked at the request.
    Safe,
    /// The connection ended before any byte of an answer came.
    BeforeHead,
    Never,
}

impl Failure {
    /// The server has surely not acted on the request.
    pub(super) fn unsent(error: TransportError) -> Self {
        Self { error, again: Again::Safe }
    }

    /// The connection ended before any byte of an answer came.
    pub(super) fn before_head(error: TransportError) -> Self {
        Self { error, again: Again::BeforeHead }
    }

    /// What is reported where there is no other attempt.
    pub(super) fn into_error(self) -> TransportError {
        self.error
    }

    /// Any other.
    pub(super) fn of(error: TransportError) -> Self {
        Self { error, again: Again::Never }
    }
}
