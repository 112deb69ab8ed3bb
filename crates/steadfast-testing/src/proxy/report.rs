//! What a network tells of itself.

use std::time::Duration;

/// A fault that was switched, or that came over a connection; see [`NetworkFaults::switchings`].
///
/// [`NetworkFaults::switchings`]: super::NetworkFaults::switchings
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switching {
    /// When, counted from the network's beginning.
    pub at: Duration,
    /// Its name and what it was given, as `black_hole(ToClient)`.
    pub fault: String,
    /// The connection it is for; `None` where it is for all.
    pub connection: Option<u64>,
    /// Whether it lasts from now on, ends, or has passed already.
    pub switched: Switched,
}

/// Which way a fault was switched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switched {
    /// It lasts from now on.
    On,
    /// It is over.
    Off,
    /// It happened now and does not last.
    Once,
}

/// What one connection carried; see [`NetworkFaults::connections`].
///
/// [`NetworkFaults::connections`]: super::NetworkFaults::connections
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carried {
    /// Its number: they are counted from 0 in the order in which they were opened.
    pub connection: u64,
    /// The number of the target that it was opened to.
    pub target: usize,
    /// When it was opened, counted from the network's beginning.
    pub opened: Duration,
    /// Bytes that were handed on to the server.
    pub to_server: u64,
    /// Bytes that were handed on to the client.
    pub to_client: u64,
    /// When it ended and how; `None` while it is open.
    pub ended: Option<(Duration, Ended)>,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Both sides ended it in good order.
    Closed,
    /// A side broke it off, and the other learnt it by a reset; or the proxy was dropped.
    Broken,
    /// A fault reset it.
    Reset,
    /// A fault closed it cleanly in the middle.
    Truncated,
    /// It was dropped for being idle, and both sides have given it up.
    Dropped,
    /// The target could not be reached.
    Unreachable,
    /// It was accepted and closed at once, by a fault.
    TurnedAway,
}
