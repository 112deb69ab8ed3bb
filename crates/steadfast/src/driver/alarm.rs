//! The moment at which something is due, and whether this process can have noticed what came before it.

use std::time::Duration;

use futures::future::BoxFuture;
use steadfast_core::Instant;

use crate::environment::SharedEnvironment;

/// How late a timer may be before that says that this process was frozen; and how long what has arrived is read then.
pub(super) const LATENESS: Duration = Duration::from_secs(1);

/// A timer for the next thing that is due.
pub(super) struct Alarm {
    environment: SharedEnvironment,
    set: Option<(Instant, BoxFuture<'static, ()>)>,
    /// It was so late that this process must have been frozen: what has arrived is read first.
    late: bool,
}

impl Alarm {
    /// Nothing is due.
    pub(super) fn new(environment: SharedEnvironment) -> Self {
        Self { environment, set: None, late: false }
    }

    /// Sets it for `due`, if that is not what it is set for; one that fires early only looks again.
    pub(super) fn set(&mut self, due: Option<Instant>) {
        if self.late {
            return;
        }
        match (due, &self.set) {
            (None, _) => self.set = None,
            (Some(due), Some((set, _))) if *set <= due => {}
            (Some(due), _) => self.set_anew(due),
        }
    }

    fn set_anew(&mut self, due: Instant) {
        self.set = Some((due, self.environment.sleep_until(due)));
    }

    /// Waits for it; for ever, where nothing is due.
    pub(super) async fn fired(&mut self) {
        match &mut self.set {
            Some((_, sleep)) => sleep.await,
            None => std::future::pending().await,
        }
    }

    /// It has fired: whether what is due is to be done now. If that is long overdue, what has arrived meanwhile is to be
    /// read before: it may say that all is well.
    pub(super) fn is_due(&mut self) -> bool {
        let now = self.environment.now();
        let due = self.set.take().map_or(now, |(due, _)| due);
        let is_late = now.since(due) > LATENESS && !self.late;
        self.late = is_late;
        if is_late {
            self.set_anew(now + LATENESS);
        }
        !is_late
    }
}
