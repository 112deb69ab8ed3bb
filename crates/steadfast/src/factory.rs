//! The factory: one watch per resource and scope, shared by all who ask for the same.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
#[cfg(feature = "checkpoint")]
use kube::Resource;
#[cfg(feature = "checkpoint")]
use serde::de::DeserializeOwned;
use steadfast_core::Freshness;
#[cfg(feature = "checkpoint")]
use steadfast_core::Lazy;
use steadfast_core::breach::Breaches;
use steadfast_core::decode::{DecodeError, DecodeOptions, Decoder, Kept};
use steadfast_core::event::{Event, Rules};
use steadfast_core::reflector::{Note, Reflector, ReflectorSettings};
use steadfast_core::selector::parse_selector;
use steadfast_core::store::Store;
use tokio::sync::{mpsc, watch};

use crate::answers::Asker;
use crate::answers::OBJECT_LIMIT;
use crate::catching_up::told_by;
#[cfg(feature = "checkpoint")]
use crate::checkpoint::Checkpoint;
use crate::choices::{Choices, SecretsOnDisk, TransformId};
use crate::connection::Connection;
use crate::driver::{Command, Driver, Keeper, Limits, Transform};
use crate::error::{InformerError, NotSynced, SyncTimeout, Unkept, WaitError};
use crate::informer::{CacheId, Informer};
#[cfg(feature = "checkpoint")]
use crate::keepsake::Keepsake;
use crate::owner::{Held, Origin, Owner, Release, Share};
use crate::readiness::FactoryFreshness;
use crate::resource::{Collection, DynamicType};
use crate::runner::drop_contained;
use crate::scope::Scope;
use crate::shared::{NoteCallback, Shared, Undelivered};
use crate::writes::Writes;

/// A cache that has been in doubt for longer is not waited for.
const DOUBTED: Duration = Duration::from_secs(30);

/// How often the freshness of a cache is checked that is waited for.
const LOOK: Duration = Duration::from_secs(1);

/// Creates informers on one connection and shuts them down together. Cheap to clone.
///
/// An informer runs as long as one of its handles (informer, lister, index) or handlers exists. The factory alone keeps
/// no informer running.
#[derive(Clone)]
pub struct InformerFactory {
    inner: Arc<Inner>,
}

struct Inner {
    connection: Connection,
    settings: ReflectorSettings,
    informers: Mutex<Informers>,
}

#[derive(Default)]
struct Informers {
    closed: bool,
    running: BTreeMap<Ask, Running>,
}

/// What makes two asks the same.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Ask {
    collection: Collection,
    scope: Scope,
    kept: TypeId,
}

/// An informer whose type is forgotten.
struct Running {
    informer: Box<dyn Any + Send + Sync>,
    choices: Choices,
    control: Arc<dyn Control>,
    /// The share of its handles; empty once the last handle is dropped.
    share: Weak<Share>,
}

/// What a factory does with an informer of any type.
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

impl<K: Kept> Control for Informer<K> {
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
        self.shared().broken.load(Ordering::Acquire)
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
    /// A factory on `connection`, with the contract's default times.
    pub fn new(connection: &Connection) -> Self {
        Self::with_settings(connection, ReflectorSettings::default())
    }

    /// A factory on `connection`, whose informers go by `settings`.
    pub fn with_settings(connection: &Connection, settings: ReflectorSettings) -> Self {
        let inner = Inner { connection: connection.clone(), settings, informers: Mutex::default() };
        Self { inner: Arc::new(inner) }
    }

    /// The connection of this factory's informers.
    pub fn connection(&self) -> &Connection {
        &self.inner.connection
    }

    /// The informer of `K` in `scope`: a new one, or the one that runs already and was not stopped.
    ///
    /// # Errors
    ///
    /// Where one runs with other settings, where a namespace is given for what is in none, or after the factory's end.
    pub fn informer<K>(&self, scope: Scope) -> Result<Informer<K>, InformerError>
    where
        K: Kept,
        DynamicType<K>: Default,
    {
        self.build::<K>(scope).start()
    }

