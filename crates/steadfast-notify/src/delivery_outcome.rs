//! Result of a delivery attempt.

use std::time::Duration;

/// Result of a delivery attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryOutcome {
    /// The receiver has accepted the messages.
    Delivered,
    /// The attempt failed and may succeed later. Only the messages of this attempt are delayed.
    Retry {
        /// Delay requested by the receiver.
        retry_after: Option<Duration>,
        /// Cause, without secrets.
        reason: String,
    },
    /// The receiver temporarily rejects all requests (HTTP 429). The whole sink pauses.
    Busy {
        /// Delay requested by the receiver.
        retry_after: Option<Duration>,
        /// Cause, without secrets.
        reason: String,
    },
    /// The receiver permanently rejects these messages.
    Rejected {
        /// Cause, without secrets.
        reason: String,
    },
}
