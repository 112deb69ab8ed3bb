//! Tracker of writes that must be visible in the caches before the next reconcile of a key.
//!
//! A cache may lack writes of the previous reconcile, because the watch lags behind the response. A cache may also lack
//! the change that triggered the reconcile, because two watches of one resource progress independently. A reconcile
//! waits without a limit for the declared caches that reconciles read. If the informer of such a cache is stopped, the
//! reconcile waits until the controller continues with a successor. Any other cache of the factory delays a reconcile
//! until the cache has been in doubt for more than 30 s.
//!
//! [`StalePolicy`] may permit reconciles despite doubt: of all keys or of safe keys. Such a reconcile waits for a
//! declared cache only as for any other cache.
//!
//! Reconciles of keys that another process handled before must also see the writes of that process. When this process
//! receives such keys, the other process no longer writes to them. A version that the server returns afterwards
//! therefore includes the last writes of the other process. Only declared caches may delay these keys while in doubt,
//! because other caches may be unrelated.

mod catch_up;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use parking_lot::{Mutex, MutexGuard};
use steadfast::environment::{Instant, SharedEnvironment};
use steadfast::{InformerFactory, ObjectKey, WaitError, Writes};

use super::declared::{DeclaredCache, DelayLimit};
use super::diagnostic::ControllerDiagnostic;
use super::diagnostics::Diagnostics;
use super::lifecycle::Lifecycle;
use super::stale_policy::StalePolicy;
use super::stats::Counters;
use crate::workqueue::{Priority, Workqueue};

/// Interval between warnings that a cache still lacks a write.
const WARN_INTERVAL: Duration = Duration::from_secs(30);

/// Limit of the delay by a cache in doubt if reconciles of the key may run despite doubt. Equals the limit of the
/// factory for undeclared caches.
const DOUBT_LIMIT: Duration = Duration::from_secs(30);

/// Writes that the caches lack, by key. Cheap to clone.
#[derive(Clone)]
pub(super) struct WriteTracker(Arc<Inner>);

struct Inner {
    factory: InformerFactory,
    environment: SharedEnvironment,
    queue: Workqueue<ObjectKey>,
    diagnostics: Diagnostics,
    counters: Arc<Counters>,
    lifecycle: Lifecycle,
    /// Declared caches that reconciles read.
    read_caches: Mutex<Arc<ReadCaches>>,
    /// Declared caches, each with the limit of its delay while it lacks writes of other processes.
    declared: Mutex<Vec<(DeclaredCache, DelayLimit)>>,
    pending: Mutex<PendingByKey>,
}

/// Caches that reconciles read, and the behaviour while these caches are in doubt.
#[derive(Default)]
struct ReadCaches {
    caches: Vec<DeclaredCache>,
    stale_policy: StalePolicy,
}

/// Pending writes of all keys.
#[derive(Default)]
struct PendingByKey {
    by_key: HashMap<ObjectKey, PendingWrites>,
    /// Keys in insertion order, with number and insertion time.
    order: VecDeque<(ObjectKey, u64, Instant)>,
    next: u64,
}

/// Delay before a task waits for writes. Most writes arrive within this time, and no task is needed.
const WAIT_TASK_DELAY: Duration = Duration::from_secs(1);

/// Writes of one key that a cache lacked at the last check. A task waits for them once the key is due, or after a
/// delay.
#[derive(Default)]
struct PendingWrites {
    /// Distinguishes successive entries of one key.
    number: u64,
    /// Writes of reconciles. No reconcile runs before the caches contain them.
    own: Writes,
    /// Changes that trigger a reconcile.
    triggers: Writes,
    /// Priority and start of the wait, if a reconcile was deferred because of these writes.
    deferred: Option<(Priority, Instant)>,
    /// True if a task waits for these writes.
    has_wait_task: bool,
    /// True if the next reconcile may run although newer changes are pending. These trigger another reconcile.
    may_run: bool,
}