    /// The informer of the resource that `kind` describes, in `scope`: for types that say at run time what they are.
    ///
    /// # Errors
    ///
    /// Where one runs with other settings, where a namespace is given for what is in none, or after the factory's end.
    pub fn informer_with<K: Kept>(&self, kind: &DynamicType<K>, scope: Scope) -> Result<Informer<K>, InformerError> {
        self.build_with::<K>(kind, scope).start()
    }

    /// An informer of `K` in `scope`, with choices.
    pub fn build<K>(&self, scope: Scope) -> InformerBuilder<'_, K>
    where
        K: Kept,
        DynamicType<K>: Default,
    {
        self.build_with::<K>(&DynamicType::<K>::default(), scope)
    }

    /// An informer of the resource that `kind` describes, with choices.
    pub fn build_with<K: Kept>(&self, kind: &DynamicType<K>, scope: Scope) -> InformerBuilder<'_, K> {
        InformerBuilder {
            factory: self,
            collection: Collection::of::<K>(kind, &scope),
            scope,
            choices: Choices {
                settings: self.inner.settings.clone(),
                managed_fields: false,
                transform: None,
                object_limit: OBJECT_LIMIT,
                protobuf: has_protobuf::<K>(),
                packed: false,
                checkpoint: None,
                secrets_on_disk: SecretsOnDisk::Refused,
                memory_limit: None,
                breaches: Breaches::NONE,
            },
            transform: None,
            notes: Vec::new(),
            #[cfg(feature = "checkpoint")]
            keeping: Keeping::Nothing,
        }
    }

    /// Waits until every informer that runs now is synced; those that are started meanwhile are not waited for.
    ///
    /// # Errors
    ///
    /// When `deadline` passes first, or one is stopped before: each informer that is not synced, with its state and the
    /// last cause.
    pub async fn wait_for_sync(&self, deadline: Duration) -> Result<(), SyncTimeout> {
        let environment = self.inner.connection.environment().clone();
        let begun = environment.now();
        let controls = self.controls();
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

    /// Whether each cache of this factory has all of `writes` that it is going to hold: see
    /// [`Informer::has_writes`](crate::Informer::has_writes), and [`wait_for_writes`](Self::wait_for_writes) for those that
    /// are not asked.
    pub fn has_writes(&self, writes: &Writes) -> bool {
        writes.is_empty()
            || self.controls().iter().all(|control| !control.is_waited_for(writes) || control.has_writes(writes))
    }

    /// Whatever anybody may have written so far to what the caches of this factory look at: see
    /// [`Informer::written_so_far`](crate::Informer::written_so_far).
    pub fn written_so_far(&self) -> Writes {
        let mut written = Writes::default();
        for control in self.controls().iter().filter(|control| !control.is_stopped()) {
            let mut anything = Writes::default();
            anything.push(Arc::new(control.origin().anything()));
            written.extend(anything);
        }
        written
    }

    /// What `event` of `informer` tells, where another cache of this factory that is going to hold it too does not have it
    /// yet; nothing otherwise.
    ///
    /// Each informer has a watch of its own. Who is called for what one of them has seen, and reads another cache of the same
    /// resource, is to wait until that has it.
    pub fn unseen_elsewhere<K: Kept>(&self, informer: &Informer<K>, event: &Event<K>) -> Writes {
        let own = informer.origin();
        let is_other = |other: &Origin| !std::ptr::eq(own, other) && own.is_beside(other);
        let others: Vec<_> = {
            let informers = self.lock();
            let controls = informers.running.values().map(|running| &running.control);
            controls.filter(|control| is_other(control.origin()) && !control.is_stopped()).cloned().collect()
        };
        if others.is_empty() {
            return Writes::default();
        }
        let told = told_by(informer, event);
        if others.iter().all(|other| !other.is_waited_for(&told) || other.has_writes(&told)) {
            Writes::default()
        } else {
            told
        }
    }

    /// Waits until each cache of this factory has all of `writes` that it is going to hold: see
    /// [`Informer::wait_for_writes`](crate::Informer::wait_for_writes). Those that are stopped, or have been in doubt for longer
    /// than 30 s, are not waited for: what they hold is not to be relied on, as they say themselves.
    ///
    /// # Errors
    ///
    /// When `deadline` passes first, or a version cannot be compared: of the first cache to which that happens.
    pub async fn wait_for_writes(&self, writes: &Writes, deadline: Duration) -> Result<(), WaitError> {
        self.wait_for_writes_while(writes, deadline, |_, freshness| is_not_doubted(freshness)).await
    }

    /// Waits as [`wait_for_writes`](Self::wait_for_writes) does, for each cache while its identity and its freshness satisfy
    /// `is_awaited`.
    ///
    /// # Errors
    ///
    /// When `deadline` passes first, or a version cannot be compared: of the first cache to which that happens.
    pub async fn wait_for_writes_while(
        &self,
        writes: &Writes,
        deadline: Duration,
        is_awaited: impl Fn(CacheId, &Freshness) -> bool + Sync,
    ) -> Result<(), WaitError> {
        let environment = self.inner.connection.environment();
        let controls = self.controls();
        let waits = controls.iter().filter(|control| control.concerns(writes)).map(|control| async {
            let mut changed = control.changed();
            let rejected = async {
                while is_awaited(control.cache_id(), &control.state().state) {
                    // Doubt grows with time alone too.
                    tokio::select! {
                        biased;
                        _ = changed.changed() => {}
                        () = environment.sleep_until(environment.now() + LOOK) => {}
                    }
                }
            };
            tokio::select! {
                biased;
                () = rejected => Ok(()),
                waited = control.wait_for_writes(writes, deadline) => match waited {
                    Err(WaitError::Stopped { .. }) => Ok(()),
                    waited => waited,
                }
            }
        });
        let errors = futures::future::join_all(waits).await.into_iter().filter_map(Result::err);
        let (late, incomparable): (Vec<_>, Vec<_>) =
            errors.partition(|error| matches!(error, WaitError::Deadline { .. }));
        late.into_iter().chain(incomparable).next().map_or(Ok(()), Err)
    }

    /// How true the caches of this factory are: the worst of all, which one that is and why, and what a readiness probe
    /// is to be answered with.
    pub fn freshness(&self) -> FactoryFreshness {
        let (controls, closed) = {
            let informers = self.lock();
            let controls: Vec<_> = informers.running.values().map(|running| running.control.clone()).collect();
            (controls, informers.closed)
        };
        let states = controls.iter().map(|control| control.state());
        FactoryFreshness::new(states.map(|NotSynced { resource, state }| (resource.into(), state)).collect(), closed)
    }

    /// Ends all informers at once, also when cut off: requests are cancelled, handlers are called no more.
    ///
    /// Tells what was not delivered. The connection stays, for whoever else uses it.
    pub fn shutdown(&self) -> Undelivered {
        let controls = self.close();
        for control in &controls {
            control.stop();
        }
        sum(&controls)
    }

    /// Ends all watches, lets the handlers see what was read and what waits for them for as long as `deadline`, then ends them
    /// too.
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
        informers.closed = true;
        std::mem::take(&mut informers.running).into_values().map(|running| running.control).collect()
    }

    fn controls(&self) -> Vec<Arc<dyn Control>> {
        self.lock().running.values().map(|running| running.control.clone()).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Informers> {
        self.inner.informers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a cache is fresh, or was until 30 s ago.
fn is_not_doubted(freshness: &Freshness) -> bool {
    freshness.doubt().is_none_or(|doubt| doubt.lasting <= DOUBTED)
}

/// Lets go of an informer that was stopped: its store lives as long as someone reads it.
fn forget(factory: &Weak<Inner>, ask: &Ask, stopped: &Weak<dyn Control>) {
    let Some(inner) = factory.upgrade() else { return };
    if stopped.upgrade().is_some_and(|stopped| stopped.is_broken()) {
        // Nobody wanted that: whoever asks how fresh the caches are is to hear of it.
        return;
    }
    let forgotten = {
        let mut informers = inner.informers.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |running: &Running| std::ptr::addr_eq(Arc::as_ptr(&running.control), stopped.as_ptr());
        // Another may run in its place.
        if informers.running.get(ask).is_some_and(is_it) { informers.running.remove(ask) } else { None }
    };
    drop_contained(forgotten);
}

/// Drops an informer whose last handle or handler is gone, so that its watch ends. Another handle may have been requested
/// since: the share under the lock decides.
fn release(factory: &Weak<Inner>, ask: &Ask, unused: &Weak<dyn Control>) {
    let Some(inner) = factory.upgrade() else { return };
    let released = {
        let mut informers = inner.informers.lock().unwrap_or_else(PoisonError::into_inner);
        let is_unused = |running: &Running| {
            std::ptr::addr_eq(Arc::as_ptr(&running.control), unused.as_ptr())
                && running.share.strong_count() == 0
                && !running.control.has_handlers()
        };
        if informers.running.get(ask).is_some_and(is_unused) { informers.running.remove(ask) } else { None }
    };
    drop_contained(released);
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

/// An informer about to be made.
#[must_use = "an informer is there once it is started"]
pub struct InformerBuilder<'a, K> {
    factory: &'a InformerFactory,
    collection: Collection,
    scope: Scope,
    choices: Choices,
    transform: Option<Transform<K>>,
    notes: Vec<NoteCallback>,
    #[cfg(feature = "checkpoint")]
    keeping: Keeping<K>,
}

/// Where the cache is kept beyond the program's life.
#[cfg(feature = "checkpoint")]
enum Keeping<K> {
    Nothing,
    /// In a part of a file that is to be taken yet.
    Wanted(Claim<K>),
    Claimed(Box<dyn Keepsake<K>>),
}

/// Takes an informer's part of a file.
#[cfg(feature = "checkpoint")]
type Claim<K> = Box<dyn FnOnce(&Connection, &Collection, &Scope, bool) -> Result<Box<dyn Keepsake<K>>, Unkept> + Send>;

#[cfg(feature = "checkpoint")]
impl<T: Resource + DeserializeOwned + Send + Sync + 'static> InformerBuilder<'_, Lazy<T>> {
    /// Keeps the cache in `checkpoint`, so that the next life of this program begins with it: readers have it at once, in doubt
    /// until the server has confirmed it, and the watch goes on where it was.
    ///
    /// Only what is kept encoded can be kept so: of a decoded object there is no more than its type knew when it was written,
    /// and the type of the next release may know more. For the same reason there can be no transform.
    ///
    /// That the server is of the same cluster is told by its URL and the UID of the namespace `kube-system`, for which this
    /// program needs `get` on that one object. Without it nothing is wrong, but a list takes the place of the resumed watch.
    /// Handlers are called when that is decided, and not before.
    ///
    /// Secrets are refused, unless [`including_secrets`](Self::including_secrets) is set.
    pub fn checkpoint(mut self, checkpoint: &Checkpoint) -> Self {
        self.choices.checkpoint = Some(checkpoint.place().to_owned());
        let checkpoint = checkpoint.clone();
        self.keeping = Keeping::Wanted(Box::new(move |connection, collection, scope, managed_fields| {
            checkpoint.claim(connection, collection, scope, managed_fields)
        }));
        self
    }

    /// Has Secrets written to the checkpoint too, as they are: whoever can read the file can read them.
    pub fn including_secrets(mut self) -> Self {
        self.choices.secrets_on_disk = SecretsOnDisk::Asked;
        self
    }
}

impl<K: Kept> InformerBuilder<'_, K> {
    /// Tells `callback` what [`Informer::on_note`] would, from the very first note on: what became of a checkpoint is one.
    pub fn on_note(mut self, callback: impl Fn(&Note) + Send + Sync + 'static) -> Self {
        self.notes.push(Arc::new(callback));
        self
    }

    /// Keeps `metadata.managedFields`, which are skipped otherwise.
    pub fn keep_managed_fields(mut self) -> Self {
        self.choices.managed_fields = true;
        self
    }

    /// Changes every object before it is kept. It must answer the same for the same object, and leave its identity.
    ///
    /// What time it takes delays this informer's changes and nothing else; an object on which it panics is tainted.
    ///
    /// Who asks with the same function shares one informer; a closure that captures something is like no other.
    pub fn transform<F: Fn(K) -> K + Send + Sync + 'static>(mut self, transform: F) -> Self {
        self.choices.transform = Some(TransformId::of::<F>());
        self.transform = Some(Arc::new(transform));
        self
    }

    /// Lists in pages of `size` objects, where streamed lists are not to be had; none for all at once.
    pub fn page_size(mut self, size: Option<u32>) -> Self {
        self.choices.settings.page_size = size;
        self
    }

    /// Whether lists are streamed where the server can do that, in whichever encoding. Unless it is set they come in the way
    /// that costs a server least: streamed where protobuf is requested, in pages where only JSON is.
    pub fn streamed_lists(mut self, streamed: bool) -> Self {
        self.choices.settings.streamed_lists = Some(streamed);
        self
    }

    /// Whether relists after `410 Expired` are made by difference: metadata of all objects, and in full only what is not held as
    /// they list it. Unless it is set they are where only JSON is requested, which costs a server two to three times what
    /// metadata do; of protobuf it would save less than half.
    ///
    /// It is done where many objects are held and little can have changed; whatever is not as it should be, or too much, ends
    /// in a full list. What is committed is the same in either way.
    pub fn delta_relists(mut self, delta: bool) -> Self {
        self.choices.settings.delta_relists = Some(delta);
        self
    }

    /// How long without a proof of freshness before one is sought; a server's bookmarks come every 60 s.
    pub fn period(mut self, period: Duration) -> Self {
        self.choices.settings.period = period;
        self
    }

    /// Lists so often where the server does not let us watch, or its watches always fail; each `period` unless set
    /// otherwise. The freshness says when that is so.
    ///
    /// Fresh is at most two of `period` old, so that a cache that is listed more rarely is called stale between.
    pub fn poll_every(mut self, period: Duration) -> Self {
        self.choices.settings.poll_every = Some(period);
        self
    }

    /// The longest period that a stream's own rhythm can give it, `period` unless set otherwise.
    ///
    /// Fresh then may be two of these old. That is for servers that send no bookmarks, or ones that rise more rarely.
    pub fn longest_period(mut self, period: Duration) -> Self {
        self.choices.settings.longest_period = Some(period);
        self
    }

    /// Compares what is held with a list of versions, so often that what a server's watch has lost is found and repaired
    /// within `period` (R12). There is no audit unless it is set.
    ///
    /// It costs a list of metadata in pages of 500, when no other list waits for its place.
    pub fn audit_every(mut self, period: Duration) -> Self {
        self.choices.settings.audit_every = Some(period);
        self
    }

    /// The longest object that is read, in bytes.
    pub fn object_limit(mut self, bytes: usize) -> Self {
        self.choices.object_limit = bytes;
        self
    }

    /// The most that the objects of the cache may take up, with their keys, in bytes; there is no limit unless it is set.
    ///
    /// What goes beyond it is not taken in: the cache stays as it was, [`Failed`](crate::Freshness::Failed) with the figures, and
    /// asks for a list once a minute until there is one that fits. While a list comes, objects that have changed are there
    /// twice (R9). An object counts as it was decoded, whatever a transform leaves of it. What is read at once, some megabytes
    /// at most, indexes, and what waits for handlers come on top.
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.choices.memory_limit = Some(bytes);
        self
    }

    /// Whether objects of built-in kinds are requested as protobuf, which costs the server and the network about half of
    /// what JSON does. Unless it is set they are, but not for types that learn at run time what they are of, as
    /// `DynamicObject`. What is not built in comes as JSON, and so does what a server has no protobuf of; where something
    /// between spoils it, JSON is asked for as soon as that is seen.
    ///
    /// Objects are the same in both, whatever they are kept as, with one exception: protobuf has numbers in place of names, so
    /// fields that a server of a later version of Kubernetes than 1.37 has added are not there, not even in a
    /// `DynamicObject`.
    pub fn protobuf(mut self, protobuf: bool) -> Self {
        self.choices.protobuf = protobuf;
        self
    }

    /// Keeps objects that are kept encoded (`Lazy`) as what differs from a sibling, an earlier object of the same generated
    /// name, or else from any other: a tenth to a fifth of their bytes where objects are alike, as a deployment's pods are,
    /// for some microseconds with each that is kept or read. They are not unless it is set; of objects that are kept decoded
    /// it changes nothing.
    pub fn packed(mut self, packed: bool) -> Self {
        self.choices.packed = packed;
        self
    }

    /// Breaks the contract on purpose, for tests of the checker; keeps it where there is nothing to break.
    #[cfg(feature = "breach")]
    pub fn breach(mut self, breach: impl Into<Option<steadfast_core::breach::Breach>>) -> Self {
        self.choices.breaches = breach.into().map_or(Breaches::NONE, Breaches::only);
        self
    }

    /// Starts the informer, or joins the one that runs already, where that has the same settings in all.
    ///
    /// # Errors
    ///
    /// Where one runs with other settings, where a namespace is given for what is in none, or after the factory's end.
    pub fn start(
        #[cfg_attr(not(feature = "checkpoint"), allow(unused_mut))] mut self,
    ) -> Result<Informer<K>, InformerError> {
        self.check()?;
        let ask = Ask { collection: self.collection.clone(), scope: self.scope.clone(), kept: TypeId::of::<K>() };
        let mut informers = self.factory.lock();
        if informers.closed {
            return Err(InformerError::ShutDown);
        }
        if let Some(running) = informers.running.get_mut(&ask).filter(|running| !running.control.is_stopped()) {
            let differences = running.choices.differences(&self.choices);
            if !differences.is_empty() {
                let (resource, scope) = (self.collection.name().to_owned(), self.scope.to_string());
                return Err(InformerError::Conflict { resource, scope, differences });
            }
            if let Some(informer) = running.informer.downcast_ref::<Informer<K>>()
                && let Some(share) = running.share.upgrade().or_else(|| informer.owner().new_share())
            {
                self.notes.into_iter().for_each(|callback| informer.shared().on_note(callback));
                running.share = Arc::downgrade(&share);
                return Ok(informer.with_share(share));
            }
        }
        #[cfg(feature = "checkpoint")]
        self.claim()?;
        let (factory, choices) = (self.factory, self.choices.clone());
        let informer = self.launch();
        let control: Arc<dyn Control> = Arc::new(informer.clone());
        let (factory, own) = (Arc::downgrade(&factory.inner), Arc::downgrade(&control));
        let release: Release = {
            let (factory, ask, own) = (factory.clone(), ask.clone(), own.clone());
            Arc::new(move || release(&factory, &ask, &own))
        };
        drop(informer.owner().release.set(release.clone()));
        let share = Arc::new(Share::new(release));
        let handle = informer.with_share(share.clone());
        let running = Running { informer: Box::new(informer), choices, control, share: Arc::downgrade(&share) };
        let earlier = informers.running.insert(ask.clone(), running);
        // What the user keeps may end with them, and its `Drop` may ask for anything.
        drop(informers);
        drop(earlier);
        handle.shared().at_stop(move || forget(&factory, &ask, &own));
        Ok(handle)
    }

    /// Whether there can be such an informer.
    pub(crate) fn check(&self) -> Result<(), InformerError> {
        match self.scope.in_namespace() {
            Some(namespace) if self.collection.is_cluster_scoped() => {
                let (resource, namespace) = (self.collection.name().to_owned(), namespace.to_owned());
                Err(InformerError::ClusterScoped { resource, namespace })
            }
            _ => self.check_checkpoint(),
        }
    }

    /// Whether its cache may be kept, where that is wanted.
    fn check_checkpoint(&self) -> Result<(), InformerError> {
        let Choices { checkpoint: Some(_), transform, secrets_on_disk, .. } = &self.choices else { return Ok(()) };
        let is_secret = self.collection.group().is_empty() && self.collection.plural() == "secrets";
        let why = match transform {
            Some(_) => Unkept::Transformed,
            None if is_secret && *secrets_on_disk == SecretsOnDisk::Refused => Unkept::Secrets,
            None => return Ok(()),
        };
        Err(InformerError::Checkpoint { resource: self.collection.name().to_owned(), why })
    }

    /// Takes its part of the checkpoint, where there is one.
    #[cfg(feature = "checkpoint")]
    fn claim(&mut self) -> Result<(), InformerError> {
        if let Keeping::Wanted(claim) = std::mem::replace(&mut self.keeping, Keeping::Nothing) {
            let connection = &self.factory.inner.connection;
            let claimed = claim(connection, &self.collection, &self.scope, self.choices.managed_fields);
            let failed = |why| InformerError::Checkpoint { resource: self.collection.name().to_owned(), why };
            self.keeping = Keeping::Claimed(claimed.map_err(failed)?);
        }
        Ok(())
    }

    /// Starts an informer that is nobody else's.
    pub(crate) fn launch(self) -> Informer<K> {
        let connection = self.factory.inner.connection.clone();
        let environment = connection.environment().clone();
        let Choices { mut settings, managed_fields, object_limit, protobuf, packed, memory_limit, breaches, .. } =
            self.choices;
        settings.rules = Rules { selective: self.scope.is_selective(), breaches };
        let rules = settings.rules;
        let mut reflector = Reflector::new(settings, environment.random());
        if let Some(until) = connection.remembers_pages(self.collection.everywhere()) {
            reflector.list_in_pages_until(until);
        }
        if let Some(until) = connection.remembers_full(self.collection.everywhere()) {
            reflector.list_in_full_until(until);
        }
        let resource = self.collection.name().to_owned();
        let shared = Arc::new(Shared::new(
            format!("{resource} in {}", self.scope),
            self.scope.clone(),
            environment.clone(),
            Store::new(rules),
            reflector.evidence().clone(),
        ));
        self.notes.into_iter().for_each(|callback| shared.on_note(callback));
        let origin = Origin {
            server: connection.recordings().server().clone(),
            group: self.collection.group().to_owned(),
            plural: self.collection.plural().to_owned(),
            selector: self.scope.label_selector().and_then(|text| parse_selector(text).ok()),
            scope: self.scope.clone(),
        };
        let asker = Asker { protobuf, ..Asker::new::<K>(connection, &self.collection, &self.scope) };
        #[cfg(feature = "metrics")]
        {
            let observed = asker.connection.observed();
            shared.observe(observed.add(self.collection.labels(&self.scope), Arc::downgrade(&shared) as _));
        }
        let (commands, received) = mpsc::unbounded_channel();
        // It does not hold the informer: what is kept may be held for longer than that.
        let own = commands.downgrade();
        let unread = move |error: &DecodeError| {
            if let Some(commands) = own.upgrade() {
                drop(commands.send(Command::Unread(error.clone())));
            }
        };
        let options = DecodeOptions { keep_managed_fields: managed_fields };
        let decoder = Decoder::new(options).tell_unread(Arc::new(unread));
        let decoder = if packed { decoder.packed() } else { decoder };
        if let Some(beside) = decoder.beside() {
            drop(shared.beside.set(beside));
        }
        let limits = Limits { object: object_limit, memory: memory_limit };
        let driver =
            Driver::new(shared.clone(), reflector, asker, Keeper::new(decoder, self.transform), limits, received);
        #[cfg(feature = "checkpoint")]
        let driver = driver.with_keepsake(match self.keeping {
            Keeping::Claimed(keepsake) => Some(keepsake),
            Keeping::Nothing | Keeping::Wanted(_) => None,
        });
        environment.spawn_foreign(Box::pin(driver.run()));
        Informer::new(Held::new(Arc::new(Owner { shared, commands, origin, release: OnceLock::new() })))
    }
}

/// Whether `K` is requested as protobuf unless something else is set. A type that is made for a kind has the fields that it
/// was made with, in either encoding; one that takes what comes is to have also those that only JSON can name.
fn has_protobuf<K: Kept>() -> bool {
    TypeId::of::<DynamicType<K>>() == TypeId::of::<()>()
}
