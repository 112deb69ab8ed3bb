//! The faults of the catalog, by number.

use std::fmt;
use std::str::FromStr;

/// Fault of the catalog. [`number`](Self::number) returns its number. On the command line, its name is `F4`, for
/// example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CatalogFault {
    /// F1: no server at the start; it appears later.
    ServerAbsent = 1,
    /// F2: the server restarts, and all connections end immediately.
    ServerRestarts,
    /// F3: a connection is reset in the middle of a stream, also within an object.
    ConnectionReset,
    /// F4: packets are lost, and neither side is notified.
    BlackHole,
    /// F5: a middlebox drops idle flows silently.
    IdleFlowDropped,
    /// F6: a proxy is alive and responds to pings, while the server behind it is stalled.
    FrozenServer,
    /// F7: one stream stalls on a healthy connection.
    StalledStream,
    /// F8: connections receive a GOAWAY, and the server limits its streams.
    GoAway,
    /// F9: the server ends watches gracefully, at any time.
    WatchEnded,
    /// F10: connections are accepted and closed immediately.
    AcceptAndClose,
    /// F11: the requested version is no longer available.
    HistoryCompacted,
    /// F12: an object is deleted and recreated under its name during a disconnect.
    RecreatedWhileCut,
    /// F13: an object is deleted during a disconnect.
    DeletedWhileCut,
    /// F14: the continue token of a list expires.
    ContinueTokenExpired,
    /// F15: the requested version is not reached yet, reported in three response formats.
    VersionTooLarge,
    /// F16: a lagging replica responds after a reconnect.
    LaggingReplica,
    /// F17: streamed lists never end, are rejected or are unsupported.
    StreamedListBroken,
    /// F18: no bookmarks at all.
    NoBookmarks,
    /// F19: the server loses events.
    EventsLost,
    /// F20: old events are repeated after a resume.
    EventsRepeated,
    /// F21: the server requests a later retry, or fails.
    ServerBusy,
    /// F22: credentials are rejected after a while, or replaced.
    CredentialsRotated,
    /// F23: requests for one resource fail: forbidden, unknown, removed, or without a response.
    ResourceRefused,
    /// F24: an object cannot be decoded or is huge, or a frame is split at any byte.
    UndecodableObject,
    /// F25: the list is huge.
    HugeList,
    /// F26: the server closes the watches of clients that do not read.
    SlowReader,
    /// F27: handlers panic, block or are slow.
    BadHandler,
    /// F28: the program shuts down during a disconnect; the client is used afterwards.
    ShutdownWhileCut,
    /// F29: an object is written during a disconnect.
    WriteWhileCut,
    /// F30: etcd is restored from a backup, and resource versions restart at a lower value.
    HistoryRestored,
    /// F31: the client's wall clock jumps.
    ClockJumps,
    /// F32: the etcd behind a live server is frozen.
    FrozenEtcd,
    /// F33: permission or the served version is removed before the objects.
    PermissionRemoved,
    /// F34: objects repeatedly enter and leave a selector.
    SelectorChurn,
}

impl CatalogFault {
    /// All faults of the catalog, in order.
    pub const ALL: [Self; 34] = [
        Self::ServerAbsent,
        Self::ServerRestarts,
        Self::ConnectionReset,
        Self::BlackHole,
        Self::IdleFlowDropped,
        Self::FrozenServer,
        Self::StalledStream,
        Self::GoAway,
        Self::WatchEnded,
        Self::AcceptAndClose,
        Self::HistoryCompacted,
        Self::RecreatedWhileCut,
        Self::DeletedWhileCut,
        Self::ContinueTokenExpired,
        Self::VersionTooLarge,
        Self::LaggingReplica,
        Self::StreamedListBroken,
        Self::NoBookmarks,
        Self::EventsLost,
        Self::EventsRepeated,
        Self::ServerBusy,
        Self::CredentialsRotated,
        Self::ResourceRefused,
        Self::UndecodableObject,
        Self::HugeList,
        Self::SlowReader,
        Self::BadHandler,
        Self::ShutdownWhileCut,
        Self::WriteWhileCut,
        Self::HistoryRestored,
        Self::ClockJumps,
        Self::FrozenEtcd,
        Self::PermissionRemoved,
        Self::SelectorChurn,
    ];

