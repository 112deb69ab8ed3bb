//! The faults that lie on a replica now.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// What is wrong with a replica.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fault of its own, in any combination")]
pub(crate) struct Condition {
    pub(crate) stopped: bool,
    pub(crate) refuse: bool,
    pub(crate) accept_and_close: bool,
    pub(crate) black_hole: bool,
    pub(crate) frozen: bool,
    pub(crate) no_bookmarks: bool,
    pub(crate) no_initial_events_end: bool,
    pub(crate) unannotated_initial_events_end: bool,
    pub(crate) refuse_streamed_lists: bool,
    pub(crate) ignore_streamed_lists: bool,
    /// Added to every answer.
    pub(crate) delay: Duration,
    /// How many events from before its start a resumed watch is sent again.
    pub(crate) repeat_events: usize,
    /// Objects, by namespace and name, that are sent with fields of a wrong type.
    pub(crate) undecodable: BTreeSet<(String, String)>,
}

impl Condition {
    /// Whether connections are accepted.
    pub(crate) fn reachable(&self) -> bool {
        !self.stopped && !self.refuse
    }
}

/// A replica's condition under its lock.
#[derive(Debug, Default)]
pub(crate) struct Conditions(Mutex<Condition>);

impl Conditions {
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Condition) -> T) -> T {
        look(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether connections are accepted.
    pub(crate) fn reachable(&self) -> bool {
        self.look(Condition::reachable)
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Condition)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
