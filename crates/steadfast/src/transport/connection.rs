//! State, requests and report of one connection. The driver owns the socket.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use kube::client::Body;
use parking_lot::{Mutex, MutexGuard};
use steadfast_core::Instant;
use steadfast_core::fault_injection::{FaultInjection, inject};
use tokio::sync::{Notify, watch};

use super::connection_runtime::ConnectionRuntime;
use super::end::End;
use super::error::TransportError;
use super::fence::Fence;
use super::nanos::nanos;
use super::purpose::{Purpose, Role};
use super::report::{ConnectionReport, Protocol};
use super::socket::Traffic;
use super::state::{ConnectionState, Signal};
use crate::environment::{SharedEnvironment, Task};
use crate::metrics::pool_counters::PoolCounters;

/// Protocol-specific sender of requests.
pub(super) enum RequestSender {
    Http2(h2::client::SendRequest<Bytes>),
    Http1(hyper::client::conn::http1::SendRequest<Body>),
}

/// Path for a liveness probe of the connection's server.
pub(super) enum ProbePath {
    /// On the connection itself.
    SameConnection(h2::client::SendRequest<Bytes>),
    /// On another connection.
    OtherConnection,
    /// No path: the connection is not probed.
    None,
}

/// One connection to a server.
pub(super) struct TransportConnection {
    pub(super) id: u64,
    pub(super) purpose: Purpose,
    /// Runtime of the driver.
    pub(super) runtime: ConnectionRuntime,
    /// Time of the dial.
    pub(super) dialled_at: Instant,
    pub(super) traffic: Arc<Traffic>,
    /// Notified after the last request has ended.
    pub(super) became_unused: Notify,
    /// Notified when the connection is ended by the pool.
    pub(super) end_requested: Notify,
    /// True if the watches on this connection should resume on another connection.
    leave: watch::Sender<bool>,
    /// Last known responsiveness of the server on this connection.
    responsive: watch::Sender<bool>,
    /// Time of the last response data in nanoseconds.
    last_response: AtomicU64,
    /// True after the head of the first response.
    has_responded: AtomicBool,
    faults: FaultInjection,
    server: String,
    /// Environment of the connection's tasks, on its own runtime.
    pub(super) environment: SharedEnvironment,
    shared: Mutex<Shared>,
}

struct Shared {
    state: ConnectionState,
    peer: String,
    protocol: Option<Protocol>,
    /// Time of the end of the dial; `None` before.
    established_at: Option<Instant>,
    /// Empty during the single request of an HTTP/1.1 connection, and permanently once no request may be sent.
    sender: Option<RequestSender>,
    streams: usize,
    requests: u64,
    /// Purpose of the last request. On HTTP/1.1, this is the only request in flight.
    last_purpose: Purpose,
    /// Start of the current or last period with requests in flight.
    used_since: Instant,
    unused_since: Option<Instant>,
    round_trip: Option<Duration>,
    end: Option<End>,
    /// True if the dial was abandoned by this side.
    superseded: bool,
    driver: Option<Task>,
}

