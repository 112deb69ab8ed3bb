//! Life cycle of an informer: first the discovery of its resource, then the library's informer, then its last snapshot.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use steadfast::unstable::catalog::ServedResource;
use steadfast::{Doubt, Index, IndexSnapshot, Informer, Lazy, ResourceVersion, Scope, Snapshot};
use tokio::sync::watch;

use crate::errors::State;
use crate::object::Kind;
use crate::path::{Path, index_values};
use crate::session::{LookupFailure, Session};
use crate::stream::StreamState;
use crate::tree::{Node, Tree};

const RETRY_INITIAL_DELAY: Duration = Duration::from_millis(250);
const RETRY_MAX_DELAY: Duration = Duration::from_secs(8);

/// Delay before the next attempt for a resource that the server does not have. A definition may add it later.
const UNKNOWN_KIND_DELAY: Duration = Duration::from_secs(30);

/// Settings of an informer.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// Resource, by any name that kubectl takes.
    pub(crate) name: String,
    pub(crate) scope: Scope,
    pub(crate) indexes: Vec<(String, Path)>,
    pub(crate) managed_fields: bool,
    pub(crate) protobuf: bool,
    pub(crate) memory_limit: Option<usize>,
}

/// Informer that runs.
pub(crate) struct Started {
    pub(crate) informer: Informer<Lazy<Tree>>,
    resource: Arc<Resource>,
    indexes: BTreeMap<String, Index<Lazy<Tree>, String>>,
}

/// Resource of an informer.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    pub(crate) kind: Kind,
    pub(crate) served: ServedResource,
}

/// Informer that has ended. It keeps the last snapshot, and no part of the library that owns threads.
struct Ended {
    at: Instant,
    name: String,
    resource: Option<Arc<Resource>>,
    /// `None` if the informer was not synced.
    snapshot: Option<Arc<Snapshot<Lazy<Tree>>>>,
    indexes: BTreeMap<String, Values>,
    version: Option<ResourceVersion>,
}

/// Values of an index at one instant.
pub(crate) type Values = Arc<IndexSnapshot<Lazy<Tree>, String>>;

enum Phase {
    Discovering,
    Running(Arc<Started>),
    Ended(Ended),
}

/// Snapshot of a synced cache.
pub(crate) struct View {
    pub(crate) resource: Arc<Resource>,
    pub(crate) snapshot: Arc<Snapshot<Lazy<Tree>>>,
}

/// Informer that will run, runs, or has ended.
pub(crate) struct Watching {
    pub(crate) request: Request,
    phase: Mutex<Phase>,
    discovery: Mutex<Discovery>,
    streams: Mutex<Vec<Weak<Mutex<StreamState>>>>,
    /// Counter that increases at each failed attempt, at the start and at the end of the informer.
    moved: watch::Sender<u64>,
}

struct Discovery {
    since: Instant,
    why: String,
    attempts: u32,
    next: Option<Instant>,
    /// Set after the server responded that it has no such resource.
    unknown: bool,
}

impl Watching {
    pub(crate) fn new(request: Request) -> Arc<Self> {
        let discovery = Discovery {
            since: Instant::now(),
            why: format!("the resource {:?} is being looked up", request.name),
            attempts: 0,
            next: None,
            unknown: false,
        };
        Arc::new(Self {
            request,
            phase: Mutex::new(Phase::Discovering),
            discovery: Mutex::new(discovery),
            streams: Mutex::default(),
            moved: watch::Sender::new(0),
        })
    }

    /// Returns the informer of the library while it runs.
    pub(crate) fn started(&self) -> Option<Arc<Started>> {
        match &*self.phase.lock() {
            Phase::Running(started) => Some(started.clone()),
            Phase::Discovering | Phase::Ended(_) => None,
        }
    }

    pub(crate) fn is_ended(&self) -> bool {
        matches!(&*self.phase.lock(), Phase::Ended(_))
    }

    /// Returns the resource; `None` before its discovery.
    pub(crate) fn resource(&self) -> Option<Arc<Resource>> {
        match &*self.phase.lock() {
            Phase::Discovering => None,
            Phase::Running(started) => Some(started.resource.clone()),
            Phase::Ended(ended) => ended.resource.clone(),
        }
    }

