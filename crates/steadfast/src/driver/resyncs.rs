//! Schedule of resyncs, with a separate period for each handler.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use steadfast_core::Instant;

use crate::subscription::Subscription;

/// Handlers with a resync period, by due time, as weak references.
pub(super) struct Resyncs<K> {
    due: BTreeMap<(Instant, u64), Periodic<K>>,
    /// Distinguishes entries with equal due times.
    count: u64,
    /// Number of entries at which removed handlers are cleaned up.
    cleanup_threshold: usize,
}

/// Handler with its period.
type Periodic<K> = (Duration, Weak<Subscription<K>>);

/// Minimum number of entries for a cleanup.
const MIN_CLEANUP_ENTRIES: usize = 64;

impl<K: Send + Sync + 'static> Resyncs<K> {
    /// Schedules a resync of `handler` for each `period` after `now`.
    pub(super) fn add(&mut self, now: Instant, period: Duration, handler: &Arc<Subscription<K>>) {
        // Amortized: the threshold doubles, so handlers that come and go cost constant time each.
        if self.due.len() >= self.cleanup_threshold {
            self.due.retain(|_, (_, handler)| handler.upgrade().is_some_and(|handler| !handler.is_closed()));
            self.cleanup_threshold = MIN_CLEANUP_ENTRIES.max(2 * self.due.len());
        }
        self.put(now + period, period, Arc::downgrade(handler));
    }

    /// Returns the next due time.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    /// Returns the handlers due at `now`, and schedules them again one period later.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Arc<Subscription<K>>> {
        let mut all = Vec::new();
        while let Some(first) = self.due.first_entry().filter(|first| first.key().0 <= now) {
            let (period, handler) = first.remove();
            if let Some(due) = handler.upgrade().filter(|due| !due.is_closed()) {
                // From `now`, not from the due time: after a suspension, missed resyncs are not repeated.
                self.put(now + period, period, handler);
                all.push(due);
            }
        }
        all
    }

    fn put(&mut self, at: Instant, period: Duration, handler: Weak<Subscription<K>>) {
        self.count += 1;
        self.due.insert((at, self.count), (period, handler));
    }
}

// Implemented manually: a derive would require `K: Default`.
impl<K> Default for Resyncs<K> {
    fn default() -> Self {
        Self { due: BTreeMap::new(), count: 0, cleanup_threshold: MIN_CLEANUP_ENTRIES }
    }
}
