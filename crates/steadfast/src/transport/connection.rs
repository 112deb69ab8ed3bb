//! One connection: its state, the requests on it, and its record. Sockets are its driver's affair.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use kube::client::Body;
use steadfast_core::Instant;
use steadfast_core::breach::{Breach, Breaches};
use tokio::sync::{Notify, watch};

use super::end::End;
use super::error::TransportError;
use super::fence::Fence;
use super::nanos::nanos;
use super::purpose::{Purpose, Role};
use super::report::{ConnectionReport, Protocol};
use super::socket::Traffic;
use super::state::{ConnectionState, Signal};
use crate::environment::{SharedEnvironment, Task};
use crate::metrics::traffic::Traffic as Counts;

/// How requests are put on a connection.
pub(super) enum Sender {
    Http2(h2::client::SendRequest<Bytes>),
    Http1(hyper::client::conn::http1::SendRequest<Body>),
}

/// Where the question can go whether the server of a connection answers.
pub(super) enum Way {
    /// On the connection itself.
    Here(h2::client::SendRequest<Bytes>),
    /// On another one.
    Aside,
    /// Nowhere: the connection is left as it is.
    Nowhere,
}

/// One connection to a server.
pub(super) struct Connection {
    pub(super) id: u64,
    pub(super) purpose: Purpose,
    /// When it was dialled.
    pub(super) opened: Instant,
    pub(super) traffic: Arc<Traffic>,
    /// Notified once the last request has left.
    pub(super) unused: Notify,
    /// Notified when it was ended from without.
    pub(super) ending: Notify,
    /// Whether what goes on here is to go on elsewhere.
    leave: watch::Sender<bool>,
    /// Whether the server answers here, as far as is known.
    answering: watch::Sender<bool>,
    /// When something of an answer was last read, in nanoseconds.
    answered: AtomicU64,
    breaches: Breaches,
    server: String,
    environment: SharedEnvironment,
    shared: Mutex<Shared>,
}

struct Shared {
    state: ConnectionState,
    peer: String,
    protocol: Option<Protocol>,
    /// Gone while the only request of an HTTP/1.1 connection runs, and for good once none may be sent.
    sender: Option<Sender>,
    streams: usize,
    requests: u64,
    /// What the last request was for: on HTTP/1.1, the only one that runs.
    serves: Purpose,
    /// Since when something runs without a pause, or when that last began.
    used_since: Instant,
    unused_since: Option<Instant>,
    round_trip: Option<Duration>,
    end: Option<End>,
    /// Given up by us while it was still being dialled.
    superseded: bool,
    driver: Option<Task>,
}