    /// Returns the number of the fault, from 1.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns a one-line description of the fault.
    pub const fn title(self) -> &'static str {
        match self {
            Self::ServerAbsent => "server unreachable at the start, then available",
            Self::ServerRestarts => "server restarts: all connections end immediately",
            Self::ConnectionReset => "reset in mid-stream, also within an object",
            Self::BlackHole => "black hole: packets lost in both directions or in one",
            Self::IdleFlowDropped => "idle flow dropped silently after 240 s",
            Self::FrozenServer => "proxy alive and responding to pings, server frozen",
            Self::StalledStream => "one stream stalled on a healthy connection",
            Self::GoAway => "GOAWAY with streams open; a server at its limit of streams",
            Self::WatchEnded => "watch ended cleanly by the server",
            Self::AcceptAndClose => "connections accepted and closed immediately",
            Self::HistoryCompacted => "history compacted: 410 as status or in the stream, with reason Gone or Expired",
            Self::RecreatedWhileCut => "deleted and recreated under one name while disconnected",
            Self::DeletedWhileCut => "deleted while disconnected",
            Self::ContinueTokenExpired => "continue token expires in mid-list",
            Self::VersionTooLarge => "resource version too large, in three response formats",
            Self::LaggingReplica => "a lagging replica responds after a reconnect",
            Self::StreamedListBroken => "initial events never end, or are rejected or unsupported",
            Self::NoBookmarks => "no bookmarks at all",
            Self::EventsLost => "server loses events, including deletions",
            Self::EventsRepeated => "repeated old events after a resume",
            Self::ServerBusy => "429 or 503 with Retry-After, 500, 504",
            Self::CredentialsRotated => "401 after a while, credentials rotated",
            Self::ResourceRefused => "one resource fails: forbidden, unknown, removed, or without a response",
            Self::UndecodableObject => "an object that does not decode, frames split anywhere, a huge object",
            Self::HugeList => "huge list",
            Self::SlowReader => "server closes the watch of a client that does not read",
            Self::BadHandler => "handler panics, blocks forever, or is slow",
            Self::ShutdownWhileCut => "shutdown while disconnected; later requests; idle connections",
            Self::WriteWhileCut => "write while disconnected",
            Self::HistoryRestored => "etcd restored from a backup: resource versions restart at a lower value",
            Self::ClockJumps => "clock jumps on the client",
            Self::FrozenEtcd => "etcd frozen behind a live server",
            Self::PermissionRemoved => "permission or served version removed before the objects",
            Self::SelectorChurn => "objects repeatedly enter and leave a selector",
        }
    }

    /// Returns the reason why the fault cannot be injected in tests, or `None` if it can.
    pub const fn unsupported_reason(self) -> Option<&'static str> {
        match self {
            Self::ClockJumps => Some(
                "the wall clock belongs to the whole machine, so a test must not set it. Instead, lints forbid wall \
                 clocks in the core, and `Environment`, the library's only source of time, has none",
            ),
            _ => None,
        }
    }
}

impl fmt::Display for CatalogFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "F{}", self.number())
    }
}

impl FromStr for CatalogFault {
    type Err = ();

    /// Parses a name such as `F4`, in upper or lower case.
    fn from_str(name: &str) -> Result<Self, ()> {
        let number = name.strip_prefix(['F', 'f']).and_then(|number| number.parse::<u8>().ok()).ok_or(())?;
        Self::ALL.into_iter().find(|fault| fault.number() == number).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_numbered_and_parsed_by_name() {
        for (index, fault) in CatalogFault::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(fault.number()), index + 1);
            assert_eq!(fault.to_string().parse(), Ok(fault));
        }
        assert_eq!("f4".parse(), Ok(CatalogFault::BlackHole));
        for no_fault in ["F0", "F35", "4", "Fx", "F", "ff4"] {
            assert_eq!(no_fault.parse::<CatalogFault>(), Err(()), "{no_fault}");
        }
    }
}
