//! Configuration of a server.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::json;
use tokio::runtime::Handle;

use crate::backend::{Backend, HistoryBackend};
use crate::clock::Clock;
use crate::cluster::{Cluster, Replica, Settings};
use crate::connections::accept;
use crate::documents::DocumentCache;
use crate::error::StartError;
use crate::faults::{FaultLog, Interception, Rules, SharedReplicaFaults};
use crate::issued_tokens::IssuedTokens;
use crate::namespaces;
use crate::net::{Port, ServerTls, TaskGroup};
use crate::random::Random;
use crate::records::RequestLog;
use crate::resources::{NAMESPACES, Registry, ResourceDeclaration};
use crate::server::ApiServer;
use crate::signal::Signal;
use crate::snapshot::Snapshot;
use crate::status::Status;
use crate::storage::{Cache, ObjectKey, RequestProperties, State, Store, TerminatingNamespaces, WriteTarget};
use crate::streams::Streams;
#[cfg(feature = "world")]
use crate::world::{self, World};
use crate::write_scope::WriteScope;

/// Wall-clock time at the start of a server in memory: 2026-01-01T00:00:00Z. The time is constant, so that runs are
/// reproducible.
const MEMORY_EPOCH: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// Configuration of a server. [`start`](Self::start) starts the server.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is an independent option")]
pub struct ApiServerBuilder {
    replicas: usize,
    tls: bool,
    offers_http2: bool,
    is_in_memory: bool,
    port: u16,
    seed: u64,
    declared_resources: Vec<ResourceDeclaration>,
    tokens: Vec<String>,
    users: Vec<(String, String)>,
    requires_credentials: bool,
    snapshot: Option<Snapshot>,
    #[cfg(feature = "world")]
    world: Option<World>,
    settings: Settings,
}

impl Default for ApiServerBuilder {
    fn default() -> Self {
        Self {
            replicas: 1,
            tls: false,
            offers_http2: true,
            is_in_memory: false,
            port: 0,
            seed: 0,
            declared_resources: Vec::new(),
            tokens: Vec::new(),
            users: Vec::new(),
            requires_credentials: false,
            snapshot: None,
            #[cfg(feature = "world")]
            world: None,
            settings: Settings {
                bookmark_period: Duration::from_secs(60),
                watch_timeout: (Duration::from_secs(1800), Duration::from_secs(3600)),
                cache_catch_up_timeout: Duration::from_secs(3),
                request_timeout: Duration::from_secs(60),
                namespace_termination_delay: Duration::from_secs(5),
                allows_anonymous: false,
                max_streams: 100,
                watch_backlog: 1000,
                allows_protobuf: false,
                slow_watch_timeout: Duration::from_secs(5),
            },
        }
    }
}

