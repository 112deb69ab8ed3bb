//! Counters of a controller.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::workqueue::Durations;

/// Counters and current state of a controller. Counters start at 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ControllerStats {
    /// Successful reconciles that requested no further run: the next run follows a change.
    pub succeeded: u64,
    /// Successful reconciles that requested another run.
    pub requeued: u64,
    /// Reconciles that returned an error.
    pub failed: u64,
    /// Reconciles that panicked.
    pub panicked: u64,
    /// Reconciles that exceeded their timeout.
    pub timed_out: u64,
    /// Reconciles that the stop cancelled.
    pub cancelled: u64,
    /// Reconciles in progress.
    pub running: usize,
    /// Reconciles that block their thread.
    pub blocked: usize,
    /// Keys that are delayed after repeated immediate requeues.
    pub slowed: usize,
    /// Keys that wait until caches contain the writes of their last reconcile, and the change that triggered the next
    /// one.
    pub waiting_for_writes: usize,
    /// Number of such waits.
    pub write_waits: u64,
    /// Total duration of these waits.
    pub write_wait_duration: Duration,
    /// True while keys wait until caches contain the writes of a previous owner in another process.
    pub catching_up: bool,
    /// Number of such waits: at the start, and with sharding also after keys were gained from another process.
    pub catch_ups: u64,
    /// Total duration of these waits.
    pub catch_up_duration: Duration,
    /// Keys from sources that are outside the scope of the controller, such as another namespace. No object of the
    /// controller can have such a key, so the key is never reconciled.
    pub outside_scope: u64,
    /// True while reconciles are paused because a cache is in doubt. Keys that are safe under
    /// [`StalePolicy::pause_except`](crate::StalePolicy::pause_except) are still reconciled.
    pub paused: bool,
    /// Number of such pauses.
    pub pauses: u64,
}

/// Counters behind [`ControllerStats`].
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) succeeded: AtomicU64,
    pub(super) requeued: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) panicked: AtomicU64,
    pub(super) timed_out: AtomicU64,
    pub(super) cancelled: AtomicU64,
    pub(super) running: AtomicUsize,
    pub(super) blocked: AtomicUsize,
    pub(super) waits: AtomicU64,
    pub(super) waited_nanos: AtomicU64,
    pub(super) pauses: AtomicU64,
    pub(super) catching_up: AtomicUsize,
    pub(super) catch_ups: AtomicU64,
    pub(super) caught_up_nanos: AtomicU64,
    pub(super) outside_scope: AtomicU64,
    pub(super) durations: Mutex<Durations>,
}

impl Counters {
    /// Increments a counter by one.
    pub(super) fn increment(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Records the duration of a reconcile, successful or not.
    pub(super) fn record_duration(&self, duration: Duration) {
        self.lock_durations().add(duration);
    }

    /// Returns the durations of reconciles.
    pub(super) fn durations(&self) -> Durations {
        self.lock_durations().clone()
    }

    fn lock_durations(&self) -> MutexGuard<'_, Durations> {
        self.durations.lock()
    }

    /// Adds the time that a key waited for the writes of its last reconcile, or for the change that triggered the next
    /// one.
    pub(super) fn record_wait(&self, wait: Duration) {
        self.waited_nanos.fetch_add(nanos(wait), Ordering::Relaxed);
    }

    /// Counts a wait for writes of other processes, with its duration.
    pub(super) fn record_catch_up(&self, wait: Duration) {
        Self::increment(&self.catch_ups);
        self.extend_catch_up(wait);
    }

    /// Adds to the duration of a counted wait for writes of other processes.
    pub(super) fn extend_catch_up(&self, wait: Duration) {
        self.caught_up_nanos.fetch_add(nanos(wait), Ordering::Relaxed);
    }

    /// Returns the current values, combined with the values that other types track.
    pub(super) fn read(&self, waiting_for_writes: usize, slowed: usize, paused: bool) -> ControllerStats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ControllerStats {
            succeeded: count(&self.succeeded),
            requeued: count(&self.requeued),
            failed: count(&self.failed),
            panicked: count(&self.panicked),
            timed_out: count(&self.timed_out),
            cancelled: count(&self.cancelled),
            running: self.running.load(Ordering::Relaxed),
            blocked: self.blocked.load(Ordering::Relaxed),
            slowed,
            waiting_for_writes,
            write_waits: count(&self.waits),
            write_wait_duration: Duration::from_nanos(count(&self.waited_nanos)),
            catching_up: self.catching_up.load(Ordering::Relaxed) > 0,
            catch_ups: count(&self.catch_ups),
            catch_up_duration: Duration::from_nanos(count(&self.caught_up_nanos)),
            outside_scope: count(&self.outside_scope),
            paused,
            pauses: count(&self.pauses),
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
