//! Why a connection ended.

use std::fmt;

/// Why a connection ended.
#[derive(Clone, Debug)]
pub(super) enum End {
    /// It failed, or its peer closed it.
    Failed(String),
    /// It was announced that it would be closed, and was once nothing ran on it.
    Drained,
    /// Nobody used it.
    Idle,
    /// Its only answer was dropped before its end.
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
            Self::Abandoned => "its only answer was dropped",
            Self::Closed => "closed by this program",
        })
    }
}
