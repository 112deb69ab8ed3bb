//! The switches of the network's faults.

use std::sync::Arc;
use std::time::Duration;

use super::link::{Cut, StreamDirection};
use super::network::Network;
use super::report::{ConnectionEnd, FaultChange, FaultTransition, ProxiedConnection};

/// Direction in which a fault affects a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Both ways.
    Both,
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

impl Direction {
    fn stream_directions(self) -> &'static [StreamDirection] {
        match self {
            Self::Both => &[StreamDirection::ToServer, StreamDirection::ToClient],
            Self::ToServer => &[StreamDirection::ToServer],
            Self::ToClient => &[StreamDirection::ToClient],
        }
    }
}

/// Switches for the faults of the network between clients and a server, for all connections or for one. Cheap to
/// clone.
///
/// Some faults are instantaneous and affect the open connections. The others last until they are switched off or
/// healed, and also affect connections that are opened later. All can be combined. Each change is recorded with its
/// time.
#[derive(Clone, Debug)]
pub struct NetworkFaults {
    pub(super) network: Arc<Network>,
    connection: Option<u64>,
}

impl Default for NetworkFaults {
    fn default() -> Self {
        Self::seeded(0)
    }
}

impl NetworkFaults {
    /// Creates a network without faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a network without faults. `seed` selects the jitter.
    pub fn seeded(seed: u64) -> Self {
        Self { network: Arc::new(Network::new(seed)), connection: None }
    }

    // Selection of connections.

    /// Returns the faults of one connection, open or not yet opened; see [`ProxiedConnection::connection`].
    ///
    /// Admission and routing apply to all connections, also through this handle: [`refuse`](Self::refuse),
    /// [`accept_and_close`](Self::accept_and_close), [`send_to`](Self::send_to) and [`cut`](Self::cut).
    #[must_use]
    pub fn connection(&self, number: u64) -> Self {
        Self { network: self.network.clone(), connection: Some(number) }
    }

    /// Returns the faults of the next connection.
    #[must_use]
    pub fn next_connection(&self) -> Self {
        self.connection(self.network.next_number())
    }

    // Instantaneous faults.

    /// Resets the open connections at both ends, over TCP with RST. Bytes in flight are lost.
    pub fn reset(&self) {
        // The fault is injected before it is recorded, so that a record never announces a fault that has not
        // happened.
        self.network.command(self.connection, |commands| commands.reset = true);
        self.record_once("reset");
    }

    /// Resets the open connections after `bytes` more bytes have passed in `direction`, even within an object. With
    /// [`Direction::Both`], either direction counts.
    pub fn reset_after(&self, bytes: u64, direction: Direction) {
        self.set_cut(Cut { remaining_bytes: bytes, end: ConnectionEnd::Reset }, direction);
        self.record_once(&format!("reset_after({bytes}, {direction:?})"));
    }

    /// Ends the open connections cleanly, as with FIN, after `bytes` more bytes to the client.
    pub fn truncate_after(&self, bytes: u64) {
        self.set_cut(Cut { remaining_bytes: bytes, end: ConnectionEnd::Truncated }, Direction::ToClient);
        self.record_once(&format!("truncate_after({bytes})"));
    }

    /// Ends one direction: the receiver reads the end after the bytes in flight, and later bytes of the sender are
    /// dropped. The other direction continues.
    pub fn half_close(&self, direction: Direction) {
        self.network.command(self.connection, |commands| {
            for direction in direction.stream_directions() {
                commands.half_close[*direction as usize] = true;
            }
        });
        self.record_once(&format!("half_close({direction:?})"));
    }

    // Lasting faults.

    /// Holds all traffic in `direction` without an error. The held bytes are delivered when the fault is switched
    /// off. In memory, new connections wait, like a client that waits for the response to its SYN. Over TCP,
    /// the kernel accepts new connections, and no data follows.
    pub fn black_hole(&self, direction: Direction, on: bool) {
        self.set_lasting(&format!("black_hole({direction:?})"), on, move |condition| {
            for direction in direction.stream_directions() {
                condition.is_black_hole[*direction as usize] = on;
            }
        });
    }

    /// Freezes the middlebox: it accepts connections and bytes up to its buffer size, and forwards nothing.
    pub fn freeze(&self, on: bool) {
        self.set_lasting("freeze", on, move |condition| condition.is_frozen = on);
    }

