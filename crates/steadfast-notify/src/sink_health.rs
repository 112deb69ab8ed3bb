//! Conditions for reporting failures and recoveries of a sink.

use std::time::Duration;

/// Maximum time between failures of a flapping sink.
const FLAPPING_WINDOW: Duration = Duration::from_secs(600);

/// Minimum working time of a flapping sink before a recovery is reported. Doubles each time, up to [`FLAPPING_WINDOW`].
const FIRST_QUIET_PERIOD: Duration = Duration::from_secs(60);

/// Time without success after which a failing sink is down.
const DOWN_AFTER: Duration = Duration::from_secs(10);

/// Failures and recoveries of one sink.
///
/// Without this state, a sink with every other attempt failing would cause two reports per message. After the first
/// recovery, the sink must work for a quiet period before the next recovery is reported.
#[derive(Debug, Default)]
pub(crate) struct SinkHealth {
    reason: Option<String>,
    last_failure: Option<Duration>,
    /// First failure since the last success.
    failing_since: Option<Duration>,
    quiet_period: Duration,
    /// True if the last attempt succeeded.
    last_attempt_succeeded: bool,
}

impl SinkHealth {
    /// Records a failed attempt. Returns true if the failure should be reported.
    pub(crate) fn record_failure(&mut self, now: Duration, reason: &str) -> bool {
        let is_flapping = self.last_failure.is_some_and(|last| now.saturating_sub(last) < FLAPPING_WINDOW);
        (self.last_failure, self.last_attempt_succeeded) = (Some(now), false);
        self.failing_since.get_or_insert(now);
        // Reported once, until the recovery is reported.
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
    pub(crate) fn record_success(&mut self) {
        (self.last_attempt_succeeded, self.failing_since) = (true, None);
    }

    /// Returns true if all attempts have failed for [`DOWN_AFTER`].
    pub(crate) fn is_down(&self, now: Duration) -> bool {
        self.failing_since.is_some_and(|since| now.saturating_sub(since) >= DOWN_AFTER)
    }

    /// Returns the time at which [`has_recovered`](Self::has_recovered) may become true without another attempt.
    pub(crate) fn next_recovery(&self) -> Option<Duration> {
        // Recovery is reported after a quiet period with successful deliveries.
        let last = self.last_failure.filter(|_| self.last_attempt_succeeded && self.reason.is_some())?;
        Some(last.saturating_add(self.quiet_period))
    }

    /// Returns true once when the recovery should be reported.
    pub(crate) fn has_recovered(&mut self, now: Duration) -> bool {
        let has_recovered = self.next_recovery().is_some_and(|at| at <= now);
        if has_recovered {
            self.reason = None;
        }
        has_recovered
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
        let (mut health, mut reports) = (SinkHealth::default(), Vec::new());
        let mut now = Duration::ZERO;
        for _ in 0..100 {
            now += Duration::from_secs(5);
            if health.record_failure(now, "no") {
                reports.push("fails");
            }
            now += Duration::from_secs(5);
            health.record_success();
            if health.has_recovered(now) {
                reports.push("works");
            }
        }
        // The first recovery is reported immediately. Later recoveries need a quiet period.
        assert_eq!(reports, ["fails", "works", "fails"]);
        assert_eq!(health.reason(), Some("no"));
        let recovery = health.next_recovery().expect("a recovery");
        assert!(
            !health.has_recovered(recovery.saturating_sub(Duration::from_millis(1))) && health.has_recovered(recovery)
        );
        assert_eq!((health.reason(), health.next_recovery()), (None, None));
    }

    #[test]
    fn sink_is_down_after_ten_seconds() {
        let mut health = SinkHealth::default();
        let second = Duration::from_secs;
        assert!(!health.is_down(second(100)), "no attempt has failed");
        health.record_failure(second(100), "no");
        health.record_failure(second(105), "no");
        assert!(!health.is_down(second(109)) && health.is_down(second(110)));
        health.record_success();
        health.record_failure(second(111), "no");
        assert!(!health.is_down(second(112)));
    }

    #[test]
    fn outages_far_apart_report_both_ends() {
        let mut health = SinkHealth::default();
        for hour in 1..4_u64 {
            let now = Duration::from_secs(hour * 3600);
            assert!(health.record_failure(now, "down") && !health.record_failure(now, "down"));
            assert!(!health.has_recovered(now), "the sink still fails");
            health.record_success();
            assert!(health.has_recovered(now));
        }
    }
}
