//! Life cycle of an informer: first the discovery of its resource, then the library's informer, then its last snapshot.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use kube::core::ApiResource;
use parking_lot::Mutex;
use steadfast::unstable::catalog::ServedResource;
use steadfast::{Doubt, Index, IndexSnapshot, Informer, Lazy, ResourceVersion, Scope, Snapshot};
use tokio::sync::watch;

use crate::errors::State;
use crate::object::Kind;
use crate::path::{Path, index_values};
use crate::session::{LookupFailure, Session};
use crate::tree::{JsonTree, Node};

const RETRY_INITIAL_DELAY: Duration = Duration::from_millis(250);
const RETRY_MAX_DELAY: Duration = Duration::from_secs(8);

/// Delay before the next attempt for a resource that the server does not have. A definition may add it later.
const UNKNOWN_KIND_DELAY: Duration = Duration::from_secs(30);

/// Time to look up a resource at the server, before the resource of an earlier run is used.
const STORED_RESOURCE_DELAY: Duration = Duration::from_secs(2);

/// Settings of an informer.
#[derive(Clone, Debug)]
pub(crate) struct InformerSettings {
    /// Resource, by any name that kubectl takes.
    pub(crate) name: String,
    pub(crate) scope: Scope,
    pub(crate) indexes: Vec<(String, Path)>,
    pub(crate) managed_fields: bool,
    pub(crate) protobuf: bool,
    pub(crate) memory_limit: Option<usize>,
    pub(crate) checkpoint: CheckpointUse,
}

/// Use of the checkpoint by an informer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckpointUse {
    Never,
    /// The cache is stored if the connection has a checkpoint. Secrets are not stored.
    ByDefault,
    /// The cache is stored, also that of Secrets.
    Requested,
}

/// Reader of an informer's events, which the end of the informer closes.
pub(crate) trait InformerReader: Send + Sync {
    fn end(&self);
}

/// Informer that runs.
pub(crate) struct RunningInformer {
    pub(crate) informer: Informer<Lazy<JsonTree>>,
    resource: Arc<Resource>,
    indexes: BTreeMap<String, Index<Lazy<JsonTree>, String>>,
}

/// Resource of an informer.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    pub(crate) kind: Kind,
    pub(crate) served: ServedResource,
}

/// Informer that has ended. It keeps the last snapshot, and no part of the library that owns threads.
struct EndedInformer {
    ended_at: Instant,
    name: String,
    resource: Option<Arc<Resource>>,
    /// `None` if the informer was not synced.
    snapshot: Option<Arc<Snapshot<Lazy<JsonTree>>>>,
    indexes: BTreeMap<String, Values>,
    version: Option<ResourceVersion>,
}

/// Values of an index at one instant.
pub(crate) type Values = Arc<IndexSnapshot<Lazy<JsonTree>, String>>;

enum InformerPhase {
    Discovering,
    Running(Arc<RunningInformer>),
    Ended(EndedInformer),
}

impl InformerPhase {
    /// Returns the name of an informer with `settings`, for messages.
    fn display_name(&self, settings: &InformerSettings) -> String {
        match self {
            Self::Discovering => format!("{} in {:#}", settings.name, settings.scope),
            Self::Running(running_informer) => running_informer.informer.name().to_owned(),
            Self::Ended(ended) => ended.name.clone(),
        }
    }
}

/// Snapshot of a synced cache.
pub(crate) struct CacheView {
    pub(crate) resource: Arc<Resource>,
    pub(crate) snapshot: Arc<Snapshot<Lazy<JsonTree>>>,
}

/// Informer that will run, runs, or has ended.
pub(crate) struct InformerHandle {
    pub(crate) settings: InformerSettings,
    phase: Mutex<InformerPhase>,
    discovery: Mutex<Discovery>,
    readers: Mutex<Vec<Weak<dyn InformerReader>>>,
    /// Counter that increases at each failed attempt, at the start and at the end of the informer.
    progress: watch::Sender<u64>,
    /// Counter of dropped durable handlers. All informers of a cluster share it, because those of equal settings share
    /// their handlers.
    handler_drops: watch::Sender<u64>,
}

struct Discovery {
    started_at: Instant,
    reason: String,
    attempts: u32,
    next_attempt_at: Option<Instant>,
    /// Set after the server responded that it has no such resource.
    is_unknown_kind: bool,
}

impl InformerHandle {
    pub(crate) fn new(settings: InformerSettings, handler_drops: watch::Sender<u64>) -> Arc<Self> {
        let discovery = Discovery {
            started_at: Instant::now(),
            reason: format!("the resource {:?} is being looked up", settings.name),
            attempts: 0,
            next_attempt_at: None,
            is_unknown_kind: false,
        };
        Arc::new(Self {
            settings,
            phase: Mutex::new(InformerPhase::Discovering),
            discovery: Mutex::new(discovery),
            readers: Mutex::default(),
            progress: watch::Sender::new(0),
            handler_drops,
        })
    }

