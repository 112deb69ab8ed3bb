//! Time and objects that a controller reads.

use std::time::Duration;

use super::view::View;
use crate::clock::Clock;

/// Time and objects that a controller reads.
pub(super) struct Context<'a> {
    pub(super) view: &'a View,
    pub(super) clock: Clock,
    /// Time since the server's start.
    pub(super) now: Duration,
}

impl Context<'_> {
    /// Returns the wall-clock time for timestamps of a status.
    pub(super) fn timestamp(&self) -> String {
        self.clock.timestamp()
    }
}
