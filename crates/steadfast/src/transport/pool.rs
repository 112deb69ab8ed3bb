//! Connection pool of one server: selection of connections for requests, and dials.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use steadfast_core::Instant;
use steadfast_core::fault_injection::inject;
use tokio::sync::{oneshot, watch};

use super::connection::TransportConnection;
use super::connection_runtime::ConnectionRuntime;
use super::connection_task;
use super::connector::{Connector, Route};
use super::end::End;
use super::error::TransportError;
use super::fence::Fence;
use super::liveness_probes::LivenessProbes;
use super::placement_request::PlacementRequest;
use super::purpose::{Purpose, Role};
use super::report::{ClosedConnection, ConnectionReport, Protocol};
use super::settings::{CarryingConnection, Placement, Reader, Settings};
use super::state::ConnectionState;
use super::stream_slot::{PoolHandle, StreamSlot};
use super::waiting::{Assignment, WaitingRequest, WaitingRequests};
use super::windows::MAX_STREAMS;
use crate::environment::{SharedEnvironment, Task};
use crate::metrics::pool_counters::PoolCounters;

/// Maximum number of concurrent dials for one purpose on one runtime.
const MAX_CONCURRENT_DIALS: usize = 8;

/// Maximum age of a connection that is used to verify a doubted stream.
const MAX_RECENT_AGE: Duration = Duration::from_secs(10);

/// Delay before another dial to a server that currently allows no streams.
const REDIAL_DELAY: Duration = Duration::from_secs(5);

/// Number of closed connections kept for reports.
const MAX_CLOSED_REPORTS: usize = 16;

/// Minimum interval between notifications that the server responds again.
const MIN_NOTIFICATION_INTERVAL: Duration = Duration::from_secs(2);

/// Connections to one server; cheap to clone, closed with the last clone.
#[derive(Clone)]
pub(crate) struct Pool {
    pub(super) inner: Arc<Inner>,
}

/// Shared part of the pool, known to connections and tasks as their [`PoolHandle`].
pub(super) struct Inner {
    pub(super) environment: SharedEnvironment,
    pub(super) settings: Settings,
    connector: Arc<Connector>,
    state: Mutex<State>,
    reachable: watch::Sender<u64>,
    pub(super) liveness_probes: Arc<LivenessProbes>,
    pub(super) traffic: Arc<PoolCounters>,
    /// Time limit for sending.
    pub(super) fence: Option<Fence>,
    /// Task that waits for the fence to close.
    fence_task: OnceLock<Task>,
    /// Pools to the same server behind fences, which drain together with this one.
    fenced: Mutex<Vec<Weak<Inner>>>,
}

struct State {
    /// All connections except dead ones, oldest first.
    connections: Vec<Arc<TransportConnection>>,
    waiting: WaitingRequests,
    /// Number of requests that the next connection is expected to serve.
    streams_per_connection: usize,
    dial_count: u64,
    closed: bool,
    /// True if a re-check for a dial is scheduled.
    recheck_scheduled: bool,
    /// True after a failure, until the server responds again.
    is_failing: bool,
    /// Time of the last notification that the server responds again after a failure.
    notified_at: Option<Instant>,
    /// Last closed connections with time and reason, oldest first.
    closed_reports: VecDeque<(Instant, ConnectionReport, String)>,
}

/// Purpose of a dedicated connection.
const UPGRADE_PURPOSE: Purpose = Purpose { role: Role::Upgrade, reader: Reader::Caller };

impl State {
    /// Returns the connections for `purpose` on `runtime`.
    fn connections_for(
        &self,
        runtime: &ConnectionRuntime,
        purpose: Purpose,
    ) -> impl Iterator<Item = &Arc<TransportConnection>> {
        self.connections
            .iter()
            .filter(move |connection| connection.purpose == purpose && connection.runtime == *runtime)
    }

    /// Returns true if a connection for `purpose` is being dialled on `runtime`.
    fn is_connecting(&self, runtime: &ConnectionRuntime, purpose: Purpose) -> bool {
        self.connections_for(runtime, purpose).any(|connection| connection.state() == ConnectionState::Connecting)
    }
}

impl Pool {
    /// Creates an empty pool; the first request dials.
    pub(crate) fn new(connector: Connector, mut settings: Settings) -> Self {
        settings.max_streams = settings.max_streams.clamp(1, MAX_STREAMS);
        Self::of(Arc::new(connector), settings, None)
    }

