//! Watch cache of a replica.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use super::Change;

/// Watch cache of a replica.
///
/// The history keeps every version of every object. The cache is therefore no copy, but the revision that it has
/// applied.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    /// Applied revision: lists from the cache show the state at this revision.
    pub(crate) applied: u64,
    /// Start of the window of events: watches from older versions have expired.
    pub(crate) window: u64,
    /// Revision at which applying stops, if set.
    pub(crate) lag_at: Option<u64>,
    /// Revision at which the store of the replica is frozen, if set.
    pub(crate) frozen_at: Option<u64>,
    /// Number of restarts. Streams of an earlier process lifetime end.
    pub(crate) life: u64,
    /// Changes to be dropped for watches.
    losses: Vec<Loss>,
    /// Revisions of dropped changes.
    lost: BTreeSet<u64>,
}

type Predicate = Arc<dyn Fn(&Change) -> bool + Send + Sync>;

#[derive(Clone)]
struct Loss {
    left: usize,
    predicate: Predicate,
}

impl fmt::Debug for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loss").field("left", &self.left).finish_non_exhaustive()
    }
}

impl Cache {
    pub(crate) fn starting_at(revision: u64) -> Self {
        Self {
            applied: revision,
            window: revision,
            lag_at: None,
            frozen_at: None,
            life: 0,
            losses: Vec::new(),
            lost: BTreeSet::new(),
        }
    }

    /// Drops the next `left` changes that match the predicate, for watches only.
    pub(crate) fn drop_next(&mut self, left: usize, predicate: Predicate) {
        if left > 0 {
            self.losses.push(Loss { left, predicate });
        }
    }

    /// Decides whether a new change is dropped.
    pub(super) fn observe(&mut self, change: &Change) {
        // Only the first matching loss counts, so each change is dropped once.
        if let Some(loss) = self.losses.iter_mut().find(|loss| (loss.predicate)(change)) {
            loss.left -= 1;
            self.lost.insert(change.revision);
        }
        self.losses.retain(|loss| loss.left > 0);
    }

    /// Returns whether watches do not receive this revision.
    pub(crate) fn has_lost(&self, revision: u64) -> bool {
        self.lost.contains(&revision)
    }

    /// Applies the history up to `revision`, within the limits of the faults.
    pub(crate) fn advance(&mut self, revision: u64) {
        let reachable = revision.min(self.lag_at.unwrap_or(u64::MAX)).min(self.frozen_at.unwrap_or(u64::MAX));
        // A limit below the current position must not move the cache back.
        self.applied = self.applied.max(reachable);
    }

    /// Drops the state and reads the history again, like a restarted replica.
    pub(crate) fn restart(&mut self, revision: u64) {
        let readable = revision.min(self.frozen_at.unwrap_or(u64::MAX)).min(self.lag_at.unwrap_or(u64::MAX));
        // A restarted cache reads the newest reachable state and has no older events.
        self.applied = readable;
        self.window = readable;
        // Open streams compare `life` with their own value and end.
        self.life += 1;
        // The new list contains the changes that the previous run had lost.
        self.lost.clear();
    }
}

/// Source of the state of a read or a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The replica's watch cache, which may lag.
    Cache,
    /// The history itself.
    Etcd,
}
