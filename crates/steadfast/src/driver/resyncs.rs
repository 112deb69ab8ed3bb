//! When which handler is to look at all its objects again: each has a period of its own.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use steadfast_core::Instant;

use crate::runner::Runner;

/// The handlers that want to look again, by when; it keeps none of them alive.
pub(super) struct Resyncs<K> {
    due: BTreeMap<(Instant, u64), Periodic<K>>,
    /// Tells apart what is due at the same moment.
    count: u64,
    /// How many there may be before those that are gone are looked for.
    roomy: usize,
}

/// A handler and its period.
type Periodic<K> = (Duration, Weak<Runner<K>>);

/// So few are not worth looking through.
const FEW: usize = 64;

impl<K: Send + Sync + 'static> Resyncs<K> {
    /// Has `handler` look again each `period` from `now` on.
    pub(super) fn add(&mut self, now: Instant, period: Duration, handler: &Arc<Runner<K>>) {
        if self.due.len() >= self.roomy {
            self.due.retain(|_, (_, handler)| handler.upgrade().is_some_and(|handler| !handler.is_closed()));
            self.roomy = FEW.max(2 * self.due.len());
        }
        self.put(now + period, period, Arc::downgrade(handler));
    }

    /// When the next one is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    /// Those that are due at `now`, each due again a period later.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Arc<Runner<K>>> {
        let mut all = Vec::new();
        while let Some(first) = self.due.first_entry().filter(|first| first.key().0 <= now) {
            let (period, handler) = first.remove();
            if let Some(due) = handler.upgrade().filter(|due| !due.is_closed()) {
                self.put(now + period, period, handler);
                all.push(due);
            }
        }
        all
    }

    fn put(&mut self, at: Instant, period: Duration, handler: Weak<Runner<K>>) {
        self.count += 1;
        self.due.insert((at, self.count), (period, handler));
    }
}

// By hand: a derive would ask for objects with a default.
impl<K> Default for Resyncs<K> {
    fn default() -> Self {
        Self { due: BTreeMap::new(), count: 0, roomy: FEW }
    }
}