impl TransportConnection {
    /// Creates a connection before its dial, on `runtime`. The connection writes only while `fence` is open.
    pub(super) fn new(
        id: u64,
        purpose: Purpose,
        runtime: ConnectionRuntime,
        server: String,
        environment: &SharedEnvironment,
        faults: FaultInjection,
        fence: Option<Fence>,
    ) -> Self {
        let dialled_at = environment.now();
        let environment = runtime.environment(environment);
        Self {
            id,
            purpose,
            runtime,
            dialled_at,
            traffic: Arc::new(Traffic::new(dialled_at, fence)),
            became_unused: Notify::new(),
            end_requested: Notify::new(),
            leave: watch::Sender::new(false),
            responsive: watch::Sender::new(true),
            last_response: AtomicU64::new(nanos(dialled_at)),
            has_responded: AtomicBool::new(false),
            shared: Mutex::new(Shared {
                state: ConnectionState::Connecting,
                peer: server.clone(),
                protocol: None,
                established_at: None,
                sender: None,
                streams: 0,
                requests: 0,
                last_purpose: purpose,
                used_since: dialled_at,
                unused_since: Some(dialled_at),
                round_trip: None,
                end: None,
                superseded: false,
                driver: None,
            }),
            faults,
            server,
            environment,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock()
    }

    pub(super) fn state(&self) -> ConnectionState {
        self.lock().state
    }

    pub(super) fn protocol(&self) -> Option<Protocol> {
        self.lock().protocol
    }

    /// Returns the address of the peer, with the server's name if that differs.
    pub(super) fn peer(&self) -> String {
        let shared = self.lock();
        if shared.peer == self.server { shared.peer.clone() } else { format!("{} ({})", self.server, shared.peer) }
    }

    /// Stores the driver task, so that it can be aborted with the connection.
    pub(super) fn set_driver(&self, task: Task) {
        self.lock().driver = Some(task);
    }

    /// Marks the connection as established.
    pub(super) fn establish(&self, peer: String, protocol: Protocol, sender: RequestSender) {
        let now = self.environment.now();
        let mut shared = self.lock();
        // A connection that was drained during its dial stays draining, and must not get a sender.
        shared.state = shared.state.after(Signal::Established);
        shared.peer = peer;
        shared.protocol = Some(protocol);
        shared.established_at = Some(now);
        shared.unused_since = Some(now);
        if shared.state.accepts() {
            shared.sender = Some(sender);
        }
    }

    /// Reserves the connection for its only request, until the [`StreamSlot`](super::stream_slot::StreamSlot) ends.
    pub(super) fn occupy(&self) {
        let mut shared = self.lock();
        shared.streams = 1;
        shared.requests = 1;
        shared.unused_since = None;
    }

    /// Marks a reserved connection as established. Other requests cannot use it.
    pub(super) fn establish_occupied(&self, peer: String) {
        let mut shared = self.lock();
        shared.state = shared.state.after(Signal::Established);
        shared.peer = peer;
        shared.protocol = Some(Protocol::Http1);
    }

    /// Applies an event to the state. Returns true if the state changed.
    pub(super) fn signal(&self, signal: Signal) -> bool {
        let mut shared = self.lock();
        let before = shared.state;
        shared.state = before.after(signal);
        // h2 closes the connection after its last sender and stream are dropped.
        if matches!(shared.state, ConnectionState::Draining | ConnectionState::Dead) {
            shared.sender = None;
        }
        // Sent while the state is locked, so that the last value sent matches the state.
        match shared.state {
            ConnectionState::Draining => {
                self.set_leave(true);
                self.became_unused.notify_one();
            }
            ConnectionState::Ready => self.set_leave(false),
            ConnectionState::Connecting | ConnectionState::Suspect | ConnectionState::Dead => {}
        }
        shared.state != before
    }

    /// Drains the connection, which is about to be replaced.
    pub(super) fn supersede(&self) {
        {
            let mut shared = self.lock();
            // The failure of an abandoned dial must not fail the requests that wait for its replacement.
            shared.superseded |= shared.state == ConnectionState::Connecting;
        }
        self.signal(Signal::Retired);
    }

    /// Returns true if the dial was abandoned. Its result then does not matter.
    pub(super) fn was_superseded(&self) -> bool {
        self.lock().superseded
    }

    /// Moves the watches to another connection if this connection is suspect.
    pub(super) fn clear_suspect(&self) {
        let shared = self.lock();
        if shared.state == ConnectionState::Suspect {
            self.set_leave(true);
        }
    }

    fn set_leave(&self, leave: bool) {
        self.leave.send_if_modified(|before| std::mem::replace(before, leave) != leave);
    }

    /// Returns a receiver that is true if users of this connection should resume on another connection.
    pub(super) fn leave_signal(&self) -> watch::Receiver<bool> {
        self.leave.subscribe()
    }

    /// Records the arrival of a response head.
    pub(super) fn record_response(&self) {
        self.has_responded.store(true, Ordering::Relaxed);
        self.record_response_data();
    }

    /// Returns true if the connection has delivered a response.
    pub(super) fn has_responded(&self) -> bool {
        self.has_responded.load(Ordering::Relaxed)
    }

    /// Returns true if the connection was open before `time`.
    pub(super) fn was_open_before(&self, time: Instant) -> bool {
        self.lock().established_at.is_some_and(|established_at| established_at < time)
    }

    /// Records the arrival of response data.
    pub(super) fn record_response_data(&self) {
        // Not under the lock: this runs for each frame of each response.
        self.last_response.store(nanos(self.environment.now()), Ordering::Relaxed);
    }

    /// Returns the time of the last response data, or of the dial.
    pub(super) fn last_response(&self) -> Instant {
        Instant::from_zero(Duration::from_nanos(self.last_response.load(Ordering::Relaxed)))
    }

    /// Records whether the server responds on this connection. While the server does not respond, the connection takes no
    /// new requests, and its watches are notified.
    pub(super) fn set_responsive(&self, responsive: bool) {
        if self.responsive.send_if_modified(|before| std::mem::replace(before, responsive) != responsive) {
            tracing::debug!(connection = self.id, peer = %self.peer(), responsive, "probed after a silence");
        }
    }

    /// Returns a receiver for the server's responsiveness on this connection.
    pub(super) fn responsiveness(&self) -> watch::Receiver<bool> {
        self.responsive.subscribe()
    }

    /// Returns the time since which no informer's watch on this connection received data, pending watches included.
    /// Returns `None` without watches.
    pub(super) fn silent_since(&self) -> Option<Instant> {
        let shared = self.lock();
        // An HTTP/1.1 connection serves requests of any purpose, one at a time.
        let purpose = if shared.protocol == Some(Protocol::Http1) { shared.last_purpose } else { self.purpose };
        let carries = purpose == Purpose::INFORMERS_WATCHES && shared.unused_since.is_none();
        carries.then(|| shared.used_since.max(self.last_response()))
    }

    /// Returns the path for a liveness probe.
    pub(super) fn probe_path(&self) -> ProbePath {
        let shared = self.lock();
        match (&shared.protocol, &shared.sender) {
            (Some(Protocol::Http2), Some(RequestSender::Http2(sender))) => {
                // A probe that waits for a free stream would prove nothing.
                if shared.streams < sender.current_max_send_streams() {
                    ProbePath::SameConnection(sender.clone())
                } else {
                    ProbePath::OtherConnection
                }
            }
            (Some(Protocol::Http1), _) => ProbePath::OtherConnection,
            _ => ProbePath::None,
        }
    }

    /// Returns true if the watches of this connection need another connection.
    pub(super) fn needs_replacement(&self) -> bool {
        let shared = self.lock();
        matches!(shared.state, ConnectionState::Suspect | ConnectionState::Draining) && shared.streams > 0
    }

    /// Ends the connection: no further request uses it, and the driver closes the socket.
    pub(super) fn end(&self, end: End) {
        let mut shared = self.lock();
        if !inject!(self.faults, ReusedDeadConnection) {
            shared.state = shared.state.after(Signal::Lost);
            shared.sender = None;
        }
        // The first reason counts, because later errors are consequences of the end. `notify_one` stores a permit, so
        // a driver that does not wait yet ends as well.
        shared.end.get_or_insert(end);
        drop(shared);
        self.end_requested.notify_one();
    }

    /// Ends the connection and aborts its driver.
    pub(super) fn cut(&self) {
        // The state is set first: requests that fail with the aborted driver then report the reason.
        self.end(End::Closed);
        let driver = self.lock().driver.take();
        if let Some(driver) = driver {
            driver.abort();
        }
    }

    /// Returns the reason of the end, if the connection has ended.
    pub(super) fn ended(&self) -> Option<End> {
        self.lock().end.clone()
    }

    /// Returns a sender for one more request for `purpose`, if at most `limit` are then in flight.
    pub(super) fn admit(&self, limit: usize, purpose: Purpose) -> Option<RequestSender> {
        let now = self.environment.now();
        let mut shared = self.lock();
        if !shared.state.accepts() || !*self.responsive.borrow() {
            return None;
        }
        // An HTTP/1.1 sender stays taken until the end of its response; an HTTP/2 sender is cloned and put back.
        let sender = match shared.sender.take()? {
            RequestSender::Http2(sender) => {
                let most = sender.current_max_send_streams();
                // One stream is reserved for the liveness probe.
                let kept = usize::from(self.purpose == Purpose::INFORMERS_WATCHES && most > 1);
                let limit = limit.min(most - kept);
                shared.sender = Some(RequestSender::Http2(sender.clone()));
                if shared.streams >= limit {
                    return None;
                }
                RequestSender::Http2(sender)
            }
            // The server closed the idle connection, and its driver has not reported it yet.
            RequestSender::Http1(sender) if sender.is_closed() => return None,
            sender @ RequestSender::Http1(_) => sender,
        };
        shared.streams += 1;
        shared.requests += 1;
        shared.last_purpose = purpose;
        if shared.unused_since.take().is_some() {
            shared.used_since = now;
        }
        Some(sender)
    }

    /// Returns true if the connection is usable, but the peer currently allows no streams.
    pub(super) fn allows_no_streams(&self) -> bool {
        let shared = self.lock();
        let allowed = match &shared.sender {
            Some(RequestSender::Http2(sender)) => sender.current_max_send_streams(),
            Some(RequestSender::Http1(_)) | None => return false,
        };
        shared.state.accepts() && allowed == 0
    }

    /// Records that a request has ended.
    pub(super) fn release(&self) {
        let now = self.environment.now();
        let mut shared = self.lock();
        // The idle timeout starts at the end of the last request.
        shared.streams -= 1;
        if shared.streams == 0 {
            shared.unused_since = Some(now);
            drop(shared);
            self.became_unused.notify_one();
        }
    }

    /// Returns the sender after the only request of an HTTP/1.1 connection.
    pub(super) fn give_back(&self, sender: hyper::client::conn::http1::SendRequest<Body>) {
        let mut shared = self.lock();
        if shared.state.accepts() && self.purpose.role != Role::Upgrade {
            shared.sender = Some(RequestSender::Http1(sender));
        }
    }

    /// Returns the time since which the connection is unused.
    pub(super) fn unused_since(&self) -> Option<Instant> {
        self.lock().unused_since
    }

    /// Retires the connection if it was unused for `limit`. A draining connection retires as soon as it is unused.
    pub(super) fn retire_unused(&self, limit: Duration) -> bool {
        let now = self.environment.now();
        let mut shared = self.lock();
        let draining = shared.state == ConnectionState::Draining;
        // Check and retirement happen under one lock, so that no request is admitted between the two.
        let unused = shared.unused_since.is_some_and(|since| draining || now.since(since) >= limit);
        if unused {
            shared.state = shared.state.after(Signal::Retired);
            shared.sender = None;
            shared.end.get_or_insert(if draining { End::Drained } else { End::Idle });
        }
        unused
    }

    /// Records a ping response.
    pub(super) fn record_round_trip(&self, round_trip: Duration) {
        self.lock().round_trip = Some(round_trip);
    }

    /// Returns the error of a request whose connection has ended. The cause is the connection's own reason if known, or
    /// else `how`.
    pub(super) fn lost_error(&self, how: String, maybe_sent: bool) -> TransportError {
        // With TLS 1.3, a server rejects the client certificate after the handshake. The alert then arrives instead of
        // a response, and is the real reason.
        if let Some(tls_rejection) = self.tls_rejection() {
            return tls_rejection;
        }
        let peer = self.peer();
        if self.traffic.is_fenced() {
            return TransportError::Fenced { peer, maybe_sent };
        }
        match self.ended() {
            Some(End::Closed) => TransportError::Closed { peer, maybe_sent },
            Some(End::Failed(how)) => TransportError::ConnectionLost { peer, how, maybe_sent },
            Some(End::Drained | End::Idle | End::Abandoned) | None => {
                TransportError::ConnectionLost { peer, how, maybe_sent }
            }
        }
    }

    /// Returns the error if the server ended the TLS session because it rejected the client. In this case the server
    /// has processed no request.
    pub(super) fn tls_rejection(&self) -> Option<TransportError> {
        let alert = self.traffic.tls_rejection()?;
        Some(TransportError::tls(self.server.clone(), io::Error::new(io::ErrorKind::InvalidData, alert)))
    }

    /// Counts the end of the connection and its traffic. `error` is set if the dial failed.
    pub(super) fn count_end(&self, counts: &PoolCounters, error: Option<&TransportError>) {
        let reason = match self.ended() {
            Some(End::Failed(_)) | None => "failed",
            Some(End::Drained) => "drained",
            Some(End::Idle) => "idle",
            Some(End::Abandoned) => "abandoned",
            Some(End::Closed) => "closed",
        };
        counts.count_end(reason, error, self.traffic.received(), self.traffic.sent());
    }

    /// Returns the current state.
    pub(super) fn report(&self) -> ConnectionReport {
        let now = self.environment.now();
        let shared = self.lock();
        ConnectionReport {
            id: self.id,
            protocol: shared.protocol,
            peer: shared.peer.clone(),
            state: shared.state,
            carries_watches: self.purpose.role == Role::Watches,
            streams: shared.streams,
            requests: shared.requests,
            age: now.since(self.dialled_at),
            silence: now.since(self.traffic.last_received()),
            round_trip: shared.round_trip,
            received: self.traffic.received(),
            sent: self.traffic.sent(),
        }
    }
}
