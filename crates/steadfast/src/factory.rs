//! Informer factory: one watch per resource and scope, shared by all callers.

mod checkpointed;
mod faulty;

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use steadfast_core::decode::{Cacheable, DecodeError, DecodeOptions, Decoder};
use steadfast_core::event::Event;
use steadfast_core::reflector::{Diagnostic, Reflector, ReflectorSettings};
use steadfast_core::selector::parse_selector;
use steadfast_core::store::Store;
use steadfast_core::{Freshness, ObjectKey};
use steadfast_executor::drop_contained;
use tokio::sync::{mpsc, watch};

use crate::cache_storage::RequestedStorage;
use crate::connection::Connection;
use crate::driver::{Command, Driver, Limits, ObjectDecoder, Transform};
use crate::error::{CheckpointUnsupported, InformerError, NotSynced, SyncTimeout, WaitError};
use crate::informer::{CacheId, Informer};
use crate::informer_settings::{InformerSettings, SecretsOnDisk, TransformId};
use crate::multi_namespace::MultiNamespaceInformer;
use crate::owner::{HandleGuard, InformerReference, Origin, ReleaseFn, WatchOwner};
use crate::readiness::FactoryFreshness;
use crate::resource::{Collection, DynamicType, is_cluster_scoped};
use crate::responses::OBJECT_LIMIT;
use crate::responses::RequestBuilder;
use crate::scope::Scope;
use crate::shared::{DiagnosticCallback, Shared, Undelivered};
use crate::write_waits::writes_of_event;
use crate::writes::Writes;

/// Maximum time that a cache can be in doubt before waits skip it.
const DOUBTED: Duration = Duration::from_secs(30);

/// Interval at which a wait checks the freshness of its cache.
const FRESHNESS_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Creates informers on one connection and shuts them down together. Cheap to clone.
///
/// An informer runs as long as one of its handles (informer, lister, index) or handlers exists. The factory alone keeps
/// no informer running.
///
/// ```no_run
/// # use std::time::Duration;
/// # use k8s_openapi::api::core::v1::{Node, Pod};
/// # use steadfast::{Connection, InformerFactory, Scope};
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let informers = InformerFactory::new(&Connection::infer().await?);
/// let pods = informers.informer::<Pod>(Scope::all().labels("app=web"))?;
/// // With options. Equal requests share one watch.
/// let nodes = informers.builder::<Node>(Scope::all()).audit_every(Duration::from_secs(600)).start()?;
///
/// informers.wait_for_sync(Duration::from_secs(30)).await?;
/// println!("{} pods, {} nodes; {}", pods.lister()?.len(), nodes.lister()?.len(), informers.freshness());
///
/// // Delivers the pending events before the program ends.
/// informers.shutdown_drained(Duration::from_secs(5)).await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct InformerFactory {
    inner: Arc<Inner>,
    /// Default for the parts that a requested scope does not specify.
    default_scope: Arc<Scope>,
}

struct Inner {
    connection: Connection,
    settings: ReflectorSettings,
    informers: Mutex<Informers>,
}

#[derive(Default)]
struct Informers {
    closed: bool,
    running: BTreeMap<InformerKey, Running>,
}

/// Key of a shared informer: requests with equal keys share one watch.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct InformerKey {
    collection: Collection,
    scope: Scope,
    kept: TypeId,
}

/// A running informer, with its object type erased.
struct Running {
    informer: Box<dyn Any + Send + Sync>,
    settings: InformerSettings,
    control: Arc<dyn Control>,
    /// Guard that the informer's handles own; empty after the last handle is dropped.
    handle_guard: Weak<HandleGuard>,
}

/// Operations of a factory on informers of any type.
trait Control: Send + Sync {
    fn state(&self) -> NotSynced;
    fn is_synced(&self) -> bool;
    fn wait_for_sync(&self, deadline: Duration) -> BoxFuture<'_, bool>;
    fn stop(&self);
    fn is_stopped(&self) -> bool;
    fn is_broken(&self) -> bool;
    fn is_drained(&self) -> bool;
    fn has_handlers(&self) -> bool;
    fn close_handlers(&self) -> Undelivered;
    fn origin(&self) -> &Origin;
    fn concerns(&self, writes: &Writes) -> bool;
    fn is_waited_for(&self, writes: &Writes) -> bool;
    fn changed(&self) -> watch::Receiver<u64>;
    fn cache_id(&self) -> CacheId;
    fn has_writes(&self, writes: &Writes) -> bool;
    fn wait_for_writes<'a>(&'a self, writes: &'a Writes, deadline: Duration) -> BoxFuture<'a, Result<(), WaitError>>;
}

impl<K: Cacheable> Control for Informer<K> {
    fn state(&self) -> NotSynced {
        self.not_synced()
    }

    fn is_synced(&self) -> bool {
        self.has_synced()
    }

