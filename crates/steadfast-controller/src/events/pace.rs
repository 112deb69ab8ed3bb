//! When the next request may be made, after others have failed.

use std::time::Duration;

use steadfast::environment::Instant;

use super::settings::EventSettings;

/// When the next request may be made: what fails says something of the server, so all wait.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// How many pauses there were in a row.
    pauses: u32,
    until: Instant,
    /// Whether the server has asked for this pause.
    is_asked_for: bool,
}

impl Pace {
    /// The server has taken something.
    pub(super) fn well(&mut self) {
        *self = Self::default();
    }

    /// A request has failed in a way that another may not, and the server has asked to wait for so long.
    pub(super) fn failed(&mut self, asked: Option<Duration>, now: Instant, random: u64, settings: &EventSettings) {
        // Those that were under way together fail together: that is one failure.
        if self.until <= now {
            let doubled = settings.first_wait.saturating_mul(1 << self.pauses.min(31));
            let half = doubled.min(settings.longest_wait) / 2;
            self.pauses += 1;
            self.until = now + half + half.mul_f64(random as f64 / u64::MAX as f64);
            self.is_asked_for = false;
        }
        if let Some(asked) = asked {
            let asked = asked.min(settings.longest_wait);
            // Not all who were told the same come at the same moment.
            let spread = (asked / 10).mul_f64(random as f64 / u64::MAX as f64);
            self.until = self.until.max(now + asked + spread);
            self.is_asked_for = true;
        }
    }

    /// Somebody waits for what is there to be sent: a pause that the server has not asked for is over.
    pub(super) fn hurry(&mut self) {
        if !self.is_asked_for {
            *self = Self::default();
        }
    }

    /// From when on requests may be made.
    pub(super) fn until(&self) -> Instant {
        self.until
    }

    /// How many requests may be under way at once: one finds out whether the server is well again.
    pub(super) fn at_once(&self, settings: &EventSettings) -> usize {
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
    fn pauses_double_up_to_the_longest_within_their_upper_halves() {
        for random in [0, u64::MAX / 2, u64::MAX] {
            let mut pace = Pace::default();
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
    fn what_fails_together_is_one_failure_and_the_next_goes_alone() {
        let mut pace = Pace::default();
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
    fn what_the_server_asks_for_is_the_least_and_nobody_hurries_it() {
        let mut pace = Pace::default();
        pace.failed(Some(Duration::from_secs(7)), Instant::ZERO, 0, &SETTINGS);
        pace.hurry();
        assert_eq!(pace.until().since_zero(), Duration::from_secs(7));
        pace.failed(Some(Duration::from_secs(3600)), pace.until(), 0, &SETTINGS);
        assert_eq!(pace.until().since_zero(), Duration::from_secs(67), "no server keeps events for an hour");
        let mut pace = Pace::default();
        pace.failed(None, Instant::ZERO, 0, &SETTINGS);
        pace.hurry();
        assert_eq!(pace.until(), Instant::ZERO);
    }
}