    /// Returns a snapshot of a synced cache, running or ended.
    pub(crate) fn view(&self) -> Option<View> {
        match &*self.phase.lock() {
            Phase::Discovering => None,
            Phase::Running(started) => {
                let snapshot = started.informer.has_synced().then(|| started.informer.snapshot())?;
                Some(View { resource: started.resource.clone(), snapshot })
            }
            Phase::Ended(ended) => Some(View { resource: ended.resource.clone()?, snapshot: ended.snapshot.clone()? }),
        }
    }

    /// Returns the current values of an index, or the names of all indexes.
    pub(crate) fn index(&self, name: &str) -> Result<Values, Vec<String>> {
        let found = match &*self.phase.lock() {
            Phase::Discovering => None,
            Phase::Running(started) => started.indexes.get(name).map(Index::snapshot),
            Phase::Ended(ended) => ended.indexes.get(name).cloned(),
        };
        found.ok_or_else(|| self.request.indexes.iter().map(|(name, _)| name.clone()).collect())
    }

    /// Returns the name for messages.
    pub(crate) fn display_name(&self) -> String {
        match &*self.phase.lock() {
            Phase::Discovering => format!("{} in {}", self.request.name, self.request.scope),
            Phase::Running(started) => started.informer.name().to_owned(),
            Phase::Ended(ended) => ended.name.clone(),
        }
    }

    pub(crate) fn state(&self) -> State {
        let now = Instant::now();
        match &*self.phase.lock() {
            Phase::Running(started) => return State::Informer(started.informer.freshness()),
            Phase::Ended(ended) => {
                let mut doubt = Doubt::new(now - ended.at, "stopped");
                doubt.version.clone_from(&ended.version);
                return State::Ended(doubt);
            }
            Phase::Discovering => {}
        }
        let discovery = self.discovery.lock();
        let mut doubt = Doubt::new(now - discovery.since, discovery.why.as_str());
        doubt.attempts = discovery.attempts;
        doubt.next_attempt = discovery.next.map(|next| next.saturating_duration_since(now));
        State::Discovering { unknown: discovery.unknown, doubt }
    }

    /// Waits until the informer runs. Returns `None` if the server has no such resource, or after the end.
    pub(crate) async fn until_started(&self) -> Option<Arc<Started>> {
        self.until(|| self.discovery.lock().unknown || self.is_ended()).await
    }

    /// Waits until the informer runs, also if its resource is added later. Returns `None` after the end.
    pub(crate) async fn until_running(&self) -> Option<Arc<Started>> {
        self.until(|| self.is_ended()).await
    }

    async fn until(&self, is_over: impl Fn() -> bool) -> Option<Arc<Started>> {
        let mut started = None;
        let is_decided = |_: &u64| {
            started = self.started();
            started.is_some() || is_over()
        };
        // The sender lives as long as `self`.
        let _ = self.moved.subscribe().wait_for(is_decided).await;
        started
    }

    /// Waits until the end.
    pub(crate) async fn until_ended(&self) {
        let _ = self.moved.subscribe().wait_for(|_| self.is_ended()).await;
    }

    /// Returns a counter that changes at each attempt, at the start and at the end.
    pub(crate) fn moved(&self) -> watch::Receiver<u64> {
        self.moved.subscribe()
    }

    /// Adds a stream, which the end of the informer closes.
    pub(crate) fn add_stream(&self, stream: &Arc<Mutex<StreamState>>) {
        let mut streams = self.streams.lock();
        streams.retain(|stream| stream.strong_count() > 0);
        streams.push(Arc::downgrade(stream));
    }

    /// Ends the informer, before or after its start. Readers keep the last snapshot.
    ///
    /// The library's informer ends with its last handle: other Python informers may share it.
    pub(crate) fn stop(&self) {
        let name = self.display_name();
        let ended = match self.started() {
            Some(started) => started.ended(name),
            None => Ended {
                at: Instant::now(),
                name,
                resource: None,
                snapshot: None,
                indexes: BTreeMap::new(),
                version: None,
            },
        };
        let replaced = {
            let mut phase = self.phase.lock();
            if matches!(&*phase, Phase::Ended(_)) {
                return;
            }
            std::mem::replace(&mut *phase, Phase::Ended(ended))
        };
        // Dropped after the lock is released, because dropping the last handle ends the library's informer.
        drop(replaced);
        let streams = std::mem::take(&mut *self.streams.lock());
        for stream in streams.iter().filter_map(Weak::upgrade) {
            stream.lock().close();
        }
        self.tell();
    }

