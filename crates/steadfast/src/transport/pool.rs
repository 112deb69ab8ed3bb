//! The connections to one server: which one a request goes to, and when another is opened.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use steadfast_core::Instant;
use steadfast_core::breach::Breach;
use tokio::sync::{oneshot, watch};

use super::connection::{Connection, Sender};
use super::connector::{Connector, Route};
use super::end::End;
use super::error::TransportError;
use super::fence::Fence;
use super::inquiry::Inquiries;
use super::lease::{Home, Lease};
use super::life;
use super::purpose::{Purpose, Role};
use super::report::{ClosedConnection, ConnectionReport, Protocol};
use super::settings::{Carrier, Placement, Reader, Settings};
use super::state::ConnectionState;
use super::want::Want;
use super::windows::MOST_STREAMS;
use crate::environment::{SharedEnvironment, Task};
use crate::metrics::traffic::Traffic;

/// How many connections of one role are being opened at once.
const DIALS: usize = 8;

/// How old a connection may be to count as another one than that of a doubted stream.
const NEW: Duration = Duration::from_secs(10);

/// How long a server that takes no streams for now is left alone before another connection to it is tried.
const AGAIN: Duration = Duration::from_secs(5);

/// How many connections are remembered after their end.
const REMEMBERED: usize = 16;

/// How often, at most, those who wait are notified that the server answers again.
const TELLING: Duration = Duration::from_secs(2);

/// The connections to one server; cheap to clone, closed with its last clone.
#[derive(Clone)]
pub(crate) struct Pool {
    pub(super) inner: Arc<Inner>,
}

/// The pool itself, which its connections and their tasks know as their [`Home`].
pub(super) struct Inner {
    pub(super) environment: SharedEnvironment,
    pub(super) settings: Settings,
    connector: Arc<Connector>,
    state: Mutex<State>,
    reachable: watch::Sender<u64>,
    pub(super) inquiries: Arc<Inquiries>,
    pub(super) traffic: Arc<Traffic>,
    /// Beyond which nothing is sent.
    pub(super) fence: Option<Fence>,
    /// Waits for the fence to be closed.
    guard: OnceLock<Task>,
    /// The pools to the same server behind fences: they drain with this one.
    fenced: Mutex<Vec<Weak<Inner>>>,
}

struct State {
    /// All but dead ones, oldest first.
    connections: Vec<Arc<Connection>>,
    /// Those who wait for a place, by what they want.
    waiting: [VecDeque<Waiter>; Want::COUNT],
    /// How many requests the next connection is expected to take.
    expected: usize,
    opened: u64,
    closed: bool,
    /// Someone will look again whether to dial.
    looking: bool,
    /// Something failed since the server was last known to answer.
    failing: bool,
    told: Option<Instant>,
    /// The last that have ended, when and why, oldest first.
    ended: VecDeque<(Instant, ConnectionReport, String)>,
}

type Place = (Lease, Sender);

/// What has a connection to itself.
const ALONE: Purpose = Purpose { role: Role::Upgrade, reader: Reader::Caller };

struct Waiter {
    /// The connections that have refused the request.
    avoid: Vec<u64>,
    place: oneshot::Sender<Result<Place, TransportError>>,
}

impl State {
    /// Whether a connection for `purpose` is being opened.
    fn is_connecting(&self, purpose: Purpose) -> bool {
        self.connections
            .iter()
            .any(|connection| connection.purpose == purpose && connection.state() == ConnectionState::Connecting)
    }

    /// How many wait for a connection for a purpose `such` as this.
    fn waiting(&self, such: impl Fn(Purpose) -> bool) -> usize {
        Want::all().filter(|want| such(want.purpose())).map(|want| self.waiting[want.index()].len()).sum()
    }
}

impl Pool {
    /// No connection yet; the first request opens one.
    pub(crate) fn new(connector: Connector, mut settings: Settings) -> Self {
        settings.streams = settings.streams.clamp(1, MOST_STREAMS);
        Self::of(Arc::new(connector), settings, None)
    }

