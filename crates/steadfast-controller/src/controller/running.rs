//! A controller at work.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use steadfast::ObjectKey;
use steadfast::environment::Task;

use super::crew::Crew;
use super::figures::ControllerStats;
use super::source::Detach;
use super::stage::Point;
use crate::workqueue::{Durations, Workqueue};

/// A controller that runs, until this is stopped or dropped.
#[must_use = "the controller ends when this is dropped"]
pub struct RunningController {
    crew: Arc<Crew>,
    /// What looks after it.
    tasks: Vec<Task>,
    detach: Vec<Detach>,
}

/// What was left when a controller ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stopped {
    /// Keys that were to be called, in the queue or not yet there, since they waited for a cache.
    pub queued: usize,
    /// Calls that were cancelled.
    pub cancelled: u64,
    /// Calls that could not be cancelled, since they hold up their threads; they end when they give them back.
    pub stuck: usize,
}

impl RunningController {
    pub(super) fn new(crew: Arc<Crew>, tasks: Vec<Task>, detach: Vec<Detach>) -> Self {
        Self { crew, tasks, detach }
    }

    /// The keys that are to be called: to add some by hand, or to look at its figures.
    pub fn queue(&self) -> &Workqueue<ObjectKey> {
        &self.crew.queue
    }

    /// What it has done, and how it is.
    pub fn figures(&self) -> ControllerStats {
        self.crew.figures()
    }

    /// How long calls have taken, however they ended (`controller_runtime_reconcile_time_seconds`).
    pub fn durations(&self) -> Durations {
        self.crew.counted.durations()
    }

    /// What is read of it, without keeping it.
    #[cfg(feature = "metrics")]
    pub(super) fn weak(&self) -> std::sync::Weak<Crew> {
        Arc::downgrade(&self.crew)
    }

    /// Ends it: no call is begun any more; those under way have so long to end, and are cancelled then.
    ///
    /// The informers go on, since others may use them: their factory ends them
    /// ([`InformerFactory::shutdown`](steadfast::InformerFactory::shutdown)).
    pub async fn stop(self, patience: Duration) -> Stopped {
        let crew = self.crew.clone();
        let environment = crew.connection.environment().clone();
        self.detach.iter().for_each(|detach| detach());
        crew.stage.reach(Point::Ending);
        let cancelled_before = crew.figures().cancelled;
        let mut gone = crew.gone.subscribe();
        let all_gone = async {
            let nobody = || crew.members.load(Ordering::Acquire) == 0;
            while !nobody() {
                drop(gone.changed().await);
            }
        };
        let end = environment.now() + patience;
        let mut all_gone = std::pin::pin!(all_gone);
        let in_time = tokio::select! {
            biased;
            () = &mut all_gone => true,
            () = environment.sleep_until(end) => false,
        };
        if !in_time {
            crew.stage.reach(Point::Cancelled);
            // Whoever gives the thread back ends at once; who does not, is stuck.
            let moment = environment.now() + Duration::from_secs(1);
            tokio::select! {
                biased;
                () = all_gone => {}
                () = environment.sleep_until(moment) => {}
            }
        }
        let queued = crew.queue.len() + crew.gate.waiting() + crew.sights.waiting();
        crew.queue.shut_down();
        let figures = crew.figures();
        Stopped { queued, cancelled: figures.cancelled - cancelled_before, stuck: figures.running }
    }
}

impl Drop for RunningController {
    fn drop(&mut self) {
        self.detach.iter().for_each(|detach| detach());
        self.crew.stage.reach(Point::Cancelled);
        self.crew.queue.shut_down();
        self.tasks.iter().for_each(Task::abort);
    }
}

impl fmt::Debug for RunningController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningController").field("figures", &self.figures()).finish_non_exhaustive()
    }
}
