//! What the calls do, with whichever library: they count, and wait.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use tokio::sync::Notify;

/// From where on a millisecond more makes little difference.
const ROUGH: Duration = Duration::from_millis(10);

/// What calls have done so far.
#[derive(Default)]
pub(super) struct Work {
    wait: Duration,
    calls: AtomicU64,
    /// Whoever waits is woken at so many.
    target: AtomicU64,
    reached: Notify,
    /// When a call first had a value that somebody waits for.
    seen: Mutex<HashMap<String, Option<Instant>>>,
}

impl Work {
    pub(super) fn new(wait: Duration) -> Self {
        Self { wait, target: AtomicU64::new(u64::MAX), ..Self::default() }
    }

    /// What a call does.
    pub(super) async fn call(&self, map: &ConfigMap) {
        let value = map.data.as_ref().and_then(|data| data.get("value"));
        if let Some(value) = value.filter(|value| value.len() > 1) {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(when) = seen.get_mut(value) {
                when.get_or_insert_with(Instant::now);
            }
        }
        self.wait().await;
        if self.calls.fetch_add(1, Ordering::AcqRel) + 1 == self.target.load(Ordering::Acquire) {
            self.reached.notify_one();
        }
    }

    /// As long as a call takes. tokio's clock has whole milliseconds and rounds up, which makes one of them up to two, as no
    /// other contestant's clock does: so few are a thread's to wait for.
    async fn wait(&self) {
        let wait = self.wait;
        if wait >= ROUGH {
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

    /// Waits until there were so many calls.
    pub(super) async fn reach(&self, calls: u64) {
        self.target.store(calls, Ordering::Release);
        while self.calls() < calls {
            self.reached.notified().await;
        }
    }

    /// The value is going to be waited for.
    pub(super) fn expect(&self, value: &str) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(value.to_owned(), None);
    }

    /// When a call first had the value.
    pub(super) fn seen(&self, value: &str) -> Option<Instant> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).get(value).copied().flatten()
    }
}
