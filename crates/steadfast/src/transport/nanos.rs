//! Instants as integers.

use steadfast_core::Instant;

/// Returns the nanoseconds since the clock's zero.
pub(crate) fn nanos(at: Instant) -> u64 {
    u64::try_from(at.since_zero().as_nanos()).unwrap_or(u64::MAX)
}
