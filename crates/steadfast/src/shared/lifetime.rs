//! Stop and end of an informer.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use steadfast_core::Instant;

type StopCallback = Box<dyn FnOnce() + Send>;

/// Lifetime of an informer: running, then stopped, then ended.
#[derive(Default)]
pub(crate) struct Lifetime {
    /// Time of the stop.
    stopped_at: OnceLock<Instant>,
    /// True after the driver has ended, so that nothing more is delivered.
    ended: AtomicBool,
    /// True if the driver ended without being stopped.
    broken: AtomicBool,
    /// Action that runs once, when the informer stops.
    at_stop: Mutex<Option<StopCallback>>,
}

impl Lifetime {
    /// Returns the time of the stop.
    pub(crate) fn stopped_at(&self) -> Option<Instant> {
        self.stopped_at.get().copied()
    }

    /// Returns true after the stop.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped_at.get().is_some()
    }

    /// Records the stop. Only the first call sets its time.
    pub(super) fn stop(&self, now: Instant) {
        let _ = self.stopped_at.set(now);
    }

    /// Sets the action for the stop.
    pub(super) fn set_stop_callback(&self, action: impl FnOnce() + Send + 'static) {
        *self.at_stop.lock() = Some(Box::new(action));
    }

    /// Runs the action for the stop, at most once.
    pub(super) fn run_stop_callback(&self) {
        let at_stop = self.at_stop.lock().take();
        if let Some(at_stop) = at_stop {
            at_stop();
        }
    }

    /// Records that the driver has ended.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Returns true after the driver has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Records that the driver ended without being stopped.
    pub(crate) fn mark_broken(&self) {
        self.broken.store(true, Ordering::Release);
    }

    /// Returns true if the driver ended without being stopped.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }
}