impl ApiServerBuilder {
    /// Sets the number of replicas, each on its own port. At least 1. Defaults to 1.
    #[must_use]
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas.max(1);
        self
    }

    /// Enables TLS with a certificate authority that is created for this server. Defaults to off.
    #[must_use]
    pub fn tls(mut self, on: bool) -> Self {
        self.tls = on;
        self
    }

    /// Sets whether TLS clients are offered HTTP/2. Without TLS, the client chooses the protocol. Defaults to on.
    #[must_use]
    pub fn http2(mut self, on: bool) -> Self {
        self.offers_http2 = on;
        self
    }

    /// Sends responses in protobuf if the client prefers protobuf, like a real server. Defaults to off: responses are
    /// JSON. The server accepts request bodies in protobuf in both cases.
    #[must_use]
    pub fn protobuf(mut self, on: bool) -> Self {
        self.settings.allows_protobuf = on;
        self
    }

    /// Uses no sockets: connections are created by [`ApiServer::connect`]. The simulated wall clock starts at
    /// 2026-01-01T00:00:00Z.
    #[must_use]
    pub fn in_memory(mut self) -> Self {
        self.is_in_memory = true;
        self
    }

    /// Sets the port of the first replica; the other replicas use the next ports. Defaults to 0: the system chooses
    /// free ports.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Sets the seed of all random values: UIDs, generated names and timeouts. Defaults to 0.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Adds an accepted bearer token. If any token is set, requests without known credentials are rejected with `401`.
    #[must_use]
    pub fn token(mut self, token: &str) -> Self {
        self.tokens.push(token.to_owned());
        self
    }

    /// Adds a user that authenticates with `password`. Requests without known credentials are then rejected with `401`.
    #[must_use]
    pub fn user(mut self, name: &str, password: &str) -> Self {
        self.users.push((name.to_owned(), password.to_owned()));
        self
    }

    /// Rejects requests without a token, a password or a certificate of
    /// [`issue_client_certificate`](ApiServer::issue_client_certificate) with `401`.
    #[must_use]
    pub fn require_credentials(mut self) -> Self {
        self.requires_credentials = true;
        self
    }

    /// Accepts requests without an `Authorization` header although tokens or users exist. A wrong token is still
    /// rejected with `401`. Defaults to off.
    ///
    /// Clients built on client-go send no token over plain HTTP. Any page in a browser can send requests without a
    /// token as well. Such a request is rejected with `403` if its `Origin` is another origin. The status is also `403`
    /// if its `Host` is a name other than `localhost`.
    #[must_use]
    pub fn anonymous(mut self, on: bool) -> Self {
        self.settings.allows_anonymous = on;
        self
    }

    /// Adds a custom resource that is served from the start.
    #[must_use]
    pub fn resource(mut self, resource: ResourceDeclaration) -> Self {
        self.declared_resources.push(resource);
        self
    }

    /// Continues from the objects and revisions of another server, with their UIDs and resource versions. Defaults to an
    /// empty server.
    ///
    /// Watches from a revision before the start of this server receive `410 Expired`. Tokens, certificates, faults and
    /// records of the other server are not part of the snapshot.
    #[must_use]
    pub fn snapshot(mut self, snapshot: Snapshot) -> Self {
        self.snapshot = Some(snapshot);
        self
    }

    /// Starts simulated controllers, a scheduler and nodes with the server: deployments get pods, and pods become
    /// ready. Defaults to none.
    #[cfg(feature = "world")]
    #[must_use]
    pub fn world(mut self, world: World) -> Self {
        self.world = Some(world);
        self
    }

    /// Sets the interval of bookmarks in watches that allow them. Defaults to one minute.
    #[must_use]
    pub fn bookmark_period(mut self, period: Duration) -> Self {
        self.settings.bookmark_period = period;
        self
    }

    /// Sets the range of the random timeout for watches without their own timeout. Defaults to 30 to 60 minutes.
    #[must_use]
    pub fn watch_timeout(mut self, bounds: std::ops::Range<Duration>) -> Self {
        self.settings.watch_timeout = (bounds.start, bounds.end);
        self
    }

    /// Sets the maximum time that a read waits for a cache to reach a version. Defaults to 3 s.
    #[must_use]
    pub fn cache_catch_up_timeout(mut self, wait: Duration) -> Self {
        self.settings.cache_catch_up_timeout = wait;
        self
    }

    /// Sets the maximum time that a request waits for a frozen etcd. Defaults to 60 s.
    #[must_use]
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.settings.request_timeout = timeout;
        self
    }

    /// Sets the time that a deleted namespace keeps its contents, with the phase `Terminating`. Defaults to 5 s. With
    /// zero, the contents and the namespace are removed immediately.
    #[must_use]
    pub fn namespace_termination_delay(mut self, delay: Duration) -> Self {
        self.settings.namespace_termination_delay = delay;
        self
    }

    /// Sets the maximum number of open streams per HTTP/2 connection. Defaults to 100.
    #[must_use]
    pub fn max_streams(mut self, streams: u32) -> Self {
        self.settings.max_streams = streams;
        self
    }

    /// Closes a watch if more than `events` are pending and its client has read nothing for `timeout`. Defaults to
    /// 1000 events and 5 s.
    #[must_use]
    pub fn slow_watch_limits(mut self, events: usize, timeout: Duration) -> Self {
        self.settings.watch_backlog = events;
        self.settings.slow_watch_timeout = timeout;
        self
    }

    /// Starts the server on the current tokio runtime.
    ///
    /// # Errors
    /// Returns an error if a port cannot be opened, if a certificate cannot be created, or if no tokio runtime is
    /// running.
    pub async fn start(self) -> Result<ApiServer, StartError> {
        let request_timeout = self.settings.request_timeout;
        self.start_with(|store, replica, _| Arc::new(HistoryBackend::new(Arc::clone(store), replica, request_timeout)))
            .await
    }

    /// Starts the server with a backend for each replica. `backend` receives the embedded history, the number of the
    /// replica, and the signal that the backend raises after each change.
    #[allow(clippy::unused_async, reason = "callers already await the start, which may become asynchronous")]
    pub(crate) async fn start_with(
        self,
        backend: impl Fn(&Arc<Store>, usize, &Signal) -> Arc<dyn Backend>,
    ) -> Result<ApiServer, StartError> {
        let runtime = Handle::try_current()?;
        let tls = self.tls.then(|| ServerTls::generate(self.offers_http2)).transpose()?;
        let start_time = if self.is_in_memory { MEMORY_EPOCH } else { Timestamp::now() };
        let clock = Clock::starting_at(start_time);
        let mut random = Random::seeded(self.seed);
        // Timeouts of watches have a separate generator, so that they do not influence generated names and UIDs.
        let timeout_random = Random::seeded(random.next());
        let terminating = TerminatingNamespaces::with_delay(self.settings.namespace_termination_delay);
        let mut state = State::new(clock, random, Registry::with_declared(&self.declared_resources), terminating);
        if let Some(snapshot) = &self.snapshot {
            state.load(snapshot);
        }
        // The caches start before the first namespace is created, so that a watch from the first version receives the
        // event of that namespace.
        state.caches = vec![Cache::starting_at(state.revision()); self.replicas];
        for namespace in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            create_namespace(&mut state, namespace)?;
        }
        state.advance_caches();
        let changed = Signal::new();
        let store = Arc::new(Store::new(state, changed.clone()));
        let replica = |index| self.build_replica(index, backend(&store, index, &changed));
        let replicas = (0..self.replicas).map(replica).collect::<io::Result<Vec<_>>>()?;
        let cluster = Arc::new(Cluster {
            settings: self.settings,
            clock,
            store,
            changed,
            replicas,
            tls: Mutex::new(tls),
            requests: RequestLog::default(),
            documents: DocumentCache::default(),
            fault_log: FaultLog::default(),
            rules: Rules::default(),
            interception: Interception::default(),
            tokens: Mutex::new(self.tokens),
            requires_credentials: self.requires_credentials,
            issued_tokens: IssuedTokens::default(),
            users: self.users,
            random: Mutex::new(timeout_random),
            links: Mutex::new(Vec::new()),
            next_link: AtomicU64::new(0),
        });
        let tasks = TaskGroup::with_runtime(runtime);
        tasks.spawn(namespaces::run(Arc::clone(&cluster)));
        #[cfg(feature = "world")]
        if let Some(world) = self.world {
            tasks.spawn(world::run(Arc::clone(&cluster), world));
        }
        for (index, replica) in cluster.replicas.iter().enumerate() {
            if let Some(port) = &replica.port {
                port.set_open(true)?;
                tasks.spawn(accept(Arc::clone(&cluster), index, Arc::clone(&tasks)));
            }
        }
        Ok(ApiServer::new(cluster, tasks))
    }

    fn build_replica(&self, index: usize, backend: Arc<dyn Backend>) -> io::Result<Replica> {
        let port = match self.port {
            0 => 0,
            first => first.saturating_add(u16::try_from(index).unwrap_or(u16::MAX)),
        };
        Ok(Replica {
            port: if self.is_in_memory { None } else { Some(Port::reserve(port)?) },
            backend,
            active_faults: SharedReplicaFaults::default(),
            streams: Streams::default(),
            requested_revision: AtomicU64::new(0),
        })
    }
}

impl ApiServer {
    /// Starts a server with one replica, without TLS, on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// Returns an error if no port can be opened, or if no tokio runtime is running.
    pub async fn start() -> Result<Self, StartError> {
        Self::builder().start().await
    }

    /// Creates a builder with the default configuration.
    pub fn builder() -> ApiServerBuilder {
        ApiServerBuilder::default()
    }
}

fn create_namespace(state: &mut State, name: &str) -> Result<(), Status> {
    let Some(resource) = state.registry.find_kind("v1", "Namespace").cloned() else { return Ok(()) };
    // A snapshot usually contains the namespace.
    if state.latest(&NAMESPACES, &ObjectKey::new("", name)).is_some() {
        return Ok(());
    }
    let target = WriteTarget {
        resource,
        namespace: String::new(),
        name: name.to_owned(),
        write_scope: WriteScope::Whole,
        is_dry_run: false,
        request: RequestProperties::default(),
    };
    state.create(&target, json!({"metadata": {"name": name}}))?;
    Ok(())
}
