//! What a server is to be, before it is.

use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use tokio::runtime::Handle;

use crate::clock::Clock;
use crate::cluster::{Cluster, Replica, Settings};
use crate::documents::DocumentCache;
use crate::error::StartError;
use crate::faults::{Conditions, FaultLog, Interception, Rules};
use crate::issued::IssuedTokens;
use crate::namespaces;
use crate::net::{Port, ServerTls, TaskGroup, accept};
use crate::random::Random;
use crate::records::RequestLog;
use crate::resources::{Registry, ResourceDeclaration};
use crate::server::ApiServer;
use crate::signal::Signal;
use crate::status::Status;
use crate::storage::{Asked, Cache, Endings, Part, State, Store, WriteTarget};
use crate::streams::Streams;

/// The calendar of servers in memory, so that their runs repeat exactly.
const MEMORY_EPOCH: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// Describes a server; [`start`](Self::start) starts it.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct ApiServerBuilder {
    replicas: usize,
    tls: bool,
    http2: bool,
    memory: bool,
    port: u16,
    seed: u64,
    declared: Vec<ResourceDeclaration>,
    tokens: Vec<String>,
    users: Vec<(String, String)>,
    closed: bool,
    settings: Settings,
}

impl Default for ApiServerBuilder {
    fn default() -> Self {
        Self {
            replicas: 1,
            tls: false,
            http2: true,
            memory: false,
            port: 0,
            seed: 0,
            declared: Vec::new(),
            tokens: Vec::new(),
            users: Vec::new(),
            closed: false,
            settings: Settings {
                bookmark_period: Duration::from_secs(60),
                watch_timeout: (Duration::from_secs(1800), Duration::from_secs(3600)),
                freshness_wait: Duration::from_secs(3),
                request_timeout: Duration::from_secs(60),
                namespace_grace: Duration::from_secs(5),
                anonymous: false,
                max_streams: 100,
                watch_backlog: 1000,
                protobuf: false,
                watch_patience: Duration::from_secs(5),
            },
        }
    }
}