    fn wait_for_sync(&self, deadline: Duration) -> BoxFuture<'_, bool> {
        Box::pin(async move { Informer::wait_for_sync(self, deadline).await.is_ok() })
    }

    fn stop(&self) {
        self.stop_reading();
    }

    fn is_stopped(&self) -> bool {
        self.shared().is_stopped()
    }

    fn is_broken(&self) -> bool {
        self.shared().lifetime.is_broken()
    }

    fn is_drained(&self) -> bool {
        self.shared().is_drained()
    }

    fn has_handlers(&self) -> bool {
        self.shared().has_handlers()
    }

    fn close_handlers(&self) -> Undelivered {
        self.shared().close_handlers()
    }

    fn origin(&self) -> &Origin {
        Informer::origin(self)
    }

    fn concerns(&self, writes: &Writes) -> bool {
        !self.shared().is_stopped() && writes.iter().any(|write| Informer::origin(self).concerns(write))
    }

    fn is_waited_for(&self, writes: &Writes) -> bool {
        self.concerns(writes) && is_not_doubted(&self.freshness())
    }

    fn changed(&self) -> watch::Receiver<u64> {
        Informer::changed(self)
    }

    fn cache_id(&self) -> CacheId {
        Informer::cache_id(self)
    }

    fn has_writes(&self, writes: &Writes) -> bool {
        Informer::has_writes(self, writes)
    }

    fn wait_for_writes<'a>(&'a self, writes: &'a Writes, deadline: Duration) -> BoxFuture<'a, Result<(), WaitError>> {
        Box::pin(Informer::wait_for_writes(self, writes, deadline))
    }
}

impl InformerFactory {
    /// Creates a factory on `connection` with the default settings of the contract.
    pub fn new(connection: &Connection) -> Self {
        Self::with_settings(connection, ReflectorSettings::default())
    }

    /// Creates a factory on `connection`. Its informers use `settings` unless their builder changes them.
    pub fn with_settings(connection: &Connection, settings: ReflectorSettings) -> Self {
        let inner = Inner { connection: connection.clone(), settings, informers: Mutex::default() };
        Self { inner: Arc::new(inner), default_scope: Arc::default() }
    }