    /// Returns the informer of the library while it runs.
    pub(crate) fn running_informer(&self) -> Option<Arc<RunningInformer>> {
        match &*self.phase.lock() {
            InformerPhase::Running(running_informer) => Some(running_informer.clone()),
            InformerPhase::Discovering | InformerPhase::Ended(_) => None,
        }
    }

    pub(crate) fn is_ended(&self) -> bool {
        matches!(&*self.phase.lock(), InformerPhase::Ended(_))
    }

    /// Returns the resource; `None` before its discovery.
    pub(crate) fn resource(&self) -> Option<Arc<Resource>> {
        match &*self.phase.lock() {
            InformerPhase::Discovering => None,
            InformerPhase::Running(running_informer) => Some(running_informer.resource.clone()),
            InformerPhase::Ended(ended) => ended.resource.clone(),
        }
    }

    /// Returns a snapshot of a synced cache, running or ended.
    pub(crate) fn view(&self) -> Option<CacheView> {
        match &*self.phase.lock() {
            InformerPhase::Discovering => None,
            InformerPhase::Running(running_informer) => {
                let snapshot = running_informer.informer.has_synced().then(|| running_informer.informer.snapshot())?;
                Some(CacheView { resource: running_informer.resource.clone(), snapshot })
            }
            InformerPhase::Ended(ended) => {
                Some(CacheView { resource: ended.resource.clone()?, snapshot: ended.snapshot.clone()? })
            }
        }
    }

    /// Returns the current values of an index, or the names of all indexes.
    pub(crate) fn index(&self, name: &str) -> Result<Values, Vec<String>> {
        let found = match &*self.phase.lock() {
            InformerPhase::Discovering => None,
            InformerPhase::Running(running_informer) => running_informer.indexes.get(name).map(Index::snapshot),
            InformerPhase::Ended(ended) => ended.indexes.get(name).cloned(),
        };
        found.ok_or_else(|| self.settings.indexes.iter().map(|(name, _)| name.clone()).collect())
    }

    /// Returns the name for messages.
    pub(crate) fn display_name(&self) -> String {
        self.phase.lock().display_name(&self.settings)
    }

    pub(crate) fn state(&self) -> State {
        let now = Instant::now();
        match &*self.phase.lock() {
            InformerPhase::Running(running_informer) => return State::Informer(running_informer.informer.freshness()),
            InformerPhase::Ended(ended) => {
                let mut doubt = Doubt::new(now - ended.ended_at, "stopped");
                doubt.version.clone_from(&ended.version);
                return State::Ended(doubt);
            }
            InformerPhase::Discovering => {}
        }
        let discovery = self.discovery.lock();
        let mut doubt = Doubt::new(now - discovery.started_at, discovery.reason.as_str());
        doubt.attempts = discovery.attempts;
        doubt.next_attempt = discovery.next_attempt_at.map(|next| next.saturating_duration_since(now));
        State::Discovering { is_unknown_kind: discovery.is_unknown_kind, doubt }
    }

    /// Waits until the informer runs. Returns `None` if the server has no such resource, or after the end.
    pub(crate) async fn until_started(&self) -> Option<Arc<RunningInformer>> {
        self.wait_until(|| self.discovery.lock().is_unknown_kind || self.is_ended()).await
    }

    /// Waits until the informer runs, also if its resource is added later. Returns `None` after the end.
    pub(crate) async fn until_running(&self) -> Option<Arc<RunningInformer>> {
        self.wait_until(|| self.is_ended()).await
    }

    async fn wait_until(&self, has_failed: impl Fn() -> bool) -> Option<Arc<RunningInformer>> {
        let mut running_informer = None;
        let is_decided = |_: &u64| {
            running_informer = self.running_informer();
            running_informer.is_some() || has_failed()
        };
        // The sender lives as long as `self`.
        let _ = self.progress.subscribe().wait_for(is_decided).await;
        running_informer
    }

    /// Waits until the end.
    pub(crate) async fn until_ended(&self) {
        let _ = self.progress.subscribe().wait_for(|_| self.is_ended()).await;
    }

    /// Returns a counter that changes at each failed attempt, at the start and at the end.
    pub(crate) fn progress(&self) -> watch::Receiver<u64> {
        self.progress.subscribe()
    }

    /// Returns a counter that changes after a durable handler of any informer of the cluster was dropped.
    pub(crate) fn handler_drops(&self) -> watch::Receiver<u64> {
        self.handler_drops.subscribe()
    }

    /// Lets all waiting readers of deliveries check if their handler was dropped.
    pub(crate) fn notify_handler_drop(&self) {
        self.handler_drops.send_modify(|count| *count += 1);
    }

