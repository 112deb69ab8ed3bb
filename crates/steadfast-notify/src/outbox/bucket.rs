//! How much may be sent: a bucket that fills steadily.

use std::time::Duration;

/// A bucket of attempts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    /// How many a second, and how many it holds; without, there is no limit.
    rate: Option<(f64, u32)>,
    has: f64,
    at: Duration,
}

impl Bucket {
    /// A full one.
    pub(super) fn new(rate: Option<(f64, u32)>) -> Self {
        Self { rate, has: rate.map_or(0.0, |(_, most)| f64::from(most)), at: Duration::ZERO }
    }

    /// Takes one attempt, if there is one.
    pub(super) fn take(&mut self, now: Duration) -> bool {
        let Some((per_second, most)) = self.rate else { return true };
        let more = now.saturating_sub(self.at).as_secs_f64() * per_second;
        (self.has, self.at) = ((self.has + more).min(f64::from(most)), now);
        // What is missing by rounding is there.
        let is_there = self.has > 1.0 - 1e-9;
        if is_there {
            self.has -= 1.0;
        }
        is_there
    }

    /// When there is one.
    pub(super) fn next(&self) -> Duration {
        let Some((per_second, _)) = self.rate else { return Duration::ZERO };
        let missing = (1.0 - self.has).max(0.0);
        // Rounded up, or whoever waits would be early.
        self.at + Duration::from_secs_f64(missing / per_second) + Duration::from_nanos(u64::from(missing > 0.0))
    }
}