    /// Another pool to the same server, by the same route, which sends nothing unless `fence` is open.
    pub(crate) fn behind(&self, fence: Fence) -> Self {
        let fenced = Self::of(self.inner.connector.clone(), self.inner.settings.clone(), Some(fence.clone()));
        {
            let mut all = self.inner.fenced.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|pool| pool.strong_count() > 0);
            all.push(Arc::downgrade(&fenced.inner));
        }
        let inner = Arc::downgrade(&fenced.inner);
        let guard = self.inner.environment.spawn(Box::pin(async move {
            fence.closed().await;
            if let Some(inner) = inner.upgrade() {
                inner.abort();
            }
        }));
        fenced.inner.guard.get_or_init(|| guard);
        fenced
    }

    fn of(connector: Arc<Connector>, settings: Settings, fence: Option<Fence>) -> Self {
        let state = State {
            connections: Vec::new(),
            waiting: std::array::from_fn(|_| VecDeque::new()),
            expected: settings.streams,
            opened: 0,
            closed: false,
            looking: false,
            failing: false,
            told: None,
            ended: VecDeque::new(),
        };
        let traffic = Arc::new(Traffic::default());
        let inner = Inner {
            environment: connector.environment().clone(),
            settings,
            connector,
            state: Mutex::new(state),
            reachable: watch::Sender::new(0),
            inquiries: Arc::new(Inquiries::new(traffic.clone())),
            traffic,
            fence,
            guard: OnceLock::new(),
            fenced: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The connections there are, oldest first.
    pub(crate) fn connections(&self) -> Vec<ConnectionReport> {
        let state = self.inner.lock();
        // One that is dead is no more, though its task may have a last step to do.
        let live = state.connections.iter().map(|connection| connection.report());
        live.filter(|report| report.state != ConnectionState::Dead).collect()
    }

    /// The last 16 that have ended, the latest first, and why.
    pub(crate) fn recently_closed(&self) -> Vec<ClosedConnection> {
        let now = self.inner.environment.now();
        let state = self.inner.lock();
        let told = |(at, report, why): &(Instant, ConnectionReport, String)| ClosedConnection {
            connection: report.clone(),
            ago: now.since(*at),
            why: why.clone(),
        };
        state.ended.iter().rev().map(told).collect()
    }

    /// Has every connection drained: what runs on it may end, watches move to new ones, and nothing else goes there.
    pub(crate) fn drain(&self) {
        let connections = self.inner.lock().connections.clone();
        for connection in connections {
            connection.supersede();
        }
        self.inner.clone().unsettled();
        let fenced = self.inner.fenced.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for inner in fenced.iter().filter_map(Weak::upgrade) {
            Self { inner }.drain();
        }
    }

    /// How many connections were ever dialled.
    pub(crate) fn dialled(&self) -> u64 {
        self.inner.lock().opened
    }

    /// The connections there are, how many were ever dialled, and what was counted, all at one moment.
    #[cfg(feature = "metrics")]
    pub(crate) fn traffic(&self) -> (Vec<ConnectionReport>, u64, crate::metrics::traffic::Totals) {
        let state = self.inner.lock();
        let reports = state.connections.iter().map(|connection| connection.report()).collect();
        // Under the lock under which a connection that is gone is taken from the one and added to the other.
        (reports, state.opened, self.inner.traffic.lock().clone())
    }

    /// Counts how often the server was found to answer after a failure, at most every 2 s.
    pub(crate) fn reachability(&self) -> watch::Receiver<u64> {
        self.inner.reachable.subscribe()
    }

    /// Where time, tasks and sockets come from.
    pub(crate) fn environment(&self) -> &SharedEnvironment {
        &self.inner.environment
    }

    /// The server as messages name it.
    pub(crate) fn server(&self) -> String {
        self.inner.connector.name()
    }

    /// Opens new connections by `route`; those there are drain.
    pub(crate) fn renew(&self, route: Route) {
        self.inner.connector.reroute(route);
        self.drain();
    }

    /// A place for one request, on a new connection where none but those to `avoid` has room.
    pub(super) async fn place(&self, want: Want, avoid: &[u64]) -> Result<Place, TransportError> {
        let place = {
            let mut state = self.inner.lock();
            if state.closed {
                return Err(self.inner.over());
            }
            // Who avoids a connection keeps nobody from it.
            let first = state.waiting[want.index()].iter().all(|waiter| !waiter.avoid.is_empty());
            if let Some(place) = first.then(|| self.inner.choose(&state, want, avoid)).flatten() {
                return Ok(place);
            }
            let reader = want.purpose().reader;
            let waiting = state.waiting(|purpose| purpose.reader == reader);
            if waiting >= self.inner.settings.waiting {
                let detail = format!("{waiting} requests wait already; make fewer at once");
                return Err(TransportError::Busy { peer: self.server(), detail, waited: Duration::ZERO });
            }
            let (sender, place) = oneshot::channel();
            state.waiting[want.index()].push_back(Waiter { avoid: avoid.to_vec(), place: sender });
            self.inner.dial(&mut state, want.purpose());
            place
        };
        place.await.unwrap_or_else(|_| Err(self.inner.over()))
    }

    /// A place on that connection, if it still has one at once.
    pub(super) fn place_on(&self, carrier: Carrier, purpose: Purpose) -> Result<Place, TransportError> {
        let state = self.inner.lock();
        let carrying = state.connections.iter().find(|connection| connection.id == carrier.0);
        let place = carrying.and_then(|connection| {
            let sender = connection.admit(self.inner.settings.streams, purpose)?;
            Some((Lease::new(connection.clone(), self.inner.home()), sender))
        });
        place.ok_or_else(|| {
            let detail = "the connection that is to carry this request too takes no more".to_owned();
            TransportError::Busy { peer: self.server(), detail, waited: Duration::ZERO }
        })
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connection(&self, id: u64, purpose: Purpose, server: String) -> Connection {
        Connection::new(id, purpose, server, self.environment.clone(), self.settings.breaches, self.fence.clone())
    }

    /// Why there is no place any more, for a request that has not left.
    pub(super) fn over(&self) -> TransportError {
        let (peer, maybe_sent) = (self.connector.name(), false);
        match &self.fence {
            Some(fence) if !fence.is_open() => TransportError::Fenced { peer, maybe_sent },
            _ => TransportError::Closed { peer, maybe_sent },
        }
    }

    /// Ends all connections without a word, and what runs and waits on them.
    fn abort(&self) {
        let (connections, waiting) = {
            let mut state = self.lock();
            state.closed = true;
            let waiting: Vec<Waiter> = state.waiting.iter_mut().flat_map(std::mem::take).collect();
            (state.connections.clone(), waiting)
        };
        for connection in connections {
            connection.cut();
        }
        drop(waiting);
    }

    /// The pool as its connections know it.
    fn home(self: &Arc<Self>) -> Weak<dyn Home> {
        let pool: Weak<Self> = Arc::downgrade(self);
        pool
    }

    /// A place on a connection that there is. The oldest that has room, so that others may fall idle.
    fn choose(self: &Arc<Self>, state: &State, want: Want, avoid: &[u64]) -> Option<Place> {
        let now = self.environment.now();
        let behind = self.settings.breaches.commit(Breach::QueuedBehindWatches);
        let find = |beside: bool| {
            state.connections.iter().find_map(|connection| {
                let Purpose { role, reader } = connection.purpose;
                let fits = reader == want.purpose().reader
                    && (beside
                        || behind
                        || role == want.purpose().role
                        || connection.protocol() == Some(Protocol::Http1));
                let other = want.placement() != Placement::Elsewhere || now.since(connection.opened) <= NEW;
                let other = other && !avoid.contains(&connection.id);
                let admitted = || connection.admit(self.settings.streams, want.purpose());
                let sender = (fits && other).then(admitted).flatten()?;
                Some((Lease::new(connection.clone(), self.home()), sender))
            })
        };
        find(false).or_else(|| (want.placement() == Placement::Beside).then(|| find(true)).flatten())
    }

    /// Opens as many connections for `purpose` as those who wait are expected to need.
    fn dial(self: &Arc<Self>, state: &mut State, purpose: Purpose) {
        let wanted = state.waiting(|other| other == purpose);
        if wanted == 0 || self.is_held_off(state, purpose) {
            return;
        }
        let connecting = |connection: &&Arc<Connection>| {
            connection.purpose == purpose && connection.state() == ConnectionState::Connecting
        };
        let same = |connection: &Arc<Connection>| connection.purpose.reader == purpose.reader;
        if self.settings.breaches.commit(Breach::QueuedBehindWatches)
            && purpose.role == Role::Requests
            && state.connections.iter().any(same)
        {
            return;
        }
        let mut dialling = state.connections.iter().filter(connecting).count();
        while dialling < DIALS
            && dialling.saturating_mul(state.expected) < wanted
            && self.may_open(state, purpose.reader)
        {
            dialling += 1;
            self.dial_one(state, purpose);
        }
    }

    /// Whether a connection that was made just now takes no requests, as any other would not; it is tried again later.
    fn is_held_off(self: &Arc<Self>, state: &mut State, purpose: Purpose) -> bool {
        let now = self.environment.now();
        let barren = |connection: &Arc<Connection>| {
            connection.purpose == purpose && now.since(connection.opened) < AGAIN && connection.takes_none()
        };
        let is_held_off = state.connections.iter().any(barren);
        if is_held_off && !std::mem::replace(&mut state.looking, true) {
            let (later, pool) = (self.environment.sleep_until(now + AGAIN), Arc::downgrade(self));
            self.environment.spawn(Box::pin(async move {
                later.await;
                if let Some(pool) = pool.upgrade() {
                    pool.lock().looking = false;
                    pool.serve();
                }
            }));
        }
        is_held_off
    }

    /// How many connections take no requests for now.
    pub(super) fn barren(&self) -> usize {
        self.lock().connections.iter().filter(|connection| connection.takes_none()).count()
    }

    /// Whether there may be one more connection for what `reader` reads.
    fn may_open(&self, state: &State, reader: Reader) -> bool {
        let same = state.connections.iter().filter(|connection| connection.purpose.reader == reader).count();
        state.connections.len() < self.settings.connections && same < self.settings.connections_for(reader)
    }

    fn dial_one(self: &Arc<Self>, state: &mut State, purpose: Purpose) {
        state.opened += 1;
        let server = self.connector.name();
        let connection = Arc::new(self.connection(state.opened, purpose, server));
        state.connections.push(connection.clone());
        let (inquiries, connector) = (self.inquiries.clone(), self.connector.clone());
        let life = life::run(connection.clone(), self.home(), inquiries, connector, self.settings.clone());
        connection.driven_by(self.environment.spawn(Box::pin(life)));
    }

    /// A connection for one request alone, which is given to nobody else, driven by what `life` makes.
    pub(super) fn dial_alone<L>(
        self: &Arc<Self>,
        life: impl FnOnce(Arc<Connection>, Arc<Connector>, Weak<dyn Home>) -> L,
    ) -> Result<Lease, TransportError>
    where
        L: Future<Output = ()> + Send + 'static,
    {
        let mut state = self.lock();
        let server = self.connector.name();
        if state.closed {
            return Err(self.over());
        }
        if !self.may_open(&state, ALONE.reader) {
            let detail = format!("{} connections are open; raise `Settings::connections`", state.connections.len());
            return Err(TransportError::Busy { peer: server, detail, waited: Duration::ZERO });
        }
        state.opened += 1;
        let connection = Arc::new(self.connection(state.opened, ALONE, server));
        connection.occupy();
        state.connections.push(connection.clone());
        let life = life(connection.clone(), self.connector.clone(), self.home());
        connection.driven_by(self.environment.spawn(Box::pin(life)));
        Ok(Lease::new(connection, self.home()))
    }

    /// Finds places for those who `want` this, in their order.
    fn give(self: &Arc<Self>, state: &mut State, want: Want, given: &mut Vec<(Waiter, Place)>) {
        let mut queue = std::mem::take(&mut state.waiting[want.index()]);
        let mut index = 0;
        while let Some(waiter) = queue.get(index) {
            if waiter.place.is_closed() {
                queue.remove(index);
            } else if let Some(place) = self.choose(state, want, &waiter.avoid) {
                given.extend(queue.remove(index).map(|waiter| (waiter, place)));
            } else if waiter.avoid.is_empty() {
                break;
            } else {
                index += 1;
            }
        }
        state.waiting[want.index()] = queue;
    }

    /// The server has answered a request.
    pub(super) fn answered(&self) {
        let now = self.environment.now();
        let mut state = self.lock();
        let due = state.told.is_none_or(|told| now.since(told) >= TELLING);
        if state.failing && due {
            state.failing = false;
            state.told = Some(now);
            drop(state);
            self.reachable.send_modify(|count| *count += 1);
        }
    }
}

impl Home for Inner {
    /// Gives places to those who wait, and opens connections for those who still do.
    fn serve(self: Arc<Self>) {
        let mut given = Vec::new();
        {
            let mut state = self.lock();
            for want in Want::all() {
                self.give(&mut state, want, &mut given);
            }
            for purpose in Purpose::SHARED {
                self.dial(&mut state, purpose);
            }
            for want in Want::all() {
                // Where there will be no other connection, those that are avoided are better than none.
                if state.waiting[want.index()].iter().any(|waiter| !waiter.avoid.is_empty())
                    && !state.is_connecting(want.purpose())
                {
                    state.waiting[want.index()].iter_mut().for_each(|waiter| waiter.avoid.clear());
                    self.give(&mut state, want, &mut given);
                }
            }
        }
        for (waiter, place) in given {
            // A place that nobody takes any more goes back when it is dropped.
            drop(waiter.place.send(Ok(place)));
        }
    }

    /// A connection is suspect or draining, or is so no longer: where its watches have no other, one is opened at once.
    fn unsettled(self: Arc<Self>) {
        let mut state = self.lock();
        for reader in [Reader::Informer, Reader::Caller] {
            let watches = Purpose { role: Role::Watches, reader };
            let same = |connection: &&Arc<Connection>| connection.purpose == watches;
            let unsettled = state.connections.iter().filter(same).any(|connection| connection.is_unsettled());
            let other = |connection: &Arc<Connection>| {
                matches!(connection.state(), ConnectionState::Ready | ConnectionState::Connecting)
            };
            if unsettled
                && !state.closed
                && !state.connections.iter().filter(same).any(other)
                && self.may_open(&state, reader)
            {
                self.dial_one(&mut state, watches);
            }
        }
        clear_suspects(&state);
        drop(state);
        self.serve();
    }

    /// A connection takes requests now.
    fn established(self: Arc<Self>, connection: &Connection) {
        let peer = connection.peer();
        tracing::debug!(connection = connection.id, %peer, protocol = ?connection.protocol(), "connected");
        {
            let mut state = self.lock();
            state.expected = match connection.protocol() {
                Some(Protocol::Http1) => 1,
                _ => self.settings.streams,
            };
            clear_suspects(&state);
        }
        self.serve();
    }

    /// A connection is gone; `error` says why it never came to be, if it did not.
    fn forget(self: Arc<Self>, gone: &Connection, error: Option<TransportError>) {
        tracing::debug!(connection = gone.id, peer = %gone.peer(), end = ?gone.ended(), "connection closed");
        let mut failed = Vec::new();
        {
            let mut state = self.lock();
            if !self.settings.breaches.commit(Breach::DeadAgain) {
                state.connections.retain(|connection| connection.id != gone.id);
            }
            if state.ended.len() == REMEMBERED {
                state.ended.pop_front();
            }
            let why = error.as_ref().map(ToString::to_string).or_else(|| Some(gone.ended()?.to_string()));
            state.ended.push_back((self.environment.now(), gone.report(), why.unwrap_or_default()));
            gone.count_end(&self.traffic, error.as_ref());
            let lost = matches!(gone.ended(), Some(End::Failed(_)));
            state.failing |= lost || error.is_some();
            let others = state.is_connecting(gone.purpose);
            let well = state.connections.iter().any(|other| other.purpose == gone.purpose && other.state().accepts());
            if error.is_some() && !gone.was_superseded() {
                // Those whom this one would have served fail with it, and all when no other is on its way:
                // to dial again at once would be a spin.
                let mut share = if others { state.expected.max(1) } else { usize::MAX };
                for want in Want::all().filter(|want| want.purpose() == gone.purpose) {
                    let queue = &mut state.waiting[want.index()];
                    let taken = queue.len().min(share);
                    share -= taken;
                    for mut waiter in queue.drain(..taken).rev().collect::<Vec<_>>() {
                        if well && !waiter.avoid.is_empty() {
                            // Refused once, it may be taken now; and if it is not, that is what to tell.
                            waiter.avoid.clear();
                            queue.push_front(waiter);
                        } else {
                            failed.push(waiter);
                        }
                    }
                }
            }
        }
        if let Some(error) = error {
            for waiter in failed {
                drop(waiter.place.send(Err(error.clone())));
            }
        }
        self.serve();
    }
}

/// Has informers' watches leave the connections that may be dead, once there is another for them.
fn clear_suspects(state: &State) {
    let watches = Purpose { role: Role::Watches, reader: Reader::Informer };
    let watches = || state.connections.iter().filter(|connection| connection.purpose == watches);
    if watches().any(|connection| connection.state().accepts()) {
        watches().for_each(|connection| connection.clear_suspect());
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(guard) = self.guard.get() {
            guard.abort();
        }
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.closed = true;
        for connection in state.connections.drain(..) {
            connection.cut();
        }
    }
}
