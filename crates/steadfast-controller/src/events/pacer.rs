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
    is_asked_for: bool,
}

impl Pacer {
    /// Ends all pauses after a success.
    pub(super) fn well(&mut self) {
        *self = Self::default();
    }

    /// Starts or extends a pause after a temporary failure. `asked` is the pause requested by the server.
    pub(super) fn failed(&mut self, asked: Option<Duration>, now: Instant, random: u64, settings: &EventSettings) {
        // Failures of concurrent requests count as one failure.
        if self.until <= now {
            let doubled = settings.first_wait.saturating_mul(1 << self.pauses.min(31));
            let half = doubled.min(settings.longest_wait) / 2;
            self.pauses += 1;
            self.until = now + half + half.mul_f64(random as f64 / u64::MAX as f64);
            self.is_asked_for = false;
        }
        if let Some(asked) = asked {
            let asked = asked.min(settings.longest_wait);
            // Jitter, so that clients with the same response do not return simultaneously.
            let spread = (asked / 10).mul_f64(random as f64 / u64::MAX as f64);
            self.until = self.until.max(now + asked + spread);
            self.is_asked_for = true;
        }
    }

    /// Ends a pause, unless the server requested it. For callers that wait for a flush.
    pub(super) fn hurry(&mut self) {
        // A flush ends the recorder's own backoff, but not a pause that the server requested.
        if !self.is_asked_for {
            *self = Self::default();
        }
    }

    /// Returns the end of the pause.
    pub(super) fn until(&self) -> Instant {
        self.until
    }

    /// Returns the maximum number of concurrent requests. During pauses, one request probes the server.
    pub(super) fn at_once(&self, settings: &EventSettings) -> usize {
        // After a failure, a single request probes the server.
        if self.pauses > 0 { 1 } else { settings.concurrency }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: EventSettings = EventSettings {
        queue: 1,
        series: 1,
        finish: Duration::ZERO,
        refresh: Duration::ZERO,
        similar: 1,
        similar_within: Duration::ZERO,
        burst: 1,
        refill: Duration::ZERO,
        tries: 1,
        first_wait: Duration::from_secs(1),
        longest_wait: Duration::from_secs(60),
        concurrency: 8,
    };

    #[test]
    fn pauses_double_up_to_maximum() {
        for random in [0, u64::MAX / 2, u64::MAX] {
            let mut pace = Pacer::default();
            let mut now = Instant::ZERO;
            for longest in [1, 2, 4, 8, 16, 32, 60, 60, 60] {
                pace.failed(None, now, random, &SETTINGS);
                let wait = pace.until().since(now);
                assert!((longest * 500..=longest * 1000).contains(&wait.as_millis()), "{wait:?} of {longest} s");
                now = pace.until();
            }
        }
    }

    #[test]
    fn concurrent_failures_count_once() {
        let mut pace = Pacer::default();
        assert_eq!(pace.at_once(&SETTINGS), 8);
        for _ in 0..8 {
            pace.failed(None, Instant::ZERO, u64::MAX, &SETTINGS);
        }
        assert_eq!(pace.until().since_zero(), Duration::from_secs(1));
        assert_eq!(pace.at_once(&SETTINGS), 1);
        pace.well();
        assert_eq!((pace.at_once(&SETTINGS), pace.until()), (8, Instant::ZERO));
    }

    #[test]
    fn requested_pause_outlasts_flush() {
        let mut pace = Pacer::default();
        pace.failed(Some(Duration::from_secs(7)), Instant::ZERO, 0, &SETTINGS);
        pace.hurry();
        assert_eq!(pace.until().since_zero(), Duration::from_secs(7));
        pace.failed(Some(Duration::from_secs(3600)), pace.until(), 0, &SETTINGS);
        assert_eq!(pace.until().since_zero(), Duration::from_secs(67), "the maximum pause applies");
        let mut pace = Pacer::default();
        pace.failed(None, Instant::ZERO, 0, &SETTINGS);
        pace.hurry();
        assert_eq!(pace.until(), Instant::ZERO);
    }
}