    /// Delays each byte by `delay` in each direction.
    pub fn delay(&self, delay: Duration) {
        self.set_lasting(&format!("delay({delay:?})"), !delay.is_zero(), move |condition| condition.delay = delay);
    }

    /// Delays each byte by a further random duration of up to `most`, in each direction. The seed selects the
    /// duration. The order of bytes is kept.
    pub fn jitter(&self, most: Duration) {
        self.set_lasting(&format!("jitter({most:?})"), !most.is_zero(), move |condition| {
            condition.jitter = most;
        });
    }

    /// Limits the rate to `bytes_per_second`, in each direction of each connection. The minimum is 1. `None` ends the
    /// limit.
    pub fn throttle(&self, bytes_per_second: Option<u64>) {
        let rate = bytes_per_second.map(|rate| rate.max(1));
        self.set_lasting(&format!("throttle({rate:?})"), rate.is_some(), move |condition| {
            condition.bytes_per_second = rate;
        });
    }

    /// Drops a connection silently if no byte has passed for `idle`. Bytes that are sent later on this connection
    /// are lost, also after [`heal`](Self::heal). `None` ends this fault.
    pub fn drop_idle_after(&self, idle: Option<Duration>) {
        self.set_lasting(&format!("drop_idle_after({idle:?})"), idle.is_some(), move |condition| {
            condition.max_idle = idle;
        });
    }

    /// Rejects new connections. Open ones stay.
    ///
    /// # Panics
    ///
    /// Panics if the port cannot be opened again.
    pub fn refuse(&self, on: bool) {
        self.network.set_refuses(on);
        self.network.record_change("refuse", None, transition(on));
    }

    /// Accepts new connections and closes them immediately. Open ones stay.
    pub fn accept_and_close(&self, on: bool) {
        self.network.set_turns_away(on);
        self.network.record_change("accept_and_close", None, transition(on));
    }

    /// Directs new connections to the target with this number. Open connections keep their target.
    pub fn send_to(&self, target: usize) {
        self.network.set_target(target);
        self.network.record_change(&format!("send_to({target})"), None, FaultTransition::Once);
    }

    /// Cuts the network: resets all connections, and rejects new ones until [`heal`](Self::heal).
    pub fn cut(&self) {
        // New connections are rejected first. Otherwise a client that reconnects right after the reset could succeed.
        self.network.set_refuses(true);
        self.network.command(None, |commands| commands.reset = true);
        self.network.record_change("cut", None, FaultTransition::On);
    }

    /// Ends all lasting faults, and cancels pending [`reset_after`](Self::reset_after) and
    /// [`truncate_after`](Self::truncate_after).
    ///
    /// # Panics
    ///
    /// Panics if the port cannot be opened again.
    pub fn heal(&self) {
        // Admission belongs to the whole network. A handle of one connection must not end it for others.
        if self.connection.is_none() {
            self.network.set_refuses(false);
            self.network.set_turns_away(false);
        }
        self.set_lasting("heal", false, |condition| *condition = super::link::Condition::default());
    }

    // Reports.

    /// Returns the changes so far, in order. At most the newest 10,000 are kept.
    pub fn changes(&self) -> Vec<FaultChange> {
        self.network.changes()
    }

    /// Calls `listener` for each change from now on, at the time of the change. The listener must not switch
    /// faults itself.
    pub fn on_change(&self, listener: impl Fn(&FaultChange) + Send + Sync + 'static) {
        self.network.listen(Box::new(listener));
    }

    /// Returns the counts of each connection, in the order of opening. Includes all open connections, and the last
    /// 10,000 ended ones.
    pub fn connections(&self) -> Vec<ProxiedConnection> {
        self.network.connections()
    }

    fn set_cut(&self, cut: Cut, direction: Direction) {
        self.network.change_open(self.connection, move |condition| {
            for direction in direction.stream_directions() {
                condition.cut[*direction as usize] = Some(cut);
            }
        });
    }

    fn set_lasting(&self, fault: &str, on: bool, change: impl Fn(&mut super::link::Condition)) {
        self.network.change(self.connection, change);
        self.network.record_change(fault, self.connection, transition(on));
    }

    fn record_once(&self, fault: &str) {
        self.network.record_change(fault, self.connection, FaultTransition::Once);
    }
}

fn transition(on: bool) -> FaultTransition {
    if on { FaultTransition::On } else { FaultTransition::Off }
}
