//! The state that all connections of a network share.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use steadfast_apiserver::Port;
use tokio::sync::watch;
use tokio::time::Instant;

use super::link::{Condition, Link, Orders};
use super::report::{ConnectionEnd, FaultChange, FaultTransition, ProxiedConnection};

/// Maximum number of ended connections, and of changes, that are kept for reports. The newest are kept.
const MAX_REPORTED: usize = 10_000;

type Listener = Box<dyn Fn(&FaultChange) + Send + Sync>;

/// State that all connections share.
pub(super) struct Network {
    began: Instant,
    state: Mutex<State>,
    listeners: Mutex<Vec<Listener>>,
    /// Notified of each change, for connections that wait for admission.
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    seed: u64,
    /// Initial conditions of new connections.
    default_condition: Condition,
    refuses: bool,
    turns_away: bool,
    target: usize,
    /// Number of the next connection.
    next: u64,
    /// Open connections, and connections that have settings but are not opened yet.
    links: BTreeMap<u64, Arc<Link>>,
    ended: VecDeque<ProxiedConnection>,
    changes: VecDeque<FaultChange>,
    /// Listening port of the proxy over TCP.
    port: Option<Arc<Port>>,
}

impl Network {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            began: Instant::now(),
            state: Mutex::new(State { seed, ..State::default() }),
            listeners: Mutex::default(),
            changed: watch::channel(()).0,
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
    pub(super) fn admit(self: &Arc<Self>) -> Option<Open> {
        self.with_state(|state| (!state.refuses).then(|| self.open(state)))
    }

    /// Admits the next connection, like a client that repeats its SYN: waits while packets are lost.
    pub(super) async fn admit_when_passable(self: &Arc<Self>) -> io::Result<Open> {
        let mut changed = self.changed.subscribe();
        loop {
            // The change is marked as seen before the check. So a change between the check and the wait ends the wait
            // at once.
            changed.mark_unchanged();
            let response = self.with_state(|state| {
                // Conditions may have been set for the number of this connection before it is open.
                let condition = state.links.get(&state.next).map_or(state.default_condition, |link| link.condition());
                if state.refuses {
                    Some(Err(io::ErrorKind::ConnectionRefused.into()))
                } else if condition.lets_open() {
                    Some(Ok(self.open(state)))
                } else {
                    None
                }
            });
            if let Some(response) = response {
                return response;
            }
            // The sender belongs to the borrowed value, so the channel cannot be closed.
            let _ = changed.changed().await;
        }
    }

    fn open(self: &Arc<Self>, state: &mut State) -> Open {
        let (number, target, default_condition) = (state.next, state.target, state.default_condition);
        state.next += 1;
        // Settings for a future number create the link early. The opening then must not overwrite them.
        let link = state.links.entry(number).or_insert_with(|| Arc::new(Link::new(number, default_condition))).clone();
        link.open(self.began.elapsed(), target);
        Open::new(link, self.clone(), target)
    }

    /// Returns `true` if connections are accepted only to be closed.
    pub(super) fn turns_away(&self) -> bool {
        self.with_state(|state| state.turns_away)
    }

    pub(super) fn ended(&self, link: &Link, how: ConnectionEnd) {
        link.end(self.began.elapsed(), how);
        self.with_state(|state| {
            state.links.remove(&link.number);
            state.ended.extend(link.report());
            // The list is bounded, because a test may open connections in a loop for hours of virtual time.
            while state.ended.len() > MAX_REPORTED {
                state.ended.pop_front();
            }
        });
    }

    // Switches.

    /// Changes the lasting conditions of all connections, or of one.
    pub(super) fn change(&self, only: Option<u64>, change: impl Fn(&mut Condition)) {
        if let Some(number) = only {
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
        self.changed.send_replace(());
    }

    /// Changes the conditions of the open connections, or of one.
    pub(super) fn change_open(&self, only: Option<u64>, change: impl Fn(&mut Condition)) {
        self.each_open(only, |link| link.change(&change));
    }

    /// Applies an order once to each open connection, or to one open connection.
    pub(super) fn order(&self, only: Option<u64>, order: impl Fn(&mut Orders)) {
        self.each_open(only, |link| link.order(&order));
    }

    fn each_open(&self, only: Option<u64>, act: impl Fn(&Link)) {
        if let Some(number) = only {
            return self.with_link(number, act);
        }
        let links = self.with_state(|state| state.links.values().cloned().collect::<Vec<_>>());
        links.iter().filter(|link| link.is_open()).for_each(|link| act(link));
    }

    /// Acts on one connection, open or not yet opened. Does nothing if the connection has ended.
    fn with_link(&self, number: u64, act: impl FnOnce(&Link)) {
        let link = self.with_state(|state| {
            let default_condition = state.default_condition;
            // A number below `next` without a link has ended. Creating a link would report a connection that never
            // existed.
            if number >= state.next {
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
        self.with_state(|state| state.next)
    }

    pub(super) fn set_refuses(&self, on: bool) {
        let port = self.with_state(|state| {
            state.refuses = on;
            state.port.clone()
        });
        if let Some(port) = port {
            // The port is opened and closed after the release of the state's lock, because this is a system call.
            port.set_open(!on).expect("the port is reserved for this");
        }
        self.changed.send_replace(());
    }

    pub(super) fn set_turns_away(&self, on: bool) {
        self.with_state(|state| state.turns_away = on);
    }

    pub(super) fn set_target(&self, target: usize) {
        self.with_state(|state| state.target = target);
    }

    // Reports.

    /// Records a change, and notifies the listeners.
    pub(super) fn note(&self, fault: &str, connection: Option<u64>, transition: FaultTransition) {
        let change = FaultChange { at: self.began.elapsed(), fault: fault.to_owned(), connection, transition };
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
            let mut all: Vec<ProxiedConnection> = state.ended.iter().cloned().chain(open).collect();
            all.sort_by_key(|carried| carried.connection);
            all
        })
    }

    fn with_state<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.state.lock())
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").finish_non_exhaustive()
    }
}

/// Admitted connection. It counts as ended when this guard is dropped, also on a panic or on cancellation.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) link: Arc<Link>,
    pub(super) network: Arc<Network>,
    pub(super) target: usize,
    ended: ConnectionEnd,
}

impl Open {
    fn new(link: Arc<Link>, network: Arc<Network>, target: usize) -> Self {
        Self { link, network, target, ended: ConnectionEnd::Broken }
    }

    /// Ends the connection.
    pub(super) fn end(mut self, how: ConnectionEnd) {
        self.ended = how;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.network.ended(&self.link, self.ended);
    }
}
