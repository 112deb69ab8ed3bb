//! Filter of a handler: converts the changes of a scope to the changes of the handler's selection.
//!
//! The result equals that of an informer with a selector. A stay in the filter starts with `Added` and ends with
//! `Deleted`, whose object is the last state that passed. The filter precedes the handler's queue, so the queue merges
//! stays in the filter.

use std::collections::BTreeSet;

use crate::event::{Certainty, Change, DeleteReason, Event};
use crate::key::ObjectKey;

/// Objects of a scope that have passed a filter.
#[derive(Debug, Default)]
pub struct Filter {
    within: BTreeSet<ObjectKey>,
}

impl Filter {
    /// Converts `change` for a handler that receives only objects that `accepts` selects. Returns `None` if the object
    /// is outside of the filter before and after the change.
    ///
    /// `accepts` is called once for each state. If its results change over time, stays start or end, but the sequence
    /// of events remains valid.
    pub fn pass<K>(&mut self, change: &Change<K>, accepts: impl FnOnce(&K) -> bool) -> Option<Change<K>> {
        let Change { event, version, certainty } = change;
        let key = change.key();
        let was_within = self.within.contains(key);
        let is_within = match event {
            Event::Added { object: state, .. } | Event::Updated { new: state, .. } => state.decoded_for(accepts),
            Event::Deleted { .. } => false,
            Event::Resynced { .. } => was_within,
        };
        if is_within && !was_within {
            self.within.insert(key.clone());
        } else if !is_within && was_within {
            self.within.remove(key);
        }
        let event = match (event, was_within, is_within) {
            // The handler never received a state outside the filter.
            (_, false, false) => return None,
            (Event::Updated { new, .. }, false, true) => Event::Added { object: new.clone(), initial: false },
            (Event::Updated { old, .. }, true, false) => Event::Deleted {
                last: old.clone(),
                version: version.clone(),
                certainty: *certainty,
                reason: DeleteReason::Left,
            },
            (event, ..) => event.clone(),
        };
        Some(Change { event, version: version.clone(), certainty: *certainty })
    }

    /// Moves the deletions of a list before the other changes of the list.
    ///
    /// [`Store::commit`](crate::store::Store::commit) orders the changes of the whole scope. If a list shows an object
    /// outside the filter, its update in the scope becomes a deletion for the handler. The order must therefore be
    /// restored. Only changes without an observed version are moved. No deletion moves past a change of the same
    /// object.
    pub fn deletions_first<K>(changes: &mut Vec<Change<K>>) {
        let is_listed = |change: &Change<K>| change.certainty == Certainty::Inferred;
        let is_late = |pair: &[Change<K>]| {
            is_listed(&pair[0]) && is_listed(&pair[1]) && !pair[0].event.is_deletion() && pair[1].event.is_deletion()
        };
        // Most batches are in order and need no copy.
        if !changes.windows(2).any(is_late) {
            return;
        }
        let mut ordered = Vec::with_capacity(changes.len());
        let (mut rest, mut keys) = (Vec::new(), BTreeSet::new());
        for change in changes.drain(..) {
            if !is_listed(&change) {
                // A watched change keeps its position. Only changes of a list may be reordered.
                ordered.append(&mut rest);
                keys.clear();
                ordered.push(change);
            } else if change.event.is_deletion() && !keys.contains(change.key()) {
                // A deletion may only overtake changes of other keys.
                ordered.push(change);
            } else {
                keys.insert(change.key().clone());
                rest.push(change);
            }
        }
        ordered.append(&mut rest);
        *changes = ordered;
    }

    /// Returns whether the last checked state of the object passed.
    pub fn has(&self, key: &ObjectKey) -> bool {
        self.within.contains(key)
    }
}
