//! Delivery settings of a sink, and delays between attempts.

use std::time::Duration;

/// Maximum delay that a receiver can request. A longer requested delay is shortened to this value.
pub const MAX_REQUESTED_DELAY: Duration = Duration::from_secs(3600);

/// Delivery settings of a sink.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeliverySettings {
    /// Delay before a message is sent. A newer message of the same rule and object replaces the waiting message. With a
    /// checkpoint, a newer message exists only after the delivery of the waiting one.
    pub debounce: Duration,
    /// Attempts per second, and the maximum burst after an idle period.
    pub rate: Option<(f64, u32)>,
    /// Delay before the second attempt.
    pub initial_delay: Duration,
    /// Maximum delay between attempts.
    pub max_delay: Duration,
    /// Age limit of a message. If an attempt that starts at this age or later fails, the message becomes a dead letter.
    pub give_up_after: Duration,
    /// Maximum number of batches in flight. An overloaded receiver gets fewer.
    pub concurrency: usize,
    /// Maximum number of messages in a batch.
    pub batch: usize,
}

/// Returns the exponential backoff after this number of attempts. Half of the delay is random.
pub(super) fn backoff(delivery: &DeliverySettings, attempts: u32, random_fraction: f64) -> Duration {
    let doubled = delivery.initial_delay.saturating_mul(1 << attempts.saturating_sub(1).min(20));
    let delay = doubled.min(delivery.max_delay);
    let jittered = delay.as_secs_f64() * (0.5 + random_fraction.clamp(0.0, 1.0) / 2.0);
    Duration::try_from_secs_f64(jittered).map_or(delay, |jittered| jittered.min(delay))
}
