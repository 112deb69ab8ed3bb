//! Informer: one watch, its cache, and its readers and handlers.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use kube::Resource;
use steadfast_core::decode::Cacheable;
use steadfast_core::event::Event;
use steadfast_core::fault_injection::inject;
use steadfast_core::reflector::Diagnostic;
use steadfast_core::store::Snapshot;
use steadfast_core::{Freshness, Instant, ResourceVersion, Uid};
use tokio::sync::watch;

use crate::driver::Command;
use crate::error::{HandlerError, NotSynced, WaitError};
use crate::handler::{AsyncHandler, Handler};
use crate::handler_stats::HandlerStats;
use crate::lister::{Index, Lister};
use crate::memory::Memory;
use crate::owner::{HandleGuard, InformerReference, Origin};
use crate::registration::{HandlerBuilder, Registration};
use crate::scope::Scope;
use crate::shared::Shared;

/// Time that a wait lasts before the informer requests a proof of freshness. A write that does not match the selector
/// causes no event. Only a proof then shows that the cache has passed the write (C12).
pub(crate) const PROOF_DELAY: Duration = Duration::from_secs(1);

/// A cache of the objects of one resource and scope, updated by one watch and delivered to any number of handlers.
///
/// Cheap to clone. The watch ends when the informer is stopped. The watch also ends when no handle (informer, lister or
/// index) and no handler is left. After the factory was dropped, handlers alone do not keep the watch running.
///
/// ```no_run
/// # use std::time::Duration;
/// # use k8s_openapi::api::core::v1::Pod;
/// # use steadfast::{Event, InformerFactory, Scope};
/// # async fn example(informers: InformerFactory) -> Result<(), Box<dyn std::error::Error>> {
/// let pods = informers.informer::<Pod>(Scope::namespace("shop"))?;
/// pods.on_event(|event| println!("{event:?}"))?;
/// pods.wait_for_sync(Duration::from_secs(30)).await?;
///
/// let web = pods.lister()?.get("shop", "web-0")?;
/// // The freshness states whether the cache may be incomplete, since when and why.
/// println!("web-0 exists: {}; {}", web.is_some(), pods.freshness());
/// # Ok(())
/// # }
/// ```
pub struct Informer<K> {
    owner: InformerReference<K>,
}

/// Identity of the cache of an [`Informer`]. Clones of the informer share the identity. It is unique among all
/// informers that exist at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CacheId(usize);

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Self {
        Self { owner: self.owner.clone() }
    }
}

impl<K> std::fmt::Debug for Informer<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Informer({})", self.owner.shared.name)
    }
}

impl<K: Cacheable> Informer<K> {
    pub(crate) fn new(owner: InformerReference<K>) -> Self {
        Self { owner }
    }

    /// Returns a handle of this informer that counts as one of its users.
    pub(crate) fn with_handle_guard(&self, handle_guard: Arc<HandleGuard>) -> Self {
        Self { owner: self.owner.with_handle_guard(handle_guard) }
    }

    pub(crate) fn owner(&self) -> &InformerReference<K> {
        &self.owner
    }

    pub(crate) fn shared(&self) -> &Arc<Shared<K>> {
        &self.owner.shared
    }

    pub(crate) fn origin(&self) -> &Origin {
        &self.owner.origin
    }

    /// Sends `command` to the driver.
    pub(crate) fn command(&self, command: Command) {
        // A driver that has ended ignores commands.
        let _ = self.owner.commands.send(command);
    }

    /// Calls `handle` for every change, one call at a time, on a thread of its own. The callback can block.
    ///
    /// A handler that holds this informer keeps the informer running until it is stopped or the handler is removed.
    ///
    /// # Errors
    ///
    /// Returns an error if the informer was stopped.
    pub fn on_event(&self, handle: impl Fn(Event<K>) + Send + Sync + 'static) -> Result<Registration<K>, HandlerError> {
        self.handler().on_event(handle)
    }

    /// Calls `handle` for every change, one call at a time, on the current async runtime.
    ///
    /// # Errors
    ///
    /// Returns an error outside an async runtime, or if the informer was stopped.
    pub fn on_event_async<F, Fut>(&self, handle: F) -> Result<Registration<K>, HandlerError>
    where
        F: Fn(Event<K>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.handler().on_event_async(handle)
    }

    /// Adds a handler with state, or with access to [`Call`](crate::Call) data such as retries.
    ///
    /// # Errors
    ///
    /// Returns an error if the informer was stopped.
    pub fn add_handler(&self, handler: impl Handler<K>) -> Result<Registration<K>, HandlerError> {
        self.handler().add_handler(handler)
    }

    /// Adds an async handler with state, or with access to call data such as retries.
    ///
    /// # Errors
    ///
    /// Returns an error outside an async runtime, or if the informer was stopped.
    pub fn add_async_handler(&self, handler: impl AsyncHandler<K>) -> Result<Registration<K>, HandlerError> {
        self.handler().add_async_handler(handler)
    }

