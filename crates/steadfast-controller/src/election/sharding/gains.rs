//! Withholds gained keys until the caches contain the writes of their previous owner.
//!
//! After the hand-over of a key, the previous owner writes nothing more to it. The new owner then requests the current
//! resource version of the server. A cache that has reached this version contains all writes of the previous owner.

use std::sync::Arc;

use steadfast::ObjectKey;

use super::membership::OwnedKeys;

/// Maximum number of tracked changes. Beyond this number, all keys are withheld until the caches catch up.
const MAX_TRACKED_CHANGES: usize = 64;

/// Sets of owned keys in order of change, and the progress of the caches.
#[derive(Clone, Default)]
pub(super) struct GainTracker {
    /// Each set with the number of its change, in order.
    owned_keys: Vec<(u64, Arc<OwnedKeys>)>,
    /// True if the caches caught up after the first of these sets.
    caught_up: bool,
}

impl GainTracker {
    /// Records the set of owned keys after a change. `None` means that the member owns no keys.
    pub(super) fn record_change(&mut self, number: u64, owned_keys: Option<Arc<OwnedKeys>>) {
        let Some(owned_keys) = owned_keys else {
            *self = Self::default();
            return;
        };
        // An equal set changes no key, so the caches need not catch up again.
        if self.owned_keys.last().is_some_and(|(_, last)| *last == owned_keys) {
            return;
        }
        // Too many changes while the caches lag. Starting again is safe, because no key counts as owned before a
        // catch-up.
        if self.owned_keys.len() == MAX_TRACKED_CHANGES {
            *self = Self::default();
        }
        self.owned_keys.push((number, owned_keys));
    }

    /// Returns true if the caches must catch up before all owned keys are usable.
    pub(super) fn is_lagging(&self) -> bool {
        self.owned_keys.len() > usize::from(self.caught_up)
    }

    /// Records that the caches contain all earlier writes to the keys that were gained up to change `number`.
    pub(super) fn record_catch_up(&mut self, number: u64) {
        // The caches cover the set that was current at `number`. Later sets remain.
        let Some(at) = self.owned_keys.iter().rposition(|(since, _)| *since <= number) else { return };
        self.owned_keys.drain(..at);
        self.caught_up = true;
    }

    /// Returns true if every set since the caches caught up contains `key`.
    pub(super) fn owns(&self, key: &ObjectKey) -> bool {
        self.caught_up && self.owned_keys.iter().all(|(_, owned_keys)| owned_keys.owns(key))
    }
}
