//! Delayed delivery for restored caches. Readers see the restored state immediately, with doubt as its freshness.
//! Handlers wait until the state is confirmed, because a call of a handler cannot be undone.

#![cfg(feature = "checkpoint")]

use std::sync::atomic::Ordering;

use steadfast_core::event::Change;
use steadfast_core::freshness::Evidence;
use steadfast_core::store::Store;

use super::{Shared, deliver, initial_objects};
use crate::subscription::Subscription;

impl<K: Send + Sync + 'static> Shared<K> {
    /// Delays all handlers until [`release`](Self::release) or the first complete list. Must be called before any
    /// handler is added.
    pub(crate) fn withhold(&self) {
        self.withheld.store(true, Ordering::Release);
    }

    /// Returns true if handlers are delayed.
    pub(crate) fn is_withheld(&self) -> bool {
        self.withheld.load(Ordering::Acquire)
    }

    /// Publishes the restored state to readers only.
    pub(crate) fn show_restored(&self, store: &mut Store<K>, evidence: &Evidence) {
        store.publish();
        self.publish_state(evidence);
        self.synced.store(true, Ordering::Release);
    }

    /// Sends all handlers their initial objects and starts the delivery. Only the driver may call this, because no
    /// publication may happen concurrently.
    pub(crate) fn release(&self) {
        let all: Vec<Change<K>> = initial_objects(&self.snapshot()).collect();
        let filtered_changes = self.filtered_changes(&all, true);
        let mut handlers = self.handlers.lock();
        self.withheld.store(false, Ordering::Release);
        let receivers = deliver(&mut handlers, &all, filtered_changes, true);
        self.durable_handlers.open(|| all.iter().cloned());
        drop(handlers);
        receivers.iter().for_each(Subscription::start);
        self.durable_handlers.start();
    }
}
