//! Detection of gaps in the execution of this process: freezes, suspends of the machine, and jumps of the wall clock.
//!
//! After a gap, a cache can be outdated without doubt: the events of the gap are still unread, and no expected proof is
//! missing yet.

use std::pin::pin;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, sleep};

/// Maximum delay of a task on a busy machine. A longer delay counts as a gap.
const MAX_DELAY: Duration = Duration::from_secs(3);

/// Interval between two checks during [`GapDetector::wait_for_gap`] and [`GapDetector::run`].
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Time of the last check, and the planned pause since.
pub(super) struct GapDetector {
    clock: fn() -> Timestamp,
    checked_at: Instant,
    /// Wall-clock time of the last check. The monotonic clock does not advance while the machine is suspended.
    time: Timestamp,
    planned_pause: Duration,
}

impl GapDetector {
    /// Creates a detector. `clock` returns the wall-clock time.
    pub(super) fn new(clock: fn() -> Timestamp) -> Self {
        Self { clock, checked_at: Instant::now(), time: clock(), planned_pause: Duration::ZERO }
    }

    /// Announces a pause of the task before the next check.
    pub(super) fn plan_pause(&mut self, pause: Duration) {
        self.planned_pause = pause;
    }

    /// Returns true if the time since the last check exceeds the planned pause. `now` is the wall-clock time.
    pub(super) fn has_gap(&mut self, now: Timestamp) -> bool {
        let elapsed = std::mem::replace(&mut self.checked_at, Instant::now()).elapsed();
        // A clock that was set back shows no gap.
        let wall_elapsed = now.duration_since(std::mem::replace(&mut self.time, now));
        let wall_elapsed = Duration::try_from(wall_elapsed).unwrap_or_default();
        elapsed.max(wall_elapsed) > std::mem::take(&mut self.planned_pause) + MAX_DELAY
    }

    /// Runs `work`, whose own duration is no gap. Returns true if a gap occurred in the meantime.
    pub(super) async fn run(&mut self, work: impl Future<Output = ()>) -> bool {
        let mut work = pin!(work);
        let mut had_gap = false;
        loop {
            tokio::select! {
                biased;
                () = &mut work => return had_gap,
                () = self.wait_for_gap() => had_gap = true,
            }
        }
    }

    /// Waits until the next gap.
    pub(super) async fn wait_for_gap(&mut self) {
        loop {
            self.plan_pause(CHECK_INTERVAL);
            sleep(CHECK_INTERVAL).await;
            let now = (self.clock)();
            if self.has_gap(now) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn still_clock() -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    #[tokio::test(start_paused = true)]
    async fn only_unplanned_pauses_are_gaps() {
        let mut gaps = GapDetector::new(still_clock);
        let mut now = still_clock();
        advance(Duration::from_secs(2)).await;
        assert!(!gaps.has_gap(now), "a busy machine");
        gaps.plan_pause(Duration::from_secs(10));
        advance(Duration::from_secs(11)).await;
        assert!(!gaps.has_gap(now), "a planned pause");
        advance(Duration::from_secs(11)).await;
        assert!(gaps.has_gap(now) && !gaps.has_gap(now), "a freeze");
        now += Duration::from_secs(60);
        assert!(gaps.has_gap(now), "a suspend of the machine");
        now -= Duration::from_secs(60);
        assert!(!gaps.has_gap(now), "the clock was set back");
    }

    #[tokio::test(start_paused = true)]
    async fn long_work_is_no_gap() {
        let mut gaps = GapDetector::new(still_clock);
        assert!(!gaps.run(sleep(Duration::from_secs(60))).await);
        assert!(!gaps.has_gap(still_clock()), "the work was observed until its end");
        let frozen_work = async {
            sleep(Duration::from_millis(1500)).await;
            advance(Duration::from_secs(10)).await;
            sleep(Duration::from_secs(2)).await;
        };
        assert!(gaps.run(frozen_work).await, "a freeze during the work");
    }
}
