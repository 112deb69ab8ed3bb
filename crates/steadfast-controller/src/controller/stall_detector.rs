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

/// Delay of a check after its due time that indicates a freeze of the process.
const MAX_CHECK_DELAY: Duration = Duration::from_secs(1);

/// Period in which the supervisor checked the stall detectors without a gap.
///
/// A freeze of the process, for example by `SIGSTOP`, also stops polls in progress, although their reconciles do not
/// block. During a freeze the supervisor cannot run either, so its next check is late. The time before a late check
/// therefore does not count as blocking time.
pub(super) struct ObservationPeriod {
    started_at: Instant,
}

impl ObservationPeriod {
    /// Starts a period at `now`.
    pub(super) fn start(now: Instant) -> Self {
        Self { started_at: now }
    }

    /// Records a check at `now` that was due at `due`. A late check starts a new period.
    pub(super) fn record_check(&mut self, due: Instant, now: Instant) {
        if now.since(due) > MAX_CHECK_DELAY {
            self.started_at = now;
        }
    }

    /// Returns the start of the period.
    pub(super) fn started_at(&self) -> Instant {
        self.started_at
    }
}

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

    /// Returns the key and the blocking time of a blocked reconcile, and whether the block is new. The blocking time
    /// starts at `observed_since` at the earliest.
    pub(super) fn blocked(&self, now: Instant, observed_since: Instant) -> Option<(ObjectKey, Duration, bool)> {
        // 0 means no poll in progress; times are stored plus one.
        let polled = self.polled.load(Ordering::Acquire).checked_sub(1)?;
        let polled_at = Instant::from_zero(Duration::from_nanos(polled));
        let lasting = now.since(polled_at.max(observed_since));
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use steadfast::environment::local::LocalEnvironment;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn freeze_counts_as_no_blocking_time() {
        let detector = StallDetector::new(Arc::new(LocalEnvironment::over_tcp(0)));
        let key = ObjectKey::cluster("a");
        let second = Duration::from_secs(1);
        let poll = async {
            let begun = detector.environment.now();
            let mut observation = ObservationPeriod::start(begun);
            observation.record_check(begun + second, begun + second);
            assert_eq!(observation.started_at(), begun, "the check was on time");

            // The process was frozen for 10 s after the first check.
            let resumed = begun + second * 11;
            observation.record_check(begun + second * 2, resumed);
            let since = observation.started_at();
            assert_eq!(detector.blocked(resumed, since), None);

            // A poll that continues to block after the freeze is reported.
            let next_check = resumed + second;
            observation.record_check(next_check, next_check);
            assert_eq!(detector.blocked(next_check, observation.started_at()), Some((key.clone(), second, true)));
            assert_eq!(detector.blocked(next_check, begun), Some((key.clone(), second * 12, false)));
        };
        detector.run(&key, poll).await;
        assert_eq!(detector.blocked(detector.environment.now() + second, Instant::default()), None);
    }
}
