//! Detection of freezes: times in which the process did not run.
//!
//! `SIGSTOP`, a frozen cgroup and a suspend of the machine freeze the process. Data that arrived before or during a
//! freeze is read after the freeze, so its records may be as old as the freeze. Without a regular timer, a freeze looks
//! like a silent stream. With a regular timer, a freeze is a timer that fires late.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use steadfast_core::Instant;
use tokio::sync::watch;

use crate::environment::{SharedEnvironment, Task};
use crate::transport::nanos::nanos;

/// Interval of the timer.
const TICK_INTERVAL: Duration = Duration::from_secs(1);

/// Delay of the timer that indicates a freeze. A busy machine causes shorter delays.
const MAX_TICK_DELAY: Duration = Duration::from_secs(2);

/// Detector of a connection. Its timer runs while the connection has informers.
#[derive(Default)]
pub(super) struct FreezeDetector(Mutex<Weak<Ticks>>);

/// Ticks of the timer, and the freezes that they showed.
struct Ticks {
    /// Nanoseconds of the clock at which a freeze is certain, unless the timer fires before.
    deadline: AtomicU64,
    /// Number of freezes.
    freezes: AtomicU64,
    /// Notifies the informers of a freeze.
    detected: watch::Sender<()>,
    timer: OnceLock<Task>,
}

/// Informer's view of the freezes.
pub(crate) struct Freezes {
    ticks: Arc<Ticks>,
    /// Number of freezes that the informer has handled.
    handled: u64,
    detected: watch::Receiver<()>,
}

impl FreezeDetector {
    /// Returns the freezes from now on. Starts the timer for the first informer.
    pub(super) fn subscribe(&self, environment: &SharedEnvironment) -> Freezes {
        let mut current = self.0.lock();
        let ticks = current.upgrade().unwrap_or_else(|| {
            let ticks = Arc::new(Ticks::new(environment.now()));
            *current = Arc::downgrade(&ticks);
            let timer = environment.spawn(Box::pin(tick(current.clone(), environment.clone())));
            drop(ticks.timer.set(timer));
            ticks
        });
        let (handled, detected) = (ticks.freezes.load(Ordering::Acquire), ticks.detected.subscribe());
        Freezes { ticks, handled, detected }
    }
}

/// Ticks until the last informer ends.
async fn tick(ticks: Weak<Ticks>, environment: SharedEnvironment) {
    loop {
        environment.sleep_until(environment.now() + TICK_INTERVAL).await;
        let Some(ticks) = ticks.upgrade() else { return };
        ticks.tick(environment.now());
    }
}

impl Ticks {
    fn new(now: Instant) -> Self {
        Self {
            deadline: AtomicU64::new(deadline_after(now)),
            freezes: AtomicU64::new(0),
            detected: watch::Sender::new(()),
            timer: OnceLock::new(),
        }
    }

    fn tick(&self, now: Instant) {
        self.check(now);
        self.deadline.store(deadline_after(now), Ordering::Release);
    }

    /// Records a freeze if the timer did not fire in time.
    fn check(&self, now: Instant) {
        if nanos(now) > self.deadline.load(Ordering::Acquire) {
            self.record_freeze(now);
        }
    }

    #[cold]
    fn record_freeze(&self, now: Instant) {
        self.detected.send_modify(|()| {
            // The channel is locked here, and another thread may have recorded the freeze before.
            if nanos(now) > self.deadline.load(Ordering::Acquire) {
                // Counted before the deadline moves: a thread that finds the new deadline must find the freeze too.
                self.freezes.fetch_add(1, Ordering::Release);
                self.deadline.store(deadline_after(now), Ordering::Release);
            }
        });
    }
}

impl Drop for Ticks {
    fn drop(&mut self) {
        if let Some(timer) = self.timer.get() {
            timer.abort();
        }
    }
}

impl Freezes {
    /// Returns true if the process was frozen since the last call. The caller must check this before it processes data
    /// that it received by `now`.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        self.ticks.check(now);
        let freezes = self.ticks.freezes.load(Ordering::Acquire);
        std::mem::replace(&mut self.handled, freezes) != freezes
    }

    /// Waits until a freeze is detected. The caller may have [taken](Self::take) this freeze already.
    pub(crate) async fn detected(&mut self) {
        if self.detected.changed().await.is_err() {
            // `self` keeps the sender alive, so this error cannot occur.
            std::future::pending::<()>().await;
        }
    }
}

/// Returns the latest time of the next tick, in nanoseconds of the clock.
fn deadline_after(tick: Instant) -> u64 {
    nanos(tick + TICK_INTERVAL + MAX_TICK_DELAY)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use crate::environment::local::LocalEnvironment;

    use super::*;

    fn environment() -> SharedEnvironment {
        Arc::new(LocalEnvironment::over_tcp(1))
    }

    #[tokio::test(start_paused = true)]
    async fn idle_process_is_not_frozen() {
        let (detector, environment) = (FreezeDetector::default(), environment());
        let mut freezes = detector.subscribe(&environment);
        environment.sleep_until(environment.now() + Duration::from_secs(3600)).await;
        assert!(!freezes.take(environment.now()));
        assert!(freezes.detected().now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn freeze_is_detected_before_and_after_tick() {
        let (detector, environment) = (FreezeDetector::default(), environment());
        let (mut first, mut second) = (detector.subscribe(&environment), detector.subscribe(&environment));
        environment.sleep_until(environment.now() + Duration::from_millis(1500)).await;
        // The clock advances, and no other task of this runtime runs.
        assert!(tokio::time::advance(Duration::from_secs(2)).now_or_never().is_none());
        assert!(!first.take(environment.now()), "the timer may be late on a busy machine");
        assert!(tokio::time::advance(Duration::from_secs(1)).now_or_never().is_none());
        assert!(first.take(environment.now()), "the timer has not run yet");
        assert!(!first.take(environment.now()), "a freeze is taken once");
        second.detected().await;
        assert!(second.take(environment.now()));
        environment.sleep_until(environment.now() + Duration::from_secs(60)).await;
        assert!(!first.take(environment.now()) && !second.take(environment.now()));
        let mut late = detector.subscribe(&environment);
        assert!(!late.take(environment.now()), "the freeze precedes the subscription");
    }

    #[tokio::test(start_paused = true)]
    async fn timer_ends_with_last_subscription() {
        let (detector, environment) = (FreezeDetector::default(), environment());
        let freezes = detector.subscribe(&environment);
        environment.sleep_until(environment.now() + Duration::from_secs(10)).await;
        assert_eq!(Arc::strong_count(&environment), 2, "the timer runs");
        drop(freezes);
        environment.sleep_until(environment.now() + Duration::from_millis(1)).await;
        assert_eq!(Arc::strong_count(&environment), 1);
        assert!(!detector.subscribe(&environment).take(environment.now()), "the timer starts again");
    }
}
