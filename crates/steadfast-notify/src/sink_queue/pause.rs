//! Pause of a whole sink after a rejection of too many requests.

use std::time::Duration;

use super::delivery::{DeliverySettings, MAX_REQUESTED_DELAY, backoff};

/// Pause of a sink.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pause {
    until: Duration,
    /// Number of pauses since the last response without such a rejection.
    consecutive_pauses: u32,
}

impl Pause {
    /// Starts or extends a pause. Rejections of concurrent attempts count as a single pause.
    pub(super) fn start(
        &mut self,
        now: Duration,
        requested_delay: Option<Duration>,
        delivery: &DeliverySettings,
        random_fraction: f64,
    ) {
        if now >= self.until {
            self.consecutive_pauses = self.consecutive_pauses.saturating_add(1);
        }
        let wait = requested_delay.map_or_else(
            || backoff(delivery, self.consecutive_pauses, random_fraction),
            |requested_delay| requested_delay.min(MAX_REQUESTED_DELAY),
        );
        self.until = self.until.max(now.saturating_add(wait));
    }

    /// Ends the pause after a response without such a rejection.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }

    /// Returns the end of the pause, if later than `now`.
    pub(super) fn until(&self, now: Duration) -> Option<Duration> {
        (self.until > now).then_some(self.until)
    }
}
