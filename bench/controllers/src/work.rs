//! What the calls do, with whichever library: they count, and wait.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use tokio::sync::Notify;

use super::writing::Writing;

/// From where on a millisecond more makes little difference.
const ROUGH: Duration = Duration::from_millis(10);

/// What calls have done so far.
#[derive(Default)]
pub struct Work {
    wait: Duration,
    calls: AtomicU64,
    /// Whoever waits is woken at so many.
    target: AtomicU64,
    reached: Notify,
    /// When a call first had a value that somebody waits for.
    seen: Mutex<HashMap<String, Option<Instant>>>,
    pub(super) writing: Writing,
}

impl Work {
    /// Calls that wait for so long, and write each object so many times once that is begun.
    pub(super) fn new(wait: Duration, times: u64) -> Self {
        Self { wait, writing: Writing::new(times), target: AtomicU64::new(u64::MAX), ..Self::default() }
    }

    /// Where calls write, they do it by `client`.
    pub fn write_by(&self, client: impl FnOnce() -> kube::Client) {
        self.writing.by(client);
    }

    /// What a call does.
    ///
    /// # Errors
    ///
    /// It could not write.
    pub async fn call(&self, map: &ConfigMap) -> kube::Result<()> {
        let value = map.data.as_ref().and_then(|data| data.get("value"));
        if let Some(value) = value.filter(|value| value.len() > 1) {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(when) = seen.get_mut(value) {
                when.get_or_insert_with(Instant::now);
            }
        }
        self.wait().await;
        self.writing.call(map).await?;
        if self.calls.fetch_add(1, Ordering::AcqRel) + 1 == self.target.load(Ordering::Acquire) {
            self.reached.notify_one();
        }
        Ok(())
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
