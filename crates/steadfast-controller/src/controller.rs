//! A controller: what is called for each object, again and again, until the world is as the object says.

mod action;
mod all;
mod changes;
mod crew;
mod declared;
mod diagnostic;
mod diagnostics;
mod figures;
mod gate;
#[cfg(feature = "metrics")]
mod metrics;
mod primary;
mod pulse;
mod running;
mod sights;
mod source;
mod source_error;
mod spins;
mod stage;
mod start;
mod view;
mod when_stale;

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
use steadfast::{DynamicType, Informer, InformerFactory, Kept, Lookup, Object, ObjectKey};

pub use action::{Action, back_off};
pub use changes::Changes;
use crew::{Call, Failed};
use declared::{Declared, Role};
pub use diagnostic::ControllerDiagnostic;
use diagnostics::Told;
pub use figures::ControllerStats;
#[cfg(feature = "metrics")]
pub use metrics::ControllerMetrics;
pub use running::{RunningController, Stopped};
pub use source::Source;
use source::{Detach, Links};
pub use source_error::SourceError;
use view::{View, name_of};
pub use when_stale::WhenStale;

use crate::election::Sharding;
use crate::panics;
use crate::workqueue::{RateLimit, RetrySettings};

/// So many calls at a time, unless something else is said.
const CONCURRENCY: usize = 10;

/// So long a call may take, unless something else is said.
const TIMEOUT: Duration = Duration::from_secs(300);

/// A controller that is about to be run: of which objects, and what else leads to them.
///
/// What `kube_runtime::Controller` does, with what a controller needs to be right, and nothing to be done for it:
///
/// - **no call sees a cache that lacks what the call before wrote** for the same key through
///   [`Connection::client`](steadfast::Connection::client);
/// - nothing is called on the word of a cache that has been in doubt for too long ([`WhenStale`]);
/// - each key backs off by itself; a source that fails delays no other;
/// - a call that panics, or takes too long, has failed, and that is all.
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
///     // Make the world as `deployment` says.
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
#[must_use = "a controller is there once it is run"]
pub struct Controller<K: Kept> {
    factory: InformerFactory,
    kind: DynamicType<K>,
    source: Source<K>,
    others: Vec<Other>,
    reads: Vec<Arc<dyn View>>,
    triggers: Vec<BoxStream<'static, ObjectKey>>,
    queue: QueueChoices,
    concurrency: usize,
    timeout: Option<Duration>,
    when_stale: WhenStale,
    name: Option<Arc<str>>,
    told: Option<Told>,
    after: Option<BoxFuture<'static, ()>>,
    shares: Option<Sharding>,
}

/// How the keys are queued.
struct QueueChoices {
    retries: RetrySettings,
    limit: Option<RateLimit>,
    group: Option<Group>,
}

type Group = Box<dyn Fn(&ObjectKey) -> u64 + Send + Sync>;

/// A source beside that of the objects themselves, about to be attached.
type Other = Box<dyn FnOnce(&Links) -> Result<Attached, SourceError> + Send>;

/// A source that is attached.
struct Attached {
    caches: Vec<Declared>,
    detach: Detach,
}

