//! Gate that pauses reconciles while a cache has been in doubt for too long.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use steadfast::environment::Instant;
use steadfast::{Freshness, ObjectKey};
use tokio::sync::watch;

use super::declared::{DeclaredCache, Role};
use super::when_stale::{Choice, WhenStale};
use crate::workqueue::Priority;

/// Gate over the caches that a controller reads.
pub(super) struct StalenessGate {
    caches: Vec<DeclaredCache>,
    when_stale: WhenStale,
    state: Mutex<State>,
    /// True while the gate is closed.
    closed: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    closed_since: Option<Instant>,
    deferred_keys: HashMap<ObjectKey, Priority>,
}

/// Change of the gate after a check of the caches.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum GateChange {
    /// The gate is unchanged.
    Unchanged,
    /// The gate closed. Contains the cache, the start of the doubt and its reason.
    Closed(String),
    /// The gate opened after this time. Contains the deferred keys.
    Opened(Duration, HashMap<ObjectKey, Priority>),
}

impl StalenessGate {
    pub(super) fn new(caches: Vec<DeclaredCache>, when_stale: WhenStale) -> Self {
        Self { caches, when_stale, state: Mutex::default(), closed: watch::Sender::new(false) }
    }

    /// Checks the caches, and closes or opens the gate.
    pub(super) fn update(&self, now: Instant) -> GateChange {
        let doubtful = match self.when_stale.choice {
            Choice::Act => None,
            Choice::Wait | Choice::Only(_) => self.caches.iter().find_map(|cache| self.doubt(cache)),
        };
        // The common case takes no lock.
        if doubtful.is_none() && !*self.closed.borrow() {
            return GateChange::Unchanged;
        }
        let mut state = self.lock();
        match (doubtful, state.closed_since) {
            (Some(why), None) => {
                state.closed_since = Some(now);
                self.closed.send_replace(true);
                GateChange::Closed(why)
            }
            (None, Some(since)) => {
                state.closed_since = None;
                // Under the lock, so that no concurrent `defer` adds a key after this point.
                let deferred_keys = std::mem::take(&mut state.deferred_keys);
                self.closed.send_replace(false);
                GateChange::Opened(now.since(since), deferred_keys)
            }
            _ => GateChange::Unchanged,
        }
    }

    /// Returns the reason if the cache is in doubt for too long.
    fn doubt(&self, DeclaredCache { view, role }: &DeclaredCache) -> Option<String> {
        let freshness = view.freshness();
        let lasting = freshness.doubt()?.lasting;
        let is_rejected = matches!(freshness, Freshness::Failed(_)) && role.may_be_rejected();
        // A synced cache serves old but complete data. Doubt up to the bound is accepted.
        let is_doubted = if view.is_synced() {
            lasting > self.when_stale.bound
        } else {
            // Reconciles may run before the cache is synced, but only until its doubt reaches the bound.
            !self.when_stale.waits() && !is_rejected && lasting >= self.when_stale.bound
        };
        is_doubted.then(|| format!("{}: {freshness}", view.name()))
    }

    /// Returns true if the last check closed the gate.
    pub(super) fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Returns true if `key` may be reconciled now. Other keys must be deferred or requeued.
    pub(super) fn admits(&self, key: &ObjectKey) -> bool {
        match &self.when_stale.choice {
            _ if !self.is_closed() => true,
            Choice::Act => true,
            Choice::Wait => false,
            Choice::Only(safe) => safe(key),
        }
    }

    /// Returns true if blocked keys are deferred while safe keys run. Otherwise no key is taken at all.
    pub(super) fn defers(&self) -> bool {
        matches!(self.when_stale.choice, Choice::Only(_))
    }

    /// Defers `key` until the gate opens. Returns false if the gate is already open.
    pub(super) fn defer(&self, key: &ObjectKey, priority: Priority) -> bool {
        let mut state = self.lock();
        // Read under the lock: the gate may have opened since the caller checked `admits`.
        let is_closed = state.closed_since.is_some();
        if is_closed {
            let known = state.deferred_keys.entry(key.clone()).or_insert(priority);
            // A key that is deferred twice keeps its higher priority.
            *known = priority.max(*known);
        }
        is_closed
    }

    /// Returns the number of deferred keys.
    pub(super) fn deferred_count(&self) -> usize {
        self.lock().deferred_keys.len()
    }

    /// Waits until keys may be taken.
    pub(super) async fn opened(&self) {
        if matches!(self.when_stale.choice, Choice::Wait) {
            // `self` holds the sender, so the wait cannot fail.
            drop(self.closed.subscribe().wait_for(|closed| !closed).await);
        }
    }

    /// Continues with successors of stopped informers.
    ///
    /// Renews only caches without handlers of this controller. A source renews its own caches when it attaches its
    /// handlers again.
    pub(super) fn renew(&self) {
        for cache in self.caches.iter().filter(|cache| cache.role == Role::Read) {
            cache.view.renew();
        }
    }

    /// Returns receivers that are notified when a cache changes.
    pub(super) fn changes(&self) -> Vec<watch::Receiver<u64>> {
        self.caches.iter().map(|cache| cache.view.changed()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}
