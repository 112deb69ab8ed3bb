//! Conditions for reporting failures and recoveries of a sink.

use std::time::Duration;

/// Maximum time between failures of a flapping sink.
const FLAPPING_WINDOW: Duration = Duration::from_secs(600);

/// Minimum working time of a flapping sink before a recovery is reported. Doubles each time, up to [`FLAPPING_WINDOW`].
const FIRST_QUIET_PERIOD: Duration = Duration::from_secs(60);

/// Time without success after which a failing sink is down.
const DOWN_AFTER: Duration = Duration::from_secs(10);

/// Failure state of one sink.
///
/// Without this state, a sink with every other attempt failing would cause two reports per message. After the first
/// recovery, the sink must work for a quiet period before the next recovery is reported.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    reason: Option<String>,
    last_failure: Option<Duration>,
    /// First failure since the last success.
    fails_since: Option<Duration>,
    quiet_period: Duration,
    /// True if the last attempt succeeded.
    works: bool,
}

impl Trouble {
    /// Records a failed attempt. Returns true if the failure should be reported.
    pub(crate) fn failed(&mut self, now: Duration, reason: &str) -> bool {
        let is_flapping = self.last_failure.is_some_and(|last| now.saturating_sub(last) < FLAPPING_WINDOW);
        (self.last_failure, self.works) = (Some(now), false);
        self.fails_since.get_or_insert(now);
        // Reported once, until the trouble has ended.
        if self.reason.replace(reason.to_owned()).is_some() {
            return false;
        }
        // A receiver that flaps would cause alternating reports. The quiet period doubles each time.
        self.quiet_period = if is_flapping {
            self.quiet_period.saturating_mul(2).clamp(FIRST_QUIET_PERIOD, FLAPPING_WINDOW)
        } else {
            Duration::ZERO
        };
        true
    }

    /// Records a successful attempt.
    pub(crate) fn delivered(&mut self) {
        (self.works, self.fails_since) = (true, None);
    }

    /// Returns true if all attempts have failed for [`DOWN_AFTER`].
    pub(crate) fn is_down(&self, now: Duration) -> bool {
        self.fails_since.is_some_and(|since| now.saturating_sub(since) >= DOWN_AFTER)
    }

    /// Returns the time at which [`has_ended`](Self::has_ended) may become true without another attempt.
    pub(crate) fn next(&self) -> Option<Duration> {
        // Recovery is reported after a quiet period with successful deliveries.
        let last = self.last_failure.filter(|_| self.works && self.reason.is_some())?;
        Some(last.saturating_add(self.quiet_period))
    }

    /// Returns true once when the recovery should be reported.
    pub(crate) fn has_ended(&mut self, now: Duration) -> bool {
        let has_ended = self.next().is_some_and(|at| at <= now);
        if has_ended {
            self.reason = None;
        }
        has_ended
    }

    /// Returns the cause of the last failure, if the sink is still reported as failing.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flaky_sink_reports_once_until_quiet() {
        let (mut trouble, mut reports) = (Trouble::default(), Vec::new());
        let mut now = Duration::ZERO;
        for _ in 0..100 {
            now += Duration::from_secs(5);
            if trouble.failed(now, "no") {
                reports.push("fails");
            }
            now += Duration::from_secs(5);
            trouble.delivered();
            if trouble.has_ended(now) {
                reports.push("works");
            }
        }
        // The first recovery is reported immediately. Later recoveries need a quiet period.
        assert_eq!(reports, ["fails", "works", "fails"]);
        assert_eq!(trouble.reason(), Some("no"));
        let at = trouble.next().expect("a recovery");
        assert!(!trouble.has_ended(at.saturating_sub(Duration::from_millis(1))) && trouble.has_ended(at));
        assert_eq!((trouble.reason(), trouble.next()), (None, None));
    }

    #[test]
    fn sink_is_down_after_ten_seconds() {
        let mut trouble = Trouble::default();
        let second = Duration::from_secs;
        assert!(!trouble.is_down(second(100)), "no attempt has failed");
        trouble.failed(second(100), "no");
        trouble.failed(second(105), "no");
        assert!(!trouble.is_down(second(109)) && trouble.is_down(second(110)));
        trouble.delivered();
        trouble.failed(second(111), "no");
        assert!(!trouble.is_down(second(112)));
    }

    #[test]
    fn outages_far_apart_report_both_ends() {
        let mut trouble = Trouble::default();
        for hour in 1..4_u64 {
            let now = Duration::from_secs(hour * 3600);
            assert!(trouble.failed(now, "down") && !trouble.failed(now, "down"));
            assert!(!trouble.has_ended(now), "the sink still fails");
            trouble.delivered();
            assert!(trouble.has_ended(now));
        }
    }
}