    fn tell(&self) {
        self.moved.send_modify(|count| *count += 1);
    }

    /// Finds the resource and starts the informer. Repeats failed attempts until the informers end.
    pub(crate) async fn run(self: Arc<Self>, session: Arc<Session>) {
        let mut delay = RETRY_INITIAL_DELAY;
        while !self.is_ended() {
            let (why, unknown, pause) = match self.attempt(&session).await {
                Ok(()) => return self.tell(),
                Err(LookupFailure::Request(why)) => {
                    let jitter = 0.75 + 0.5 * fraction(&why, delay);
                    let pause = delay.mul_f64(jitter);
                    delay = (delay * 2).min(RETRY_MAX_DELAY);
                    (why, false, pause)
                }
                Err(LookupFailure::Unknown(why)) => (why, true, UNKNOWN_KIND_DELAY),
            };
            {
                let mut discovery = self.discovery.lock();
                (discovery.why, discovery.unknown) = (why, unknown);
                discovery.attempts += 1;
                discovery.next = Some(Instant::now() + pause);
            }
            self.tell();
            // The end of the informer ends the pause.
            let _ = tokio::time::timeout(pause, self.until_ended()).await;
        }
    }

    async fn attempt(&self, session: &Session) -> Result<(), LookupFailure> {
        let resource = session.resolve(&self.request.name).await?;
        let Request { scope, indexes, managed_fields, protobuf, memory_limit, .. } = &self.request;
        if let Some(namespace) = scope.in_namespace().filter(|_| !resource.namespaced) {
            return Err(LookupFailure::Unknown(format!(
                "{resource} are cluster-scoped and cannot be watched in namespace {namespace:?}; leave out namespace"
            )));
        }
        let builder = session.factory.builder_with::<Lazy<Tree>>(&resource.api_resource, scope.clone());
        let builder = builder.protobuf(*protobuf).packed(true);
        let builder = if *managed_fields { builder.keep_managed_fields() } else { builder };
        let builder = match memory_limit {
            Some(limit) => builder.memory_limit(*limit),
            None => builder,
        };
        let informer = builder.start().map_err(|error| LookupFailure::Unknown(error.to_string()))?;
        let index = |(name, path): &(String, Path)| (name.clone(), index(&informer, path.clone()));
        let indexes = indexes.iter().map(index).collect();
        let api_resource = &resource.api_resource;
        let kind =
            Kind { api_version: api_resource.api_version.as_str().into(), kind: api_resource.kind.as_str().into() };
        let resource = Arc::new(Resource { kind, served: resource });
        let started = Arc::new(Started { informer, resource, indexes });
        let mut phase = self.phase.lock();
        // The informer may have been ended during the attempt. Its only handle is then dropped here.
        if matches!(&*phase, Phase::Discovering) {
            *phase = Phase::Running(started);
        }
        Ok(())
    }
}

impl Started {
    pub(crate) fn resource(&self) -> &Arc<Resource> {
        &self.resource
    }

    /// Returns the state to keep after the end.
    fn ended(&self, name: String) -> Ended {
        let snapshot = self.informer.snapshot();
        Ended {
            at: Instant::now(),
            name,
            resource: Some(self.resource.clone()),
            version: snapshot.version().cloned(),
            snapshot: self.informer.has_synced().then_some(snapshot),
            indexes: self.indexes.iter().map(|(name, index)| (name.clone(), index.snapshot())).collect(),
        }
    }
}

fn index(informer: &Informer<Lazy<Tree>>, path: Path) -> Index<Lazy<Tree>, String> {
    informer.index(move |object: &Lazy<Tree>| {
        let mut values = Vec::new();
        // An undecodable object has no values; the decoding error is reported when the object is read.
        if let Ok(Some(node)) = object.read::<Node>(path.first()) {
            path.visit(&node, &mut |node| index_values(node, &mut values));
        }
        values.sort_unstable();
        values.dedup();
        values
    })
}

/// Returns a number between 0 and 1 that differs between processes and attempts, for jitter.
fn fraction(why: &str, delay: Duration) -> f64 {
    use std::hash::BuildHasher;
    let random = std::collections::hash_map::RandomState::new().hash_one((why, delay));
    random as f64 / u64::MAX as f64
}
