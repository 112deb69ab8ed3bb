//! State shared by all replicas, and the replicas themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::backend::Backend;
use crate::clock::Clock;
use crate::documents::DocumentCache;
use crate::faults::{FaultLog, Interception, ReplicaFaults, Rules, SharedReplicaFaults};
use crate::issued_tokens::IssuedTokens;
use crate::net::{Link, Port, ServerTls};
use crate::random::Random;
use crate::records::RequestLog;
use crate::signal::Signal;
use crate::storage::Store;
use crate::streams::Streams;

/// Settings of the server, fixed at its start.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Interval of bookmarks in watches that allow them.
    pub(crate) bookmark_period: Duration,
    /// Range of the timeout for watches without their own timeout.
    pub(crate) watch_timeout: (Duration, Duration),
    /// Maximum time that a read waits for a cache to reach a version.
    pub(crate) cache_catch_up_timeout: Duration,
    /// Maximum time that a request waits for a frozen store.
    pub(crate) request_timeout: Duration,
    /// Time that a terminating namespace keeps its contents.
    pub(crate) namespace_termination_delay: Duration,
    /// True if requests without credentials are accepted although tokens exist.
    pub(crate) allows_anonymous: bool,
    /// Maximum number of open streams per HTTP/2 connection.
    pub(crate) max_streams: u32,
    /// Number of pending events beyond which a watch counts as slow.
    pub(crate) watch_backlog: usize,
    /// True if responses may be in protobuf.
    pub(crate) allows_protobuf: bool,
    /// Time after which a slow watch is closed, if its client reads nothing in this time.
    pub(crate) slow_watch_timeout: Duration,
}

/// One API server process of the cluster.
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) port: Option<Port>,
    /// Source of the objects that the replica serves.
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) active_faults: SharedReplicaFaults,
    pub(crate) streams: Streams,
    /// Highest revision that a consistent read requested from the cache.
    pub(crate) requested_revision: AtomicU64,
}

impl Replica {
    /// Changes the active faults. The port is opened or closed accordingly before the call returns.
    pub(crate) fn change(&self, change: impl FnOnce(&mut ReplicaFaults)) {
        self.active_faults.change(|faults| {
            change(faults);
            // The port changes under the lock, so two concurrent faults cannot leave an outdated
            // state.
            if let Some(port) = &self.port
                && let Err(error) = port.set_open(faults.is_reachable())
            {
                tracing::warn!(address = %port.address(), %error, "cannot reopen the port");
            }
        });
    }
}

/// The whole cluster: one store and several replicas.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    /// The embedded history.
    pub(crate) store: Arc<Store>,
    /// Signal after each change of the store, of the active faults or of a controlled stream.
    pub(crate) changed: Signal,
    pub(crate) replicas: Vec<Replica>,
    pub(crate) tls: Mutex<Option<ServerTls>>,
    pub(crate) requests: RequestLog,
    /// `OpenAPI` documents.
    pub(crate) documents: DocumentCache,
    pub(crate) fault_log: FaultLog,
    pub(crate) rules: Rules,
    pub(crate) interception: Interception,
    /// Accepted tokens. Without tokens and users, all requests are accepted, unless `requires_credentials` is true.
    pub(crate) tokens: Mutex<Vec<String>>,
    /// Tokens of service accounts, which are accepted too.
    pub(crate) issued_tokens: IssuedTokens,
    /// Users with passwords.
    pub(crate) users: Vec<(String, String)>,
    /// True if requests without credentials are rejected.
    pub(crate) requires_credentials: bool,
    pub(crate) random: Mutex<Random>,
    pub(crate) links: Mutex<Vec<Arc<Link>>>,
    pub(crate) next_link: AtomicU64,
}

impl Cluster {
    /// Records an accepted connection.
    pub(crate) fn open_link(&self, replica: usize) -> Arc<Link> {
        let id = self.next_link.fetch_add(1, Ordering::Relaxed);
        let is_black_hole = self.replicas[replica].active_faults.read(|faults| faults.is_black_hole);
        let link = Arc::new(Link::new(id, replica, self.clock.elapsed(), is_black_hole));
        self.links.lock().push(Arc::clone(&link));
        link
    }

    /// Returns the open connections of a replica.
    pub(crate) fn open_links(&self, replica: usize) -> Vec<Arc<Link>> {
        let links = self.links.lock();
        links.iter().filter(|link| link.replica == replica && link.end_state().is_none()).cloned().collect()
    }

    /// Resets all open connections of a replica.
    pub(crate) fn reset_links(&self, replica: usize) {
        for link in self.open_links(replica) {
            link.reset(self.clock.elapsed());
        }
    }

    /// Returns the current TLS configuration.
    pub(crate) fn tls(&self) -> Option<ServerTls> {
        self.tls.lock().clone()
    }

    /// Returns the accepted tokens.
    pub(crate) fn tokens(&self) -> Vec<String> {
        self.tokens.lock().clone()
    }

    pub(crate) fn set_tokens(&self, tokens: &[&str]) {
        let tokens = tokens.iter().map(|&token| token.to_owned()).collect();
        *self.tokens.lock() = tokens;
    }

    /// Draws the timeout of a watch without its own timeout.
    pub(crate) fn draw_watch_timeout(&self) -> Duration {
        let (shortest, longest) = self.settings.watch_timeout;
        let fraction = self.random.lock().fraction();
        shortest + longest.saturating_sub(shortest).mul_f64(fraction)
    }
}
