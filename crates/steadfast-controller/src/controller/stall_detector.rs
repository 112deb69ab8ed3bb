//! Detection of reconciles that block their thread.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use steadfast::ObjectKey;
use steadfast::environment::{Instant, SharedEnvironment};

/// Blocking time after which a reconcile is reported.
const BLOCKED_REPORT_DELAY: Duration = Duration::from_secs(1);

/// Stall detector of one worker, which runs one reconcile after the other.
pub(super) struct StallDetector {
    environment: SharedEnvironment,
    /// Start of the current poll in nanoseconds of the environment's clock plus 1. Zero between polls.
    polled: AtomicU64,
    /// Key of the current reconcile, and whether its block was already reported.
    call: Mutex<Option<(ObjectKey, bool)>>,
    /// True after another worker took over.
    replaced: AtomicBool,
}

impl StallDetector {
    pub(super) fn new(environment: SharedEnvironment) -> Self {
        Self { environment, polled: AtomicU64::new(0), call: Mutex::default(), replaced: AtomicBool::new(false) }
    }

    /// Runs `work` for `key`, and records the start of each poll.
    pub(super) async fn run<T>(&self, key: &ObjectKey, work: impl Future<Output = T>) -> T {
        *self.lock() = Some((key.clone(), false));
        let mut work = pin!(work);
        let done = poll_fn(|context| {
            // Only the time inside one poll counts. A reconcile that awaits is not blocked.
            let _guard = PollGuard::begin(self);
            work.as_mut().poll(context)
        });
        let done = done.await;
        *self.lock() = None;
        done
    }

    /// Returns the key and the blocking time of a blocked reconcile, and whether the block is new.
    pub(super) fn blocked(&self, now: Instant) -> Option<(ObjectKey, Duration, bool)> {
        // 0 means no poll in progress; times are stored plus one.
        let polled = self.polled.load(Ordering::Acquire).checked_sub(1)?;
        let lasting = now.since_zero().saturating_sub(Duration::from_nanos(polled));
        if lasting < BLOCKED_REPORT_DELAY {
            return None;
        }
        let mut call = self.lock();
        let (key, is_reported) = call.as_mut()?;
        let is_new = !std::mem::replace(is_reported, true);
        Some((key.clone(), lasting, is_new))
    }

    /// Marks the worker as replaced. Returns true on the first call.
    pub(super) fn replace(&self) -> bool {
        !self.replaced.swap(true, Ordering::AcqRel)
    }

    /// Returns true if another worker took over.
    pub(super) fn is_replaced(&self) -> bool {
        self.replaced.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, Option<(ObjectKey, bool)>> {
        self.call.lock()
    }
}

/// Marks a poll in progress. Clears the mark on drop, so also after a panic.
struct PollGuard<'a>(&'a StallDetector);

impl<'a> PollGuard<'a> {
    fn begin(detector: &'a StallDetector) -> Self {
        let now = detector.environment.now().since_zero().as_nanos();
        detector.polled.store(u64::try_from(now).unwrap_or(u64::MAX - 1) + 1, Ordering::Release);
        Self(detector)
    }
}

impl Drop for PollGuard<'_> {
    fn drop(&mut self) {
        self.0.polled.store(0, Ordering::Release);
    }
}