impl PendingWrites {
    fn all(&self) -> Writes {
        let mut all = self.own.clone();
        all.extend(self.triggers.clone());
        all
    }

    /// Removes writes that the caches contain.
    fn remove(&mut self, writes: &Writes) {
        self.own.remove(writes);
        self.triggers.remove(writes);
    }

    fn is_empty(&self) -> bool {
        self.own.is_empty() && self.triggers.is_empty()
    }
}

impl ReadCaches {
    /// Returns the limit up to which a cache that lacks writes delays a reconcile of `key`.
    fn delay_limit(&self, key: &ObjectKey) -> DelayLimit {
        if self.stale_policy.requires_writes_in_doubt(key) {
            DelayLimit::Unlimited
        } else {
            DelayLimit::Doubt(DOUBT_LIMIT)
        }
    }
}

impl WriteTracker {
    pub(super) fn new(
        factory: InformerFactory,
        queue: Workqueue<ObjectKey>,
        diagnostics: Diagnostics,
        counters: Arc<Counters>,
        lifecycle: Lifecycle,
    ) -> Self {
        let environment = factory.connection().environment().clone();
        let (read_caches, declared, pending) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self(Arc::new(Inner {
            factory,
            environment,
            queue,
            diagnostics,
            counters,
            lifecycle,
            read_caches,
            declared,
            pending,
        }))
    }

    /// Sets the caches that the controller declares.
    pub(super) fn declare(&self, caches: &[DeclaredCache], stale_policy: &StalePolicy) {
        let read_caches = caches.iter().filter(|cache| cache.role.is_read()).cloned().collect();
        *self.0.read_caches.lock() = Arc::new(ReadCaches { caches: read_caches, stale_policy: stale_policy.clone() });
        let declared = caches.iter().map(|cache| (cache.clone(), DelayLimit::of_writes(cache, stale_policy)));
        *self.0.declared.lock() = declared.collect();
    }

    /// Records the writes of a finished reconcile of `key`.
    pub(super) fn record_writes(&self, key: &ObjectKey, writes: Writes) {
        // Often the watch event arrives before the reconcile ends. Then nothing has to be tracked.
        if !writes.is_empty() && !self.0.caches_contain(key, &writes) {
            let versioned = writes.are_versioned();
            self.add_pending(key, versioned, |pending| {
                pending.own.extend(writes);
                // A new own write revokes `may_run`: a reconcile must see the writes of the previous one.
                pending.may_run = false;
            });
        }
    }

    /// Requires that the next reconcile of `key` sees `writes`, which trigger it.
    pub(super) fn require(&self, key: &ObjectKey, writes: Writes) {
        self.add_pending(key, writes.are_versioned(), |pending| pending.triggers.extend(writes));
    }

    /// Records missing writes. For `versioned` writes no task starts yet. Such writes usually arrive before the next
    /// reconcile, because the same event delivers the write and triggers the reconcile.
    fn add_pending(&self, key: &ObjectKey, versioned: bool, add: impl FnOnce(&mut PendingWrites)) {
        let now = self.0.environment.now();
        let mut all = self.0.lock();
        let pending = all.entry(key, now);
        add(pending);
        let number = pending.number;
        // Without a request, a cache cannot determine whether it contains an unversioned write. So a task must wait
        // for such writes.
        let start_wait_task = !versioned && !std::mem::replace(&mut pending.has_wait_task, true);
        // `spawn_wait_task` takes the lock again.
        drop(all);
        if start_wait_task {
            self.spawn_wait_task(key.clone(), number);
        }
    }

    /// Checks entries older than 1 s without a wait task: removes visible writes, and starts a task for the missing
    /// writes.
    ///
    /// Call this regularly.
    pub(super) fn check(&self) {
        // The check of the caches runs without the lock, because it locks the informers.
        let older_entries = self.0.lock().take_older(self.0.environment.now());
        for (key, number, writes) in older_entries {
            let are_visible = self.0.caches_contain(&key, &writes);
            // The entry may have changed in the meantime. Only the checked writes are removed.
            let start_wait_task = self.0.lock().record_check(&key, number, are_visible.then_some(&writes));
            if start_wait_task {
                self.spawn_wait_task(key, number);
            }
        }
    }

