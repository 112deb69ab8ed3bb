//! Result of a delivery attempt.

use std::time::Duration;

/// Result of a delivery attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The receiver has accepted the messages.
    Delivered,
    /// The attempt failed and may succeed later. Only the messages of this attempt wait.
    Retry {
        /// The wait that the receiver requests.
        after: Option<Duration>,
        /// The cause, without any secret.
        why: String,
    },
    /// The receiver accepts no requests at all for now (HTTP 429). The whole sink pauses.
    Busy {
        /// The wait that the receiver requests.
        after: Option<Duration>,
        /// The cause, without any secret.
        why: String,
    },
    /// The receiver will never accept these messages.
    Refused {
        /// The cause, without any secret.
        why: String,
    },
}