    /// Returns a handle of this factory that completes requested scopes with `default`.
    ///
    /// The handle uses the namespace, the labels or the fields of `default` if the requested scope does not specify
    /// them, like client-go's `NewSharedInformerFactoryWithOptions`.
    ///
    /// Both handles share the informers, their shutdown and their freshness. A type that is known to be cluster-scoped
    /// ignores the default namespace. The default does not apply to informers that are passed to a
    /// controller, nor to those that already run.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Pod};
    /// # use steadfast::{Connection, InformerFactory, Scope};
    /// # fn example(connection: &Connection) -> Result<(), steadfast::InformerError> {
    /// let informers = InformerFactory::new(connection).with_default_scope(Scope::namespace("shop"));
    /// let pods = informers.informer::<Pod>(Scope::all().labels("app=web"))?;
    /// assert_eq!(pods.scope(), &Scope::namespace("shop").labels("app=web"));
    /// // A requested namespace takes precedence over the default.
    /// let settings = informers.informer::<ConfigMap>(Scope::namespace("infrastructure"))?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_default_scope(&self, default: Scope) -> Self {
        Self { inner: self.inner.clone(), default_scope: Arc::new(default) }
    }

    /// Completes a requested scope with the default scope.
    fn completed<K: Cacheable>(&self, scope: Scope) -> Scope {
        let is_everywhere = scope.in_namespace().is_none() && is_cluster_scoped::<K::Resource>();
        let scope = scope.or(&self.default_scope);
        if is_everywhere { scope.in_all_namespaces() } else { scope }
    }

    /// Returns the connection of this factory's informers.
    pub fn connection(&self) -> &Connection {
        &self.inner.connection
    }

    /// Returns the informer of `K` in `scope`: the running informer, or a new one if none runs.
    ///
    /// # Errors
    ///
    /// Returns an error in three cases. An informer of this scope runs with other settings. `scope` names a namespace
    /// and `K` is cluster-scoped. The factory was shut down.
    pub fn informer<K>(&self, scope: Scope) -> Result<Informer<K>, InformerError>
    where
        K: Cacheable,
        DynamicType<K>: Default,
    {
        self.builder::<K>(scope).start()
    }

    /// Returns the informer of the resource that `kind` describes in `scope`, for types that are known only at run
    /// time.
    ///
    /// # Errors
    ///
    /// Returns an error in three cases. An informer of this scope runs with other settings. `scope` names a namespace
    /// and the resource is cluster-scoped. The factory was shut down.
    pub fn informer_with<K: Cacheable>(
        &self,
        kind: &DynamicType<K>,
        scope: Scope,
    ) -> Result<Informer<K>, InformerError> {
        self.builder_with::<K>(kind, scope).start()
    }

    /// Returns one informer that combines the informers of `K` in `scopes`, each for another namespace
    /// ([`Scope::in_each`]).
    ///
    /// Other users of the factory share the informer of each namespace.
    ///
    /// # Errors
    ///
    /// Returns an error without scopes, if a scope is not limited to one namespace, or if two scopes have the same
    /// namespace. The errors of [`informer`](Self::informer) apply as well.
    pub fn multi_namespace_informer<K>(
        &self,
        scopes: impl IntoIterator<Item = Scope>,
    ) -> Result<MultiNamespaceInformer<K>, InformerError>
    where
        K: Cacheable,
        DynamicType<K>: Default,
    {
        self.multi_namespace_informer_with(&DynamicType::<K>::default(), scopes)
    }

    /// Returns one informer that combines the informers of a resource in `scopes`.
    ///
    /// `kind` describes the resource, for types that are known only at run time.
    ///
    /// # Errors
    ///
    /// Returns an error in the cases of [`multi_namespace_informer`](Self::multi_namespace_informer).
    pub fn multi_namespace_informer_with<K: Cacheable>(
        &self,
        kind: &DynamicType<K>,
        scopes: impl IntoIterator<Item = Scope>,
    ) -> Result<MultiNamespaceInformer<K>, InformerError> {
        let informers = scopes.into_iter().map(|scope| self.informer_with::<K>(kind, scope));
        MultiNamespaceInformer::new(informers.collect::<Result<Vec<_>, _>>()?)
    }

    /// Returns the informer that was requested after `stopped` ended, for the same type, resource and scope.
    ///
    /// Returns `None` while `stopped` runs, and until another caller requests such an informer. This method never
    /// starts an informer.
    pub fn successor<K: Cacheable>(&self, stopped: &Informer<K>) -> Option<Informer<K>> {
        if !stopped.shared().is_stopped() {
            return None;
        }
        let origin = stopped.origin();
        let key =
            InformerKey { collection: origin.collection.clone(), scope: origin.scope.clone(), kept: TypeId::of::<K>() };
        let mut informers = self.lock();
        let running = informers.running.get_mut(&key).filter(|running| !running.control.is_stopped())?;
        let informer = running.informer.downcast_ref::<Informer<K>>()?;
        let handle_guard = running.handle_guard.upgrade().or_else(|| informer.owner().new_handle_guard())?;
        running.handle_guard = Arc::downgrade(&handle_guard);
        Some(informer.with_handle_guard(handle_guard))
    }

    /// Returns a builder for an informer of `K` in `scope`, to change its settings.
    pub fn builder<K>(&self, scope: Scope) -> InformerBuilder<'_, K>
    where
        K: Cacheable,
        DynamicType<K>: Default,
    {
        self.builder_with::<K>(&DynamicType::<K>::default(), scope)
    }

    /// Returns a builder for an informer of the resource that `kind` describes, to change its settings.
    pub fn builder_with<K: Cacheable>(&self, kind: &DynamicType<K>, scope: Scope) -> InformerBuilder<'_, K> {
        let scope = self.completed::<K>(scope);
        InformerBuilder {
            factory: self,
            name: None,
            collection: Collection::of::<K>(kind, &scope),
            scope,
            settings: InformerSettings {
                reflector: self.inner.settings.clone(),
                managed_fields: false,
                transform: None,
                object_limit: OBJECT_LIMIT,
                protobuf: has_protobuf::<K>(),
                delta_compressed: false,
                decode_on_demand_above: None,
                checkpoint: None,
                secrets_on_disk: SecretsOnDisk::Denied,
                memory_limit: None,
            },
            transform: None,
            diagnostic_callbacks: Vec::new(),
            storage: RequestedStorage::default(),
        }
    }

    /// Waits until every informer that runs now is synced. Informers started during the wait are not included.
    ///
    /// # Errors
    ///
    /// Returns an error if `deadline` passes first, or if an informer is stopped before it is synced. The error lists
    /// each informer that is not synced, with its state and the last cause.
    pub async fn wait_for_sync(&self, deadline: Duration) -> Result<(), SyncTimeout> {
        let environment = self.inner.connection.environment().clone();
        let begun = environment.now();
        let controls = self.controls();
        // Waiting for one informer after the other is enough: all informers sync concurrently, within one deadline.
        for control in &controls {
            let left = deadline.saturating_sub(environment.now().since(begun));
            control.wait_for_sync(left).await;
        }
        let missing: Vec<NotSynced> =
            controls.iter().filter(|control| !control.is_synced()).map(|control| control.state()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(SyncTimeout { waited: environment.now().since(begun), missing })
    }

    /// Returns true if each cache of this factory contains all of `writes` that match its scope.
    ///
    /// See [`Informer::has_writes`](crate::Informer::has_writes). [`wait_for_writes`](Self::wait_for_writes) lists the
    /// caches that are not checked.
    pub fn has_writes(&self, writes: &Writes) -> bool {
        writes.is_empty()
            || self.controls().iter().all(|control| !control.is_waited_for(writes) || control.has_writes(writes))
    }

    /// Returns all writes so far, by any client, to the resources of this factory's caches.
    ///
    /// See [`Informer::written_so_far`](crate::Informer::written_so_far).
    pub fn written_so_far(&self) -> Writes {
        let mut written = Writes::default();
        for control in self.controls().iter().filter(|control| !control.is_stopped()) {
            let mut anything = Writes::default();
            // The write has no version: the server's current version at the wait covers all earlier writes.
            anything.push(Arc::new(control.origin().anything()));
            written.extend(anything);
        }
        written
    }

    /// Returns the change in `event` of `informer` as a write, if another cache of this factory does not contain the
    /// change yet. Returns no writes otherwise.
    ///
    /// Each informer has a watch of its own. A handler of one informer that reads another cache of the same resource
    /// should first wait until that cache contains the change.
    pub fn writes_missing_in_other_caches<K: Cacheable>(&self, informer: &Informer<K>, event: &Event<K>) -> Writes {
        let own = informer.origin();
        let is_other = |other: &Origin| !std::ptr::eq(own, other) && own.has_same_resource(other);
        let others: Vec<_> = {
            let informers = self.lock();
            let controls = informers.running.values().map(|running| &running.control);
            controls.filter(|control| is_other(control.origin()) && !control.is_stopped()).cloned().collect()
        };
        if others.is_empty() {
            return Writes::default();
        }
        let writes = writes_of_event(informer, event);
        if others.iter().all(|other| !other.is_waited_for(&writes) || other.has_writes(&writes)) {
            Writes::default()
        } else {
            writes
        }
    }

    /// Waits until each cache of this factory contains all of `writes` that match its scope.
    ///
    /// See [`Informer::wait_for_writes`](crate::Informer::wait_for_writes). The wait skips informers that are stopped,
    /// and caches that have been in doubt for more than 30 s. Their freshness reports that reads from them are
    /// unreliable.
    ///
    /// # Errors
    ///
    /// Returns an error if `deadline` passes first, or if a version cannot be compared. The error names the first cache
    /// that failed.
    pub async fn wait_for_writes(&self, writes: &Writes, deadline: Duration) -> Result<(), WaitError> {
        self.wait_for_writes_while(writes, deadline, |_, freshness| is_not_doubted(freshness)).await
    }

    /// Waits as [`wait_for_writes`](Self::wait_for_writes) does, for each cache while its identity and its freshness
    /// satisfy `is_awaited`.
    ///
    /// # Errors
    ///
    /// Returns an error if `deadline` passes first, or if a version cannot be compared. The error names the first cache
    /// that missed the deadline, or else the first cache with such a version.
    pub async fn wait_for_writes_while(
        &self,
        writes: &Writes,
        deadline: Duration,
        is_awaited: impl Fn(CacheId, &Freshness) -> bool + Sync,
    ) -> Result<(), WaitError> {
        let environment = self.inner.connection.environment();
        let controls = self.controls();
        // The caches are awaited concurrently, so that the deadline holds for each of them.
        let waits = controls.iter().filter(|control| control.concerns(writes)).map(|control| async {
            let mut changed = control.changed();
            let rejected = async {
                while is_awaited(control.cache_id(), &control.state().state) {
                    // The duration of a doubt grows without any change, so the freshness is also checked at intervals.
                    tokio::select! {
                        biased;
                        _ = changed.changed() => {}
                        () = environment.sleep_until(environment.now() + FRESHNESS_CHECK_INTERVAL) => {}
                    }
                }
            };
            tokio::select! {
                biased;
                () = rejected => Ok(()),
                // A stopped cache has no readers to protect, and must not fail the wait for the others.
                waited = control.wait_for_writes(writes, deadline) => match waited {
                    Err(WaitError::Stopped { .. }) => Ok(()),
                    waited => waited,
                }
            }
        });
        let errors = futures::future::join_all(waits).await.into_iter().filter_map(Result::err);
        // A missed deadline is reported first, because a retry may succeed.
        let (late, incomparable): (Vec<_>, Vec<_>) =
            errors.partition(|error| matches!(error, WaitError::Deadline { .. }));
        late.into_iter().chain(incomparable).next().map_or(Ok(()), Err)
    }

    /// Returns the freshness of this factory's caches: the worst state, the informer in that state with the cause, and
    /// the response for a readiness probe.
    pub fn freshness(&self) -> FactoryFreshness {
        let (controls, closed) = {
            let informers = self.lock();
            let controls: Vec<_> = informers.running.values().map(|running| running.control.clone()).collect();
            (controls, informers.closed)
        };
        let states = controls.iter().map(|control| control.state());
        FactoryFreshness::new(states.map(|NotSynced { resource, state }| (resource.into(), state)).collect(), closed)
    }

    /// Stops all informers immediately, also during an outage: cancels their requests and calls no handler again.
    ///
    /// Returns the events that were not delivered. The connection stays open for its other users.
    pub fn shutdown(&self) -> Undelivered {
        let controls = self.close();
        for control in &controls {
            control.stop();
        }
        sum(&controls)
    }

    /// Stops all watches, then drains the handlers' queues for at most `deadline`, then stops the handlers.
    ///
    /// Returns the events that were not delivered.
    pub async fn shutdown_drained(&self, deadline: Duration) -> Undelivered {
        let controls = self.close();
        for control in &controls {
            control.stop();
        }
        let environment = self.inner.connection.environment().clone();
        let end = environment.now() + deadline;
        while environment.now() < end && !controls.iter().all(|control| control.is_drained()) {
            environment.sleep_until(end.min(environment.now() + Duration::from_millis(5))).await;
        }
        sum(&controls)
    }

    fn close(&self) -> Vec<Arc<dyn Control>> {
        let mut informers = self.lock();
        // Both fields change under one lock, so that no informer can start in between.
        informers.closed = true;
        std::mem::take(&mut informers.running).into_values().map(|running| running.control).collect()
    }

    fn controls(&self) -> Vec<Arc<dyn Control>> {
        self.lock().running.values().map(|running| running.control.clone()).collect()
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, Informers> {
        self.inner.informers.lock()
    }
}

/// Returns true if a cache is fresh, or has been in doubt for at most 30 s.
fn is_not_doubted(freshness: &Freshness) -> bool {
    freshness.doubt().is_none_or(|doubt| doubt.elapsed <= DOUBTED)
}

/// Removes a stopped informer from the factory. The store is kept until its last reader is dropped.
///
/// An informer that ended without a call of `stop` stays registered, so that the factory's freshness reports the
/// failure.
fn forget(factory: &Weak<Inner>, key: &InformerKey, stopped: &Weak<dyn Control>) {
    remove(factory, key, stopped, |running| !running.control.is_broken());
}

/// Drops an informer after its last handle or handler was dropped, so that its watch ends.
///
/// Another handle may have been requested since the drop, so the number of handles is checked under the lock.
fn release(factory: &Weak<Inner>, key: &InformerKey, unused: &Weak<dyn Control>) {
    remove(factory, key, unused, |running| running.handle_guard.strong_count() == 0 && !running.control.has_handlers());
}

/// Removes the informer `control` from the factory if `is_over` holds. Another informer may run under its key by now.
fn remove(
    factory: &Weak<Inner>,
    key: &InformerKey,
    control: &Weak<dyn Control>,
    is_over: impl FnOnce(&Running) -> bool,
) {
    let Some(inner) = factory.upgrade() else { return };
    let removed = {
        let mut informers = inner.informers.lock();
        // A successor may be registered under this key already, so the entry is compared by identity.
        let is_it = |running: &Running| std::ptr::addr_eq(Arc::as_ptr(&running.control), control.as_ptr());
        let is_removed = informers.running.get(key).is_some_and(|running| is_it(running) && is_over(running));
        if is_removed { informers.running.remove(key) } else { None }
    };
    // After the lock: the user's values may be dropped here, and their `Drop` may call the factory.
    drop_contained(removed);
}

fn sum(controls: &[Arc<dyn Control>]) -> Undelivered {
    controls.iter().map(|control| control.close_handlers()).fold(Undelivered::default(), |sum, next| Undelivered {
        events: sum.events + next.events,
        running: sum.running + next.running,
    })
}

impl fmt::Debug for InformerFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InformerFactory({})", self.inner.connection.server())
    }
}

