//! Caches that a controller declares, and the limit up to which each cache may delay the start and reconciles.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use steadfast::environment::{Instant, SharedEnvironment};
use steadfast::{Cacheable, Freshness, WaitError, Writes};

use super::cache_handle::{CacheHandle, wait_for_writes_across_stops};
use super::source_cache::SourceCache;
use super::stale_policy::StalePolicy;

/// Duration of a watched cache's doubt after which the start no longer waits for the cache.
const WATCHED_CACHE_LIMIT: Duration = Duration::from_secs(30);

/// Maximum time that the start waits for the first list of a cache with the limit `FreshOnly` or `Isolated`. A failed
/// attempt ends this wait earlier.
const FIRST_ATTEMPT_GRACE: Duration = Duration::from_secs(1);

/// Interval between freshness checks while a cache delays the start.
const FRESHNESS_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A cache that a controller declares. Cheap to clone.
#[derive(Clone)]
pub(super) struct DeclaredCache {
    pub(super) cache: Arc<dyn CacheHandle>,
    pub(super) role: Role,
    /// True if only keys in the namespace of the cache depend on the cache.
    pub(super) is_isolated: bool,
    /// Writes of other processes that the cache may lack although the start no longer waits for them.
    pub(super) overdue: Arc<OverdueWrites>,
}

/// Writes of other processes that a cache may still lack. While they are pending, `StalenessGate` pauses the keys that
/// depend on the cache.
#[derive(Default)]
pub(super) struct OverdueWrites(Mutex<OverdueState>);

#[derive(Default)]
struct OverdueState {
    /// Number of the last wait. Distinguishes the pending writes from writes that replaced them.
    number: u64,
    pending: Option<Writes>,
}

/// Use of a declared cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The controller's own objects.
    Objects,
    /// Objects owned by the controller's objects.
    Owned,
    /// A cache that reconciles are declared to read.
    Read,
    /// A cache whose objects are only mapped to keys.
    Watched,
}

impl Role {
    /// Returns true if reconciles read the cache.
    pub(super) fn is_read(self) -> bool {
        self != Self::Watched
    }

    /// Returns true if reconciles run without the cache while the server rejects its list.
    pub(super) fn may_be_rejected(self) -> bool {
        self != Self::Read
    }
}

/// Limit of the time for which a cache may delay the start, or a reconcile that needs writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DelayLimit {
    /// No limit.
    Unlimited,
    /// Until the doubt of the cache has lasted this long.
    Doubt(Duration),
    /// A fresh cache delays the start without a limit, since it only has to catch up with writes. A cache in doubt
    /// delays the start only before its first list, for 1 s at most, and until an attempt has failed.
    FreshOnly,
    /// Like `FreshOnly` until the first list is complete, and then until the doubt of the cache has lasted this long.
    /// After the start, `StalenessGate` pauses the reconciles of the cache's namespace. Keys of other namespaces
    /// therefore need not wait.
    Isolated(Duration),
}

/// Result of a wait for writes in one cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteWait {
    /// The cache contains the writes, or will never contain them.
    Visible,
    /// The cache exceeded the limit of the wait, and may lack the writes.
    OverLimit,
}

impl DelayLimit {
    /// Returns the limit for `cache` under `stale_policy`.
    pub(super) fn of(cache: &DeclaredCache, stale_policy: &StalePolicy) -> Self {
        if cache.is_isolated {
            return if stale_policy.never_pauses() { Self::FreshOnly } else { Self::Isolated(stale_policy.bound) };
        }
        match cache.role {
            Role::Objects => Self::Unlimited,
            _ if stale_policy.never_pauses() => Self::FreshOnly,
            Role::Watched => Self::Doubt(WATCHED_CACHE_LIMIT),
            Role::Owned | Role::Read => stale_policy.safe_bound().map_or(Self::Unlimited, Self::Doubt),
        }
    }

    /// Returns the limit of the wait for writes of other processes in `cache`, which follows the sync of the caches.
    pub(super) fn of_writes(cache: &DeclaredCache, stale_policy: &StalePolicy) -> Self {
        match cache.role {
            // After its sync, the doubt of this cache counts like the doubt of the other caches.
            Role::Objects if stale_policy.never_pauses() => Self::FreshOnly,
            Role::Objects if !cache.is_isolated => stale_policy.safe_bound().map_or(Self::Unlimited, Self::Doubt),
            _ => Self::of(cache, stale_policy),
        }
    }

    /// Returns true if the cache may delay the start or the reconcile at `now`. `started_at` is the start of the wait.
    pub(super) fn allows_delay(self, freshness: &Freshness, started_at: Instant, now: Instant) -> bool {
        let Some(doubt) = freshness.doubt() else { return true };
        match self {
            Self::Unlimited => true,
            Self::Doubt(bound) => doubt.elapsed < bound,
            Self::Isolated(bound) if !matches!(freshness, Freshness::Starting(_)) => doubt.elapsed < bound,
            Self::FreshOnly | Self::Isolated(_) => {
                matches!(freshness, Freshness::Starting(_))
                    // A cache without a failed attempt may sync within milliseconds. A failed attempt or one second
                    // ends the wait.
                    && doubt.attempts == 0
                    && now.since(started_at) < FIRST_ATTEMPT_GRACE
            }
        }
    }
}

