//! Watch cache of a replica.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use super::Change;

/// Watch cache of a replica.
///
/// The history keeps every version of every object. The cache therefore stores no objects, only the revision up to
/// which it has applied the history.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    /// Applied revision: lists from the cache show the state at this revision.
    pub(crate) applied_revision: u64,
    /// Start of the window of events: watches from older versions have expired.
    pub(crate) window_start: u64,
    /// Revision at which applying stops, if set.
    pub(crate) lag_at: Option<u64>,
    /// Revision at which the store of the replica is frozen, if set.
    pub(crate) frozen_at: Option<u64>,
    /// Number of restarts. Streams of an earlier process lifetime end.
    pub(crate) restarts: u64,
    /// Requested drops: each selects changes that watches do not receive.
    pending_drops: Vec<EventDrop>,
    /// Revisions of dropped changes.
    dropped_revisions: BTreeSet<u64>,
}

type Predicate = Arc<dyn Fn(&Change) -> bool + Send + Sync>;

#[derive(Clone)]
struct EventDrop {
    remaining: usize,
    predicate: Predicate,
}

impl fmt::Debug for EventDrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventDrop").field("remaining", &self.remaining).finish_non_exhaustive()
    }
}

impl Cache {
    pub(crate) fn starting_at(revision: u64) -> Self {
        Self {
            applied_revision: revision,
            window_start: revision,
            lag_at: None,
            frozen_at: None,
            restarts: 0,
            pending_drops: Vec::new(),
            dropped_revisions: BTreeSet::new(),
        }
    }

    /// Drops the next `count` changes that match the predicate, for watches only.
    pub(crate) fn drop_next(&mut self, count: usize, predicate: Predicate) {
        if count > 0 {
            self.pending_drops.push(EventDrop { remaining: count, predicate });
        }
    }

    /// Decides whether a new change is dropped.
    pub(super) fn observe(&mut self, change: &Change) {
        // Only the first matching entry counts, so each change is dropped once.
        if let Some(event_drop) = self.pending_drops.iter_mut().find(|event_drop| (event_drop.predicate)(change)) {
            event_drop.remaining -= 1;
            self.dropped_revisions.insert(change.revision);
        }
        self.pending_drops.retain(|event_drop| event_drop.remaining > 0);
    }

    /// Returns whether watches do not receive this revision.
    pub(crate) fn is_dropped(&self, revision: u64) -> bool {
        self.dropped_revisions.contains(&revision)
    }

    /// Applies the history up to `revision`, within the limits of the faults.
    pub(crate) fn advance(&mut self, revision: u64) {
        let reachable = revision.min(self.lag_at.unwrap_or(u64::MAX)).min(self.frozen_at.unwrap_or(u64::MAX));
        // A limit below the current position must not move the cache back.
        self.applied_revision = self.applied_revision.max(reachable);
    }

    /// Drops the state and reads the history again, like a restarted replica.
    pub(crate) fn restart(&mut self, revision: u64) {
        let readable = revision.min(self.frozen_at.unwrap_or(u64::MAX)).min(self.lag_at.unwrap_or(u64::MAX));
        // A restarted cache reads the newest reachable state and has no older events.
        self.applied_revision = readable;
        self.window_start = readable;
        // Open streams compare `restarts` with their own value and end.
        self.restarts += 1;
        // The new list contains the changes that the previous run had dropped.
        self.dropped_revisions.clear();
    }
}

/// Source of the state of a read or a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadSource {
    /// The replica's watch cache, which may lag.
    Cache,
    /// The history itself.
    Etcd,
}
