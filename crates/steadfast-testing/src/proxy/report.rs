//! The reports of a network.

use std::time::Duration;

/// A fault that was switched, or that affected a connection; see [`NetworkFaults::changes`].
///
/// [`NetworkFaults::changes`]: super::NetworkFaults::changes
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FaultChange {
    /// Time since the network was created.
    pub at: Duration,
    /// Name of the fault with its arguments, such as `black_hole(ToClient)`.
    pub fault: String,
    /// Affected connection, or `None` for all.
    pub connection: Option<u64>,
    /// Kind of the change: the fault starts, ends, or is instantaneous.
    pub transition: FaultTransition,
}

/// Kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultTransition {
    /// The fault starts, and lasts until it is switched off.
    On,
    /// The fault has ended.
    Off,
    /// The fault is instantaneous.
    Once,
}

/// Counts of one connection; see [`NetworkFaults::connections`].
///
/// [`NetworkFaults::connections`]: super::NetworkFaults::connections
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProxiedConnection {
    /// Number of the connection, counted from 0 in the order of opening.
    pub connection: u64,
    /// Number of its target.
    pub target: usize,
    /// Time of the opening, since the network was created.
    pub opened: Duration,
    /// Bytes that were forwarded to the server.
    pub to_server: u64,
    /// Bytes that were forwarded to the client.
    pub to_client: u64,
    /// Time and kind of the end, or `None` while the connection is open.
    pub ended: Option<(Duration, ConnectionEnd)>,
}

/// End of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionEnd {
    /// Both sides closed the connection cleanly.
    Closed,
    /// One side broke the connection and the other side received a reset, or the proxy was dropped.
    Broken,
    /// A fault reset the connection.
    Reset,
    /// A fault closed the connection cleanly in mid-stream.
    Truncated,
    /// The connection was dropped after an idle time, and both sides have abandoned it.
    Dropped,
    /// The target could not be reached.
    Unreachable,
    /// A fault accepted the connection, and closed it immediately.
    TurnedAway,
}
