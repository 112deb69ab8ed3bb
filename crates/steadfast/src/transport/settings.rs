//! Timeouts and limits.

use std::time::Duration;

use steadfast_core::fault_injection::FaultInjection;

/// Timeouts and limits of the connections to one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Timeout for a new connection: name resolution, TCP, TLS and the first HTTP/2 response. Defaults to 10 s.
    pub connect_timeout: Duration,
    /// Timeout for the response head of a request, over all attempts. Defaults to 30 s.
    pub headers_timeout: Duration,
    /// Maximum time without progress while a response body is read. Defaults to 30 s.
    ///
    /// Watches, logs and proxied requests can be silent for long and have no such limit.
    pub progress_timeout: Duration,
    /// Idle time after which an HTTP/2 connection is pinged. Defaults to 5 s.
    pub ping_after: Duration,
    /// Timeout of a ping. The connection is suspect after half of the timeout, and dead after all of it.
    /// Defaults to 5 s.
    pub ping_timeout: Duration,
    /// Time without data on all watches of a connection after which the server is probed over this connection. Defaults
    /// to 10 s.
    ///
    /// A proxy may acknowledge pings for an unresponsive server. The value is also the minimum interval between probes.
    pub probe_after: Duration,
    /// Timeout of the probe, after which the connection's watches are in doubt. Defaults to 4 s.
    pub probe_timeout: Duration,
    /// Time after which an unused connection is closed. Defaults to 60 s; API servers close after 90 s.
    pub idle_timeout: Duration,
    /// Maximum number of streams on a connection; the server may set a lower limit. Defaults to 100.
    ///
    /// The server can send 4 MiB of each response before the client reads, or less if more than 511 streams share a
    /// connection. No response has to wait until another one is read.
    pub max_streams: usize,
    /// Maximum number of open connections. With HTTP/1.1 each watch needs one. Defaults to 512.
    ///
    /// A quarter of them is reserved for informers.
    pub max_connections: usize,
    /// Maximum number of requests that wait for a connection, apart from informers. Defaults to 10,000.
    pub max_waiting: usize,
    /// Maximum number of concurrent full transfers (lists). Defaults to 4.
    pub max_transfers: usize,
    /// Uses HTTP/2 without TLS for `http://` servers that are known to support it. Defaults to false.
    pub prior_knowledge: bool,
    /// Faults injected by tests.
    #[doc(hidden)]
    pub faults: FaultInjection,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            headers_timeout: Duration::from_secs(30),
            progress_timeout: Duration::from_secs(30),
            ping_after: Duration::from_secs(5),
            ping_timeout: Duration::from_secs(5),
            probe_after: Duration::from_secs(10),
            probe_timeout: Duration::from_secs(4),
            idle_timeout: Duration::from_secs(60),
            max_streams: 100,
            max_connections: 512,
            max_waiting: 10_000,
            max_transfers: 4,
            prior_knowledge: false,
            faults: FaultInjection::NONE,
        }
    }
}

impl Settings {
    /// Returns the maximum number of connections for `reader`.
    pub(super) fn connections_for(&self, reader: Reader) -> usize {
        let kept = match reader {
            Reader::Informer => 0,
            Reader::Caller => (self.max_connections / 4).max(1),
        };
        // A single connection must serve all requests.
        self.max_connections.saturating_sub(kept).max(self.max_connections.min(1))
    }
}

#[cfg(feature = "fault-injection")]
impl Settings {
    /// Injects a violation of the limits, for tests that check the limits.
    #[doc(hidden)]
    #[must_use]
    pub fn inject_fault(mut self, fault: steadfast_core::fault_injection::InjectedFault) -> Self {
        self.faults = FaultInjection::only(fault);
        self
    }
}

/// Timeouts of one request, set as a request extension. Otherwise the [`Settings`] apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deadlines {
    /// Timeout for the response head. `None` uses the settings.
    pub headers: Option<Duration>,
    /// Maximum time without progress while the body is read. `None` disables the timeout.
    pub progress: Option<Duration>,
}

/// Reader of a response, set as a request extension.
///
/// Informers always read promptly. A caller may read slowly, and must then delay only its own requests (C8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reader {
    /// An informer.
    Informer,
    /// The caller of the request.
    #[default]
    Caller,
}

/// Connection that carried a response, as a response extension. As a request extension, it selects the connection of
/// the request, so that the same server responds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CarryingConnection(pub(super) u64);

/// Requirement on the connection of a request, set as a request extension.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Any connection for this kind of requests.
    #[default]
    Any,
    /// Any connection, including those of watches, so that a small request does not open another connection.
    SharedWithWatches,
    /// A recently opened connection, to verify a doubted stream over another path.
    RecentlyOpened,
}

impl Placement {
    /// All values in order of service: requests that verify a doubt come first.
    pub(super) const ALL: [Self; 3] = [Self::RecentlyOpened, Self::Any, Self::SharedWithWatches];
}
