//! Gate that pauses reconciles while a cache has been in doubt for too long.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use steadfast::environment::Instant;
use steadfast::{Freshness, ObjectKey};
use tokio::sync::watch;

use super::declared::{DeclaredCache, Role};
use super::stale_policy::{StaleBehaviour, StalePolicy};
use crate::workqueue::Priority;

/// Gate over the caches that a controller reads.
pub(super) struct StalenessGate {
    caches: Vec<DeclaredCache>,
    stale_policy: StalePolicy,
    state: Mutex<State>,
    /// Keys that the gate blocks.
    blocked: watch::Sender<BlockedKeys>,
}

/// Keys that depend on caches in doubt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum BlockedKeys {
    #[default]
    None,
    /// Keys in these namespaces, and keys of cluster-scoped objects.
    Namespaces(BTreeSet<String>),
    All,
}

impl BlockedKeys {
    fn contains(&self, key: &ObjectKey) -> bool {
        match self {
            Self::None => false,
            Self::Namespaces(namespaces) => key.namespace().is_none_or(|namespace| namespaces.contains(namespace)),
            Self::All => true,
        }
    }

    /// Adds the keys that depend on `cache`.
    fn add(&mut self, cache: &DeclaredCache) {
        match (cache.cache.namespace().filter(|_| cache.is_isolated), self) {
            (_, Self::All) => {}
            (Some(namespace), Self::Namespaces(namespaces)) => drop(namespaces.insert(namespace.to_owned())),
            (Some(namespace), blocked) => *blocked = Self::Namespaces(BTreeSet::from([namespace.to_owned()])),
            (None, blocked) => *blocked = Self::All,
        }
    }
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
    /// The gate closed. Contains the cache, the start of the doubt and its reason, and the blocked namespaces. An empty
    /// list of namespaces means that all keys are blocked.
    Closed(String, Vec<String>),
    /// The gate blocks other keys than before. Contains the deferred keys that it no longer blocks.
    Narrowed(HashMap<ObjectKey, Priority>),
    /// The gate opened after it was closed for this duration. Contains the deferred keys.
    Opened(Duration, HashMap<ObjectKey, Priority>),
}

impl StalenessGate {
    pub(super) fn new(caches: Vec<DeclaredCache>, stale_policy: StalePolicy) -> Self {
        Self { caches, stale_policy, state: Mutex::default(), blocked: watch::Sender::default() }
    }

    /// Checks the caches, and closes or opens the gate.
    pub(super) fn update(&self, now: Instant) -> GateChange {
        let (mut blocked, mut first_reason) = (BlockedKeys::None, None);
        if !self.stale_policy.never_pauses() {
            for cache in &self.caches {
                let Some(reason) = self.doubt(cache) else { continue };
                blocked.add(cache);
                first_reason.get_or_insert(reason);
            }
        }
        // The common case takes no lock.
        if blocked == *self.blocked.borrow() {
            return GateChange::Unchanged;
        }
        let mut state = self.lock();
        // Replaced under the lock, so that no concurrent `defer` adds a key that is no longer blocked.
        self.blocked.send_replace(blocked.clone());
        match (first_reason, state.closed_since) {
            (Some(reason), None) => {
                state.closed_since = Some(now);
                let namespaces = match blocked {
                    BlockedKeys::Namespaces(namespaces) => namespaces.into_iter().collect(),
                    BlockedKeys::None | BlockedKeys::All => Vec::new(),
                };
                GateChange::Closed(reason, namespaces)
            }
            (None, Some(since)) => {
                state.closed_since = None;
                GateChange::Opened(now.since(since), std::mem::take(&mut state.deferred_keys))
            }
            (Some(_), Some(_)) => {
                let deferred_keys = std::mem::take(&mut state.deferred_keys);
                let (still_blocked, unblocked) = deferred_keys.into_iter().partition(|(key, _)| blocked.contains(key));
                state.deferred_keys = still_blocked;
                GateChange::Narrowed(unblocked)
            }
            (None, None) => GateChange::Unchanged,
        }
    }