    /// Starts a task that waits for the missing writes of `key`.
    fn spawn_wait_task(&self, key: ObjectKey, number: u64) {
        let inner = self.0.clone();
        self.0.environment.spawn(Box::pin(async move {
            inner.lifecycle.clone().until_stopping(inner.wait(&key, number)).await;
        }));
    }

    /// Returns true if `key` may be reconciled: the caches contain all writes that the reconcile must see. Otherwise
    /// defers the key, and requeues it once they do, with at least `priority`.
    ///
    /// Only the worker that holds the key may call this.
    pub(super) fn admit_or_defer(&self, key: &ObjectKey, priority: Priority) -> bool {
        let writes = match self.0.lock().by_key.get_mut(key) {
            None => return true,
            // `may_run` is consumed once: the next pass checks the caches again.
            Some(pending) => (!std::mem::take(&mut pending.may_run)).then(|| pending.all()),
        };
        let Some(writes) = writes else {
            // Enqueues another reconcile, for the newer changes.
            self.0.queue.add_with_priority(key.clone(), priority);
            return true;
        };
        let are_visible = self.0.caches_contain(key, &writes);
        let mut all = self.0.lock();
        let Some(pending) = all.by_key.get_mut(key) else { return true };
        if are_visible {
            // Changes that arrived in the meantime trigger another reconcile.
            pending.remove(&writes);
            pending.deferred = None;
            if pending.is_empty() {
                all.by_key.remove(key);
            }
            return true;
        }
        // A repeated deferral keeps the first instant, so that the statistics contain the full wait.
        let deferred = pending.deferred.map_or_else(
            || {
                Counters::increment(&self.0.counters.waits);
                (priority, self.0.environment.now())
            },
            |(before, since)| (before.max(priority), since),
        );
        pending.deferred = Some(deferred);
        // At most one wait task per entry, however often the key is taken from the queue.
        if !std::mem::replace(&mut pending.has_wait_task, true) {
            let number = pending.number;
            drop(all);
            self.spawn_wait_task(key.clone(), number);
        }
        false
    }

    /// Returns the number of waiting keys.
    pub(super) fn waiting(&self) -> usize {
        self.0.lock().by_key.values().filter(|pending| pending.deferred.is_some()).count()
    }
}

impl PendingByKey {
    /// Returns the entry of `key`, and creates it if absent.
    fn entry(&mut self, key: &ObjectKey, now: Instant) -> &mut PendingWrites {
        if !self.by_key.contains_key(key) {
            // Drops completed entries first. Their number may be large.
            while self.order.front().is_some_and(|(key, number, _)| !self.needs_wait_task(key, *number)) {
                self.order.pop_front();
            }
            let number = self.next;
            self.next += 1;
            self.order.push_back((key.clone(), number, now));
            self.by_key.insert(key.clone(), PendingWrites { number, ..PendingWrites::default() });
        }
        self.by_key.get_mut(key).expect("the entry exists or was just inserted")
    }

    fn needs_wait_task(&self, key: &ObjectKey, number: u64) -> bool {
        self.by_key.get(key).is_some_and(|pending| pending.number == number && !pending.has_wait_task)
    }

    /// Takes the entries without a wait task that are older than 1 s. The caller must pass each to
    /// [`record_check`](Self::record_check).
    fn take_older(&mut self, now: Instant) -> Vec<(ObjectKey, u64, Writes)> {
        let mut older_entries = Vec::new();
        while self.order.front().is_some_and(|(_, _, at)| now.since(*at) >= WAIT_TASK_DELAY) {
            let Some((key, number, _)) = self.order.pop_front() else { break };
            if let Some(pending) = self.by_key.get(&key).filter(|_| self.needs_wait_task(&key, number)) {
                older_entries.push((key, number, pending.all()));
            }
        }
        older_entries
    }

