//! Delivery settings of a sink, and the waits between attempts.

use std::time::Duration;

/// The longest wait that a receiver can request. Anything longer is an error or an attack.
pub const MAX_PEER_WAIT: Duration = Duration::from_secs(3600);

/// Delivery settings of a sink.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delivery {
    /// How long a message waits for a newer one of the same rule and object, which replaces it.
    pub debounce: Duration,
    /// Attempts per second, and how many of them may be made at once after a pause.
    pub rate: Option<(f64, u32)>,
    /// Wait before the second attempt.
    pub first: Duration,
    /// Longest wait between attempts.
    pub longest: Duration,
    /// Age at which a message becomes a dead letter if its next attempt fails.
    pub give_up_after: Duration,
    /// Maximum number of batches in flight.
    pub concurrency: usize,
    /// Maximum number of messages in a batch.
    pub batch: usize,
}

/// Exponential backoff after this many attempts; half of it is random.
pub(super) fn backoff(delivery: &Delivery, attempts: u32, chance: f64) -> Duration {
    let doubled = delivery.first.saturating_mul(1 << attempts.saturating_sub(1).min(20));
    let longest = doubled.min(delivery.longest);
    let jittered = longest.as_secs_f64() * (0.5 + chance.clamp(0.0, 1.0) / 2.0);
    Duration::try_from_secs_f64(jittered).map_or(longest, |jittered| jittered.min(longest))
}
