//! Handle of a running controller.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use steadfast::ObjectKey;
use steadfast::environment::Task;

use super::lifecycle::Phase;
use super::source::DetachFn;
use super::stats::ControllerStats;
use super::worker_pool::WorkerPool;
use crate::workqueue::{Durations, Workqueue};

/// Handle of a running controller. Dropping the handle cancels the controller.
#[must_use = "the controller ends when this is dropped"]
pub struct RunningController {
    pool: Arc<WorkerPool>,
    /// Background tasks of the controller.
    tasks: Vec<Task>,
    detach: Vec<DetachFn>,
}

/// Remaining work after the stop of a controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StopReport {
    /// Keys still queued, including deferred keys and keys that waited for a cache.
    pub queued: usize,
    /// Cancelled reconciles.
    pub cancelled: u64,
    /// Reconciles that cannot be cancelled because they block their threads. They end at their next `.await`.
    pub stuck: usize,
}

impl RunningController {
    pub(super) fn new(pool: Arc<WorkerPool>, tasks: Vec<Task>, detach: Vec<DetachFn>) -> Self {
        Self { pool, tasks, detach }
    }

    /// Returns the workqueue, for adding keys and for its stats.
    pub fn queue(&self) -> &Workqueue<ObjectKey> {
        &self.pool.queue
    }

    /// Returns counters and current state.
    pub fn stats(&self) -> ControllerStats {
        self.pool.stats()
    }

    /// Returns the durations of reconciles with any outcome (`controller_runtime_reconcile_time_seconds`).
    pub fn durations(&self) -> Durations {
        self.pool.counters.durations()
    }

    /// Returns a weak reference for metrics.
    #[cfg(feature = "metrics")]
    pub(super) fn weak(&self) -> std::sync::Weak<WorkerPool> {
        Arc::downgrade(&self.pool)
    }

    /// Stops the controller: starts no further reconcile, waits for running reconciles for at most `timeout`, and then
    /// cancels them.
    ///
    /// The informers keep running, because other users of the factory may share them. Their factory stops them
    /// ([`InformerFactory::shutdown`](steadfast::InformerFactory::shutdown)).
    pub async fn stop(self, timeout: Duration) -> StopReport {
        let pool = self.pool.clone();
        let environment = pool.connection.environment().clone();
        // The sources stop before the workers, so that no new key arrives while the workers finish.
        self.detach.iter().for_each(|detach| detach());
        pool.lifecycle.advance_to(Phase::Stopping);
        let cancelled_before = pool.stats().cancelled;
        // Subscribed before the first check of the counter, so that no exit is missed.
        let mut worker_exited = pool.worker_exited.subscribe();
        let all_exited = async {
            let no_worker = || pool.workers.load(Ordering::Acquire) == 0;
            while !no_worker() {
                drop(worker_exited.changed().await);
            }
        };
        let end = environment.now() + timeout;
        let mut all_exited = std::pin::pin!(all_exited);
        let in_time = tokio::select! {
            biased;
            () = &mut all_exited => true,
            () = environment.sleep_until(end) => false,
        };
        if !in_time {
            pool.lifecycle.advance_to(Phase::Cancelled);
            // A cancelled reconcile ends at its next `.await`. Reconciles that remain after this second count as stuck.
            let end_of_cancellation = environment.now() + Duration::from_secs(1);
            tokio::select! {
                biased;
                () = all_exited => {}
                () = environment.sleep_until(end_of_cancellation) => {}
            }
        }
        let queued = pool.queue.len() + pool.gate.deferred_count() + pool.write_tracker.waiting();
        pool.queue.shut_down();
        let stats = pool.stats();
        StopReport { queued, cancelled: stats.cancelled - cancelled_before, stuck: stats.running }
    }
}

impl Drop for RunningController {
    fn drop(&mut self) {
        // Unlike `stop`, a drop cannot wait. Running reconciles are cancelled at their next `.await`.
        self.detach.iter().for_each(|detach| detach());
        self.pool.lifecycle.advance_to(Phase::Cancelled);
        self.pool.queue.shut_down();
        self.tasks.iter().for_each(Task::abort);
    }
}

impl fmt::Debug for RunningController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningController").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
