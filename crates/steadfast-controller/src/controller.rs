//! Controllers: reconcile each object until the external state matches its spec.

mod action;
mod cache_handle;
mod change_filter;
mod declared;
mod diagnostic;
mod diagnostics;
mod hot_loop;
mod lifecycle;
#[cfg(feature = "metrics")]
mod metrics;
mod primary;
mod requeue_all;
mod running;
mod source;
mod source_cache;
mod source_error;
mod stale_policy;
mod staleness_gate;
mod stall_detector;
mod start;
mod stats;
mod worker_pool;
mod write_tracker;

use std::error::Error;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt};
use kube::Resource;
use kube::core::PartialObjectMeta;
use serde::de::DeserializeOwned;
use steadfast::unstable::cause::with_causes;
use steadfast::{Cacheable, DynamicType, Informer, InformerFactory, Lookup, Object, ObjectKey};

pub use action::{Action, back_off};
use cache_handle::CacheHandle;
pub use change_filter::ChangeFilter;
use declared::{DeclaredCache, Role};
pub use diagnostic::ControllerDiagnostic;
use diagnostics::DiagnosticCallback;
#[cfg(feature = "metrics")]
pub use metrics::ControllerMetrics;
pub use running::{RunningController, StopReport};
pub use source::Source;
use source::{Attachment, SourceContext};
use source_cache::{SourceCache, name_of};
pub use source_error::SourceError;
pub use stale_policy::StalePolicy;
pub use stats::ControllerStats;
use worker_pool::{Failed, PreparedReconcile};

use crate::election::Sharding;
use crate::panics;
use crate::workqueue::{FairnessKeyFn, RateLimit, RetrySettings};

/// Default maximum number of concurrent reconciles.
const DEFAULT_CONCURRENCY: usize = 10;

/// Default timeout of one reconcile.
const DEFAULT_RECONCILE_TIMEOUT: Duration = Duration::from_secs(300);

/// Builder of a controller: its objects, further sources of keys, and settings. [`run`](Self::run) starts the
/// controller.
///
/// Works like `kube_runtime::Controller`, with these guarantees:
///
/// - **Each reconcile sees the writes of the previous reconcile** of the same key, if they went through
///   [`Connection::client`](steadfast::Connection::client).
/// - No reconcile runs while a cache has been in doubt for too long ([`StalePolicy`]).
/// - Each key backs off separately. A failing source delays no other source.
/// - A panic or a timeout fails one reconcile and affects no other key.
///
/// ```no_run
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use k8s_openapi::api::apps::v1::Deployment;
/// use k8s_openapi::api::core::v1::Pod;
/// use steadfast::{Connection, InformerFactory, Scope};
/// use steadfast_controller::{Action, Controller, back_off};
///
/// struct Context {
///     client: kube::Client,
/// }
///
/// async fn reconcile(deployment: Arc<Deployment>, context: Arc<Context>) -> Result<Action, kube::Error> {
///     // Create or update the children of `deployment`.
///     Ok(Action::await_change())
/// }
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let connection = Connection::infer().await?;
/// let informers = InformerFactory::new(&connection);
/// let context = Context { client: connection.client() };
/// let controller = Controller::<Deployment>::new(&informers, Scope::all())
///     .owns::<Pod>(Scope::all())
///     .run(reconcile, back_off, Arc::new(context))?;
///
/// tokio::signal::ctrl_c().await?;
/// controller.stop(Duration::from_secs(30)).await;
/// informers.shutdown();
/// # Ok(())
/// # }
/// ```
#[must_use = "a controller does nothing until `run` or `run_by_key` starts it"]
pub struct Controller<K: Cacheable> {
    factory: InformerFactory,
    kind: DynamicType<K>,
    source: Source<K>,
    pending_sources: Vec<PendingSource>,
    reads: Vec<Arc<dyn CacheHandle>>,
    triggers: Vec<BoxStream<'static, ObjectKey>>,
    queue: QueueSettings,
    concurrency: usize,
    timeout: Option<Duration>,
    stale_policy: StalePolicy,
    name: Option<Arc<str>>,
    on_diagnostic: Option<DiagnosticCallback>,
    start_after: Option<BoxFuture<'static, ()>>,
    sharding: Option<Sharding>,
}

/// Settings of the workqueue.
struct QueueSettings {
    retries: RetrySettings,
    limit: Option<RateLimit>,
    group: Option<FairnessKeyFn<ObjectKey>>,
}

