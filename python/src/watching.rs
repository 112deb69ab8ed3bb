//! An informer from its request on: first the discovery of its resource, then the library's informer.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use steadfast::unstable::catalog::{NotFound, ServedResource};
use steadfast::unstable::cause::root_cause;
use steadfast::{Doubt, Index, Informer, Lazy, Scope};
use tokio::sync::watch;

use crate::errors::State;
use crate::object::Kind;
use crate::path::{Path, index_values};
use crate::session::Session;
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
    pub(crate) kind: Kind,
    pub(crate) resource: ServedResource,
    pub(crate) indexes: BTreeMap<String, Index<Lazy<Tree>, String>>,
}

/// Informer that runs or will run.
pub(crate) struct Watching {
    pub(crate) request: Request,
    started: OnceLock<Started>,
    discovery: Mutex<Discovery>,
    /// Counter of attempts, and of the start and the stop.
    moved: watch::Sender<u64>,
}

struct Discovery {
    since: Instant,
    why: String,
    attempts: u32,
    next: Option<Instant>,
    /// Set after the server responded that it has no such resource.
    unknown: bool,
    stopped: bool,
}

impl Watching {
    pub(crate) fn new(request: Request) -> Arc<Self> {
        let discovery = Discovery {
            since: Instant::now(),
            why: format!("the resource {:?} is being looked up", request.name),
            attempts: 0,
            next: None,
            unknown: false,
            stopped: false,
        };
        let (started, discovery) = (OnceLock::new(), Mutex::new(discovery));
        Arc::new(Self { request, started, discovery, moved: watch::Sender::new(0) })
    }

    pub(crate) fn started(&self) -> Option<&Started> {
        self.started.get()
    }

    /// Returns the name for messages.
    pub(crate) fn display_name(&self) -> String {
        match self.started() {
            Some(started) => started.informer.name().to_owned(),
            None => format!("{} in {}", self.request.name, self.request.scope),
        }
    }

    pub(crate) fn state(&self) -> State {
        if let Some(started) = self.started() {
            return State::Informer(started.informer.freshness());
        }
        let discovery = self.discovery.lock();
        let now = Instant::now();
        let mut doubt = Doubt::new(now - discovery.since, discovery.why.as_str());
        doubt.attempts = discovery.attempts;
        doubt.next_attempt = discovery.next.map(|next| next.saturating_duration_since(now));
        if discovery.stopped {
            return State::Ended(Doubt::new(now - discovery.since, "stopped"));
        }
        State::Discovering { unknown: discovery.unknown, doubt }
    }

    /// Waits until the informer runs. Returns `None` if the server has no such resource, or if the informers have ended.
    pub(crate) async fn until_started(&self) -> Option<&Started> {
        let mut moved = self.moved.subscribe();
        loop {
            moved.borrow_and_update();
            if let Some(started) = self.started() {
                return Some(started);
            }
            {
                let discovery = self.discovery.lock();
                if discovery.unknown || discovery.stopped {
                    return None;
                }
            }
            // The sender lives as long as `self`.
            let _ = moved.changed().await;
        }
    }

    /// Waits until the informer runs, also if the resource is added later. Returns `None` if the informers have ended.
    pub(crate) async fn until_running(&self) -> Option<&Started> {
        let mut moved = self.moved.subscribe();
        loop {
            moved.borrow_and_update();
            if let Some(started) = self.started() {
                return Some(started);
            }
            if self.discovery.lock().stopped {
                return None;
            }
            let _ = moved.changed().await;
        }
    }

    /// Returns a counter that changes at each attempt, and at the start.
    pub(crate) fn moved(&self) -> watch::Receiver<u64> {
        self.moved.subscribe()
    }

    /// Stops the informer, before or after its start.
    pub(crate) fn stop(&self) {
        self.discovery.lock().stopped = true;
        if let Some(started) = self.started() {
            started.informer.stop();
        }
        self.tell();
    }

    fn is_stopped(&self) -> bool {
        self.discovery.lock().stopped
    }

    fn tell(&self) {
        self.moved.send_modify(|count| *count += 1);
    }

    /// Finds the resource and starts the informer. Repeats failed attempts until the informers end.
    pub(crate) async fn run(self: Arc<Self>, session: Arc<Session>) {
        let mut delay = RETRY_INITIAL_DELAY;
        while !self.is_stopped() {
            let (why, unknown, pause) = match self.attempt(&session).await {
                Ok(()) => {
                    // A stop during the attempt did not find the informer.
                    if let Some(started) = self.started().filter(|_| self.is_stopped()) {
                        started.informer.stop();
                    }
                    self.tell();
                    return;
                }
                Err(Failure::Request(why)) => {
                    let jitter = 0.75 + 0.5 * fraction(&why, delay);
                    let pause = delay.mul_f64(jitter);
                    delay = (delay * 2).min(RETRY_MAX_DELAY);
                    (why, false, pause)
                }
                Err(Failure::Unknown(why)) => (why, true, UNKNOWN_KIND_DELAY),
            };
            {
                let mut discovery = self.discovery.lock();
                (discovery.why, discovery.unknown) = (why, unknown);
                discovery.attempts += 1;
                discovery.next = Some(Instant::now() + pause);
            }
            self.tell();
            let mut moved = self.moved();
            let stopped = async {
                while !self.is_stopped() {
                    let _ = moved.changed().await;
                }
            };
            // A stop ends the pause.
            let _ = tokio::time::timeout(pause, stopped).await;
        }
    }

    async fn attempt(&self, session: &Session) -> Result<(), Failure> {
        let failed = |error: kube::Error| {
            let (server, name) = (session.connection.server(), &self.request.name);
            Failure::Request(format!("cannot look up {name:?} at {server}: {}", root_cause(&error)))
        };
        let catalog = session.catalog(None).await.map_err(failed)?;
        let found = match catalog.find(&self.request.name) {
            // The resource may have been added after the catalog was fetched.
            Err(NotFound::Unknown(_)) => {
                session.catalog(Some(&catalog)).await.map_err(failed)?.find(&self.request.name)
            }
            found => found,
        };
        let resource = found.map_err(|why| Failure::Unknown(why.to_string()))?;
        let Request { scope, indexes, managed_fields, protobuf, memory_limit, .. } = &self.request;
        if let Some(namespace) = scope.in_namespace().filter(|_| !resource.namespaced) {
            return Err(Failure::Unknown(format!(
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
        let informer = builder.start().map_err(|error| Failure::Unknown(error.to_string()))?;
        let index = |(name, path): &(String, Path)| (name.clone(), index(&informer, path.clone()));
        let indexes = indexes.iter().map(index).collect();
        let api_resource = &resource.api_resource;
        let kind = Kind { api_version: api_resource.api_version.as_str().into(), kind: api_resource.kind.as_str().into() };
        // Only this task starts the informer.
        let _ = self.started.set(Started { informer, kind, resource, indexes });
        Ok(())
    }
}

enum Failure {
    /// A request failed; a retry may succeed soon.
    Request(String),
    /// The server has no such resource, or the resource cannot be watched in this way.
    Unknown(String),
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