impl OverdueWrites {
    /// Returns true if the cache may lack writes.
    pub(super) fn is_pending(&self) -> bool {
        self.0.lock().pending.is_some()
    }

    /// Replaces the pending writes by `writes`, which include all earlier writes. Returns true if no writes were
    /// pending, so that the caller must start a task that waits for them.
    pub(super) fn replace(&self, writes: Writes) -> bool {
        let mut state = self.0.lock();
        state.number += 1;
        state.pending.replace(writes).is_none()
    }

    /// Returns the pending writes and their number.
    pub(super) fn pending(&self) -> Option<(u64, Writes)> {
        let state = self.0.lock();
        state.pending.clone().map(|writes| (state.number, writes))
    }

    /// Removes the pending writes unless newer writes have replaced the writes with `number`. Returns true if no writes
    /// are pending.
    pub(super) fn remove(&self, number: u64) -> bool {
        let mut state = self.0.lock();
        if state.number == number {
            state.pending = None;
        }
        state.pending.is_none()
    }
}

impl DeclaredCache {
    /// Declares `cache` with a role.
    pub(super) fn new(cache: Arc<dyn CacheHandle>, role: Role) -> Self {
        Self { cache, role, is_isolated: false, overdue: Arc::default() }
    }

    /// Declares `caches` with one role.
    pub(super) fn declare_all<K: Cacheable>(caches: Vec<SourceCache<K>>, role: Role) -> Vec<Self> {
        caches.into_iter().map(|cache| Self::new(Arc::new(cache), role)).collect()
    }

    /// Marks caches of a single namespace as isolated if the controller's own objects are in several namespaces.
    ///
    /// An owner is in the namespace of its children. So a cache of objects or children of one namespace affects only
    /// the keys of that namespace.
    pub(super) fn isolate_namespaces(caches: &mut [Self]) {
        let object_caches = caches.iter().filter(|cache| cache.role == Role::Objects);
        if object_caches.clone().count() < 2 || object_caches.clone().any(|cache| cache.cache.namespace().is_none()) {
            return;
        }
        for cache in caches.iter_mut().filter(|cache| matches!(cache.role, Role::Objects | Role::Owned)) {
            cache.is_isolated = cache.cache.namespace().is_some();
        }
    }

    /// Waits until `condition` returns true. Checks after each change of the cache, and once a second.
    pub(super) async fn wait_until(
        &self,
        environment: &SharedEnvironment,
        condition: impl Fn(&dyn CacheHandle) -> bool,
    ) {
        // Subscribe before the first check: a change between check and wait would be missed otherwise.
        let mut changes = self.cache.changed();
        while !condition(&*self.cache) {
            tokio::select! {
                biased;
                notified = changes.changed() => if notified.is_err() {
                    // The informer was replaced and dropped. Its receiver would stay ready, so a new receiver is
                    // needed.
                    changes = self.cache.changed();
                },
                // Doubt grows with time and without a notification, so the freshness is also polled.
                () = environment.sleep_until(environment.now() + FRESHNESS_CHECK_INTERVAL) => {}
            }
        }
    }

    /// Waits until the cache contains `writes`, for at most `deadline` and within `limit`. `started_at` is the start of
    /// the wait, which may have several deadlines. If reconciles read the cache, the wait continues after the stop of
    /// its informer.
    pub(super) async fn wait_for_writes(
        &self,
        environment: &SharedEnvironment,
        writes: &Writes,
        deadline: Duration,
        limit: DelayLimit,
        started_at: Instant,
    ) -> Result<WriteWait, WaitError> {
        let is_over_limit = |cache_handle: &dyn CacheHandle| {
            !limit.allows_delay(&cache_handle.freshness(), started_at, environment.now())
        };
        let writes_visible = async {
            if self.role.is_read() {
                // The doubt of a stopped informer counts toward the limit.
                return wait_for_writes_across_stops(&*self.cache, environment, writes, deadline).await;
            }
            match self.cache.wait_for_writes(writes, deadline).await {
                // Nothing to report here: other diagnostics report a stopped informer.
                Err(WaitError::Stopped { .. }) => Ok(()),
                waited => waited,
            }
        };
        if limit == DelayLimit::Unlimited {
            // Freshness checks would only cost time.
            return writes_visible.await.map(|()| WriteWait::Visible);
        }
        tokio::select! {
            biased;
            // Polled first: a cache in doubt may already contain the writes.
            waited = writes_visible => waited.map(|()| WriteWait::Visible),
            () = self.wait_until(environment, is_over_limit) => Ok(WriteWait::OverLimit),
        }
    }
}
