//! What can be reported of a connection.

use std::fmt;
use std::time::Duration;

use super::state::ConnectionState;

/// How a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// One connection as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionReport {
    /// Its number, counted from 1 for each server and never used again.
    pub id: u64,
    /// Its protocol, once agreed.
    pub protocol: Option<Protocol>,
    /// The address at the other end, or the name while it is being dialled.
    pub peer: String,
    /// Its state.
    pub state: ConnectionState,
    /// Whether it carries watches rather than ordinary requests.
    pub watches: bool,
    /// How many requests run on it.
    pub streams: usize,
    /// How many requests were ever put on it.
    pub requests: u64,
    /// How long ago it was dialled.
    pub age: Duration,
    /// How long ago its last byte arrived; its age if none has.
    pub silence: Duration,
    /// How long the last ping took to come back; none was answered yet, or HTTP/1.1.
    pub round_trip: Option<Duration>,
    /// Bytes received, as they are on the wire.
    pub received: u64,
    /// Bytes sent, as they are on the wire.
    pub sent: u64,
}

impl fmt::Display for ConnectionReport {
    /// One line of a table; its head is [`ConnectionReport::HEAD`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
        let protocol = self.protocol.map_or_else(|| "-".to_owned(), |protocol| protocol.to_string());
        let carries = if self.watches { "watches" } else { "requests" };
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
    /// The head of a table whose lines are connections.
    pub const HEAD: &str =
        "  ID  PROTOCOL  STATE       CARRIES   STREAMS  REQUESTS         AGE   LAST BYTE  ROUND TRIP  PEER";
}

/// A connection that is no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedConnection {
    /// As it was at its end.
    pub connection: ConnectionReport,
    /// How long ago it ended.
    pub ago: Duration,
    /// Why.
    pub why: String,
}

impl fmt::Display for ClosedConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connection, ago, why } = self;
        let age = connection.age.as_secs_f64();
        let peer = &connection.peer;
        write!(f, "connection {} to {peer} ended {:.1} s ago, {age:.1} s old: {why}", connection.id, ago.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{ClosedConnection, ConnectionReport, ConnectionState, Protocol};

    #[test]
    fn a_table_lines_up_and_an_end_is_a_sentence() {
        let connection = ConnectionReport {
            id: 17,
            protocol: Some(Protocol::Http2),
            peer: "10.0.0.1:6443".to_owned(),
            state: ConnectionState::Connecting,
            watches: true,
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
        let why = "silent for 7.5 s, and no answer to a ping".to_owned();
        let closed = ClosedConnection { connection, ago: Duration::from_secs(3), why };
        assert_eq!(
            closed.to_string(),
            "connection 17 to 10.0.0.1:6443 ended 3.0 s ago, 86400.0 s old: silent for 7.5 s, and no answer to a ping"
        );
    }
}