    /// Returns a builder for a handler with options: a filter, a resync period, delivery of each event.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # fn example(pods: &steadfast::Informer<Pod>) -> Result<(), steadfast::HandlerError> {
    /// let mine = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.as_deref() == Some("node-1"));
    /// pods.handler().filter(mine).resync(Duration::from_secs(600)).on_event(|event| println!("{event:?}"))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn handler(&self) -> HandlerBuilder<'_, K> {
        HandlerBuilder::new(&self.owner)
    }

    /// Calls `callback` for each diagnostic, such as a fault, a relist or a resume.
    ///
    /// The callback runs before readers and handlers see the resulting state. This informer waits until the callback
    /// returns; other informers do not.
    pub fn on_diagnostic(&self, callback: impl Fn(&Diagnostic) + Send + Sync + 'static) {
        self.shared().diagnostic_callbacks.add(Arc::new(callback));
    }

    /// Returns the freshness of the cache: fresh, stale or in doubt, with the time and the cause.
    pub fn freshness(&self) -> Freshness {
        self.shared().freshness()
    }

    /// Returns true once the first complete list is in the cache. From then on, the result stays true.
    ///
    /// For the current state of the cache see [`freshness`](Self::freshness).
    pub fn has_synced(&self) -> bool {
        self.shared().is_synced()
    }

    /// Returns a reader of the cache.
    ///
    /// # Errors
    ///
    /// Returns an error before the first complete list. A missing object therefore never means an incomplete cache.
    pub fn lister(&self) -> Result<Lister<K>, NotSynced> {
        if self.has_synced() { Ok(Lister::new(self.owner.clone())) } else { Err(self.not_synced()) }
    }

    pub(crate) fn not_synced(&self) -> NotSynced {
        NotSynced { resource: self.name().into(), state: self.freshness() }
    }

    /// Adds an index by the values that `extract` returns for an object. The index is filled before this call returns.
    ///
    /// `extract` must be deterministic. If it panics, the object has no further values. The function can be slow, and
    /// can call this informer. A slow function delays only this informer's next changes, not readers, handlers or other
    /// informers. An index is updated as long as the informer runs, so create it once.
    pub fn index<I, V>(&self, extract: impl Fn(&K) -> V + Send + Sync + 'static) -> Index<K, I>
    where
        I: Ord + Clone + Send + Sync + 'static,
        V: IntoIterator<Item = I>,
    {
        let name: Arc<str> = self.name().into();
        let contained = move |object: &K| {
            let values = catch_panic(&name, || extract(object).into_iter());
            let name = name.clone();
            // The iterator may compute its values lazily, so each step runs under `catch_panic`.
            values.into_iter().flat_map(move |mut values| {
                let name = name.clone();
                std::iter::from_fn(move || catch_panic(&name, || values.next()).flatten())
            })
        };
        let index = self.shared().store.add_index(contained);
        Index::new(self.owner.clone(), index)
    }

    /// Returns a consistent snapshot of the cache, also before the first list.
    pub fn snapshot(&self) -> Arc<Snapshot<K>> {
        self.shared().snapshot()
    }

    /// Returns a receiver that is notified of every later change of the cache or its freshness. The caller reads the
    /// change from the cache.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.shared().changed()
    }

    /// Returns the memory used by the informer, by component. The count takes about 1 µs per 100 objects.
    pub fn memory(&self) -> Memory {
        self.owner.shared.memory()
    }

    /// Returns the statistics of each handler.
    pub fn handlers(&self) -> Vec<HandlerStats> {
        self.shared().handler_stats()
    }

    /// Returns the resource and its scope, for display.
    pub fn name(&self) -> &str {
        &self.shared().name
    }

    /// Returns the identity of the cache.
    pub fn cache_id(&self) -> CacheId {
        CacheId(Arc::as_ptr(self.shared()).addr())
    }

    /// Returns the scope of the informer.
    pub fn scope(&self) -> &Scope {
        &self.shared().scope
    }

    /// Waits until the first complete list is in the cache.
    ///
    /// # Errors
    ///
    /// Returns the state and its cause if `deadline` passes first.
    pub async fn wait_for_sync(&self, deadline: Duration) -> Result<(), NotSynced> {
        self.wait_until(deadline, |shared| shared.is_synced().then_some(())).await.map_err(|_| self.not_synced())
    }

    /// Waits for at most 30 s until the cache has reached the version of `written`. Later reads see that write.
    ///
    /// If the server returns no versions in its lists, the wait ends with the next list.
    ///
    /// # Errors
    ///
    /// Returns an error after 30 s, if the informer is stopped, or if the version cannot be compared.
    pub async fn wait_for<R: Resource>(&self, written: &R) -> Result<(), WaitError> {
        let deadline = Duration::from_secs(30);
        match written.meta().resource_version.as_deref() {
            _ if is_unversioned(self.shared()) => self.wait_for_list(deadline).await,
            Some(version) => self.wait_for_version(&ResourceVersion::from(version), deadline).await,
            None => Err(WaitError::NoVersion),
        }
    }

    /// Waits for a list that was requested after this call, so that it contains all earlier writes.
    pub(crate) async fn wait_for_list(&self, deadline: Duration) -> Result<(), WaitError> {
        let started_at = self.shared().environment.now();
        self.wait_with_proofs(deadline, "a new list".to_owned(), None, |shared| is_listed_since(shared, started_at))
            .await
    }

    /// Waits until the cache is at or past `version`, a version of the informer's resource.
    ///
    /// # Errors
    ///
    /// Returns an error if `deadline` passes first, if the informer is stopped, or if the version cannot be compared.
    pub async fn wait_for_version(&self, version: &ResourceVersion, deadline: Duration) -> Result<(), WaitError> {
        if is_unversioned(self.shared()) {
            return self.wait_for_list(deadline).await;
        }
        if !version.is_ordered() {
            return Err(WaitError::Opaque { version: version.to_string() });
        }
        if inject!(self.shared().faults(), EarlyWaitEnd) {
            return Ok(());
        }
        let started_at = self.shared().environment.now();
        let condition = |shared: &Shared<K>| {
            shared.snapshot().version().is_some_and(|at| is_at(at, version)) || is_listed_since(shared, started_at)
        };
        // Checked only at the start. If the server's versions turn out to be incomparable during the wait, the wait ends
        // at its deadline and reports the state.
        if self.snapshot().version().is_some_and(|at| !at.is_ordered()) {
            return Err(WaitError::Opaque { version: version.to_string() });
        }
        self.wait_with_proofs(deadline, format!("version {version}"), Some(version), condition).await
    }

    /// Waits until the cache no longer contains `object`, as read or returned by the server.
    ///
    /// An object without a UID is identified by its name. The wait then also includes later objects with this name.
    ///
    /// # Errors
    ///
    /// Returns an error if `deadline` passes first or if the informer is stopped. Also returns an error for a version
    /// that cannot be compared, if the cache does not contain the object. The object may be deleted, or not yet in the
    /// cache.
    pub async fn wait_for_deletion<R: Resource>(&self, object: &R, deadline: Duration) -> Result<(), WaitError> {
        let meta = object.meta();
        let Some(name) = &meta.name else { return Err(WaitError::NoVersion) };
        let uid = meta.uid.as_deref().filter(|uid| !uid.is_empty()).map(Uid::from);
        let version = meta.resource_version.as_deref().map(ResourceVersion::from);
        let contains_object = |snapshot: &Snapshot<K>| {
            let entry = snapshot.entry(meta.namespace.as_deref(), name);
            entry.is_some_and(|entry| uid.as_ref().is_none_or(|uid| entry.uid().is_same(uid)))
        };
        let requested_at = self.shared().environment.now();
        let initial = self.snapshot();
        let was_cached = contains_object(&initial);
        if !was_cached && !is_unversioned(self.shared()) {
            match &version {
                None => return Err(WaitError::NoVersion),
                Some(version) if !version.is_ordered() => {
                    return Err(WaitError::Opaque { version: version.to_string() });
                }
                Some(_) => {}
            }
        }
        let epoch = initial.epoch();
        drop(initial);
        let is_deleted = |shared: &Shared<K>| {
            let snapshot = shared.snapshot();
            // A cache that has not reached the object's own version does not contain the object yet. Versions of
            // another epoch cannot be compared, but the list that started the epoch is complete.
            let at = snapshot.version().zip(version.as_ref());
            let has_reached =
                was_cached || snapshot.epoch() != epoch || at.is_some_and(|(at, version)| is_at(at, version));
            (has_reached || is_listed_since(shared, requested_at)) && !contains_object(&snapshot)
        };
        let identity = uid.as_ref().map_or("without a UID", Uid::as_str);
        self.wait_with_proofs(deadline, format!("the deletion of {name} ({identity})"), None, is_deleted).await
    }

    /// Waits until `condition` returns true, and requests a proof of freshness if the wait is long. If a version is
    /// given, changes of the cache before that version do not call `condition`.
    pub(crate) async fn wait_with_proofs(
        &self,
        deadline: Duration,
        target: String,
        version: Option<&ResourceVersion>,
        condition: impl Fn(&Shared<K>) -> bool,
    ) -> Result<(), WaitError> {
        self.wait_with_proofs_after(PROOF_DELAY, deadline, target, version, condition).await
    }

    /// Waits as [`wait_with_proofs`](Self::wait_with_proofs) does, and requests the first proof after the duration
    /// `proof_delay`.
    pub(crate) async fn wait_with_proofs_after(
        &self,
        proof_delay: Duration,
        deadline: Duration,
        target: String,
        version: Option<&ResourceVersion>,
        condition: impl Fn(&Shared<K>) -> bool,
    ) -> Result<(), WaitError> {
        let started_at = self.shared().environment.now();
        let mut proof_delay = proof_delay;
        loop {
            let passed = self.shared().environment.now().since(started_at);
            let step = proof_delay.min(deadline.saturating_sub(passed));
            match self.wait_from_version(version, step, |shared| condition(shared).then_some(())).await {
                Ok(()) => return Ok(()),
                Err(WaitFailure::Stopped) => {
                    return Err(WaitError::Stopped { resource: self.name().to_owned(), target });
                }
                Err(WaitFailure::Expired) => {}
            }
            let waited = self.shared().environment.now().since(started_at);
            if waited >= deadline {
                let (resource, state) = (self.name().to_owned(), self.freshness());
                return Err(WaitError::Deadline { resource, target, waited, state });
            }
            self.command(Command::SeekProof);
            proof_delay = (proof_delay * 2).min(Duration::from_secs(15));
        }
    }

    /// Waits until `condition` returns a value, and returns that value.
    pub(crate) async fn wait_until<T>(
        &self,
        deadline: Duration,
        condition: impl FnMut(&Shared<K>) -> Option<T>,
    ) -> Result<T, WaitFailure> {
        self.wait_from_version(None, deadline, condition).await
    }

    /// Waits until `condition` returns a value. Changes of the cache before `version` cause no check, unless the
    /// versions cannot be compared.
    async fn wait_from_version<T>(
        &self,
        version: Option<&ResourceVersion>,
        deadline: Duration,
        mut condition: impl FnMut(&Shared<K>) -> Option<T>,
    ) -> Result<T, WaitFailure> {
        let shared = self.shared();
        let mut changes = shared.changed();
        let mut timeout = shared.environment.sleep_until(shared.environment.now() + deadline);
        let mut is_expired = false;
        loop {
            // Subscribes before the first check, so that a change between the two is not lost.
            let awaited_version =
                version.filter(|version| !shared.snapshot().version().is_some_and(|at| is_at(at, version)));
            let version_waiter = awaited_version.and_then(|version| shared.version_waiter(version));
            // Checks once more after the deadline: the last change may have arrived at the same time.
            if let Some(found) = condition(shared) {
                return Ok(found);
            }
            if shared.is_stopped() {
                return Err(WaitFailure::Stopped);
            }
            if is_expired {
                return Err(WaitFailure::Expired);
            }
            let progress = async {
                match version_waiter {
                    Some(version_waiter) => version_waiter.await,
                    None => drop(changes.changed().await),
                }
            };
            tokio::select! {
                biased;
                () = progress => {}
                () = &mut timeout => is_expired = true,
            }
        }
    }

    /// Stops the watch. Handlers continue with their queues.
    pub(crate) fn stop_reading(&self) {
        self.shared().stop();
        self.command(Command::Stop { handlers: false });
    }

    /// Stops the watch immediately, also during an outage. Queued events of handlers are not delivered. The cache stays
    /// readable.
    pub fn stop(&self) {
        self.shared().stop();
        self.command(Command::Stop { handlers: true });
        // Closes the handlers here too: a callback of the user may block the driver.
        self.shared().close_handlers();
    }
}

