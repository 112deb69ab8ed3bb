//! Reason of a connection's end.

use std::fmt;

/// Reason of a connection's end.
#[derive(Clone, Debug)]
pub(super) enum End {
    /// The connection failed, or the peer closed it.
    Failed(String),
    /// The server or this program announced the end of the connection, and the last request has finished.
    Drained,
    /// The connection was unused.
    Idle,
    /// The only response was dropped before its end.
    Abandoned,
    /// The pool was closed.
    Closed,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Failed(how) => how,
            Self::Drained => "drained",
            Self::Idle => "not used",
            Self::Abandoned => "the only response was dropped",
            Self::Closed => "closed by this program",
        })
    }
}
