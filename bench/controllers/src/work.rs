//! The reconciles, which are equal for all libraries: they count, wait, and write on request.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::writing::Writing;

/// Minimum duration for tokio's timer, which rounds up to milliseconds. Shorter waits block a thread.
const MIN_TIMER_DURATION: Duration = Duration::from_millis(10);

/// Reconciles of a run, with their counts.
#[derive(Default)]
pub struct Work {
    wait: Duration,
    calls: AtomicU64,
    /// Number of reconciles at which the waiting task is woken.
    target: AtomicU64,
    target_reached: Notify,
    /// First time at which a reconcile saw an expected value.
    first_seen_times: Mutex<HashMap<String, Option<Instant>>>,
    pub(super) writing: Writing,
}

impl Work {
    /// Creates reconciles that wait for `wait`. Once writing has started, they write each object up to `times` times.
    pub(super) fn new(wait: Duration, times: u64) -> Self {
        Self { wait, writing: Writing::new(times), target: AtomicU64::new(u64::MAX), ..Self::default() }
    }

    /// Sets the client for reconciles that write.
    pub fn set_client(&self, client: impl FnOnce() -> kube::Client) {
        self.writing.set_client(client);
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
            let mut first_seen_times = self.first_seen_times.lock();
            if let Some(first_seen_at) = first_seen_times.get_mut(value) {
                first_seen_at.get_or_insert_with(Instant::now);
            }
        }
        self.wait().await;
        self.writing.reconcile(map).await?;
        // The target is compared with equality, so that exactly one reconcile wakes the waiting task. With weaker
        // orderings, this load and the load in `wait_for_calls` could both miss the other side's store. The wakeup
        // would then be lost.
        if self.calls.fetch_add(1, Ordering::SeqCst) + 1 == self.target.load(Ordering::SeqCst) {
            self.target_reached.notify_one();
        }
        Ok(())
    }

    /// Waits for the duration of a reconcile. tokio's timer rounds up to milliseconds, so a wait of 1 ms can take 2 ms.
    /// Go's timers do not round. Short waits therefore block a thread.
    async fn wait(&self) {
        let wait = self.wait;
        if wait >= MIN_TIMER_DURATION {
            tokio::time::sleep(wait).await;
        } else if !wait.is_zero() {
            tokio::task::spawn_blocking(move || std::thread::sleep(wait))
                .await
                .expect("a thread that sleeps does not panic");
        }
    }

    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Waits until this number of reconciles has run.
    pub(super) async fn wait_for_calls(&self, calls: u64) {
        self.target.store(calls, Ordering::SeqCst);
        // The condition is checked again after each wakeup, because the permit of an earlier round may still be
        // stored.
        while self.calls() < calls {
            self.target_reached.notified().await;
        }
    }

    /// Registers an expected value.
    pub(super) fn expect_value(&self, value: &str) {
        self.first_seen_times.lock().insert(value.to_owned(), None);
    }

    /// Returns the time at which a reconcile first saw the value.
    pub(super) fn first_seen(&self, value: &str) -> Option<Instant> {
        self.first_seen_times.lock().get(value).copied().flatten()
    }
}