/// Builder of an informer and its settings.
#[must_use = "an informer exists after its start"]
pub struct InformerBuilder<'a, K> {
    factory: &'a InformerFactory,
    name: Option<Arc<str>>,
    collection: Collection,
    scope: Scope,
    settings: InformerSettings,
    transform: Option<Transform<K>>,
    diagnostic_callbacks: Vec<DiagnosticCallback>,
    storage: RequestedStorage<K>,
}

impl<K: Cacheable> InformerBuilder<'_, K> {
    /// Calls `callback` for each diagnostic, like [`Informer::on_diagnostic`], starting with the first one.
    ///
    /// A callback that is added after the start would miss the diagnostic about the checkpoint's restoration.
    pub fn on_diagnostic(mut self, callback: impl Fn(&Diagnostic) + Send + Sync + 'static) -> Self {
        self.diagnostic_callbacks.push(Arc::new(callback));
        self
    }

    /// Sets the name of the informer in log lines, messages and metrics. Without a name, they contain only the resource
    /// and the scope.
    ///
    /// The name becomes the value of the metric label `informer_name`. Requests that share an informer keep the name of
    /// the first one.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Keeps `metadata.managedFields` of the objects. By default the decoder skips them.
    pub fn keep_managed_fields(mut self) -> Self {
        self.settings.managed_fields = true;
        self
    }

    /// Transforms every object before it is cached. The function must be deterministic and must not change the object's
    /// identity.
    ///
    /// The transform delays only the changes of this informer. An object on which the transform panics is tainted.
    ///
    /// Requests with the same function share one informer. Two closures that capture values never count as the same
    /// function.
    pub fn transform<F: Fn(K) -> K + Send + Sync + 'static>(mut self, transform: F) -> Self {
        self.settings.transform = Some(TransformId::of::<F>());
        self.transform = Some(Arc::new(transform));
        self
    }

    /// Sets the page size of paged lists in objects; `None` lists all objects in one response. Defaults to 500.
    ///
    /// Paged lists are used if streamed lists are unavailable.
    pub fn page_size(mut self, size: Option<u32>) -> Self {
        self.settings.reflector.page_size = size;
        self
    }

    /// Enables or disables streamed lists, for both encodings, on servers that support them.
    ///
    /// By default the informer uses the cheapest kind of list for the server: streamed if it requests protobuf, paged
    /// if it requests JSON only.
    pub fn streamed_lists(mut self, streamed: bool) -> Self {
        self.settings.reflector.streamed_lists = Some(streamed);
        self
    }

    /// Enables or disables delta relists after `410 Expired`.
    ///
    /// A delta relist reads the metadata of all objects, and fetches in full only the objects that differ from the
    /// cache. By default delta relists are enabled only if the informer requests JSON only. A JSON list costs the
    /// server two to three times as much as a metadata list. For protobuf the saving is less than half.
    ///
    /// A delta relist needs a large cache and few expected changes. The informer falls back to a full list on any
    /// unexpected response, or if too many objects differ. The result is the same for both kinds.
    pub fn delta_relists(mut self, delta: bool) -> Self {
        self.settings.reflector.delta_relists = Some(delta);
        self
    }

    /// Sets the period: the maximum time without a proof of freshness before the informer requests one. Defaults to 60
    /// s, which is also the interval of a server's bookmarks.
    pub fn period(mut self, period: Duration) -> Self {
        self.settings.reflector.period = period;
        self
    }

    /// Sets the interval between lists for servers that deny watches, or on which watches always fail. Defaults to the
    /// [`period`](Self::period).
    ///
    /// The freshness reports this mode. Without a new list, a cache counts as fresh for at most two periods. With a
    /// longer polling interval the cache is therefore stale between the lists.
    pub fn poll_every(mut self, period: Duration) -> Self {
        self.settings.reflector.poll_every = Some(period);
        self
    }

    /// Sets the maximum period for streams with a longer bookmark interval. Defaults to the `period`.
    ///
    /// A cache can then count as fresh for up to twice this duration. Use a longer value for servers that send no
    /// bookmarks, or that send them less often.
    pub fn max_period(mut self, period: Duration) -> Self {
        self.settings.reflector.max_period = Some(period);
        self
    }

    /// Sets the interval of audits. By default there are no audits.
    ///
    /// An audit compares the cache with a list of versions. It detects and repairs changes that the server's watch
    /// lost, within `period` (R12). It costs one list of metadata in pages of 500 objects, and runs only while no other
    /// list is queued.
    pub fn audit_every(mut self, period: Duration) -> Self {
        self.settings.reflector.audit_every = Some(period);
        self
    }

    /// Sets the maximum size of an encoded object in bytes. Defaults to 16 MiB.
    pub fn object_limit(mut self, bytes: usize) -> Self {
        self.settings.object_limit = bytes;
        self
    }

    /// Sets the maximum size of the cached objects and their keys in bytes. By default there is no limit.
    ///
    /// The informer rejects a change or list that exceeds the limit. The cache stays unchanged and its freshness is
    /// [`Failed`](crate::Freshness::Failed) with the sizes. The informer then retries with one list a minute until the
    /// list fits.
    ///
    /// During a list, changed objects are in memory twice (R9). An object counts with the size of its cached form. A
    /// transformed object counts with its size before the transform. Read buffers (a few megabytes at most), indexes
    /// and handler queues are not included.
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.settings.memory_limit = Some(bytes);
        self
    }

    /// Enables or disables protobuf for objects of built-in kinds.
    ///
    /// Protobuf costs the server and the network about half as much as JSON. It is enabled by default, except for types
    /// that are known only at run time, such as `DynamicObject`. Custom resources, and resources without protobuf
    /// support on the server, use JSON. If a proxy corrupts protobuf responses, the informer changes to JSON when it
    /// detects the error.
    ///
    /// The objects are equal in both encodings, with one exception. Protobuf identifies fields by numbers. Fields added
    /// after Kubernetes 1.37 are therefore missing, also from a `DynamicObject`.
    pub fn protobuf(mut self, protobuf: bool) -> Self {
        self.settings.protobuf = protobuf;
        self
    }

    /// Enables or disables delta compression of objects that are kept encoded (`Lazy`). Disabled by default.
    ///
    /// An object is stored as its difference from a similar object, preferably from one with the same `generateName`
    /// prefix. The size falls to between a tenth and a fifth if the objects are alike, as the pods of a deployment are.
    /// Each write and each read of an object costs some microseconds more. The setting has no effect on decoded
    /// objects.
    pub fn delta_compressed(mut self, delta_compressed: bool) -> Self {
        self.settings.delta_compressed = delta_compressed;
        self
    }

    /// Caches large objects in packed form, and decodes them when a reader uses them. `min_bytes` is the minimum memory
    /// of a decoded object in bytes. Defaults to `None`: all objects are cached decoded.
    ///
    /// The packed form takes a tenth to a thirtieth of the memory of the decoded object. Each object is decoded when it
    /// arrives, so an undecodable object is detected immediately. Handlers receive the decoded object and drop it after
    /// their calls. A later reader decodes the object again, which takes about as long as on arrival: 20 to 70 µs for a
    /// pod. The same applies to the old object of an update. Decoded objects stay for readers until they are unused for
    /// 15 s, or for 60 s if they were decoded repeatedly.
    ///
    /// `Some(4096)` suits pods and other large types. With `Some(0)`, all objects are decoded on demand, also those
    /// that are larger when encoded. Otherwise, objects whose decoded form takes less than twice their encoded length
    /// are cached decoded. The setting has no effect on `Lazy` objects and on the results of a
    /// [`transform`](Self::transform).
    ///
    /// The [`Deserialize`](serde::Deserialize) implementation of the type must be deterministic. A read panics if an
    /// object does not decode again.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use steadfast::{InformerError, InformerFactory, Scope};
    /// # fn example(factory: &InformerFactory) -> Result<(), InformerError> {
    /// let pods = factory.builder::<Pod>(Scope::all()).decode_on_demand_above(Some(4096)).start()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn decode_on_demand_above(mut self, min_bytes: Option<usize>) -> Self {
        self.settings.decode_on_demand_above = min_bytes;
        self
    }

    /// Starts the informer, or returns the running one if all settings are equal.
    ///
    /// # Errors
    ///
    /// Returns an error in four cases. An informer of this scope runs with other settings. `scope` names a namespace
    /// and the resource is cluster-scoped. The checkpoint cannot hold the cache. The factory was shut down.
    pub fn start(mut self) -> Result<Informer<K>, InformerError> {
        self.check()?;
        let key =
            InformerKey { collection: self.collection.clone(), scope: self.scope.clone(), kept: TypeId::of::<K>() };
        // Held until the informer is registered: two concurrent callers must not start two watches.
        let mut informers = self.factory.lock();
        if informers.closed {
            return Err(InformerError::ShutDown);
        }
        if let Some(running) = informers.running.get_mut(&key).filter(|running| !running.control.is_stopped()) {
            let differences = running.settings.differences(&self.settings);
            if !differences.is_empty() {
                let (resource, scope) = (self.collection.name().to_owned(), format!("{:#}", self.scope));
                return Err(InformerError::Conflict { resource, scope, differences });
            }
            // Handlers can keep an informer running after its last handle was dropped. The new handle then gets a new
            // guard.
            if let Some(informer) = running.informer.downcast_ref::<Informer<K>>()
                && let Some(handle_guard) =
                    running.handle_guard.upgrade().or_else(|| informer.owner().new_handle_guard())
            {
                self.diagnostic_callbacks
                    .into_iter()
                    .for_each(|callback| informer.shared().diagnostic_callbacks.add(callback));
                running.handle_guard = Arc::downgrade(&handle_guard);
                return Ok(informer.with_handle_guard(handle_guard));
            }
        }
        self.claim()?;
        let (factory, settings) = (self.factory, self.settings.clone());
        let informer = self.launch();
        let control: Arc<dyn Control> = Arc::new(informer.clone());
        let (factory, own) = (Arc::downgrade(&factory.inner), Arc::downgrade(&control));
        let release: ReleaseFn = {
            let (factory, key, own) = (factory.clone(), key.clone(), own.clone());
            Arc::new(move || release(&factory, &key, &own))
        };
        // Weak references throughout: the informer holds this callback, and must not keep itself or the factory alive.
        drop(informer.owner().release.set(release.clone()));
        let handle_guard = Arc::new(HandleGuard::new(release));
        let handle = informer.with_handle_guard(handle_guard.clone());
        let running =
            Running { informer: Box::new(informer), settings, control, handle_guard: Arc::downgrade(&handle_guard) };
        let earlier = informers.running.insert(key.clone(), running);
        // Dropping `earlier` may drop the user's values, and their `Drop` may call the factory. The lock is released
        // first.
        drop(informers);
        drop(earlier);
        // After the registration, because the informer may have ended already. The entry is then removed immediately.
        handle.shared().at_stop(move || forget(&factory, &key, &own));
        Ok(handle)
    }

    /// Checks the settings, apart from conflicts with a running informer.
    pub(crate) fn check(&self) -> Result<(), InformerError> {
        match self.scope.in_namespace() {
            Some(namespace) if self.collection.is_cluster_scoped() => {
                let (resource, namespace) = (self.collection.name().to_owned(), namespace.to_owned());
                Err(InformerError::ClusterScoped { resource, namespace })
            }
            _ => self.check_checkpoint(),
        }
    }

    /// Returns an error if a checkpoint was requested and the cache cannot be stored in one.
    fn check_checkpoint(&self) -> Result<(), InformerError> {
        let InformerSettings { checkpoint: Some(_), transform, secrets_on_disk, .. } = &self.settings else {
            return Ok(());
        };
        let is_secret = self.collection.group().is_empty() && self.collection.plural() == "secrets";
        let reason = match transform {
            Some(_) => CheckpointUnsupported::Transformed,
            None if is_secret && *secrets_on_disk == SecretsOnDisk::Denied => CheckpointUnsupported::Secrets,
            None => return Ok(()),
        };
        Err(InformerError::Checkpoint { resource: self.collection.name().to_owned(), reason })
    }

    /// Claims the informer's partition of the checkpoint, if a checkpoint was requested.
    fn claim(&mut self) -> Result<(), InformerError> {
        let connection = &self.factory.inner.connection;
        let claimed = self.storage.claim(connection, &self.collection, &self.scope, self.settings.managed_fields);
        claimed.map_err(|reason| InformerError::Checkpoint { resource: self.collection.name().to_owned(), reason })
    }

    /// Starts an informer that is not shared through the factory.
    pub(crate) fn launch(self) -> Informer<K> {
        let connection = self.factory.inner.connection.clone();
        let environment = connection.environment().clone();
        let InformerSettings {
            reflector: mut settings,
            managed_fields,
            object_limit,
            protobuf,
            delta_compressed,
            decode_on_demand_above,
            memory_limit,
            ..
        } = self.settings;
        settings.rules.selective = self.scope.can_objects_leave();
        let rules = settings.rules;
        let mut reflector = Reflector::new(settings, environment.random());
        if let Some(until) = connection.remembers_pages(self.collection.all_namespaces_path()) {
            reflector.list_in_pages_until(until);
        }
        if let Some(until) = connection.remembers_full(self.collection.all_namespaces_path()) {
            reflector.list_in_full_until(until);
        }
        let resource = self.collection.name().to_owned();
        let described = format!("{resource} in {:#}", self.scope);
        let described = match &self.name {
            Some(name) => format!("{name} ({described})"),
            None => described,
        };
        let shared = Arc::new(Shared::new(
            described,
            self.scope.clone(),
            environment.clone(),
            Store::new(rules),
            reflector.evidence().clone(),
        ));
        self.diagnostic_callbacks.into_iter().for_each(|callback| shared.diagnostic_callbacks.add(callback));
        let origin = Origin {
            server: connection.recordings().server().clone(),
            collection: self.collection.clone(),
            selector: self.scope.label_selector().and_then(|text| parse_selector(text).ok()),
            scope: self.scope.clone(),
        };
        let request_builder =
            RequestBuilder { protobuf, ..RequestBuilder::new::<K>(connection, &self.collection, &self.scope) };
        let observed = request_builder.connection.observed();
        let labels = self.collection.labels(&self.scope, self.name.clone());
        shared.observe(observed.add(labels, Arc::downgrade(&shared) as _));
        let (commands, received) = mpsc::unbounded_channel();
        // A weak sender: cached objects hold this hook, may outlive the informer, and must not keep it running.
        let own = commands.downgrade();
        let unread = move |error: &DecodeError| {
            if let Some(commands) = own.upgrade() {
                drop(commands.send(Command::UndecodableRead(error.clone())));
            }
        };
        let (own, reports) = (commands.downgrade(), shared.decode_reports.clone());
        let report = move |key: &ObjectKey, bytes: usize| {
            if reports.add(key, bytes)
                && let Some(commands) = own.upgrade()
            {
                drop(commands.send(Command::Decoded));
            }
        };
        let options = DecodeOptions { keep_managed_fields: managed_fields };
        let decoder = Decoder::new(options).on_undecodable(Arc::new(unread));
        // `Lazy` is always encoded.
        let decoder = match decode_on_demand_above.filter(|_| K::is_costly()) {
            Some(min_bytes) => decoder.on_demand(min_bytes, Arc::new(report)),
            None if delta_compressed => decoder.delta_compressed(),
            None => decoder,
        };
        if let Some(dictionary_bytes) = decoder.dictionary_bytes() {
            drop(shared.dictionary_bytes.set(dictionary_bytes));
        }
        let limits = Limits { object: object_limit, memory: memory_limit };
        let driver = Driver::new(
            shared.clone(),
            reflector,
            request_builder,
            ObjectDecoder::new(decoder, self.transform),
            limits,
            received,
        );
        let driver = driver.with_storage(self.storage);
        environment.spawn_user_task(Box::pin(driver.run()));
        Informer::new(InformerReference::new(Arc::new(WatchOwner {
            shared,
            commands,
            origin,
            release: OnceLock::new(),
        })))
    }
}

/// Returns the default of the `protobuf` setting for `K`.
///
/// A generated type has a fixed set of fields in both encodings. A dynamic type must also contain the fields that only
/// JSON can name.
fn has_protobuf<K: Cacheable>() -> bool {
    TypeId::of::<DynamicType<K>>() == TypeId::of::<()>()
}
