//! Delays between attempts.

use std::time::Duration;

use crate::random::Random;

/// Backoff: a short first delay, then jittered delays that double up to a maximum.
///
/// Only [`reset`](Self::reset) restarts the delays, for example after a proof or after a stream that stayed open.
/// Elapsed time does not. A server that closes accepted connections immediately therefore receives requests at growing
/// intervals (R6).
#[derive(Clone, Debug)]
pub struct Backoff {
    settings: BackoffSettings,
    failures: u32,
}

/// Delays of a [`Backoff`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffSettings {
    /// Maximum delay before the first retry. Defaults to 100 ms.
    pub initial_delay: Duration,
    /// Maximum delay before the second retry, doubled for each further retry. Defaults to 250 ms.
    pub second_delay: Duration,
    /// Upper bound of every delay. Defaults to 8 s.
    pub max_delay: Duration,
}

impl Default for BackoffSettings {
    /// Returns 100 ms, then 250 ms doubling to 8 s.
    fn default() -> Self {
        Self {
            initial_delay: Duration::from_millis(100),
            second_delay: Duration::from_millis(250),
            max_delay: Duration::from_secs(8),
        }
    }
}

impl Backoff {
    /// Creates a backoff without failures.
    pub fn new(settings: BackoffSettings) -> Self {
        Self { settings, failures: 0 }
    }

    /// Counts a failure and returns the delay before the next attempt.
    pub fn fail(&mut self, random: &mut Random) -> Duration {
        let failures = self.failures;
        self.failures = failures.saturating_add(1);
        // The first retry follows quickly, since most failures are short.
        if failures == 0 {
            return random.between(Duration::ZERO, self.settings.initial_delay);
        }
        let doubled = self.settings.second_delay.saturating_mul(1 << (failures - 1).min(16));
        let longest = doubled.min(self.settings.max_delay);
        // A random delay between half and the full value spreads the retries of many clients. The delays still double,
        // so the load falls.
        random.between(longest / 2, longest)
    }

    /// Resets the number of failures, so that the next delay is the first one again.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Returns the number of failures since the last reset.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_ceiling() {
        let mut random = Random::new(7);
        let mut backoff = Backoff::new(BackoffSettings::default());
        let delays: Vec<Duration> = (0..20).map(|_| backoff.fail(&mut random)).collect();
        assert!(delays[0] <= Duration::from_millis(100));
        assert!(delays[1] <= Duration::from_millis(250));
        assert!(delays[2] >= Duration::from_millis(250) && delays[2] <= Duration::from_millis(500));
        assert!(delays[10..].iter().all(|d| (Duration::from_secs(4)..=Duration::from_secs(8)).contains(d)));
        backoff.reset();
        assert!(backoff.fail(&mut random) <= Duration::from_millis(100));
    }
}
