//! Deadline timer that detects if the process was suspended before it fired.

use std::time::Duration;

use futures::future::BoxFuture;
use steadfast_core::Instant;

use crate::environment::SharedEnvironment;

/// Delay of a timer that indicates a suspended process. Also the grace period in which arrived data
/// is then read.
pub(super) const MAX_TIMER_DELAY: Duration = Duration::from_secs(1);

/// Timer for the next deadline.
pub(super) struct DeadlineTimer {
    environment: SharedEnvironment,
    scheduled: Option<(Instant, BoxFuture<'static, ()>)>,
    /// True if the timer fired so late that the process was probably suspended. Arrived data is read first.
    was_late: bool,
}

impl DeadlineTimer {
    /// Creates a timer without a deadline.
    pub(super) fn new(environment: SharedEnvironment) -> Self {
        Self { environment, scheduled: None, was_late: false }
    }

    /// Sets the deadline, if it differs. A timer that fires early only re-checks the deadline.
    pub(super) fn set(&mut self, due: Option<Instant>) {
        // The grace period after a suspension must not be extended or shortened.
        if self.was_late {
            return;
        }
        match (due, &self.scheduled) {
            (None, _) => self.scheduled = None,
            // Deadlines move to later times with each record. A new sleep for each of them would cost more than one
            // early wake-up.
            (Some(due), Some((scheduled, _))) if *scheduled <= due => {}
            (Some(due), _) => self.reset(due),
        }
    }

    /// Drops the current sleep after a freeze. The clock of a sleep may stop while the machine is suspended, so the
    /// sleep would end late.
    pub(super) fn restart(&mut self) {
        if !self.was_late {
            self.scheduled = None;
        }
    }

    fn reset(&mut self, due: Instant) {
        self.scheduled = Some((due, self.environment.sleep_until(due)));
    }

    /// Waits for the deadline; forever without one.
    pub(super) async fn fired(&mut self) {
        match &mut self.scheduled {
            Some((_, sleep)) => sleep.await,
            None => std::future::pending().await,
        }
    }

    /// Returns true if the due action must run now. If the timer is far overdue, arrived data must be read first,
    /// because it may contain a proof of freshness.
    pub(super) fn is_due(&mut self) -> bool {
        let now = self.environment.now();
        let due = self.scheduled.take().map_or(now, |(due, _)| due);
        // At most one grace period: the next time the action runs, even if the timer is late again.
        let is_late = now.since(due) > MAX_TIMER_DELAY && !self.was_late;
        self.was_late = is_late;
        if is_late {
            self.reset(now + MAX_TIMER_DELAY);
        }
        !is_late
    }
}
