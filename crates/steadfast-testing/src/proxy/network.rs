//! The state that all connections of a network share.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use steadfast_apiserver::Port;
use tokio::sync::watch;
use tokio::time::Instant;

use super::link::{Condition, ConnectionCommands, Link};
use super::report::{ConnectionEnd, FaultChange, FaultTransition, ProxiedConnection};

/// Maximum number of ended connections, and of changes, that are kept for reports. The newest are kept.
const MAX_REPORTED: usize = 10_000;

type Listener = Box<dyn Fn(&FaultChange) + Send + Sync>;

/// State that all connections share.
pub(super) struct Network {
    start: Instant,
    state: Mutex<State>,
    listeners: Mutex<Vec<Listener>>,
    /// Notified of each change, for connections that wait for admission.
    change_signal: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    seed: u64,
    /// Initial conditions of new connections.
    default_condition: Condition,
    refuses_connections: bool,
    turns_away: bool,
    target: usize,
    /// Number of the next connection.
    next_number: u64,
    /// Open connections, and connections that have settings but are not opened yet.
    links: BTreeMap<u64, Arc<Link>>,
    ended_connections: VecDeque<ProxiedConnection>,
    changes: VecDeque<FaultChange>,
    /// Listening port of the proxy over TCP.
    port: Option<Arc<Port>>,
}

