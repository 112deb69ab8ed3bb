//! Waits for the writes of other processes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::FutureExt;
use futures::future::join_all;
use steadfast::{CacheId, Freshness, WaitError, Writes};

use super::{Inner, WARN_INTERVAL, WriteTracker, is_retryable};
use crate::controller::cache_handle::wait_for_writes_across_stops;
use crate::controller::declared::{DeclaredCache, DelayLimit, WriteWait};
use crate::controller::diagnostic::ControllerDiagnostic;
use crate::controller::stats::Counters;

impl WriteTracker {
    /// Waits until the caches contain all writes so far, including writes of earlier owners of the keys.
    ///
    /// A declared cache that exceeds its limit no longer delays the caller. Instead, its keys stay paused until the
    /// cache contains these writes. An undeclared cache of the factory prolongs the wait only while the cache is fresh.
    pub(in crate::controller) async fn catch_up(&self) {
        let inner = &self.0;
        let started_at = inner.environment.now();
        let declared = inner.declared.lock().clone();
        // Captured once: writes after this instant are not awaited, so the wait ends even under constant load.
        let mut written = inner.factory.written_so_far();
        for (cache, _) in &declared {
            // A declared cache may belong to another factory.
            written.extend(cache.cache.written_so_far());
        }
        let _waiting = CatchingUp::start(&inner.counters);
        let mut is_incomparable = false;
        loop {
            let (written, environment) = (&written, &inner.environment);
            let own = declared.iter().map(|(cache, limit)| {
                let waited = async move {
                    let limit = *limit;
                    let waited = cache.wait_for_writes(environment, written, WARN_INTERVAL, limit, started_at).await?;
                    if waited == WriteWait::OverLimit && cache.role.is_read() && limit != DelayLimit::FreshOnly {
                        self.continue_in_background(cache, written);
                    }
                    Ok::<_, WaitError>(())
                };
                waited.boxed()
            });
            let allows_delay = |id: CacheId, freshness: &Freshness| {
                let is_declared = declared.iter().any(|(cache, _)| cache.cache.cache_id() == id);
                !is_declared && DelayLimit::FreshOnly.allows_delay(freshness, started_at, environment.now())
            };
            let undeclared_wait = inner.factory.wait_for_writes_while(written, WARN_INTERVAL, allows_delay).boxed();
            let mut late_error = None;
            for error in join_all(own.chain([undeclared_wait])).await.into_iter().filter_map(Result::err) {
                // One report per attempt suffices, even if several caches are late.
                match error {
                    error if is_retryable(&error) => late_error = late_error.or(Some(error)),
                    error if !std::mem::replace(&mut is_incomparable, true) => {
                        inner.diagnostics.report(&ControllerDiagnostic::CannotCatchUp { reason: error.to_string() });
                    }
                    _ => {}
                }
            }
            // Caches that cannot compare versions were reported above, and do not prolong the wait.
            let Some(late_error) = late_error else { break };
            let (reason, lasting) = (late_error.to_string(), inner.since(started_at));
            inner.diagnostics.report(&ControllerDiagnostic::WaitsForOtherProcess { reason, elapsed: lasting });
        }
        inner.counters.record_catch_up(inner.since(started_at));
    }

    /// Pauses the keys that depend on `cache` until the cache contains `written`, while the caller proceeds.
    fn continue_in_background(&self, cache: &DeclaredCache, written: &Writes) {
        // The task of an earlier catch-up also waits for these writes.
        if !cache.overdue.replace(written.clone()) {
            return;
        }
        let (inner, cache) = (self.0.clone(), cache.clone());
        self.0.environment.spawn(Box::pin(async move {
            inner.lifecycle.clone().until_stopping(inner.wait_for_overdue_writes(&cache)).await;
        }));
    }
}

impl Inner {
    /// Waits until `cache` contains its overdue writes.
    async fn wait_for_overdue_writes(&self, cache: &DeclaredCache) {
        let started_at = self.environment.now();
        let _waiting = CatchingUp::start(&self.counters);
        while let Some((number, written)) = cache.overdue.pending() {
            match wait_for_writes_across_stops(&*cache.cache, &self.environment, &written, WARN_INTERVAL).await {
                Ok(()) => {}
                Err(error) if is_retryable(&error) => {
                    // The diagnostic of the pause has already reported a cache in doubt.
                    if cache.cache.freshness().is_fresh() {
                        let (reason, lasting) = (error.to_string(), self.since(started_at));
                        self.diagnostics
                            .report(&ControllerDiagnostic::WaitsForOtherProcess { reason, elapsed: lasting });
                    }
                    continue;
                }
                Err(error) => {
                    self.diagnostics.report(&ControllerDiagnostic::CannotCatchUp { reason: error.to_string() });
                }
            }
            // A later catch-up may have replaced the writes during the wait. Then the task waits for the later writes.
            if cache.overdue.remove(number) {
                break;
            }
        }
        self.counters.extend_catch_up(self.since(started_at));
    }
}

/// Counts a wait for writes of other processes while this value exists.
struct CatchingUp(Arc<Counters>);

impl CatchingUp {
    fn start(counters: &Arc<Counters>) -> Self {
        counters.catching_up.fetch_add(1, Ordering::Relaxed);
        Self(counters.clone())
    }
}

impl Drop for CatchingUp {
    fn drop(&mut self) {
        self.0.catching_up.fetch_sub(1, Ordering::Relaxed);
    }
}
