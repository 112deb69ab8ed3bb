//! Objects that a cache has contained until their deletion.

use std::collections::VecDeque;

use parking_lot::Mutex;
use steadfast_core::Uid;

/// Maximum number of remembered objects. A wait for an older deletion needs a request to the server.
const MAX_REMOVED_OBJECTS: usize = 256;

/// UIDs of the objects that were deleted last.
///
/// The response to a deletion has no version. A cache without the object either has removed it already, or does not contain
/// it yet. A UID in this list proves the removal.
#[derive(Debug, Default)]
pub(crate) struct RemovedObjects(Mutex<VecDeque<Uid>>);

impl RemovedObjects {
    pub(crate) fn add(&self, uid: &Uid) {
        if uid.as_str().is_empty() {
            return;
        }
        let mut uids = self.0.lock();
        if uids.len() == MAX_REMOVED_OBJECTS {
            uids.pop_front();
        }
        uids.push_back(uid.clone());
    }

    /// Forgets all objects.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }

    pub(crate) fn contains(&self, uid: &Uid) -> bool {
        // The newest first: most waits concern a deletion of this instant.
        self.0.lock().iter().rev().any(|removed| removed.is_same(uid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_removal_is_dropped_first() {
        let removed = RemovedObjects::default();
        let uid = |number: usize| Uid::from(number.to_string().as_str());
        (0..=MAX_REMOVED_OBJECTS).for_each(|number| removed.add(&uid(number)));
        assert!(!removed.contains(&uid(0)));
        assert!(removed.contains(&uid(1)) && removed.contains(&uid(MAX_REMOVED_OBJECTS)));
        removed.clear();
        assert!(!removed.contains(&uid(MAX_REMOVED_OBJECTS)));
    }
}