impl ApiServerBuilder {
    /// So many replicas, each on a port of its own; at least one.
    #[must_use]
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas.max(1);
        self
    }

    /// TLS, with a certificate authority made for this server.
    #[must_use]
    pub fn tls(mut self, on: bool) -> Self {
        self.tls = on;
        self
    }

    /// Whether TLS clients are offered HTTP/2; without TLS, clients choose.
    #[must_use]
    pub fn http2(mut self, on: bool) -> Self {
        self.http2 = on;
        self
    }

    /// Answers are in protobuf where that is preferred, as a real server's are; unless this is set they are JSON, whatever
    /// is preferred. Bodies of requests may be in protobuf in any case.
    #[must_use]
    pub fn protobuf(mut self, on: bool) -> Self {
        self.settings.protobuf = on;
        self
    }

    /// No sockets: connections are made by [`ApiServer::connect`], the calendar begins with 2026.
    #[must_use]
    pub fn in_memory(mut self) -> Self {
        self.memory = true;
        self
    }

    /// The port of the first replica, the others follow; 0, the default, takes free ones.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// The seed of all randomness: UIDs, generated names, timeouts.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// A token that is accepted; with one or more, requests without are answered `401`.
    #[must_use]
    pub fn token(mut self, token: &str) -> Self {
        self.tokens.push(token.to_owned());
        self
    }

    /// A user who may log in with `password`; requests by nobody known are answered `401` then.
    #[must_use]
    pub fn user(mut self, name: &str, password: &str) -> Self {
        self.users.push((name.to_owned(), password.to_owned()));
        self
    }

    /// Requests without a token, a password or a certificate of
    /// [`issue_client_certificate`](ApiServer::issue_client_certificate) are answered `401`.
    #[must_use]
    pub fn closed(mut self) -> Self {
        self.closed = true;
        self
    }

    /// Accepts requests without an `Authorization` header although tokens or users exist; a wrong token is still answered
    /// `401`. Off by default.
    ///
    /// Clients built on client-go send no token over plain HTTP. Any page in a browser can send requests without a token as
    /// well; such a request is answered `403` if its `Origin` is another one, or its `Host` is a name other than `localhost`.
    #[must_use]
    pub fn anonymous(mut self, on: bool) -> Self {
        self.settings.anonymous = on;
        self
    }

    /// A custom resource served from the start.
    #[must_use]
    pub fn resource(mut self, resource: ResourceDeclaration) -> Self {
        self.declared.push(resource);
        self
    }

    /// How often watches that allow it get a bookmark; a minute unless set.
    #[must_use]
    pub fn bookmark_period(mut self, period: Duration) -> Self {
        self.settings.bookmark_period = period;
        self
    }

    /// The bounds between which a watch without a timeout of its own is ended; 30 and 60 minutes unless set.
    #[must_use]
    pub fn watch_timeout(mut self, bounds: std::ops::Range<Duration>) -> Self {
        self.settings.watch_timeout = (bounds.start, bounds.end);
        self
    }

    /// How long reads wait for a cache to reach a version; 3 s unless set.
    #[must_use]
    pub fn freshness_wait(mut self, wait: Duration) -> Self {
        self.settings.freshness_wait = wait;
        self
    }

    /// How long requests wait for a frozen etcd; 60 s unless set.
    #[must_use]
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.settings.request_timeout = timeout;
        self
    }

    /// How long a namespace whose deletion was requested keeps its contents, as `Terminating`; 5 s unless set. With zero
    /// they go at once, and it with them.
    #[must_use]
    pub fn namespace_grace(mut self, grace: Duration) -> Self {
        self.settings.namespace_grace = grace;
        self
    }

    /// Streams that one HTTP/2 connection may have open; 100 unless set.
    #[must_use]
    pub fn max_streams(mut self, streams: u32) -> Self {
        self.settings.max_streams = streams;
        self
    }

    /// A watch is closed when more than `events` wait for it and its client took nothing for `patience`; 1000 events
    /// and 5 s unless set.
    #[must_use]
    pub fn slow_watch(mut self, events: usize, patience: Duration) -> Self {
        self.settings.watch_backlog = events;
        self.settings.watch_patience = patience;
        self
    }

    /// Starts the server on the current tokio runtime.
    ///
    /// # Errors
    /// Where a port or a certificate cannot be had, or where there is no runtime.
    #[allow(clippy::unused_async, reason = "it is awaited like every start, and may have to wait one day")]
    pub async fn start(self) -> Result<ApiServer, StartError> {
        let runtime = Handle::try_current()?;
        let tls = self.tls.then(|| ServerTls::generate(self.http2)).transpose()?;
        let wall = if self.memory { MEMORY_EPOCH } else { Timestamp::now() };
        let clock = Clock::starting_at(wall);
        let mut random = Random::seeded(self.seed);
        let timeouts = Random::seeded(random.next());
        let endings = Endings::with_grace(self.settings.namespace_grace);
        let mut state = State::new(clock, random, Registry::with_declared(&self.declared), endings);
        // Before the first namespace: a watch from the very first version sees them come.
        state.caches = vec![Cache::starting_at(state.revision()); self.replicas];
        for namespace in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            create_namespace(&mut state, namespace)?;
        }
        state.advance_caches();
        let replicas = (0..self.replicas).map(|index| self.replica(index)).collect::<io::Result<Vec<_>>>()?;
        let changed = Signal::new();
        let cluster = Arc::new(Cluster {
            settings: self.settings,
            clock,
            store: Store::new(state, changed.clone()),
            changed,
            replicas,
            tls: Mutex::new(tls),
            requests: RequestLog::default(),
            documents: DocumentCache::default(),
            fault_log: FaultLog::default(),
            rules: Rules::default(),
            interception: Interception::default(),
            tokens: Mutex::new(self.tokens),
            closed: self.closed,
            issued: IssuedTokens::default(),
            users: self.users,
            random: Mutex::new(timeouts),
            links: Mutex::new(Vec::new()),
            next_link: AtomicU64::new(0),
        });
        let tasks = TaskGroup::on(runtime);
        tasks.spawn(namespaces::keep(Arc::clone(&cluster)));
        for (index, replica) in cluster.replicas.iter().enumerate() {
            if let Some(port) = &replica.port {
                port.set_open(true)?;
                tasks.spawn(accept(Arc::clone(&cluster), index, Arc::clone(&tasks)));
            }
        }
        Ok(ApiServer::new(cluster, tasks))
    }

    fn replica(&self, index: usize) -> io::Result<Replica> {
        let port = match self.port {
            0 => 0,
            first => first.saturating_add(u16::try_from(index).unwrap_or(u16::MAX)),
        };
        Ok(Replica {
            port: if self.memory { None } else { Some(Port::reserve(port)?) },
            conditions: Conditions::default(),
            streams: Streams::default(),
            asked_for: AtomicU64::new(0),
        })
    }
}

impl ApiServer {
    /// Starts a server with one replica, without TLS, on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// Where no port can be had, or where there is no tokio runtime.
    pub async fn start() -> Result<Self, StartError> {
        Self::builder().start().await
    }

    /// Describes a server to start.
    pub fn builder() -> ApiServerBuilder {
        ApiServerBuilder::default()
    }
}

fn create_namespace(state: &mut State, name: &str) -> Result<(), Status> {
    let Some(resource) = state.registry.of_kind("v1", "Namespace").cloned() else { return Ok(()) };
    let target = WriteTarget {
        resource,
        namespace: String::new(),
        name: name.to_owned(),
        part: Part::Whole,
        dry_run: false,
        asked: Asked::default(),
    };
    state.create(&target, json!({"metadata": {"name": name}}))?;
    Ok(())
}
