//! The faults that lie on a replica now.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::rules::Spoiling;

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
    pub(crate) rare_progress: bool,
    pub(crate) no_initial_events_end: bool,
    pub(crate) unannotated_initial_events_end: bool,
    pub(crate) refuse_streamed_lists: bool,
    pub(crate) ignore_streamed_lists: bool,
    pub(crate) own_counters: bool,
    /// Added to every answer.
    pub(crate) delay: Duration,
    /// How many events from before its start a resumed watch is sent again.
    pub(crate) repeat_events: usize,
    /// Objects, by namespace and name, that are not sent as they are.
    pub(crate) spoiled: Arc<BTreeMap<(String, String), Spoiling>>,
    /// How many continue tokens from here on have expired when they are used.
    pub(crate) expired_tokens: u32,
    /// The largest piece of a body that is sent at once; 0 sends what there is.
    pub(crate) piece_bytes: usize,
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

    /// Whether the continue token that is used now has expired; it counts as used.
    pub(crate) fn token_has_expired(&self) -> bool {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let expired = now.expired_tokens > 0;
        now.expired_tokens = now.expired_tokens.saturating_sub(1);
        expired
    }
}
