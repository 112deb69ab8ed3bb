//! Moments of a trace.

use std::time::Duration;

/// A moment of the trace: its time, and its place among the entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment {
    pub(crate) at: Duration,
    pub(crate) position: usize,
}
