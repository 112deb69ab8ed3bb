//! What came of an attempt to deliver.

use std::time::Duration;

/// What came of an attempt to deliver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The other side has it.
    Delivered,
    /// It may go well another time.
    Retry {
        /// What the other side asks to wait for.
        after: Option<Duration>,
        /// Why it did not, and nothing of any secret.
        why: String,
    },
    /// It will not, however often it is tried.
    Refused {
        /// Why, and nothing of any secret.
        why: String,
    },
}
