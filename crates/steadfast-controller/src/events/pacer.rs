//! Pauses between requests after failures.

use std::time::Duration;

use steadfast::environment::Instant;

use super::settings::EventSettings;

/// Pauses between requests. A failure concerns the server, so all requests pause.
#[derive(Debug, Default)]
pub(super) struct Pacer {
    /// Number of pauses in a row.
    pauses: u32,
    until: Instant,
    /// True if the server requested this pause.
    is_requested: bool,
}

impl Pacer {
    /// Ends all pauses after a success.
    pub(super) fn record_success(&mut self) {
        *self = Self::default();
    }

    /// Starts or extends a pause after a temporary failure. `retry_after` is the pause requested by the server.
    pub(super) fn record_failure(
        &mut self,
        retry_after: Option<Duration>,
        now: Instant,
        random: u64,
        settings: &EventSettings,
    ) {
        // Failures of concurrent requests count as one failure.
        if self.until <= now {
            let doubled = settings.initial_pause.saturating_mul(1 << self.pauses.min(31));
            let half = doubled.min(settings.max_pause) / 2;
            self.pauses += 1;
            self.until = now + half + half.mul_f64(random as f64 / u64::MAX as f64);
            self.is_requested = false;
        }
        if let Some(retry_after) = retry_after {
            let retry_after = retry_after.min(settings.max_pause);
            // Jitter, so that clients with the same response do not return simultaneously.
            let spread = (retry_after / 10).mul_f64(random as f64 / u64::MAX as f64);
            self.until = self.until.max(now + retry_after + spread);
            self.is_requested = true;
        }
    }

    /// Ends a pause for a flush, unless the server requested the pause.
    pub(super) fn cancel_pause(&mut self) {
        if !self.is_requested {
            *self = Self::default();
        }
    }

    /// Returns the end of the pause.
    pub(super) fn until(&self) -> Instant {
        self.until
    }

    /// Returns the maximum number of concurrent requests: 1 from a failure until the next success.
    pub(super) fn max_concurrent(&self, settings: &EventSettings) -> usize {
        // A single request probes the server after the pause.
        if self.pauses > 0 { 1 } else { settings.concurrency }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: EventSettings = EventSettings {
        queue: 1,
        series: 1,
        series_timeout: Duration::ZERO,
        refresh_interval: Duration::ZERO,
        max_separate_similar: 1,
        similar_within: Duration::ZERO,
        burst: 1,
        refill: Duration::ZERO,
        max_attempts: 1,
        initial_pause: Duration::from_secs(1),
        max_pause: Duration::from_secs(60),
        concurrency: 8,
    };

    #[test]
    fn pauses_double_up_to_maximum() {
        for random in [0, u64::MAX / 2, u64::MAX] {
            let mut pace = Pacer::default();
            let mut now = Instant::ZERO;
            for longest in [1, 2, 4, 8, 16, 32, 60, 60, 60] {
                pace.record_failure(None, now, random, &SETTINGS);
                let wait = pace.until().since(now);
                assert!((longest * 500..=longest * 1000).contains(&wait.as_millis()), "{wait:?} of {longest} s");
                now = pace.until();
            }
        }
    }

    #[test]
    fn concurrent_failures_count_once() {
        let mut pace = Pacer::default();
        assert_eq!(pace.max_concurrent(&SETTINGS), 8);
        for _ in 0..8 {
            pace.record_failure(None, Instant::ZERO, u64::MAX, &SETTINGS);
        }
        assert_eq!(pace.until().since_zero(), Duration::from_secs(1));
        assert_eq!(pace.max_concurrent(&SETTINGS), 1);
        pace.record_success();
        assert_eq!((pace.max_concurrent(&SETTINGS), pace.until()), (8, Instant::ZERO));
    }

    #[test]
    fn requested_pause_outlasts_flush() {
        let mut pace = Pacer::default();
        pace.record_failure(Some(Duration::from_secs(7)), Instant::ZERO, 0, &SETTINGS);
        pace.cancel_pause();
        assert_eq!(pace.until().since_zero(), Duration::from_secs(7));
        pace.record_failure(Some(Duration::from_secs(3600)), pace.until(), 0, &SETTINGS);
        assert_eq!(pace.until().since_zero(), Duration::from_secs(67), "the maximum pause applies");
        let mut pace = Pacer::default();
        pace.record_failure(None, Instant::ZERO, 0, &SETTINGS);
        pace.cancel_pause();
        assert_eq!(pace.until(), Instant::ZERO);
    }
}