    /// Creates another pool to the same server over the same route. The new pool sends only while `fence` is open.
    pub(crate) fn with_fence(&self, fence: Fence) -> Self {
        let fenced = Self::of(self.inner.connector.clone(), self.inner.settings.clone(), Some(fence.clone()));
        {
            let mut all = self.inner.fenced.lock();
            all.retain(|pool| pool.strong_count() > 0);
            all.push(Arc::downgrade(&fenced.inner));
        }
        // Weak: the task must not keep a dropped pool alive until its fence closes.
        let inner = Arc::downgrade(&fenced.inner);
        let fence_task = self.inner.environment.spawn(Box::pin(async move {
            fence.closed().await;
            if let Some(inner) = inner.upgrade() {
                inner.abort();
            }
        }));
        fenced.inner.fence_task.get_or_init(|| fence_task);
        fenced
    }

    fn of(connector: Arc<Connector>, settings: Settings, fence: Option<Fence>) -> Self {
        let state = State {
            connections: Vec::new(),
            waiting: WaitingRequests::new(),
            streams_per_connection: settings.max_streams,
            dial_count: 0,
            closed: false,
            recheck_scheduled: false,
            is_failing: false,
            notified_at: None,
            closed_reports: VecDeque::new(),
        };
        let traffic = Arc::new(PoolCounters::default());
        let inner = Inner {
            environment: connector.environment().clone(),
            settings,
            connector,
            state: Mutex::new(state),
            reachable: watch::Sender::new(0),
            liveness_probes: Arc::new(LivenessProbes::new(traffic.clone())),
            traffic,
            fence,
            fence_task: OnceLock::new(),
            fenced: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Returns the open connections, oldest first.
    pub(crate) fn connections(&self) -> Vec<ConnectionReport> {
        let state = self.inner.lock();
        // A dead connection is omitted, even if its task has not finished yet.
        let live = state.connections.iter().map(|connection| connection.report());
        live.filter(|report| report.state != ConnectionState::Dead).collect()
    }

    /// Returns the last 16 closed connections with the reason, latest first.
    pub(crate) fn recently_closed(&self) -> Vec<ClosedConnection> {
        let now = self.inner.environment.now();
        let state = self.inner.lock();
        let closed_connection = |(at, report, reason): &(Instant, ConnectionReport, String)| ClosedConnection {
            connection: report.clone(),
            time_since_close: now.since(*at),
            reason: reason.clone(),
        };
        state.closed_reports.iter().rev().map(closed_connection).collect()
    }

    /// Drains all connections: requests in flight can finish, watches move to new connections, no new requests are
    /// accepted.
    pub(crate) fn drain(&self) {
        let connections = self.inner.lock().connections.clone();
        for connection in connections {
            connection.supersede();
        }
        // All connections drain before the first replacement is dialled, so that no watch moves to a connection about
        // to drain.
        self.inner.clone().state_changed();
        let fenced = self.inner.fenced.lock().clone();
        for inner in fenced.iter().filter_map(Weak::upgrade) {
            Self { inner }.drain();
        }
    }

    /// Returns the number of connections ever dialled.
    pub(crate) fn dial_count(&self) -> u64 {
        self.inner.lock().dial_count
    }

    /// Returns the open connections, the number of dials and the counters, consistently.
    #[cfg(feature = "metrics")]
    pub(crate) fn traffic(&self) -> (Vec<ConnectionReport>, u64, crate::metrics::pool_counters::Totals) {
        let state = self.inner.lock();
        let reports = state.connections.iter().map(|connection| connection.report()).collect();
        // Read under the lock that also covers the move of a closed connection from the reports to the counters.
        (reports, state.dial_count, self.inner.traffic.lock().clone())
    }

    /// Returns a counter of recoveries: responses of the server after a failure, at most one every 2 s.
    pub(crate) fn reachability(&self) -> watch::Receiver<u64> {
        self.inner.reachable.subscribe()
    }

    /// Returns the environment of the pool.
    pub(crate) fn environment(&self) -> &SharedEnvironment {
        &self.inner.environment
    }

    /// Returns the server's name for messages.
    pub(crate) fn server(&self) -> String {
        self.inner.connector.name()
    }

    /// Uses `route` for new connections and drains the current ones.
    pub(crate) fn renew(&self, route: Route) {
        // The route is set first, since the drain dials replacements immediately.
        self.inner.connector.reroute(route);
        self.drain();
    }

    /// Waits for a slot for one request on a connection of `runtime`. Dials a new connection if all connections are
    /// full or in `avoided`.
    pub(super) async fn acquire_slot(
        &self,
        placement_request: PlacementRequest,
        runtime: &ConnectionRuntime,
        avoided: &[u64],
    ) -> Result<Assignment, TransportError> {
        let assignment = {
            let mut state = self.inner.lock();
            if state.closed {
                return Err(self.inner.closed_error());
            }
            // A request that avoids connections does not block other requests.
            let first = state
                .waiting
                .on_runtime(runtime)
                .queue(placement_request)
                .iter()
                .all(|waiter| !waiter.avoided.is_empty());
            if let Some(assignment) =
                first.then(|| self.inner.choose(&state, placement_request, runtime, avoided)).flatten()
            {
                return Ok(assignment);
            }
            // The limit counts per reader: callers that flood the pool must not cause the rejection of informers'
            // requests.
            let reader = placement_request.purpose().reader;
            let waiting = state.waiting.count(|purpose| purpose.reader == reader);
            if waiting >= self.inner.settings.max_waiting {
                let detail = format!("{waiting} requests are already waiting; send fewer requests concurrently");
                return Err(TransportError::Busy {
                    peer: self.server(),
                    detail,
                    is_opening: false,
                    waited: Duration::ZERO,
                });
            }
            let (sender, assignment) = oneshot::channel();
            state
                .waiting
                .on_runtime(runtime)
                .queue(placement_request)
                .push_back(WaitingRequest { avoided: avoided.to_vec(), assignment: sender });
            self.inner.dial(&mut state, runtime, placement_request.purpose());
            assignment
        };
        assignment.await.unwrap_or_else(|_| Err(self.inner.closed_error()))
    }

    /// Returns a slot on the connection `carrier`, if a slot is free.
    pub(super) fn acquire_slot_on(
        &self,
        carrier: CarryingConnection,
        purpose: Purpose,
    ) -> Result<Assignment, TransportError> {
        let state = self.inner.lock();
        let carrying = state.connections.iter().find(|connection| connection.id == carrier.0);
        let assignment = carrying.and_then(|connection| {
            let sender = connection.admit(self.inner.settings.max_streams, purpose)?;
            Some((StreamSlot::new(connection.clone(), self.inner.pool_handle()), sender))
        });
        assignment.ok_or_else(|| {
            let detail = "the connection that must also carry this request accepts no more requests".to_owned();
            TransportError::Busy { peer: self.server(), detail, is_opening: false, waited: Duration::ZERO }
        })
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn connection(&self, id: u64, purpose: Purpose, runtime: ConnectionRuntime, server: String) -> TransportConnection {
        TransportConnection::new(
            id,
            purpose,
            runtime,
            server,
            &self.environment,
            self.settings.faults,
            self.fence.clone(),
        )
    }

    /// Returns the error for an unsent request after the end of the pool.
    pub(super) fn closed_error(&self) -> TransportError {
        let (peer, maybe_sent) = (self.connector.name(), false);
        match &self.fence {
            Some(fence) if !fence.is_open() => TransportError::Fenced { peer, maybe_sent },
            _ => TransportError::Closed { peer, maybe_sent },
        }
    }

    /// Aborts all connections, with the requests in flight and waiting.
    fn abort(&self) {
        let (connections, waiting) = {
            let mut state = self.lock();
            state.closed = true;
            let waiting = state.waiting.take_all();
            (state.connections.clone(), waiting)
        };
        for connection in connections {
            connection.cut();
        }
        // The senders drop outside the lock. Each waiting request then fails with the error of a closed pool.
        drop(waiting);
    }

    /// Returns the pool as the interface of its connections.
    fn pool_handle(self: &Arc<Self>) -> Weak<dyn PoolHandle> {
        let pool: Weak<Self> = Arc::downgrade(self);
        pool
    }

    /// Returns a slot on an existing connection of `runtime`. Prefers the oldest connection with capacity, so that
    /// newer connections become idle.
    fn choose(
        self: &Arc<Self>,
        state: &State,
        placement_request: PlacementRequest,
        runtime: &ConnectionRuntime,
        avoided: &[u64],
    ) -> Option<Assignment> {
        let now = self.environment.now();
        let is_queued_behind_watches = inject!(self.settings.faults, QueuedBehindWatches);
        // Watches and other requests use separate connections, so that neither group takes the streams and windows of
        // the other. An HTTP/1.1 connection serves one request at a time, and needs no separation.
        let find = |any_role: bool| {
            state.connections.iter().find_map(|connection| {
                let Purpose { role, reader } = connection.purpose;
                let fits = reader == placement_request.purpose().reader
                    && connection.runtime == *runtime
                    && (any_role
                        || is_queued_behind_watches
                        || role == placement_request.purpose().role
                        || connection.protocol() == Some(Protocol::Http1));
                let is_eligible = placement_request.placement() != Placement::RecentlyOpened
                    || now.since(connection.dialled_at) <= MAX_RECENT_AGE;
                let is_eligible = is_eligible && !avoided.contains(&connection.id);
                let admitted = || connection.admit(self.settings.max_streams, placement_request.purpose());
                let sender = (fits && is_eligible).then(admitted).flatten()?;
                Some((StreamSlot::new(connection.clone(), self.pool_handle()), sender))
            })
        };
        find(false)
            .or_else(|| (placement_request.placement() == Placement::SharedWithWatches).then(|| find(true)).flatten())
    }

    /// Dials as many connections for `purpose` on `runtime` as the waiting requests are expected to need.
    fn dial(self: &Arc<Self>, state: &mut State, runtime: &ConnectionRuntime, purpose: Purpose) {
        let waiting_count = state.waiting.on_runtime(runtime).count(|candidate| candidate == purpose);
        if waiting_count == 0 || self.is_held_off(state, runtime, purpose) {
            return;
        }
        let same = |connection: &Arc<TransportConnection>| {
            connection.purpose.reader == purpose.reader && connection.runtime == *runtime
        };
        if inject!(self.settings.faults, QueuedBehindWatches)
            && purpose.role == Role::Requests
            && state.connections.iter().any(same)
        {
            return;
        }
        // Each dial in flight counts for the requests that its connection is expected to serve. A burst of requests
        // therefore opens few connections.
        let connecting = |connection: &&Arc<TransportConnection>| connection.state() == ConnectionState::Connecting;
        let mut dialling = state.connections_for(runtime, purpose).filter(connecting).count();
        while dialling < MAX_CONCURRENT_DIALS
            && dialling.saturating_mul(state.streams_per_connection) < waiting_count
            && self.may_open(state, purpose.reader)
        {
            dialling += 1;
            self.dial_one(state, purpose, runtime.clone());
        }
    }

    /// Returns true if a recent connection allows no streams: a new connection would not allow any either. In this case
    /// also schedules a re-check.
    fn is_held_off(self: &Arc<Self>, state: &mut State, runtime: &ConnectionRuntime, purpose: Purpose) -> bool {
        let now = self.environment.now();
        let without_streams = |connection: &Arc<TransportConnection>| {
            now.since(connection.dialled_at) < REDIAL_DELAY && connection.allows_no_streams()
        };
        let is_held_off = state.connections_for(runtime, purpose).any(without_streams);
        if is_held_off && !std::mem::replace(&mut state.recheck_scheduled, true) {
            let (later, pool) = (self.environment.sleep_until(now + REDIAL_DELAY), Arc::downgrade(self));
            self.environment.spawn(Box::pin(async move {
                later.await;
                if let Some(pool) = pool.upgrade() {
                    pool.lock().recheck_scheduled = false;
                    pool.serve();
                }
            }));
        }
        is_held_off
    }

    /// Returns the number of connections that currently allow no streams.
    pub(super) fn without_streams(&self) -> usize {
        self.lock().connections.iter().filter(|connection| connection.allows_no_streams()).count()
    }

    /// Returns true if a connection for `purpose` on `runtime` has been opening for at least `min_age`.
    pub(super) fn is_dial_hanging(&self, runtime: &ConnectionRuntime, purpose: Purpose, min_age: Duration) -> bool {
        let now = self.environment.now();
        let is_hanging = |connection: &Arc<TransportConnection>| {
            connection.state() == ConnectionState::Connecting && now.since(connection.dialled_at) >= min_age
        };
        self.lock().connections_for(runtime, purpose).any(is_hanging)
    }

    /// Returns true if the limits permit one more connection for `reader`.
    fn may_open(&self, state: &State, reader: Reader) -> bool {
        let same = state.connections.iter().filter(|connection| connection.purpose.reader == reader).count();
        state.connections.len() < self.settings.max_connections && same < self.settings.connections_for(reader)
    }

    fn dial_one(self: &Arc<Self>, state: &mut State, purpose: Purpose, runtime: ConnectionRuntime) {
        state.dial_count += 1;
        let server = self.connector.name();
        let connection = Arc::new(self.connection(state.dial_count, purpose, runtime, server));
        state.connections.push(connection.clone());
        let (liveness_probes, connector) = (self.liveness_probes.clone(), self.connector.clone());
        let task = connection_task::run(
            connection.clone(),
            self.pool_handle(),
            liveness_probes,
            connector,
            self.settings.clone(),
        );
        connection.set_driver(self.environment.spawn(Box::pin(task)));
    }

    /// Dials a dedicated connection, driven by the task that `task` creates.
    pub(super) fn dial_alone<L>(
        self: &Arc<Self>,
        task: impl FnOnce(Arc<TransportConnection>, Arc<Connector>, Weak<dyn PoolHandle>) -> L,
    ) -> Result<StreamSlot, TransportError>
    where
        L: Future<Output = ()> + Send + 'static,
    {
        let mut state = self.lock();
        let server = self.connector.name();
        if state.closed {
            return Err(self.closed_error());
        }
        if !self.may_open(&state, UPGRADE_PURPOSE.reader) {
            let detail = format!("{} connections are open; raise `Settings::max_connections`", state.connections.len());
            return Err(TransportError::Busy { peer: server, detail, is_opening: false, waited: Duration::ZERO });
        }
        state.dial_count += 1;
        let connection =
            Arc::new(self.connection(state.dial_count, UPGRADE_PURPOSE, ConnectionRuntime::Environment, server));
        connection.occupy();
        state.connections.push(connection.clone());
        let task = task(connection.clone(), self.connector.clone(), self.pool_handle());
        connection.set_driver(self.environment.spawn(Box::pin(task)));
        Ok(StreamSlot::new(connection, self.pool_handle()))
    }

    /// Assigns slots on `runtime` to the waiting requests of `placement_request`, in their order.
    fn assign_waiting(
        self: &Arc<Self>,
        state: &mut State,
        runtime: &ConnectionRuntime,
        placement_request: PlacementRequest,
        assigned: &mut Vec<(WaitingRequest, Assignment)>,
    ) {
        let mut queue = std::mem::take(state.waiting.on_runtime(runtime).queue(placement_request));
        let mut index = 0;
        while let Some(waiter) = queue.get(index) {
            // A closed receiver belongs to a cancelled request.
            if waiter.assignment.is_closed() {
                queue.remove(index);
            } else if let Some(assignment) = self.choose(state, placement_request, runtime, &waiter.avoided) {
                assigned.extend(queue.remove(index).map(|waiter| (waiter, assignment)));
            } else if waiter.avoided.is_empty() {
                // Without a slot for this request, later requests get none either: their requirements are the same.
                break;
            } else {
                index += 1;
            }
        }
        *state.waiting.on_runtime(runtime).queue(placement_request) = queue;
    }

    /// Records a response of the server.
    pub(super) fn record_response(&self) {
        let now = self.environment.now();
        let mut state = self.lock();
        let due = state.notified_at.is_none_or(|at| now.since(at) >= MIN_NOTIFICATION_INTERVAL);
        if state.is_failing && due {
            state.is_failing = false;
            state.notified_at = Some(now);
            drop(state);
            self.reachable.send_modify(|count| *count += 1);
        }
    }
}

impl PoolHandle for Inner {
    /// Assigns slots to waiting requests, and dials connections for the rest.
    fn serve(self: Arc<Self>) {
        let mut assigned = Vec::new();
        {
            let mut state = self.lock();
            for runtime in &state.waiting.runtimes() {
                for placement_request in PlacementRequest::all() {
                    self.assign_waiting(&mut state, runtime, placement_request, &mut assigned);
                }
                for purpose in Purpose::SHARED {
                    self.dial(&mut state, runtime, purpose);
                }
                for placement_request in PlacementRequest::all() {
                    // If no further connection can be opened, an avoided connection is better than none.
                    let avoids = |waiter: &WaitingRequest| !waiter.avoided.is_empty();
                    if state.waiting.on_runtime(runtime).queue(placement_request).iter().any(avoids)
                        && !state.is_connecting(runtime, placement_request.purpose())
                    {
                        state
                            .waiting
                            .on_runtime(runtime)
                            .queue(placement_request)
                            .iter_mut()
                            .for_each(|waiter| waiter.avoided.clear());
                        self.assign_waiting(&mut state, runtime, placement_request, &mut assigned);
                    }
                }
            }
        }
        for (waiter, assignment) in assigned {
            // If the request was cancelled, dropping the slot releases it.
            drop(waiter.assignment.send(Ok(assignment)));
        }
    }

    /// Processes a change to or from suspect or draining. If the connection's watches have no other connection, one is
    /// dialled immediately.
    fn state_changed(self: Arc<Self>) {
        let mut state = self.lock();
        let watches = |connection: &&Arc<TransportConnection>| {
            connection.purpose.role == Role::Watches && connection.needs_replacement()
        };
        let to_replace: Vec<_> = state.connections.iter().filter(watches).cloned().collect();
        for connection in to_replace {
            let (runtime, purpose) = (&connection.runtime, connection.purpose);
            let candidate = |connection: &Arc<TransportConnection>| {
                matches!(connection.state(), ConnectionState::Ready | ConnectionState::Connecting)
            };
            if !state.closed
                && !state.connections_for(runtime, purpose).any(candidate)
                && self.may_open(&state, purpose.reader)
            {
                self.dial_one(&mut state, purpose, runtime.clone());
            }
        }
        clear_suspects(&state);
        drop(state);
        self.serve();
    }

    /// Processes an established connection.
    fn established(self: Arc<Self>, connection: &TransportConnection) {
        let peer = connection.peer();
        tracing::debug!(connection = connection.id, %peer, protocol = ?connection.protocol(), "connected");
        {
            let mut state = self.lock();
            // The established protocol shows how many requests one connection can serve.
            state.streams_per_connection = match connection.protocol() {
                Some(Protocol::Http1) => 1,
                _ => self.settings.max_streams,
            };
            clear_suspects(&state);
        }
        self.serve();
    }

    /// Removes a closed connection. `error` is set after a failed dial.
    fn forget(self: Arc<Self>, closed: &TransportConnection, error: Option<TransportError>) {
        tracing::debug!(connection = closed.id, peer = %closed.peer(), end = ?closed.ended(), "connection closed");
        let mut failed = Vec::new();
        {
            let mut state = self.lock();
            if !inject!(self.settings.faults, ReusedDeadConnection) {
                state.connections.retain(|connection| connection.id != closed.id);
            }
            if state.closed_reports.len() == MAX_CLOSED_REPORTS {
                state.closed_reports.pop_front();
            }
            let reason = error.as_ref().map(ToString::to_string).or_else(|| Some(closed.ended()?.to_string()));
            state.closed_reports.push_back((self.environment.now(), closed.report(), reason.unwrap_or_default()));
            closed.count_end(&self.traffic, error.as_ref());
            let is_lost = matches!(closed.ended(), Some(End::Failed(_)));
            // Orderly ends, for example of idle connections, prove nothing about the server's health.
            state.is_failing |= is_lost || error.is_some();
            let has_other_dials = state.is_connecting(&closed.runtime, closed.purpose);
            let has_usable_connection =
                state.connections_for(&closed.runtime, closed.purpose).any(|candidate| candidate.state().accepts());
            if error.is_some() && !closed.was_superseded() {
                // The requests that this connection would have served fail with it; without other dials in flight all
                // waiting requests fail. An immediate redial would be a hot loop.
                let mut share = if has_other_dials { state.streams_per_connection.max(1) } else { usize::MAX };
                for placement_request in
                    PlacementRequest::all().filter(|placement_request| placement_request.purpose() == closed.purpose)
                {
                    let queue = state.waiting.on_runtime(&closed.runtime).queue(placement_request);
                    let taken = queue.len().min(share);
                    share -= taken;
                    for mut waiter in queue.drain(..taken).rev().collect::<Vec<_>>() {
                        if has_usable_connection && !waiter.avoided.is_empty() {
                            // The connection may accept the request now. If it rejects the request again, that error is
                            // reported.
                            waiter.avoided.clear();
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
                drop(waiter.assignment.send(Err(error.clone())));
            }
        }
        self.serve();
    }
}

/// Moves informers' watches away from suspect connections, if another connection exists.
fn clear_suspects(state: &State) {
    let watches = Purpose { role: Role::Watches, reader: Reader::Informer };
    let watches = || state.connections.iter().filter(|connection| connection.purpose == watches);
    if watches().any(|connection| connection.state().accepts()) {
        watches().for_each(|connection| connection.clear_suspect());
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(fence_task) = self.fence_task.get() {
            fence_task.abort();
        }
        let state = self.state.get_mut();
        state.closed = true;
        for connection in state.connections.drain(..) {
            connection.cut();
        }
    }
}
