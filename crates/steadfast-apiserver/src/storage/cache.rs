//! What one replica has seen of the history.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use super::Change;

/// A replica's watch cache.
///
/// The history keeps every version of every object, so that a cache is no copy: it is the revision it has applied.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    /// The revision applied: lists from the cache show the state at this revision.
    pub(crate) applied: u64,
    /// Where the window of events begins: watches from older versions have expired.
    pub(crate) window: u64,
    /// Applying stops here, where set.
    pub(crate) lag_at: Option<u64>,
    /// The store behind the replica is frozen, where set at this revision.
    pub(crate) frozen_at: Option<u64>,
    /// Rises with each restart: streams of an earlier life end.
    pub(crate) life: u64,
    /// What is to be lost on the way to the watchers.
    losses: Vec<Loss>,
    /// The revisions that were.
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

    /// Loses the next so many changes that the predicate is true of.
    pub(crate) fn drop_next(&mut self, left: usize, predicate: Predicate) {
        if left > 0 {
            self.losses.push(Loss { left, predicate });
        }
    }

    /// Decides whether a change that was just written is lost.
    pub(super) fn observe(&mut self, change: &Change) {
        if let Some(loss) = self.losses.iter_mut().find(|loss| (loss.predicate)(change)) {
            loss.left -= 1;
            self.lost.insert(change.revision);
        }
        self.losses.retain(|loss| loss.left > 0);
    }

    /// Whether watchers are not notified of this revision.
    pub(crate) fn has_lost(&self, revision: u64) -> bool {
        self.lost.contains(&revision)
    }

    /// Applies what may be applied of a history that has reached `revision`.
    pub(crate) fn advance(&mut self, revision: u64) {
        let reachable = revision.min(self.lag_at.unwrap_or(u64::MAX)).min(self.frozen_at.unwrap_or(u64::MAX));
        self.applied = self.applied.max(reachable);
    }

    /// Forgets everything and reads the history anew, as a started replica does.
    pub(crate) fn restart(&mut self, revision: u64) {
        let readable = revision.min(self.frozen_at.unwrap_or(u64::MAX)).min(self.lag_at.unwrap_or(u64::MAX));
        self.applied = readable;
        self.window = readable;
        self.life += 1;
        self.lost.clear();
    }
}

/// Where a read or a watch takes its state from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The replica's watch cache, which may lag.
    Cache,
    /// The history itself.
    Etcd,
}
