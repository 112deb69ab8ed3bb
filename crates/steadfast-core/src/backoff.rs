//! How long to wait before the next attempt.

use std::time::Duration;

use crate::random::Random;

/// The delays between attempts: the first prompt, then jittered doubling up to a ceiling.
///
/// Only health resets it, a proof or a stream that stayed open, never the mere passing of time: a server that
/// accepts and closes at once is met with growing patience (R6).
#[derive(Clone, Debug)]
pub struct Backoff {
    settings: BackoffSettings,
    failures: u32,
}

/// The delays of a [`Backoff`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffSettings {
    /// The longest wait before the first retry.
    pub first: Duration,
    /// The longest wait before the second retry; it doubles from there.
    pub second: Duration,
    /// The longest wait of all.
    pub ceiling: Duration,
}

impl Default for BackoffSettings {
    /// 100 ms, then 250 ms doubling to 8 s.
    fn default() -> Self {
        Self { first: Duration::from_millis(100), second: Duration::from_millis(250), ceiling: Duration::from_secs(8) }
    }
}

impl Backoff {
    /// No failure yet.
    pub fn new(settings: BackoffSettings) -> Self {
        Self { settings, failures: 0 }
    }

    /// Counts a failure and tells how long to wait.
    pub fn fail(&mut self, random: &mut Random) -> Duration {
        let failures = self.failures;
        self.failures = failures.saturating_add(1);
        if failures == 0 {
            return random.between(Duration::ZERO, self.settings.first);
        }
        let doubled = self.settings.second.saturating_mul(1 << (failures - 1).min(16));
        let longest = doubled.min(self.settings.ceiling);
        random.between(longest / 2, longest)
    }

    /// Forgets all failures: the server was seen in health.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// The failures since the last sign of health.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_begin_promptly_double_and_never_pass_the_ceiling() {
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