/// Reason that a wait ended without a result.
pub(crate) enum WaitFailure {
    /// The informer was stopped.
    Stopped,
    /// The deadline passed.
    Expired,
}

/// Returns true if the server's lists carry no version, so that only a new list proves progress (C12).
pub(crate) fn is_unversioned<K: Cacheable>(shared: &Shared<K>) -> bool {
    shared.is_synced() && shared.snapshot().version().is_none()
}

/// Returns true if an unversioned list was completed that was requested after `then`.
fn is_listed_since<K: Cacheable>(shared: &Shared<K>, then: Instant) -> bool {
    is_unversioned(shared) && shared.evidence.load().proven.is_some_and(|proven| proven > then)
}

/// Runs the user's `extract` and catches a panic, which affects only this object.
fn catch_panic<T>(informer: &str, extract: impl FnOnce() -> T) -> Option<T> {
    let found = std::panic::catch_unwind(AssertUnwindSafe(extract));
    if found.is_err() {
        tracing::error!(%informer, "an index function panicked; the object has no further values in this index");
    }
    found.ok()
}

/// Returns true if `cached` is known to be equal to or later than `version`.
pub(crate) fn is_at(cached: &ResourceVersion, version: &ResourceVersion) -> bool {
    cached.order(version).is_some_and(std::cmp::Ordering::is_ge)
}
