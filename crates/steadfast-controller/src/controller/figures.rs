//! What a controller counts.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::workqueue::Durations;

/// What a controller has done, and how it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ControllerStats {
    /// Calls that ended well, and wait for a change.
    pub succeeded: u64,
    /// Calls that ended well, and want to be called again.
    pub requeued: u64,
    /// Calls that ended with an error.
    pub failed: u64,
    /// Calls that panicked.
    pub panicked: u64,
    /// Calls that took longer than they may.
    pub timed_out: u64,
    /// Calls that were cancelled at the stop.
    pub cancelled: u64,
    /// Calls that are under way.
    pub running: usize,
    /// Calls that hold up their thread.
    pub blocked: usize,
    /// Keys that wanted to be called again at once, time after time, and are slowed down.
    pub slowed: usize,
    /// Keys that wait until caches have what their last call wrote.
    pub waiting_for_writes: usize,
    /// How often a key had to wait for that.
    pub waits_for_writes: u64,
    /// How long all those waits took together.
    pub waited_for_writes: Duration,
    /// Whether keys wait until caches have what another process has written that acted on them before.
    pub catching_up: bool,
    /// How often that was waited for: at the start, and when keys were gained.
    pub catch_ups: u64,
    /// How long all those waits took together.
    pub caught_up: Duration,
    /// Keys that sources mapped to and that no object of the controller can have: they are never reconciled.
    pub outside_scope: u64,
    /// Whether nothing is called, or only what is safe, since a cache is in doubt.
    pub paused: bool,
    /// How often that was so.
    pub pauses: u64,
}

/// The figures as they are counted.
#[derive(Debug, Default)]
pub(super) struct Counted {
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

impl Counted {
    /// One more of something.
    pub(super) fn one(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Records the duration of a reconcile, successful or not.
    pub(super) fn took(&self, duration: Duration) {
        self.lock_durations().add(duration);
    }

    /// How long calls have taken.
    pub(super) fn durations(&self) -> Durations {
        self.lock_durations().clone()
    }

    fn lock_durations(&self) -> MutexGuard<'_, Durations> {
        self.durations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A key has waited for `wait`, until caches had what was written for it.
    pub(super) fn waited(&self, wait: Duration) {
        self.waited_nanos.fetch_add(nanos(wait), Ordering::Relaxed);
    }

    /// Keys have waited for `wait`, until caches had what others had written.
    pub(super) fn caught_up(&self, wait: Duration) {
        Self::one(&self.catch_ups);
        self.caught_up_nanos.fetch_add(nanos(wait), Ordering::Relaxed);
    }

    /// The figures now, with what is not counted here.
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
            waits_for_writes: count(&self.waits),
            waited_for_writes: Duration::from_nanos(count(&self.waited_nanos)),
            catching_up: self.catching_up.load(Ordering::Relaxed) > 0,
            catch_ups: count(&self.catch_ups),
            caught_up: Duration::from_nanos(count(&self.caught_up_nanos)),
            outside_scope: count(&self.outside_scope),
            paused,
            pauses: count(&self.pauses),
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