    /// Records the check of an entry. `writes` are the checked writes if the caches contain all of them, otherwise
    /// `None`. Returns true if the caller must start a wait task.
    fn record_check(&mut self, key: &ObjectKey, number: u64, writes: Option<&Writes>) -> bool {
        if !self.needs_wait_task(key, number) {
            return false;
        }
        let Some(pending) = self.by_key.get_mut(key) else { return false };
        if let Some(writes) = writes {
            pending.remove(writes);
        }
        if pending.is_empty() {
            self.by_key.remove(key);
            return false;
        }
        pending.has_wait_task = true;
        true
    }
}

impl Inner {
    /// Returns true if the caches contain `writes`. A cache in doubt for too long is skipped if reconciles of `key` may
    /// run despite doubt.
    ///
    /// Calls user code, so the caller must not hold the lock.
    fn caches_contain(&self, key: &ObjectKey, writes: &Writes) -> bool {
        if !self.factory.has_writes(writes) {
            return false;
        }
        // These caches may belong to other factories.
        let read_caches = self.read_caches();
        let mut lacking = read_caches.caches.iter().filter(|cache| !cache.cache.has_writes(writes)).peekable();
        if lacking.peek().is_none() {
            return true;
        }
        let now = self.environment.now();
        let limit = read_caches.delay_limit(key);
        lacking.all(|cache| !limit.allows_delay(&cache.cache.freshness(), now, now))
    }

    /// Waits until the caches contain `writes`, for at most 30 s. Returns an error if a cache that reconciles read
    /// still has no running informer after this time.
    async fn wait_for_caches(&self, key: &ObjectKey, writes: &Writes) -> Result<(), WaitError> {
        let read_caches = self.read_caches();
        let (limit, now) = (read_caches.delay_limit(key), self.environment.now());
        // The waits run concurrently, because each cache may wait up to 2 s for a version of the server.
        let read = read_caches.caches.iter().map(|cache| {
            let waited = async move {
                cache.wait_for_writes(&self.environment, writes, WARN_INTERVAL, limit, now).await?;
                Ok::<_, WaitError>(())
            };
            waited.boxed()
        });
        let undeclared = self.factory.wait_for_writes(writes, WARN_INTERVAL).boxed();
        // All waits end before the result: a cache that cannot compare versions must not end the wait for another one.
        let waited = join_all(read.chain([undeclared])).await;
        let errors: Vec<WaitError> = waited.into_iter().filter_map(Result::err).collect();
        let late = errors.iter().position(is_retryable);
        errors.into_iter().nth(late.unwrap_or_default()).map_or(Ok(()), Err)
    }

    /// Waits until the caches contain all writes that a reconcile of `key` must see, and enqueues the key if a
    /// reconcile was due.
    async fn wait(&self, key: &ObjectKey, number: u64) {
        let started_at = self.environment.now();
        // A newer entry has its own task.
        let own = |pending: &&mut PendingWrites| pending.number == number;
        loop {
            let Some(writes) = self.lock().by_key.get_mut(key).filter(own).map(|pending| pending.all()) else { return };
            match self.wait_for_caches(key, &writes).await {
                Ok(()) => {}
                Err(error) if is_retryable(&error) => {
                    if self.lock().by_key.get_mut(key).filter(own).is_some_and(|pending| pending.deferred.is_some()) {
                        let (key, reason, lasting) = (key.clone(), error.to_string(), self.since(started_at));
                        self.diagnostics.report(&ControllerDiagnostic::WaitsForWrites {
                            key,
                            reason,
                            elapsed: lasting,
                        });
                    }
                    continue;
                }
                Err(error) => {
                    self.diagnostics.report(&ControllerDiagnostic::CannotCompareVersions {
                        key: key.clone(),
                        reason: error.to_string(),
                    });
                }
            }
            let mut all = self.lock();
            let Some(pending) = all.by_key.get_mut(key).filter(own) else { return };
            pending.remove(&writes);
            if !pending.own.is_empty() {
                // Another reconcile of the key ended in the meantime, and made writes. The task waits for these too.
                continue;
            }
            let (deferred, is_all) = (pending.deferred.take(), pending.is_empty());
            // More changes arrived. The reconcile runs anyway, so that a constantly changing key is not starved.
            pending.may_run = !is_all && deferred.is_some();
            // Removed under the lock, so that no writes are added to a removed entry.
            if is_all {
                all.by_key.remove(key);
            }
            drop(all);
            if let Some((priority, since)) = deferred {
                self.counters.record_wait(self.since(since));
                self.queue.add_with_priority(key.clone(), priority);
            }
            if is_all {
                return;
            }
        }
    }

