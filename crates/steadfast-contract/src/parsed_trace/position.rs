//! Positions in a trace.

use std::time::Duration;

/// Position in the trace: its time, and its index among the entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TracePosition {
    pub(crate) at: Duration,
    pub(crate) index: usize,
}
