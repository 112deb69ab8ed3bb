//! When to report that a sink fails, and that it works again.

use std::time::Duration;

/// Failures closer together than this belong to one flapping sink.
const FLAPPING_WINDOW: Duration = Duration::from_secs(600);

/// How long a flapping sink has to work before that is reported. Doubled each time, up to [`FLAPPING_WINDOW`].
const FIRST_QUIET_PERIOD: Duration = Duration::from_secs(60);

/// A sink all of whose attempts have failed for this duration is down.
const DOWN_AFTER: Duration = Duration::from_secs(10);

/// Failures of one sink.
///
/// A sink that fails at every other attempt would be reported twice a message. After the first recovery, it has to work
/// for a quiet period before the next recovery is reported.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    why: Option<String>,
    last_failure: Option<Duration>,
    /// The first failure since the last success.
    fails_since: Option<Duration>,
    quiet_period: Duration,
    /// Whether the last attempt succeeded.
    works: bool,
}

impl Trouble {
    /// Records a failed attempt; returns whether to report it.
    pub(crate) fn failed(&mut self, now: Duration, why: &str) -> bool {
        let is_flapping = self.last_failure.is_some_and(|last| now.saturating_sub(last) < FLAPPING_WINDOW);
        (self.last_failure, self.works) = (Some(now), false);
        self.fails_since.get_or_insert(now);
        if self.why.replace(why.to_owned()).is_some() {
            return false;
        }
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

    /// Returns whether all attempts have failed for some time.
    pub(crate) fn is_down(&self, now: Duration) -> bool {
        self.fails_since.is_some_and(|since| now.saturating_sub(since) >= DOWN_AFTER)
    }

    /// Returns when [`has_ended`](Self::has_ended) may be true without another attempt.
    pub(crate) fn next(&self) -> Option<Duration> {
        let last = self.last_failure.filter(|_| self.works && self.why.is_some())?;
        Some(last.saturating_add(self.quiet_period))
    }

    /// Returns whether to report that the sink works again.
    pub(crate) fn has_ended(&mut self, now: Duration) -> bool {
        let has_ended = self.next().is_some_and(|at| at <= now);
        if has_ended {
            self.why = None;
        }
        has_ended
    }

    /// Returns the cause of the last failure, if the sink still counts as failing.
    pub(crate) fn why(&self) -> Option<&str> {
        self.why.as_deref()
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
        // The first recovery is reported at once. From then on the sink has to stay well.
        assert_eq!(reports, ["fails", "works", "fails"]);
        assert_eq!(trouble.why(), Some("no"));
        let at = trouble.next().expect("it works");
        assert!(!trouble.has_ended(at.saturating_sub(Duration::from_millis(1))) && trouble.has_ended(at));
        assert_eq!((trouble.why(), trouble.next()), (None, None));
    }

    #[test]
    fn sink_is_down_after_ten_seconds_without_success() {
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
            assert!(!trouble.has_ended(now), "it still fails");
            trouble.delivered();
            assert!(trouble.has_ended(now));
        }
    }
}
