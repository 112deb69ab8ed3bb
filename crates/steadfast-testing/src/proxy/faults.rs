//! The handle by which the network's faults are switched.

use std::sync::Arc;
use std::time::Duration;

use super::link::{Cut, Way};
use super::network::Network;
use super::report::{Carried, Ended, Switched, Switching};

/// Which way through a connection.
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
    fn ways(self) -> &'static [Way] {
        match self {
            Self::Both => &[Way::ToServer, Way::ToClient],
            Self::ToServer => &[Way::ToServer],
            Self::ToClient => &[Way::ToClient],
        }
    }
}

/// Switches the faults of the network between clients and a server: of all connections, or of one. Cheap to clone.
///
/// Some pass at once and concern the connections that are open. The others last until they are switched off or healed,
/// on the connections that are open and on all that are opened later. Any may be combined. Every switching is recorded
/// with its time.
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
    /// A network without faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, whose jitter `seed` decides.
    pub fn seeded(seed: u64) -> Self {
        Self { network: Arc::new(Network::new(seed)), connection: None }
    }

    // Of which connections.

    /// The faults of one connection, open or still to be opened; see [`Carried::connection`].
    ///
    /// Connections come in and are sent somewhere together: [`refuse`](Self::refuse),
    /// [`accept_and_close`](Self::accept_and_close), [`send_to`](Self::send_to) and [`cut`](Self::cut) concern all
    /// through this handle too.
    #[must_use]
    pub fn connection(&self, number: u64) -> Self {
        Self { network: self.network.clone(), connection: Some(number) }
    }

    /// The faults of the connection that will be opened next.
    #[must_use]
    pub fn next_connection(&self) -> Self {
        self.connection(self.network.next_number())
    }

    // What happens at once.

    /// The connections that are open are reset at both ends, over TCP by RST. What is on its way is lost.
    pub fn reset(&self) {
        self.network.order(self.connection, |orders| orders.reset = true);
        self.once("reset");
    }

    /// The connections that are open are reset after so many bytes more have passed in `direction`, wherever in an object
    /// that is; with [`Direction::Both`], in either.
    pub fn reset_after(&self, bytes: u64, direction: Direction) {
        self.cut_off(Cut { after: bytes, how: Ended::Reset }, direction);
        self.once(&format!("reset_after({bytes}, {direction:?})"));
    }

    /// The connections that are open end cleanly, as by FIN, after the client was sent so many bytes more.
    pub fn truncate_after(&self, bytes: u64) {
        self.cut_off(Cut { after: bytes, how: Ended::Truncated }, Direction::ToClient);
        self.once(&format!("truncate_after({bytes})"));
    }

    /// Who receives in `direction` sees the end after what is on its way, and the sender's bytes are thrown away; the
    /// other direction goes on.
    pub fn half_close(&self, direction: Direction) {
        self.network.order(self.connection, |orders| {
            for way in direction.ways() {
                orders.half_close[*way as usize] = true;
            }
        });
        self.once(&format!("half_close({direction:?})"));
    }

    // What lasts.

    /// Nothing passes in `direction`, and nobody is notified; what was on its way is held, and passes when this is switched
    /// off. New connections wait, as for the answer to a SYN, in memory; over TCP they are opened by the kernel, and
    /// nothing follows.
    pub fn black_hole(&self, direction: Direction, on: bool) {
        self.lasting(&format!("black_hole({direction:?})"), on, move |condition| {
            for way in direction.ways() {
                condition.hole[*way as usize] = on;
            }
        });
    }

    /// What is in the middle is frozen: it accepts connections and bytes, as many as it has room for, and hands none on.
    pub fn freeze(&self, on: bool) {
        self.lasting("freeze", on, move |condition| condition.frozen = on);
    }

    /// Every byte takes so long each way; nothing ends this.
    pub fn delay(&self, delay: Duration) {
        self.lasting(&format!("delay({delay:?})"), !delay.is_zero(), move |condition| condition.delay = delay);
    }

    /// Every byte takes up to so much longer, each way; by the seed. None overtakes another.
    pub fn jitter(&self, most: Duration) {
        self.lasting(&format!("jitter({most:?})"), !most.is_zero(), move |condition| condition.jitter = most);
    }

    /// So many bytes a second pass at most, each way on each connection; 1 is the least.
    pub fn throttle(&self, bytes_per_second: Option<u64>) {
        let rate = bytes_per_second.map(|rate| rate.max(1));
        self.lasting(&format!("throttle({rate:?})"), rate.is_some(), move |condition| condition.rate = rate);
    }

    /// A connection on which no byte has passed for so long is dropped, and nobody is notified: what is sent on it vanishes,
    /// also after [`heal`](Self::heal).
    pub fn drop_idle_after(&self, idle: Option<Duration>) {
        self.lasting(&format!("drop_idle_after({idle:?})"), idle.is_some(), move |condition| condition.idle = idle);
    }

    /// New connections are refused; open ones stay.
    ///
    /// # Panics
    ///
    /// Where the port cannot be opened again.
    pub fn refuse(&self, on: bool) {
        self.network.set_refuses(on);
        self.network.note("refuse", None, switched(on));
    }

    /// New connections are accepted and closed at once; open ones stay.
    pub fn accept_and_close(&self, on: bool) {
        self.network.set_turns_away(on);
        self.network.note("accept_and_close", None, switched(on));
    }

    /// New connections go to the target number `target`; open ones stay where they are.
    pub fn send_to(&self, target: usize) {
        self.network.set_target(target);
        self.network.note(&format!("send_to({target})"), None, Switched::Once);
    }

    /// The network is cut: all connections are reset, and new ones refused until [`heal`](Self::heal).
    pub fn cut(&self) {
        self.network.set_refuses(true);
        self.network.order(None, |orders| orders.reset = true);
        self.network.note("cut", None, Switched::On);
    }

    /// Ends whatever lasts, and takes back what is still to come by [`reset_after`](Self::reset_after) and
    /// [`truncate_after`](Self::truncate_after).
    ///
    /// # Panics
    ///
    /// Where the port cannot be opened again.
    pub fn heal(&self) {
        if self.connection.is_none() {
            self.network.set_refuses(false);
            self.network.set_turns_away(false);
        }
        self.lasting("heal", false, |condition| *condition = super::link::Condition::default());
    }

    // What is told.

    /// What was switched so far, in order; the newest 10,000.
    pub fn switchings(&self) -> Vec<Switching> {
        self.network.switchings()
    }

    /// Has `listener` notified of every switching from now on, as it happens; it must switch nothing itself.
    pub fn on_switching(&self, listener: impl Fn(&Switching) + Send + Sync + 'static) {
        self.network.listen(Box::new(listener));
    }

    /// What each connection has carried, in the order in which they were opened: all that are open, and the last 10,000
    /// that have ended.
    pub fn connections(&self) -> Vec<Carried> {
        self.network.connections()
    }

    fn cut_off(&self, cut: Cut, direction: Direction) {
        self.network.change_open(self.connection, move |condition| {
            for way in direction.ways() {
                condition.cut[*way as usize] = Some(cut);
            }
        });
    }

    fn lasting(&self, fault: &str, on: bool, change: impl Fn(&mut super::link::Condition)) {
        self.network.change(self.connection, change);
        self.network.note(fault, self.connection, switched(on));
    }

    fn once(&self, fault: &str) {
        self.network.note(fault, self.connection, Switched::Once);
    }
}

fn switched(on: bool) -> Switched {
    if on { Switched::On } else { Switched::Off }
}
