//! A moment as one word.

use steadfast_core::Instant;

/// The nanoseconds since time began.
pub(super) fn nanos(at: Instant) -> u64 {
    u64::try_from(at.since_zero().as_nanos()).unwrap_or(u64::MAX)
}