impl Network {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            start: Instant::now(),
            state: Mutex::new(State { seed, ..State::default() }),
            listeners: Mutex::default(),
            change_signal: watch::channel(()).0,
        }
    }

    pub(super) fn seed(&self) -> u64 {
        self.with_state(|state| state.seed)
    }

    pub(super) fn set_port(&self, port: Arc<Port>) {
        self.with_state(|state| state.port = Some(port));
    }

    // Admission and end of connections.

    /// Admits the next connection, or returns `None` if connections are rejected.
    pub(super) fn admit(self: &Arc<Self>) -> Option<AdmittedConnection> {
        self.with_state(|state| (!state.refuses_connections).then(|| self.open(state)))
    }

    /// Admits the next connection, like a client that repeats its SYN: waits while packets are lost.
    pub(super) async fn admit_when_passable(self: &Arc<Self>) -> io::Result<AdmittedConnection> {
        let mut change_signal = self.change_signal.subscribe();
        loop {
            // The change is marked as seen before the check. So a change between the check and the wait ends the wait
            // immediately.
            change_signal.mark_unchanged();
            let admission = self.with_state(|state| {
                // Conditions may have been set for the number of this connection before it is open.
                let condition =
                    state.links.get(&state.next_number).map_or(state.default_condition, |link| link.condition());
                if state.refuses_connections {
                    Some(Err(io::ErrorKind::ConnectionRefused.into()))
                } else if condition.can_open() {
                    Some(Ok(self.open(state)))
                } else {
                    None
                }
            });
            if let Some(admission) = admission {
                return admission;
            }
            // The sender belongs to the borrowed value, so the channel cannot be closed.
            let _ = change_signal.changed().await;
        }
    }

    fn open(self: &Arc<Self>, state: &mut State) -> AdmittedConnection {
        let (number, target, default_condition) = (state.next_number, state.target, state.default_condition);
        state.next_number += 1;
        // Settings for a future number create the link early. The opening then must not overwrite them.
        let link = state.links.entry(number).or_insert_with(|| Arc::new(Link::new(number, default_condition))).clone();
        link.open(self.start.elapsed(), target);
        AdmittedConnection::new(link, self.clone(), target)
    }

    /// Returns `true` if connections are accepted only to be closed.
    pub(super) fn turns_away(&self) -> bool {
        self.with_state(|state| state.turns_away)
    }

    pub(super) fn record_end(&self, link: &Link, end: ConnectionEnd) {
        link.end(self.start.elapsed(), end);
        self.with_state(|state| {
            state.links.remove(&link.number);
            state.ended_connections.extend(link.report());
            // The list is bounded, because a test may open connections in a loop for hours of virtual time.
            while state.ended_connections.len() > MAX_REPORTED {
                state.ended_connections.pop_front();
            }
        });
    }

    // Switches.

    /// Changes the lasting conditions of all connections, or of one.
    pub(super) fn change(&self, connection_number: Option<u64>, change: impl Fn(&mut Condition)) {
        if let Some(number) = connection_number {
            self.with_link(number, |link| link.change(&change));
        } else {
            let links = self.with_state(|state| {
                // New connections start with the same conditions. The links are collected under the lock, and changed
                // after its release.
                change(&mut state.default_condition);
                state.links.values().cloned().collect::<Vec<_>>()
            });
            for link in links {
                link.change(&change);
            }
        }
        // Connections that wait for admission check the conditions again.
        self.change_signal.send_replace(());
    }

    /// Changes the conditions of the open connections, or of one.
    pub(super) fn change_open(&self, connection_number: Option<u64>, change: impl Fn(&mut Condition)) {
        self.each_open(connection_number, |link| link.change(&change));
    }

    /// Applies an action once to each open connection, or to one open connection.
    pub(super) fn command(&self, connection_number: Option<u64>, command: impl Fn(&mut ConnectionCommands)) {
        self.each_open(connection_number, |link| link.command(&command));
    }

    fn each_open(&self, connection_number: Option<u64>, act: impl Fn(&Link)) {
        if let Some(number) = connection_number {
            return self.with_link(number, act);
        }
        let links = self.with_state(|state| state.links.values().cloned().collect::<Vec<_>>());
        links.iter().filter(|link| link.is_open()).for_each(|link| act(link));
    }

    /// Acts on one connection, open or not yet opened. Does nothing if the connection has ended.
    fn with_link(&self, number: u64, act: impl FnOnce(&Link)) {
        let link = self.with_state(|state| {
            let default_condition = state.default_condition;
            // A number below `next_number` without a link has ended. Creating a link would report a connection that
            // never existed.
            if number >= state.next_number {
                let link = state.links.entry(number).or_insert_with(|| Arc::new(Link::new(number, default_condition)));
                return Some(link.clone());
            }
            state.links.get(&number).cloned()
        });
        if let Some(link) = link {
            act(&link);
        }
    }

    pub(super) fn next_number(&self) -> u64 {
        self.with_state(|state| state.next_number)
    }

    pub(super) fn set_refuses(&self, on: bool) {
        let port = self.with_state(|state| {
            state.refuses_connections = on;
            state.port.clone()
        });
        if let Some(port) = port {
            // The port is opened and closed after the release of the state's lock, because this is a system call.
            port.set_open(!on).expect("the port is reserved for this");
        }
        self.change_signal.send_replace(());
    }

    pub(super) fn set_turns_away(&self, on: bool) {
        self.with_state(|state| state.turns_away = on);
    }

    pub(super) fn set_target(&self, target: usize) {
        self.with_state(|state| state.target = target);
    }

    // Reports.

    /// Records a change, and notifies the listeners.
    pub(super) fn record_change(&self, fault: &str, connection: Option<u64>, transition: FaultTransition) {
        let change = FaultChange { at: self.start.elapsed(), fault: fault.to_owned(), connection, transition };
        self.with_state(|state| {
            state.changes.push_back(change.clone());
            while state.changes.len() > MAX_REPORTED {
                state.changes.pop_front();
            }
        });
        // Listeners run under their own lock, so they may read reports but must not register others.
        let listeners = self.listeners.lock();
        listeners.iter().for_each(|listener| listener(&change));
    }

    pub(super) fn listen(&self, listener: Listener) {
        self.listeners.lock().push(listener);
    }

    pub(super) fn changes(&self) -> Vec<FaultChange> {
        self.with_state(|state| state.changes.iter().cloned().collect())
    }

    pub(super) fn connections(&self) -> Vec<ProxiedConnection> {
        self.with_state(|state| {
            let open = state.links.values().filter_map(|link| link.report());
            let mut connections: Vec<ProxiedConnection> = state.ended_connections.iter().cloned().chain(open).collect();
            connections.sort_by_key(|connection| connection.connection);
            connections
        })
    }

    fn with_state<T>(&self, access: impl FnOnce(&mut State) -> T) -> T {
        access(&mut self.state.lock())
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").finish_non_exhaustive()
    }
}

/// Admitted connection. It counts as ended when this guard is dropped, also on a panic or on cancellation.
#[derive(Debug)]
pub(super) struct AdmittedConnection {
    pub(super) link: Arc<Link>,
    pub(super) network: Arc<Network>,
    pub(super) target: usize,
    end: ConnectionEnd,
}

impl AdmittedConnection {
    fn new(link: Arc<Link>, network: Arc<Network>, target: usize) -> Self {
        Self { link, network, target, end: ConnectionEnd::Broken }
    }

    /// Ends the connection.
    pub(super) fn end(mut self, end: ConnectionEnd) {
        self.end = end;
    }
}

impl Drop for AdmittedConnection {
    fn drop(&mut self) {
        self.network.record_end(&self.link, self.end);
    }
}