/// Why a controller does not run.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A source cannot be had.
    #[error("the controller has not been started: {0}")]
    Source(#[from] SourceError),
    /// No async runtime is current.
    #[error("no async runtime is current: run controllers from within a tokio runtime, on which they make their calls")]
    NoRuntime,
    /// A setting makes no sense.
    #[error("the controller has not been started: {0}")]
    Setting(&'static str),
}

impl<K: Kept> Controller<K> {
    /// A controller of the objects in `source`: a [`Scope`](steadfast::Scope), an [`Informer`], or a [`Source`] with choices, for
    /// example of several [namespaces](Source::namespaces).
    ///
    /// Its caches are those of `factory`, which it shares with whoever uses it.
    pub fn new(factory: &InformerFactory, source: impl Into<Source<K>>) -> Self
    where
        DynamicType<K>: Default,
    {
        Self::new_with(factory, DynamicType::<K>::default(), source)
    }

    /// The same for objects of a type that says at run time what it is.
    pub fn new_with(factory: &InformerFactory, kind: DynamicType<K>, source: impl Into<Source<K>>) -> Self {
        Self {
            factory: factory.clone(),
            kind,
            source: source.into(),
            others: Vec::new(),
            reads: Vec::new(),
            triggers: Vec::new(),
            queue: QueueChoices { retries: RetrySettings::default(), limit: Some(RateLimit::default()), group: None },
            concurrency: CONCURRENCY,
            timeout: Some(TIMEOUT),
            when_stale: WhenStale::default(),
            name: None,
            told: None,
            after: None,
            shares: None,
        }
    }

    /// Calls for the owners of the objects in `source` when these change. Of them only the metadata are kept.
    ///
    /// An owner is whatever their `ownerReferences` name that is of this controller's kind, in whichever version. Nothing is
    /// called while this cache is in doubt for too long ([`WhenStale`]).
    ///
    /// An owner is in the namespace of its child, or in none. The type of this controller's objects states which; for a
    /// `DynamicObject` the first object in the cache does. Until one was seen, [`run_by_key`](Self::run_by_key) calls for both
    /// keys.
    ///
    /// [`run`](Self::run) returns an error if no object in `source` can have an owner here: if both are requested in
    /// different namespaces, or if the children are in no namespace and the owners in one.
    pub fn owns<C>(mut self, source: impl Into<Source<PartialObjectMeta<C>>>) -> Self
    where
        C: Resource + 'static,
        PartialObjectMeta<C>: Kept<Resource: Resource> + DeserializeOwned,
    {
        let source = source.into();
        let kind = &self.kind;
        let (group, kind) = (K::Resource::group(kind).into_owned(), K::Resource::kind(kind).into_owned());
        self.others.push(Box::new(move |links| {
            let (source, owned) = source.open(&links.factory)?;
            links.primary.can_own(&owned)?;
            let primary = links.primary.clone();
            let owners = move |child: &Object<PartialObjectMeta<C>>| -> Vec<ObjectKey> {
                let namespace = child.key().namespace();
                let references = child.metadata.owner_references.as_deref().unwrap_or_default();
                let of_kind = references.iter().filter(|reference| {
                    let own = reference.api_version.rsplit_once('/').map_or("", |(group, _)| group);
                    reference.kind == kind && own == group
                });
                of_kind.flat_map(|owner| primary.owner(namespace, &owner.name)).collect()
            };
            let detach = source.attach(links, None, owners)?;
            Ok(Attached { caches: Declared::all(owned, Role::Owned), detach })
        }));
        self
    }

    /// Calls for what `keys` names for an object in `source` when that changes; where it has changed, for what `keys` names for
    /// either state.
    ///
    /// A key that no object of this controller can have, such as one in another namespace than that of its
    /// [`Scope`](steadfast::Scope), is never called for by [`run`](Self::run). The first such key is logged
    /// ([`ControllerDiagnostic::OutsideScope`]).
    ///
    /// It leads to calls and does not hold them up: where the calls read it from its cache, and are not to be made while that is
    /// in doubt for too long, [say so](Self::reads).
    pub fn watches<W: Kept, I>(
        mut self,
        source: impl Into<Source<W>>,
        keys: impl Fn(&Object<W>) -> I + Send + Sync + 'static,
    ) -> Self
    where
        I: IntoIterator<Item = ObjectKey> + 'static,
    {
        let source = source.into();
        self.others.push(Box::new(move |links| {
            let (source, watched) = source.open(&links.factory)?;
            let detach = source.attach(links, links.strays(&name_of(&watched)), keys)?;
            Ok(Attached { caches: Declared::all(watched, Role::Watched), detach })
        }));
        self
    }

    /// Calls for each key that comes out of `keys`.
    pub fn triggered_by(mut self, keys: impl Stream<Item = ObjectKey> + Send + 'static) -> Self {
        self.triggers.push(keys.boxed());
        self
    }

    /// The calls read this cache too: nothing is called while it is in doubt for too long ([`WhenStale`]).
    pub fn reads<W: Kept>(mut self, informer: &Informer<W>) -> Self {
        self.reads.push(Arc::new(informer.clone()));
        self
    }

    /// So many calls at a time, each for another key; 10 unless it is said. One that holds up its thread for ten seconds does
    /// not count any more.
    pub fn concurrency(mut self, calls: usize) -> Self {
        self.concurrency = calls;
        self
    }

    /// A call that takes longer has failed, and is cancelled; 5 minutes unless it is said. None lets it take as long as it
    /// likes.
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.timeout = timeout.into();
        self
    }

    /// How long a key waits after each of its failures.
    pub fn retries(mut self, retries: RetrySettings) -> Self {
        self.queue.retries = retries;
        self
    }

    /// How many retries there may be, all keys together; none for as many as the keys' own waits allow.
    pub fn retry_limit(mut self, limit: impl Into<Option<RateLimit>>) -> Self {
        self.queue.limit = limit.into();
        self
    }

    /// Gives each group of keys its turn, so that one with much to do does not keep the others waiting; groups are namespaces
    /// unless it is said.
    pub fn fairness_key<G: Hash>(mut self, group: impl Fn(&ObjectKey) -> G + Send + Sync + 'static) -> Self {
        let hasher = RandomState::new();
        // One that panics is no reason to lose a key.
        let group = move |key: &ObjectKey| {
            let grouped = catch_unwind(AssertUnwindSafe(|| hasher.hash_one(group(key))));
            grouped.unwrap_or_else(|panic| {
                drop(panics::told(panic));
                0
            })
        };
        self.queue.group = Some(Box::new(group));
        self
    }

    /// What is done while a cache that the calls read is in doubt: that of the objects, of what they own, and what else
    /// [is said to be read](Self::reads).
    pub fn when_stale(mut self, when_stale: WhenStale) -> Self {
        self.when_stale = when_stale;
        self
    }

    /// The first call waits for `ready` too, to be the leader for instance; the caches do not. And when it is ready, as without it
    /// from the start on, until each cache that the calls read has what was written before, by whoever led.
    pub fn after(mut self, ready: impl Future<Output = ()> + Send + 'static) -> Self {
        self.after = Some(ready.boxed());
        self
    }

    /// Calls only for keys that are this process's own by `shares`: for those that are gained as soon as each cache that the calls
    /// read has what was written before, by whoever had them.
    ///
    /// A key is held for as long as its call lasts. To act on it, [hold](Sharding::hold) it in the call as well, before anything is read,
    /// and use the client of what is held. Where a cache is in doubt, no other controller with the same `shares` gains keys before
    /// that is over: let each have its own, where one is not to wait for another.
    pub fn shared_by(mut self, shares: &Sharding) -> Self {
        self.shares = Some(shares.clone());
        self
    }

    /// How notes and metrics call it; as its resource is called, unless it is said.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Tells `callback` what a log line would; it may be called from any thread, and delays the call that it is about.
    pub fn on_diagnostic(mut self, callback: impl Fn(&ControllerDiagnostic) + Send + Sync + 'static) -> Self {
        self.told = Some(Arc::new(callback));
        self
    }

    /// Runs it: calls `reconcile` for each object, and again whenever it or something that leads to it has changed.
    ///
    /// The calls are made on the async runtime that is current now. `error_policy` says what is done after an error:
    /// [`back_off`] where nothing else is needed. An object that is gone is not called for: what is to be done then takes a
    /// finalizer, or [`run_by_key`](Self::run_by_key).
    ///
    /// # Errors
    ///
    /// Where no runtime is current, a source cannot be had, or a setting makes no sense.
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
        self.start(false, move |informers| {
            Box::new(move |key| {
                let mut missing = Call::Gone;
                for informer in &informers {
                    match informer.snapshot().get_by_key(key) {
                        Lookup::Found(object) => {
                            let object: Arc<K> = object.into();
                            return begin(&work, object, &context);
                        }
                        Lookup::Absent => {}
                        Lookup::Unknown { .. } => missing = Call::Undecodable,
                    }
                }
                missing
            })
        })
    }

    /// Runs it: calls `reconcile` for each key, also of what is gone or cannot be decoded. What there is, it looks up itself.
    ///
    /// As [`run`](Self::run) otherwise.
    ///
    /// # Errors
    ///
    /// Where no runtime is current, a source cannot be had, or a setting makes no sense.
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
        self.start(true, move |_| Box::new(move |key| begin(&work, key.clone(), &context)))
    }
}

/// A call of the first of `work` for `subject`, and of the second where that ends with an error.
fn begin<F, Fut, E, P, S, C>(work: &Arc<(F, P)>, subject: S, context: &Arc<C>) -> Call
where
    F: Fn(S, Arc<C>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Action, E>> + Send + 'static,
    E: Error,
    P: Fn(S, &E, Arc<C>) -> Action + Send + Sync + 'static,
    S: Clone + Send + 'static,
    C: Send + Sync + 'static,
{
    let (work, context) = (work.clone(), context.clone());
    Call::Begun(Box::pin(async move {
        let (reconcile, error_policy) = &*work;
        reconcile(subject.clone(), context.clone()).await.map_err(|error| {
            let action = error_policy(subject, &error, context);
            Failed { error: with_causes(&error), action }
        })
    }))
}

/// An error and what led to it.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Many say what their cause says.
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

impl<K: Kept> fmt::Debug for Controller<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("source", &self.source)
            .field("others", &self.others.len())
            .field("concurrency", &self.concurrency)
            .field("timeout", &self.timeout)
            .field("when_stale", &self.when_stale)
            .finish_non_exhaustive()
    }
}

debug_as_message!(RunError);