impl Connection {
    /// A connection that is about to be dialled, on which nothing is written unless `fence` is open.
    pub(super) fn new(
        id: u64,
        purpose: Purpose,
        server: String,
        environment: SharedEnvironment,
        breaches: Breaches,
        fence: Option<Fence>,
    ) -> Self {
        let opened = environment.now();
        Self {
            id,
            purpose,
            opened,
            traffic: Arc::new(Traffic::new(opened, fence)),
            unused: Notify::new(),
            ending: Notify::new(),
            leave: watch::Sender::new(false),
            answering: watch::Sender::new(true),
            answered: AtomicU64::new(nanos(opened)),
            shared: Mutex::new(Shared {
                state: ConnectionState::Connecting,
                peer: server.clone(),
                protocol: None,
                sender: None,
                streams: 0,
                requests: 0,
                serves: purpose,
                used_since: opened,
                unused_since: Some(opened),
                round_trip: None,
                end: None,
                superseded: false,
                driver: None,
            }),
            breaches,
            server,
            environment,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn state(&self) -> ConnectionState {
        self.lock().state
    }

    pub(super) fn protocol(&self) -> Option<Protocol> {
        self.lock().protocol
    }

    /// The address at the other end, and the server's name where that is another.
    pub(super) fn peer(&self) -> String {
        let shared = self.lock();
        if shared.peer == self.server { shared.peer.clone() } else { format!("{} ({})", self.server, shared.peer) }
    }

    /// Keeps the task that drives this connection, so that it can be ended with it.
    pub(super) fn driven_by(&self, task: Task) {
        self.lock().driver = Some(task);
    }

    /// The connection takes requests from now on.
    pub(super) fn establish(&self, peer: String, protocol: Protocol, sender: Sender) {
        let now = self.environment.now();
        let mut shared = self.lock();
        shared.state = shared.state.after(Signal::Established);
        shared.peer = peer;
        shared.protocol = Some(protocol);
        shared.unused_since = Some(now);
        if shared.state.accepts() {
            shared.sender = Some(sender);
        }
    }

    /// The only request there will be is under way from now on, and until its [`Lease`](super::lease::Lease) ends.
    pub(super) fn occupy(&self) {
        let mut shared = self.lock();
        shared.streams = 1;
        shared.requests = 1;
        shared.unused_since = None;
    }

    /// The peer was reached; nobody but who occupies the connection sends there.
    pub(super) fn establish_occupied(&self, peer: String) {
        let mut shared = self.lock();
        shared.state = shared.state.after(Signal::Established);
        shared.peer = peer;
        shared.protocol = Some(Protocol::Http1);
    }

    /// Notes what happened to the connection; says whether its state is another one now.
    pub(super) fn signal(&self, signal: Signal) -> bool {
        let mut shared = self.lock();
        let before = shared.state;
        shared.state = before.after(signal);
        if matches!(shared.state, ConnectionState::Draining | ConnectionState::Dead) {
            shared.sender = None;
        }
        // While the state is held, so that what is told last is what holds.
        match shared.state {
            ConnectionState::Draining => {
                self.say_leave(true);
                self.unused.notify_one();
            }
            ConnectionState::Ready => self.say_leave(false),
            ConnectionState::Connecting | ConnectionState::Suspect | ConnectionState::Dead => {}
        }
        shared.state != before
    }

    /// Has the connection drain because another is to be dialled in its place.
    pub(super) fn supersede(&self) {
        {
            let mut shared = self.lock();
            shared.superseded |= shared.state == ConnectionState::Connecting;
        }
        self.signal(Signal::Retired);
    }

    /// Whether the connection was given up before it came to be, so that how its dial ends is nobody's concern.
    pub(super) fn was_superseded(&self) -> bool {
        self.lock().superseded
    }

    /// Has its watches leave if it may be dead.
    pub(super) fn clear_suspect(&self) {
        let shared = self.lock();
        if shared.state == ConnectionState::Suspect {
            self.say_leave(true);
        }
    }

    fn say_leave(&self, leave: bool) {
        self.leave.send_if_modified(|before| std::mem::replace(before, leave) != leave);
    }

    /// Whether what goes on here is to go on elsewhere, now and later.
    pub(super) fn whether_to_leave(&self) -> watch::Receiver<bool> {
        self.leave.subscribe()
    }

    /// Something of an answer came.
    pub(super) fn answer_came(&self) {
        self.answered.store(nanos(self.environment.now()), Ordering::Relaxed);
    }

    /// When something of an answer last came, or the connection was dialled.
    pub(super) fn answered(&self) -> Instant {
        Instant::from_zero(Duration::from_nanos(self.answered.load(Ordering::Relaxed)))
    }

    /// Notes whether the server answers here. While it does not, no new request goes here, and the watches know.
    pub(super) fn answers(&self, answering: bool) {
        if self.answering.send_if_modified(|before| std::mem::replace(before, answering) != answering) {
            tracing::debug!(connection = self.id, peer = %self.peer(), answering, "asked after a silence");
        }
    }

    /// Whether the server answers here, now and later.
    pub(super) fn whether_it_answers(&self) -> watch::Receiver<bool> {
        self.answering.subscribe()
    }

    /// Since when nothing has come of any watch that an informer has here, the one whose head is awaited among them; none
    /// where there is none.
    pub(super) fn silent_since(&self) -> Option<Instant> {
        let shared = self.lock();
        // A connection of HTTP/1.1 takes whatever it can, one after the other.
        let purpose = if shared.protocol == Some(Protocol::Http1) { shared.serves } else { self.purpose };
        let carries = purpose == Purpose::INFORMERS_WATCHES && shared.unused_since.is_none();
        carries.then(|| shared.used_since.max(self.answered()))
    }

    /// How the server can be asked whether it is there.
    pub(super) fn way_to_ask(&self) -> Way {
        let shared = self.lock();
        match (&shared.protocol, &shared.sender) {
            (Some(Protocol::Http2), Some(Sender::Http2(sender))) => {
                // One that waited for its turn would be no question.
                if shared.streams < sender.current_max_send_streams() { Way::Here(sender.clone()) } else { Way::Aside }
            }
            (Some(Protocol::Http1), _) => Way::Aside,
            _ => Way::Nowhere,
        }
    }

    /// Whether its watches need another connection.
    pub(super) fn is_unsettled(&self) -> bool {
        let shared = self.lock();
        matches!(shared.state, ConnectionState::Suspect | ConnectionState::Draining) && shared.streams > 0
    }

    /// Ends the connection: no request goes there any more, and its driver closes the socket.
    pub(super) fn end(&self, end: End) {
        let mut shared = self.lock();
        if !self.breaches.commit(Breach::DeadAgain) {
            shared.state = shared.state.after(Signal::Lost);
            shared.sender = None;
        }
        shared.end.get_or_insert(end);
        drop(shared);
        self.ending.notify_one();
    }

    /// Ends the connection with its driver, without waiting for it.
    pub(super) fn cut(&self) {
        self.end(End::Closed);
        let driver = self.lock().driver.take();
        if let Some(driver) = driver {
            driver.abort();
        }
    }

    /// Why the connection ended, if it did.
    pub(super) fn ended(&self) -> Option<End> {
        self.lock().end.clone()
    }

    /// The means to send one more request, for `purpose`, if one may go here while at most `limit` run at once.
    pub(super) fn admit(&self, limit: usize, purpose: Purpose) -> Option<Sender> {
        let now = self.environment.now();
        let mut shared = self.lock();
        if !shared.state.accepts() || !*self.answering.borrow() {
            return None;
        }
        let sender = match shared.sender.take()? {
            Sender::Http2(sender) => {
                let most = sender.current_max_send_streams();
                // One stream is kept for the question whether the server answers.
                let kept = usize::from(self.purpose == Purpose::INFORMERS_WATCHES && most > 1);
                let limit = limit.min(most - kept);
                shared.sender = Some(Sender::Http2(sender.clone()));
                if shared.streams >= limit {
                    return None;
                }
                Sender::Http2(sender)
            }
            // Closed by the server while idle; its driver is about to say so.
            Sender::Http1(sender) if sender.is_closed() => return None,
            sender @ Sender::Http1(_) => sender,
        };
        shared.streams += 1;
        shared.requests += 1;
        shared.serves = purpose;
        if shared.unused_since.take().is_some() {
            shared.used_since = now;
        }
        Some(sender)
    }

    /// Whether it would take requests, but for its peer, which allows none at once.
    pub(super) fn takes_none(&self) -> bool {
        let shared = self.lock();
        let allowed = match &shared.sender {
            Some(Sender::Http2(sender)) => sender.current_max_send_streams(),
            Some(Sender::Http1(_)) | None => return false,
        };
        shared.state.accepts() && allowed == 0
    }

    /// A request has left.
    pub(super) fn leave(&self) {
        let now = self.environment.now();
        let mut shared = self.lock();
        shared.streams -= 1;
        if shared.streams == 0 {
            shared.unused_since = Some(now);
            drop(shared);
            self.unused.notify_one();
        }
    }

    /// The means to send is there again: the only request of an HTTP/1.1 connection is over.
    pub(super) fn give_back(&self, sender: hyper::client::conn::http1::SendRequest<Body>) {
        let mut shared = self.lock();
        if shared.state.accepts() && self.purpose.role != Role::Upgrade {
            shared.sender = Some(Sender::Http1(sender));
        }
    }

    /// Since when nothing runs on the connection.
    pub(super) fn unused_since(&self) -> Option<Instant> {
        self.lock().unused_since
    }

    /// Takes the connection out of use if nothing ran on it for `limit`, or for any time if it is draining.
    pub(super) fn retire_unused(&self, limit: Duration) -> bool {
        let now = self.environment.now();
        let mut shared = self.lock();
        let draining = shared.state == ConnectionState::Draining;
        let unused = shared.unused_since.is_some_and(|since| draining || now.since(since) >= limit);
        if unused {
            shared.state = shared.state.after(Signal::Retired);
            shared.sender = None;
            shared.end.get_or_insert(if draining { End::Drained } else { End::Idle });
        }
        unused
    }

    /// A ping came back.
    pub(super) fn pinged(&self, round_trip: Duration) {
        self.lock().round_trip = Some(round_trip);
    }

    /// The error of a request whose connection ended, said by the connection if it knows, else `how`.
    pub(super) fn lost(&self, how: String, maybe_sent: bool) -> TransportError {
        if let Some(refusal) = self.refusal() {
            return refusal;
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

    /// That TLS ended it since the server does not take us as we are; what was sent it has not looked at.
    pub(super) fn refusal(&self) -> Option<TransportError> {
        let said = self.traffic.refusal()?;
        Some(TransportError::tls(self.server.clone(), io::Error::new(io::ErrorKind::InvalidData, said)))
    }

    /// Counts the end of the connection, and what went over it; `error` says why it never came to be.
    pub(super) fn count_end(&self, counts: &Counts, error: Option<&TransportError>) {
        let why = match self.ended() {
            Some(End::Failed(_)) | None => "failed",
            Some(End::Drained) => "drained",
            Some(End::Idle) => "idle",
            Some(End::Abandoned) => "abandoned",
            Some(End::Closed) => "closed",
        };
        counts.gone(why, error, self.traffic.received(), self.traffic.sent());
    }

    /// The connection as it is now.
    pub(super) fn report(&self) -> ConnectionReport {
        let now = self.environment.now();
        let shared = self.lock();
        ConnectionReport {
            id: self.id,
            protocol: shared.protocol,
            peer: shared.peer.clone(),
            state: shared.state,
            watches: self.purpose.role == Role::Watches,
            streams: shared.streams,
            requests: shared.requests,
            age: now.since(self.opened),
            silence: now.since(self.traffic.heard()),
            round_trip: shared.round_trip,
            received: self.traffic.received(),
            sent: self.traffic.sent(),
        }
    }
}
