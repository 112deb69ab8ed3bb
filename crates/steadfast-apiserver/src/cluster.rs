//! Everything the replicas share, and the replicas.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::clock::Clock;
use crate::documents::DocumentCache;
use crate::faults::{Condition, Conditions, FaultLog, Interception, Rules};
use crate::issued::IssuedTokens;
use crate::net::{Link, Port, ServerTls};
use crate::random::Random;
use crate::records::RequestLog;
use crate::signal::Signal;
use crate::storage::Store;
use crate::streams::Streams;

/// What was settled when the server was built.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// How often a watch that allows it gets a bookmark.
    pub(crate) bookmark_period: Duration,
    /// The bounds between which a watch without a timeout of its own ends.
    pub(crate) watch_timeout: (Duration, Duration),
    /// How long a read waits for a cache to reach a version.
    pub(crate) freshness_wait: Duration,
    /// How long a request waits for a store that is frozen.
    pub(crate) request_timeout: Duration,
    /// How long a namespace that ends keeps its contents.
    pub(crate) namespace_grace: Duration,
    /// Whether requests without credentials are accepted although tokens exist.
    pub(crate) anonymous: bool,
    /// Streams that one HTTP/2 connection may have open.
    pub(crate) max_streams: u32,
    /// A watch that has more events than this waiting …
    pub(crate) watch_backlog: usize,
    /// Whether answers may be in protobuf.
    pub(crate) protobuf: bool,
    /// … and whose client has taken nothing for this long is closed.
    pub(crate) watch_patience: Duration,
}

/// One API server process of the cluster.
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) port: Option<Port>,
    pub(crate) conditions: Conditions,
    pub(crate) streams: Streams,
    /// The revision that the last consistent read asked the cache to reach.
    pub(crate) asked_for: AtomicU64,
}

impl Replica {
    /// Changes what is wrong with it. Its port is open or closed accordingly when this returns.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Condition)) {
        self.conditions.change(|now| {
            change(now);
            if let Some(port) = &self.port
                && let Err(error) = port.set_open(now.reachable())
            {
                tracing::warn!(address = %port.address(), %error, "the port cannot be opened again");
            }
        });
    }
}

/// The whole: one store, several replicas.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) store: Store,
    /// Raised after every change: of the store, of a fault, of a stream's control.
    pub(crate) changed: Signal,
    pub(crate) replicas: Vec<Replica>,
    pub(crate) tls: Mutex<Option<ServerTls>>,
    pub(crate) requests: RequestLog,
    /// `OpenAPI` documents.
    pub(crate) documents: DocumentCache,
    pub(crate) fault_log: FaultLog,
    pub(crate) rules: Rules,
    pub(crate) interception: Interception,
    /// The tokens accepted; everybody is, where there are neither tokens nor users.
    pub(crate) tokens: Mutex<Vec<String>>,
    /// Tokens of service accounts, which are accepted besides.
    pub(crate) issued: IssuedTokens,
    /// Users who are known by their passwords.
    pub(crate) users: Vec<(String, String)>,
    /// Nobody is accepted without having said who it is.
    pub(crate) closed: bool,
    pub(crate) random: Mutex<Random>,
    pub(crate) links: Mutex<Vec<Arc<Link>>>,
    pub(crate) next_link: AtomicU64,
}

impl Cluster {
    /// Records a connection that was just accepted.
    pub(crate) fn open_link(&self, replica: usize) -> Arc<Link> {
        let id = self.next_link.fetch_add(1, Ordering::Relaxed);
        let black_hole = self.replicas[replica].conditions.look(|now| now.black_hole);
        let link = Arc::new(Link::new(id, replica, self.clock.elapsed(), black_hole));
        self.links.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&link));
        link
    }

    /// The connections of a replica that are open.
    pub(crate) fn open_links(&self, replica: usize) -> Vec<Arc<Link>> {
        let links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.iter().filter(|link| link.replica == replica && link.ended().is_none()).cloned().collect()
    }

    /// Resets all open connections of a replica.
    pub(crate) fn reset_links(&self, replica: usize) {
        for link in self.open_links(replica) {
            link.reset(self.clock.elapsed());
        }
    }

    /// The TLS side, as it is now.
    pub(crate) fn tls(&self) -> Option<ServerTls> {
        self.tls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The tokens accepted now.
    pub(crate) fn tokens(&self) -> Vec<String> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_tokens(&self, tokens: &[&str]) {
        let tokens = tokens.iter().map(|&token| token.to_owned()).collect();
        *self.tokens.lock().unwrap_or_else(PoisonError::into_inner) = tokens;
    }

    /// How long a watch without a timeout of its own lives.
    pub(crate) fn draw_watch_timeout(&self) -> Duration {
        let (shortest, longest) = self.settings.watch_timeout;
        let fraction = self.random.lock().unwrap_or_else(PoisonError::into_inner).fraction();
        shortest + longest.saturating_sub(shortest).mul_f64(fraction)
    }
}