    /// Adds a reader, which the end of the informer closes.
    pub(crate) fn add_reader(&self, reader: Weak<dyn InformerReader>) {
        let mut readers = self.readers.lock();
        readers.retain(|reader| reader.strong_count() > 0);
        readers.push(reader);
    }

    /// Ends the informer, before or after its start. Readers keep the last snapshot.
    ///
    /// The library's informer ends with its last handle: other Python informers may share it.
    pub(crate) fn stop(&self) {
        let replaced = {
            let mut phase = self.phase.lock();
            // Under the lock: no reader has seen a later state than the last snapshot, and the informer cannot start in the
            // meantime.
            let ended = match &*phase {
                InformerPhase::Ended(_) => return,
                InformerPhase::Running(running_informer) => running_informer.ended(phase.display_name(&self.settings)),
                InformerPhase::Discovering => EndedInformer {
                    ended_at: Instant::now(),
                    name: phase.display_name(&self.settings),
                    resource: None,
                    snapshot: None,
                    indexes: BTreeMap::new(),
                    version: None,
                },
            };
            std::mem::replace(&mut *phase, InformerPhase::Ended(ended))
        };
        // Before the handle: a registered durable handler would keep the library's informer running.
        let readers = std::mem::take(&mut *self.readers.lock());
        for reader in readers.iter().filter_map(Weak::upgrade) {
            reader.end();
        }
        // The value is dropped after the lock is released, because dropping the last handle ends the library's
        // informer.
        drop(replaced);
        self.notify_progress();
    }

    fn notify_progress(&self) {
        self.progress.send_modify(|count| *count += 1);
    }

    /// Finds the resource and starts the informer. Repeats failed attempts until the informer ends.
    pub(crate) async fn run(self: Arc<Self>, session: Arc<Session>) {
        if let Some(resource) = self.stored_resource(&session).await
            && self.start(&session, resource.clone()).is_ok()
        {
            self.notify_progress();
            return self.compare_with_server(&session, &resource).await;
        }
        let mut delay = RETRY_INITIAL_DELAY;
        let mut is_reported_unknown = false;
        while !self.is_ended() {
            let (reason, is_unknown_kind, pause) = match self.attempt(&session).await {
                Ok(()) => {
                    if is_reported_unknown {
                        tracing::info!("{} is found", self.display_name());
                    }
                    return self.notify_progress();
                }
                Err(LookupFailure::Request(reason)) => {
                    let pause = next_pause(&mut delay, &reason);
                    (reason, false, pause)
                }
                Err(LookupFailure::Unknown(reason)) => {
                    // A controller waits without an exception until the resource exists.
                    if !std::mem::replace(&mut is_reported_unknown, true) {
                        let retry = UNKNOWN_KIND_DELAY.as_secs();
                        tracing::warn!("{reason}; the informer waits for it, and asks again every {retry} s");
                    }
                    (reason, true, UNKNOWN_KIND_DELAY)
                }
            };
            {
                let mut discovery = self.discovery.lock();
                (discovery.reason, discovery.is_unknown_kind) = (reason, is_unknown_kind);
                discovery.attempts += 1;
                discovery.next_attempt_at = Some(Instant::now() + pause);
            }
            self.notify_progress();
            // The end of the informer ends the pause.
            let _ = tokio::time::timeout(pause, self.until_ended()).await;
        }
    }

    /// Returns the resource of an earlier run, if the checkpoint may have a cache of it and the server does not respond.
    async fn stored_resource(&self, session: &Session) -> Option<ServedResource> {
        let name = &self.settings.name;
        let stored = session.stored_resource(name).filter(|resource| self.settings.checkpoint.includes(resource))?;
        match tokio::time::timeout(STORED_RESOURCE_DELAY, session.resolve(name)).await {
            Ok(Ok(_) | Err(LookupFailure::Unknown(_))) => None,
            Ok(Err(LookupFailure::Request(_))) | Err(_) => Some(stored),
        }
    }

    /// Logs a warning if the server, as soon as it responds, has another resource of this name.
    async fn compare_with_server(&self, session: &Session, started: &ServedResource) {
        let name = &self.settings.name;
        let mut delay = RETRY_INITIAL_DELAY;
        while !self.is_ended() {
            match session.resolve(name).await {
                Ok(resource) if resource == *started => return,
                Ok(resource) => {
                    let (earlier, now) = (&started.api_resource, &resource.api_resource);
                    tracing::warn!(
                        informer = %self.display_name(), earlier = %earlier.api_version, now = %now.api_version,
                        "the server has another resource of this name than in the run that wrote the checkpoint; restart the \
                         program to watch the new one"
                    );
                    return session.store_resource(name, &resource).await;
                }
                // The informer itself reports the rejected requests.
                Err(LookupFailure::Unknown(_)) => return,
                Err(LookupFailure::Request(reason)) => {
                    let pause = next_pause(&mut delay, &reason);
                    let _ = tokio::time::timeout(pause, self.until_ended()).await;
                }
            }
        }
    }