/// An additional source, attached when the controller starts.
type PendingSource = Box<dyn FnOnce(&SourceContext) -> Result<AttachedSource, SourceError> + Send>;

/// An attached source.
struct AttachedSource {
    caches: Vec<DeclaredCache>,
    attachment: Arc<dyn Attachment>,
}

/// Error that prevents the start of a controller.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A source cannot be opened.
    #[error("cannot start the controller: {0}")]
    Source(#[from] SourceError),
    /// No tokio runtime is current.
    #[error("no async runtime is current: start controllers within a tokio runtime, which runs their reconciles")]
    NoRuntime,
    /// A setting is invalid.
    #[error("cannot start the controller: {0}")]
    Setting(&'static str),
}

impl<K: Cacheable> Controller<K> {
    /// Builds a controller of the objects in `source`: a [`Scope`](steadfast::Scope), an [`Informer`], or a [`Source`]
    /// with settings, for example for several [namespaces](Source::namespaces).
    ///
    /// The caches belong to `factory`. Other users of the factory share them.
    pub fn new(factory: &InformerFactory, source: impl Into<Source<K>>) -> Self
    where
        DynamicType<K>: Default,
    {
        Self::new_with(factory, DynamicType::<K>::default(), source)
    }

    /// Builds a controller of a type whose kind is known only at run time, such as `DynamicObject`.
    pub fn new_with(factory: &InformerFactory, kind: DynamicType<K>, source: impl Into<Source<K>>) -> Self {
        Self {
            factory: factory.clone(),
            kind,
            source: source.into(),
            pending_sources: Vec::new(),
            reads: Vec::new(),
            triggers: Vec::new(),
            queue: QueueSettings { retries: RetrySettings::default(), limit: Some(RateLimit::default()), group: None },
            concurrency: DEFAULT_CONCURRENCY,
            timeout: Some(DEFAULT_RECONCILE_TIMEOUT),
            stale_policy: StalePolicy::default(),
            name: None,
            on_diagnostic: None,
            start_after: None,
            sharding: None,
        }
    }

    /// Reconciles the owners of the objects in `source` when these objects change. The cache keeps only their metadata.
    ///
    /// The owners are taken from the `ownerReferences` with this controller's group and kind, in any version.
    /// Reconciles pause while this cache is in doubt for too long ([`StalePolicy`]).
    ///
    /// An owner is in the namespace of its child, or cluster-scoped. The type of this controller's objects determines
    /// which of the two applies; for a `DynamicObject`, the first object in the cache does. Until then
    /// [`run_by_key`](Self::run_by_key) enqueues both possible keys.
    ///
    /// [`run`](Self::run) returns an error if no object in `source` can have an owner among this controller's objects.
    /// This applies if the scopes are different namespaces, or if the children are cluster-scoped and the owners
    /// namespaced.
    pub fn owns<C>(mut self, source: impl Into<Source<PartialObjectMeta<C>>>) -> Self
    where
        C: Resource + 'static,
        PartialObjectMeta<C>: Cacheable<Resource: Resource> + DeserializeOwned,
    {
        let source = source.into();
        let kind = &self.kind;
        let (group, kind) = (K::Resource::group(kind).into_owned(), K::Resource::kind(kind).into_owned());
        self.pending_sources.push(Box::new(move |source_context| {
            let (source, owned) = source.open(&source_context.factory)?;
            source_context.primary.can_own(&owned)?;
            let primary = source_context.primary.clone();
            let owners = move |child: &Object<PartialObjectMeta<C>>| -> Vec<ObjectKey> {
                let namespace = child.key().namespace();
                let references = child.metadata.owner_references.as_deref().unwrap_or_default();
                let of_kind = references.iter().filter(|reference| {
                    // An owner reference carries the version, which a newer client may change. Group and kind identify
                    // the owner.
                    let own = reference.api_version.rsplit_once('/').map_or("", |(group, _)| group);
                    reference.kind == kind && own == group
                });
                of_kind.flat_map(|owner| primary.owner(namespace, &owner.name)).collect()
            };
            let attachment = source.attach(source_context, None, owners)?;
            Ok(AttachedSource { caches: DeclaredCache::declare_all(owned, Role::Owned), attachment })
        }));
        self
    }

    /// Reconciles the keys that `keys` returns for a changed object in `source`. After an update, `keys` runs for the
    /// old and the new state. `keys` runs on the runtime of the reconciles and must not block.
    ///
    /// [`run`](Self::run) ignores a key that no object of this controller can have, such as a key outside the namespace
    /// of its [`Scope`](steadfast::Scope). The first such key is logged ([`ControllerDiagnostic::OutsideScope`]).
    ///
    /// Reconciles do not pause while the cache of `source` is in doubt. If reconciles read this cache, declare the
    /// cache with [`reads`](Self::reads).
    pub fn watches<W: Cacheable, I>(
        mut self,
        source: impl Into<Source<W>>,
        keys: impl Fn(&Object<W>) -> I + Send + Sync + 'static,
    ) -> Self
    where
        I: IntoIterator<Item = ObjectKey> + 'static,
    {
        let source = source.into();
        self.pending_sources.push(Box::new(move |source_context| {
            let (source, watched) = source.open(&source_context.factory)?;
            let attachment = source.attach(source_context, source_context.scope_filter(&name_of(&watched)), keys)?;
            Ok(AttachedSource { caches: DeclaredCache::declare_all(watched, Role::Watched), attachment })
        }));
        self
    }

    /// Reconciles each key from the stream `keys`.
    pub fn triggered_by(mut self, keys: impl Stream<Item = ObjectKey> + Send + 'static) -> Self {
        self.triggers.push(keys.boxed());
        self
    }

    /// Declares that reconciles read this cache: they pause while the cache is in doubt for too long ([`StalePolicy`]).
    pub fn reads<W: Cacheable>(mut self, informer: &Informer<W>) -> Self {
        self.reads.push(Arc::new(SourceCache::new(informer.clone(), &self.factory)));
        self
    }

    /// Maximum number of concurrent reconciles; each runs for a different key. Defaults to 10. A reconcile that blocks
    /// its thread for 10 s no longer counts toward this limit. The total never exceeds twice the limit.
    pub fn concurrency(mut self, calls: usize) -> Self {
        self.concurrency = calls;
        self
    }

    /// Timeout of one reconcile. A reconcile that exceeds the timeout is cancelled and counts as failed. Defaults to 5
    /// minutes; `None` disables the timeout.
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.timeout = timeout.into();
        self
    }

    /// Backoff of a key after each failure. Defaults to 5 ms, doubling up to 1,000 s.
    pub fn retries(mut self, retries: RetrySettings) -> Self {
        self.queue.retries = retries;
        self
    }

    /// Rate limit of retries for all keys together. Defaults to 10 per second with a burst of 100; `None` disables the
    /// limit.
    pub fn retry_limit(mut self, limit: impl Into<Option<RateLimit>>) -> Self {
        self.queue.limit = limit.into();
        self
    }

    /// Groups keys for fairness: the groups take turns, so that a group with many keys does not delay the others.
    /// Defaults to one group per namespace.
    pub fn fairness_key<G: Hash>(mut self, group: impl Fn(&ObjectKey) -> G + Send + Sync + 'static) -> Self {
        let hasher = RandomState::new();
        let group = move |key: &ObjectKey| {
            let grouped = catch_unwind(AssertUnwindSafe(|| hasher.hash_one(group(key))));
            grouped.unwrap_or_else(|panic| {
                // After a panic, the key belongs to group 0. This affects fairness, but loses no key.
                drop(panics::message(panic));
                0
            })
        };
        self.queue.group = Some(Box::new(group));
        self
    }

    /// Behaviour while a cache that reconciles read is in doubt. Reconciles read the caches of the objects and of owned
    /// objects, and the [declared](Self::reads) caches. Defaults to [`StalePolicy::pause_after`] with 30 s.
    pub fn stale_policy(mut self, stale_policy: StalePolicy) -> Self {
        self.stale_policy = stale_policy;
        self
    }

    /// Delays the first reconcile until `ready` completes, for example until this process is the leader. The caches
    /// sync in the meantime. Afterwards the first reconcile waits until each cache that it reads contains all earlier
    /// writes of other processes.
    pub fn start_after(mut self, ready: impl Future<Output = ()> + Send + 'static) -> Self {
        self.start_after = Some(ready.boxed());
        self
    }

    /// Reconciles only keys that `sharding` assigns to this process. A gained key is enqueued as soon as each cache
    /// that reconciles read contains the writes of the previous owner.
    ///
    /// The controller holds a key while its reconcile runs. This hold delays a hand-over of the key until the reconcile
    /// ends, but provides no client. To act on the key, [hold](Sharding::hold) the key at the start of the reconcile as
    /// well, before reading anything. Write with the client of the returned guard. While a cache is in doubt, no
    /// controller with this `sharding` gains keys. If controllers must not delay each other, use a separate
    /// [`Sharding`] for each of them.
    pub fn sharded_by(mut self, sharding: &Sharding) -> Self {
        self.sharding = Some(sharding.clone());
        self
    }

    /// Name of the controller in log lines and metrics. Defaults to the plural of its resource.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Calls `callback` for each diagnostic in addition to logging. The callback may run on any thread, and delays the
    /// reconcile that it reports.
    pub fn on_diagnostic(mut self, callback: impl Fn(&ControllerDiagnostic) + Send + Sync + 'static) -> Self {
        self.on_diagnostic = Some(Arc::new(callback));
        self
    }

    /// Starts the controller: runs `reconcile` for each object, and again whenever the object or a source that maps to
    /// its key changes.
    ///
    /// Reconciles run on the current tokio runtime. `error_policy` returns the action after an error; [`back_off`]
    /// suffices for most controllers. Deleted objects are not reconciled: use a [`finalizer`](crate::finalizer()) or
    /// [`run_by_key`](Self::run_by_key) for cleanup.
    ///
    /// # Errors
    ///
    /// Returns an error if no runtime is current, a source cannot be opened, or a setting is invalid.
    pub fn run<F, Fut, E, P, C>(
        self,
        reconcile: F,
        error_policy: P,
        context: Arc<C>,
    ) -> Result<RunningController, RunError>
    where
        F: Fn(Arc<K>, Arc<C>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Action, E>> + Send + 'static,
        E: Error,
        P: Fn(Arc<K>, &E, Arc<C>) -> Action + Send + Sync + 'static,
        C: Send + Sync + 'static,
    {
        let work = Arc::new((reconcile, error_policy));
        self.start(false, move |caches| {
            Box::new(move |key| {
                let mut missing = PreparedReconcile::Missing;
                for cache in &caches {
                    match cache.snapshot().get_by_key(key) {
                        Lookup::Found(object) => {
                            let object: Arc<K> = object.into();
                            return prepare(&work, object, &context);
                        }
                        Lookup::Absent => {}
                        // The object exists but is undecodable. Unlike a missing object, this must be reported.
                        Lookup::Undecodable { .. } => missing = PreparedReconcile::Undecodable,
                    }
                }
                missing
            })
        })
    }

    /// Starts the controller: runs `reconcile` for each key, including keys of deleted and undecodable objects.
    /// `reconcile` looks the object up itself.
    ///
    /// Otherwise works like [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// Returns an error if no runtime is current, a source cannot be opened, or a setting is invalid.
    pub fn run_by_key<F, Fut, E, P, C>(
        self,
        reconcile: F,
        error_policy: P,
        context: Arc<C>,
    ) -> Result<RunningController, RunError>
    where
        F: Fn(ObjectKey, Arc<C>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Action, E>> + Send + 'static,
        E: Error,
        P: Fn(ObjectKey, &E, Arc<C>) -> Action + Send + Sync + 'static,
        C: Send + Sync + 'static,
    {
        let work = Arc::new((reconcile, error_policy));
        self.start(true, move |_| Box::new(move |key| prepare(&work, key.clone(), &context)))
    }
}

/// Returns the reconcile for `subject` as a future. It calls the first function of `work`, and the second if the first
/// returns an error.
fn prepare<F, Fut, E, P, S, C>(work: &Arc<(F, P)>, subject: S, context: &Arc<C>) -> PreparedReconcile
where
    F: Fn(S, Arc<C>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Action, E>> + Send + 'static,
    E: Error,
    P: Fn(S, &E, Arc<C>) -> Action + Send + Sync + 'static,
    S: Clone + Send + 'static,
    C: Send + Sync + 'static,
{
    let (work, context) = (work.clone(), context.clone());
    PreparedReconcile::Reconcile(Box::pin(async move {
        let (reconcile, error_policy) = &*work;
        reconcile(subject.clone(), context.clone()).await.map_err(|error| {
            let action = error_policy(subject, &error, context);
            Failed { error: with_causes(&error), action }
        })
    }))
}

impl<K: Cacheable> fmt::Debug for Controller<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("source", &self.source)
            .field("others", &self.pending_sources.len())
            .field("concurrency", &self.concurrency)
            .field("timeout", &self.timeout)
            .field("stale_policy", &self.stale_policy)
            .finish_non_exhaustive()
    }
}

debug_as_message!(RunError);