    /// Returns the reason if the cache is in doubt for too long, or may lack writes of other processes.
    fn doubt(&self, DeclaredCache { cache, role, is_isolated, overdue }: &DeclaredCache) -> Option<String> {
        let freshness = cache.freshness();
        // A cache may be fresh again and still lag behind the writes of a previous leader.
        if overdue.is_pending() {
            return Some(format!("{} may lack writes of another process: {freshness}", cache.name()));
        }
        let lasting = freshness.doubt()?.elapsed;
        let is_rejected = matches!(freshness, Freshness::Failed(_)) && role.may_be_rejected();
        // A synced cache serves old but complete data. Doubt up to the bound is accepted.
        let is_doubted = if cache.is_synced() {
            lasting > self.stale_policy.bound
        } else if *is_isolated {
            // The start did not wait for this cache, so the keys of its namespace wait instead.
            !is_rejected
        } else {
            // Reconciles may run before the cache is synced, but only until its doubt reaches the bound.
            !self.stale_policy.pauses_all() && !is_rejected && lasting >= self.stale_policy.bound
        };
        is_doubted.then(|| format!("{}: {freshness}", cache.name()))
    }

    /// Returns true if the gate was closed at the last check.
    pub(super) fn is_closed(&self) -> bool {
        *self.blocked.borrow() != BlockedKeys::None
    }

    /// Returns true if `key` may be reconciled now. Other keys must be deferred or requeued.
    pub(super) fn admits(&self, key: &ObjectKey) -> bool {
        match &self.stale_policy.behaviour {
            _ if !self.blocked.borrow().contains(key) => true,
            StaleBehaviour::NeverPause => true,
            StaleBehaviour::Pause => false,
            StaleBehaviour::PauseExcept(safe) => safe(key),
        }
    }

    /// Returns true if the gate blocks all keys, so that workers take no key.
    pub(super) fn blocks_all(&self) -> bool {
        self.stale_policy.pauses_all() && *self.blocked.borrow() == BlockedKeys::All
    }

    /// Defers `key` until the gate no longer blocks it. Returns false without an effect if the gate does not block the
    /// key now, or if workers take no key.
    pub(super) fn defer(&self, key: &ObjectKey, priority: Priority) -> bool {
        let mut state = self.lock();
        // Read under the lock: the gate may have opened since the caller checked `admits`.
        let is_deferred = !self.blocks_all() && self.blocked.borrow().contains(key);
        if is_deferred {
            let deferred_priority = state.deferred_keys.entry(key.clone()).or_insert(priority);
            // A key that is deferred twice keeps its higher priority.
            *deferred_priority = priority.max(*deferred_priority);
        }
        is_deferred
    }

    /// Returns the number of deferred keys.
    pub(super) fn deferred_count(&self) -> usize {
        self.lock().deferred_keys.len()
    }

    /// Waits until keys may be taken.
    pub(super) async fn wait_until_open(&self) {
        if self.stale_policy.pauses_all() {
            // `self` holds the sender, so the wait cannot fail.
            drop(self.blocked.subscribe().wait_for(|blocked| *blocked != BlockedKeys::All).await);
        }
    }

    /// Continues with successors of stopped informers.
    ///
    /// Renews only caches without handlers of this controller. A source renews its own caches when it attaches its
    /// handlers again.
    pub(super) fn renew(&self) {
        for cache in self.caches.iter().filter(|cache| cache.role == Role::Read) {
            cache.cache.renew(self.requires_fresh_successors());
        }
    }

    /// Returns true if the controller continues only with fresh successors of stopped informers. Without pauses, any
    /// synced successor is better than a stopped informer.
    pub(super) fn requires_fresh_successors(&self) -> bool {
        !self.stale_policy.never_pauses()
    }

    /// Returns receivers that are notified when a cache changes.
    pub(super) fn changes(&self) -> Vec<watch::Receiver<u64>> {
        self.caches.iter().map(|cache| cache.cache.changed()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}
