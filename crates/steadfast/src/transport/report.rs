//! Reports about connections.

use std::fmt;
use std::time::Duration;

use super::state::ConnectionState;

/// Protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Protocol {
    /// HTTP/1.1: one request at a time.
    Http1,
    /// HTTP/2: many streams.
    Http2,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http1 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
        })
    }
}

/// State of one connection at the time of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionReport {
    /// Number of the connection, from 1 for each server, never reused.
    pub id: u64,
    /// Negotiated protocol, or `None` before the negotiation.
    pub protocol: Option<Protocol>,
    /// Address of the peer, or its name during the dial.
    pub peer: String,
    /// State.
    pub state: ConnectionState,
    /// True if the connection carries watches, false for ordinary requests.
    pub carries_watches: bool,
    /// Requests in flight.
    pub streams: usize,
    /// Total number of requests.
    pub requests: u64,
    /// Time since the dial.
    pub age: Duration,
    /// Time since the last received byte, or since the dial.
    pub silence: Duration,
    /// Round-trip time of the last ping; `None` before the first response and for HTTP/1.1.
    pub round_trip: Option<Duration>,
    /// Received bytes on the wire.
    pub received: u64,
    /// Sent bytes on the wire.
    pub sent: u64,
}

impl fmt::Display for ConnectionReport {
    /// Formats one line of a table with the header [`ConnectionReport::HEAD`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
        let protocol = self.protocol.map_or_else(|| "-".to_owned(), |protocol| protocol.to_string());
        let carries = if self.carries_watches { "watches" } else { "requests" };
        let round_trip =
            self.round_trip.map_or_else(|| "-".to_owned(), |time| format!("{:.1} ms", time.as_secs_f64() * 1e3));
        write!(
            f,
            "{:>4}  {protocol:<8}  {:<10}  {carries:<8}  {:>7}  {:>8}  {:>10}  {:>10}  {round_trip:>10}  {}",
            self.id,
            self.state.to_string(),
            self.streams,
            self.requests,
            seconds(self.age),
            seconds(self.silence),
            self.peer,
        )
    }
}

impl ConnectionReport {
    /// Header of a table of connections.
    pub const HEAD: &str =
        "  ID  PROTOCOL  STATE       CARRIES   STREAMS  REQUESTS         AGE   LAST BYTE  ROUND TRIP  PEER";
}

/// A closed connection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClosedConnection {
    /// State at the end of the connection.
    pub connection: ConnectionReport,
    /// Time since the end.
    pub time_since_close: Duration,
    /// Reason of the end.
    pub reason: String,
}

impl fmt::Display for ClosedConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connection, time_since_close, reason } = self;
        let age = connection.age.as_secs_f64();
        let peer = &connection.peer;
        write!(
            f,
            "connection {} to {peer} ended {:.1} s ago, {age:.1} s old: {reason}",
            connection.id,
            time_since_close.as_secs_f64()
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{ClosedConnection, ConnectionReport, ConnectionState, Protocol};

    #[test]
    fn report_columns_align() {
        let connection = ConnectionReport {
            id: 17,
            protocol: Some(Protocol::Http2),
            peer: "10.0.0.1:6443".to_owned(),
            state: ConnectionState::Connecting,
            carries_watches: true,
            streams: 100,
            requests: 12_345,
            age: Duration::from_secs(86_400),
            silence: Duration::from_millis(2_300),
            round_trip: Some(Duration::from_micros(1_250)),
            received: 1,
            sent: 1,
        };
        let line = connection.to_string();
        assert_eq!(line.find("10.0.0.1"), ConnectionReport::HEAD.find("PEER"));
        assert_eq!(line.find("connecting"), ConnectionReport::HEAD.find("STATE"));
        assert_eq!(line.find("2.3 s").map(|at| at + 5), ConnectionReport::HEAD.find("LAST BYTE").map(|at| at + 9));
        let reason = "silent for 7.5 s, and no response to a ping".to_owned();
        let closed = ClosedConnection { connection, time_since_close: Duration::from_secs(3), reason };
        assert_eq!(
            closed.to_string(),
            "connection 17 to 10.0.0.1:6443 ended 3.0 s ago, 86400.0 s old: silent for 7.5 s, and no response to a ping"
        );
    }
}
