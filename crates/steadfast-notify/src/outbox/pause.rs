//! Pause of a whole sink after its receiver has rejected a request because there were too many.

use std::time::Duration;

use super::delivery::{Delivery, MAX_PEER_WAIT, backoff};

/// Pause of a sink.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pause {
    until: Duration,
    /// Pauses since the receiver accepted anything.
    rounds: u32,
}

impl Pause {
    /// The receiver rejects requests for now. Several attempts that were in flight together belong to one pause.
    pub(super) fn begin(&mut self, now: Duration, after: Option<Duration>, delivery: &Delivery, chance: f64) {
        if now >= self.until {
            self.rounds = self.rounds.saturating_add(1);
        }
        let wait = after.map_or_else(|| backoff(delivery, self.rounds, chance), |after| after.min(MAX_PEER_WAIT));
        self.until = self.until.max(now.saturating_add(wait));
    }

    /// The receiver accepts requests.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }

    /// Returns when the pause ends, if it has not ended at `now`.
    pub(super) fn until(&self, now: Duration) -> Option<Duration> {
        (self.until > now).then_some(self.until)
    }

    /// Whether the next attempt finds out if the receiver accepts requests again. Until then there is one at a time.
    pub(super) fn is_probing(&self) -> bool {
        self.rounds > 0
    }
}
