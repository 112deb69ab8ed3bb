//! Result of a delivery attempt.

use std::time::Duration;

/// Result of a delivery attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The receiver has accepted the messages.
    Delivered,
    /// The attempt failed and may succeed later. Only the messages of this attempt are delayed.
    Retry {
        /// Delay requested by the receiver.
        after: Option<Duration>,
        /// Cause, without secrets.
        why: String,
    },
    /// The receiver temporarily rejects all requests (HTTP 429). The whole sink pauses.
    Busy {
        /// Delay requested by the receiver.
        after: Option<Duration>,
        /// Cause, without secrets.
        why: String,
    },
    /// The receiver permanently rejects these messages.
    Refused {
        /// Cause, without secrets.
        why: String,
    },
}
