//! Whether a call gives its thread back.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use steadfast::ObjectKey;
use steadfast::environment::{Instant, SharedEnvironment};

/// A call that keeps its thread for longer is told of.
const TOLD: Duration = Duration::from_secs(1);

/// The place of one that makes calls, one after the other.
pub(super) struct Pulse {
    environment: SharedEnvironment,
    /// When the call was last given the thread, in nanoseconds of the environment's clock and one; zero while it does not have it.
    polled: AtomicU64,
    /// For what it is called, and whether it was told that it keeps its thread.
    call: Mutex<Option<(ObjectKey, bool)>>,
    /// Whether another one does its work.
    replaced: AtomicBool,
}

impl Pulse {
    pub(super) fn new(environment: SharedEnvironment) -> Self {
        Self { environment, polled: AtomicU64::new(0), call: Mutex::default(), replaced: AtomicBool::new(false) }
    }

    /// What comes of `work`, which is done for `key`.
    pub(super) async fn beat<T>(&self, key: &ObjectKey, work: impl Future<Output = T>) -> T {
        *self.lock() = Some((key.clone(), false));
        let mut work = pin!(work);
        let done = poll_fn(|context| {
            let _turn = Turn::begin(self);
            work.as_mut().poll(context)
        });
        let done = done.await;
        *self.lock() = None;
        done
    }

    /// For what, and for how long the call keeps its thread, if that is too long; and whether that is news.
    pub(super) fn blocked(&self, now: Instant) -> Option<(ObjectKey, Duration, bool)> {
        let polled = self.polled.load(Ordering::Acquire).checked_sub(1)?;
        let lasting = now.since_zero().saturating_sub(Duration::from_nanos(polled));
        if lasting < TOLD {
            return None;
        }
        let mut call = self.lock();
        let (key, told) = call.as_mut()?;
        let is_news = !std::mem::replace(told, true);
        Some((key.clone(), lasting, is_news))
    }

    /// Another one does its work, if it is not so yet; returns whether it was not.
    pub(super) fn replace(&self) -> bool {
        !self.replaced.swap(true, Ordering::AcqRel)
    }

    /// Whether another one does its work.
    pub(super) fn is_replaced(&self) -> bool {
        self.replaced.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, Option<(ObjectKey, bool)>> {
        self.call.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// That the call has the thread, also where it panics.
struct Turn<'a>(&'a Pulse);

impl<'a> Turn<'a> {
    fn begin(pulse: &'a Pulse) -> Self {
        let now = pulse.environment.now().since_zero().as_nanos();
        pulse.polled.store(u64::try_from(now).unwrap_or(u64::MAX - 1) + 1, Ordering::Release);
        Self(pulse)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.polled.store(0, Ordering::Release);
    }
}