    async fn attempt(&self, session: &Session) -> Result<(), LookupFailure> {
        let resource = session.resolve(&self.settings.name).await?;
        if self.settings.checkpoint.includes(&resource) {
            session.store_resource(&self.settings.name, &resource).await;
        }
        self.start(session, resource)
    }

    /// Starts the informer of a resource.
    fn start(&self, session: &Session, resource: ServedResource) -> Result<(), LookupFailure> {
        let InformerSettings { scope, indexes, managed_fields, protobuf, memory_limit, checkpoint, .. } =
            &self.settings;
        if let Some(namespace) = scope.in_namespace().filter(|_| !resource.namespaced) {
            return Err(LookupFailure::Unknown(format!(
                "{resource} are cluster-scoped and cannot be watched in namespace {namespace:?}; leave out namespace"
            )));
        }
        let builder = session.factory.builder_with::<Lazy<JsonTree>>(&resource.api_resource, scope.clone());
        let builder = builder.protobuf(*protobuf).delta_compressed(true);
        let builder = if *managed_fields { builder.keep_managed_fields() } else { builder };
        let builder = match memory_limit {
            Some(limit) => builder.memory_limit(*limit),
            None => builder,
        };
        let builder = match session.checkpoint.lock().clone().filter(|_| checkpoint.includes(&resource)) {
            Some(file) if *checkpoint == CheckpointUse::Requested => builder.checkpoint(&file).including_secrets(),
            Some(file) => builder.checkpoint(&file),
            None => builder,
        };
        let informer = builder.start().map_err(|error| LookupFailure::Unknown(error.to_string()))?;
        let index = |(name, path): &(String, Path)| (name.clone(), index(&informer, path.clone()));
        let indexes = indexes.iter().map(index).collect();
        let api_resource = &resource.api_resource;
        let kind =
            Kind { api_version: api_resource.api_version.as_str().into(), kind: api_resource.kind.as_str().into() };
        let resource = Arc::new(Resource { kind, served: resource });
        let running_informer = Arc::new(RunningInformer { informer, resource, indexes });
        let mut phase = self.phase.lock();
        // The informer may have been ended during the attempt. Its only handle is then dropped here.
        if matches!(&*phase, InformerPhase::Discovering) {
            *phase = InformerPhase::Running(running_informer);
        }
        Ok(())
    }
}

impl CheckpointUse {
    /// Returns true if a cache of `resource` is stored.
    fn includes(self, resource: &ServedResource) -> bool {
        let ApiResource { group, plural, .. } = &resource.api_resource;
        match self {
            Self::Never => false,
            Self::ByDefault => !(group.is_empty() && plural == "secrets"),
            Self::Requested => true,
        }
    }
}

impl RunningInformer {
    pub(crate) fn resource(&self) -> &Arc<Resource> {
        &self.resource
    }

    /// Returns the state to keep after the end.
    fn ended(&self, name: String) -> EndedInformer {
        let snapshot = self.informer.snapshot();
        EndedInformer {
            ended_at: Instant::now(),
            name,
            resource: Some(self.resource.clone()),
            version: snapshot.version().cloned(),
            snapshot: self.informer.has_synced().then_some(snapshot),
            indexes: self.indexes.iter().map(|(name, index)| (name.clone(), index.snapshot())).collect(),
        }
    }
}

fn index(informer: &Informer<Lazy<JsonTree>>, path: Path) -> Index<Lazy<JsonTree>, String> {
    informer.index(move |object: &Lazy<JsonTree>| {
        let mut values = Vec::new();
        // An undecodable object has no values; the decoding error is reported when the object is read.
        if let Ok(Some(node)) = object.read::<Node>(path.prefix()) {
            path.visit(&node, &mut |node| index_values(node, &mut values));
        }
        values.sort_unstable();
        values.dedup();
        values
    })
}

/// Returns the pause after a failed lookup, and doubles the delay for the next one.
fn next_pause(delay: &mut Duration, reason: &str) -> Duration {
    let jitter = 0.75 + 0.5 * random_fraction(reason, *delay);
    let pause = delay.mul_f64(jitter);
    *delay = (*delay * 2).min(RETRY_MAX_DELAY);
    pause
}

/// Returns a number between 0 and 1 that differs between processes and attempts, for jitter.
fn random_fraction(reason: &str, delay: Duration) -> f64 {
    use std::hash::BuildHasher;
    let random = std::collections::hash_map::RandomState::new().hash_one((reason, delay));
    random as f64 / u64::MAX as f64
}