    fn read_caches(&self) -> Arc<ReadCaches> {
        self.read_caches.lock().clone()
    }

    fn since(&self, started_at: Instant) -> Duration {
        self.environment.now().since(started_at)
    }

    fn lock(&self) -> MutexGuard<'_, PendingByKey> {
        self.pending.lock()
    }
}

/// Returns true if another wait may succeed: the cache lags behind, or its informer is stopped and may be replaced.
fn is_retryable(error: &WaitError) -> bool {
    matches!(error, WaitError::Deadline { .. } | WaitError::Stopped { .. })
}

#[cfg(test)]
mod tests {
    use steadfast::k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn at(milliseconds: u64) -> Instant {
        Instant::from_zero(Duration::from_millis(milliseconds))
    }

    fn key(number: u64) -> ObjectKey {
        ObjectKey::namespaced("default", format!("map-{number}"))
    }

    fn written() -> Writes {
        let mut map = ConfigMap::default();
        map.metadata.name = Some("a".to_owned());
        map.metadata.resource_version = Some("7".to_owned());
        let mut writes = Writes::default();
        writes.add(&map);
        writes
    }

    /// Returns missing writes of a thousand keys, inserted one per millisecond.
    fn thousand_entries() -> PendingByKey {
        let mut all = PendingByKey::default();
        for number in 0..1000 {
            all.entry(&key(number), at(number)).own.extend(written());
        }
        all
    }

    #[test]
    fn visible_writes_of_idle_keys_are_removed() {
        let mut all = thousand_entries();
        assert!(all.take_older(at(999)).is_empty(), "a reconcile may follow");
        let older_entries = all.take_older(at(1499));
        assert_eq!((older_entries.len(), all.order.len()), (500, 500));
        for (key, number, writes) in older_entries {
            assert!(!all.record_check(&key, number, Some(&writes)));
        }
        assert_eq!(all.by_key.len(), 500);
    }

    #[test]
    fn one_task_waits_for_missing_writes() {
        let mut all = thousand_entries();
        for (key, number, _) in all.take_older(at(5000)) {
            assert!(all.record_check(&key, number, None));
            assert!(!all.record_check(&key, number, None), "a task waits already");
        }
        assert_eq!((all.by_key.len(), all.order.len()), (1000, 0));
        assert!(all.take_older(at(9000)).is_empty());
    }

    #[test]
    fn timely_writes_leave_no_entries() {
        let mut all = thousand_entries();
        all.by_key.clear();
        all.entry(&key(1000), at(1000));
        assert_eq!((all.by_key.len(), all.order.len()), (1, 1));
    }

    #[test]
    fn new_entry_ignores_check_of_old() {
        let mut all = PendingByKey::default();
        all.entry(&key(0), at(0)).own.extend(written());
        let older_entries = all.take_older(at(1000));
        all.by_key.clear();
        all.entry(&key(0), at(1000)).own.extend(written());
        let [(key, number, writes)] = &older_entries[..] else { panic!("{} are old", older_entries.len()) };
        assert!(!all.record_check(key, *number, Some(writes)));
        assert_eq!((all.by_key.len(), all.order.len()), (1, 1), "the write may still arrive without a task");
    }
}
