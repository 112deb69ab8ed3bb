//! The reconciles, equal for each library: they count and wait.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use tokio::sync::Notify;

use super::writing::Writing;

/// Durations above this value are rounded to milliseconds, which has little effect on them.
const MILLISECOND_PRECISION_FROM: Duration = Duration::from_millis(10);

/// State of the reconciles so far.
#[derive(Default)]
pub struct Work {
    wait: Duration,
    calls: AtomicU64,
    /// The waiting task is woken at this number of reconciles.
    target: AtomicU64,
    reached: Notify,
    /// First time at which a reconcile saw an expected value.
    seen: Mutex<HashMap<String, Option<Instant>>>,
    pub(super) writing: Writing,
}

impl Work {
    /// Creates reconciles that wait for `wait`, and that write each object up to `times` times after the start of
    /// writing.
    pub(super) fn new(wait: Duration, times: u64) -> Self {
        Self { wait, writing: Writing::new(times), target: AtomicU64::new(u64::MAX), ..Self::default() }
    }

    /// Sets the client for reconciles that write.
    pub fn write_by(&self, client: impl FnOnce() -> kube::Client) {
        self.writing.by(client);
    }

    /// Runs one reconcile.
    ///
    /// # Errors
    ///
    /// Returns an error if the write fails.
    pub async fn call(&self, map: &ConfigMap) -> kube::Result<()> {
        let value = map.data.as_ref().and_then(|data| data.get("value"));
        // Objects start with a value of one character. Only measured changes take this lock.
        if let Some(value) = value.filter(|value| value.len() > 1) {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(when) = seen.get_mut(value) {
                when.get_or_insert_with(Instant::now);
            }
        }
        self.wait().await;
        self.writing.call(map).await?;
        // The target is compared with equality, so that exactly one reconcile wakes the waiting task.
        if self.calls.fetch_add(1, Ordering::AcqRel) + 1 == self.target.load(Ordering::Acquire) {
            self.reached.notify_one();
        }
        Ok(())
    }

    /// Waits for the duration of a reconcile. tokio's timers have a resolution of one millisecond and round up, which
    /// can double a millisecond. The clocks of the other libraries do not, so short waits block the thread.
    async fn wait(&self) {
        let wait = self.wait;
        if wait >= MILLISECOND_PRECISION_FROM {
            tokio::time::sleep(wait).await;
        } else if !wait.is_zero() {
            tokio::task::spawn_blocking(move || std::thread::sleep(wait))
                .await
                .expect("a thread that sleeps does not panic");
        }
    }

    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Acquire)
    }

    /// Waits until this number of reconciles has run.
    pub(super) async fn reach(&self, calls: u64) {
        self.target.store(calls, Ordering::Release);
        // The condition is checked again after each wakeup: a permit of an earlier round may still be stored.
        while self.calls() < calls {
            self.reached.notified().await;
        }
    }

    /// Registers an expected value.
    pub(super) fn expect(&self, value: &str) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(value.to_owned(), None);
    }

    /// Returns the time at which a reconcile first saw the value.
    pub(super) fn seen(&self, value: &str) -> Option<Instant> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).get(value).copied().flatten()
    }
}
