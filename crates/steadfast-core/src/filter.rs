//! A handler's filter: turns the changes of a scope into those of the part of it that a handler wants to see.
//!
//! What comes out is what an informer with a selector would have: a stay in the filter begins with an `Added` and ends
//! with a `Deleted`, whose object is the last that passed. It comes before the handler's queue, so that what the queue
//! merges are stays in the filter.

use std::collections::BTreeSet;

use crate::event::{Change, DeleteReason, Event};
use crate::key::ObjectKey;

/// Which objects of a scope have passed a filter.
#[derive(Debug, Default)]
pub struct Filter {
    within: BTreeSet<ObjectKey>,
}

impl Filter {
    /// What `change` is to a handler that sees only what `accepts`; nothing where it is outside before and after.
    ///
    /// `accepts` is asked about each state once, so that one which changes its mind ends a stay and breaks nothing.
    pub fn pass<K>(&mut self, change: &Change<K>, accepts: impl FnOnce(&K) -> bool) -> Option<Change<K>> {
        let Change { event, version, certainty } = change;
        let key = change.key();
        let was_within = self.within.contains(key);
        let is_within = match event {
            Event::Added { object: state, .. } | Event::Updated { new: state, .. } => accepts(state),
            Event::Deleted { .. } => false,
            Event::Resynced { .. } => was_within,
        };
        if is_within && !was_within {
            self.within.insert(key.clone());
        } else if !is_within && was_within {
            self.within.remove(key);
        }
        let event = match (event, was_within, is_within) {
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

    /// Whether the object of this name passed when it was last looked at.
    pub fn has(&self, key: &ObjectKey) -> bool {
        self.within.contains(key)
    }
}
