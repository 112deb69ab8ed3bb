//! Registry of an informer's handlers, with constant-time insertion and removal.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::id_pool::IdPool;

/// Members by ID. IDs are small numbers and are reused.
pub(crate) struct HandlerRegistry<T> {
    members: BTreeMap<usize, T>,
    ids: IdPool,
    /// IDs of members that have left but are still stored.
    released_ids: Arc<Mutex<Vec<usize>>>,
    /// Number of members visited by insertions and removals, for a test.
    #[cfg(test)]
    steps: usize,
}

/// Slot of a member. The member can leave without the registry's lock.
#[derive(Debug)]
pub(crate) struct Slot {
    id: usize,
    is_released: AtomicBool,
    released_ids: Arc<Mutex<Vec<usize>>>,
}

impl Slot {
    /// Returns the member's number within the registry.
    pub(crate) fn id(&self) -> usize {
        self.id
    }

    /// Leaves the registry. The next access removes the member.
    pub(crate) fn release(&self) {
        // Only the first release counts: after it, the ID may belong to another member.
        if !self.is_released.swap(true, Ordering::AcqRel) {
            self.released_ids.lock().push(self.id);
        }
    }
}

impl<T> HandlerRegistry<T> {
    /// Adds the member that the closure creates for its slot.
    pub(crate) fn add(&mut self, member: impl FnOnce(Slot) -> T) {
        self.remove_released();
        let id = self.ids.take();
        let slot = Slot { id, is_released: AtomicBool::new(false), released_ids: self.released_ids.clone() };
        self.members.insert(id, member(slot));
    }

    /// Returns all members that have not left, by ID.
    pub(crate) fn members(&mut self) -> impl Iterator<Item = &T> {
        self.remove_released();
        self.members.values()
    }

    fn remove_released(&mut self) {
        // Members leave without the registry's lock, which may be held during a publication. They are removed at the
        // next access.
        let released_ids = std::mem::take(&mut *self.released_ids.lock());
        for id in released_ids {
            #[cfg(test)]
            {
                self.steps += 1;
            }
            self.members.remove(&id);
            self.ids.release_id(id);
        }
    }
}

// Implemented manually: a derive would require `T: Default`.
impl<T> Default for HandlerRegistry<T> {
    fn default() -> Self {
        Self {
            members: BTreeMap::new(),
            ids: IdPool::default(),
            released_ids: Arc::default(),
            #[cfg(test)]
            steps: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{HandlerRegistry, Slot};

    fn add_handler(registry: &mut HandlerRegistry<Arc<Slot>>) -> Arc<Slot> {
        let mut own = None;
        registry.add(|slot| own.insert(Arc::new(slot)).clone());
        own.expect("the registry created a slot")
    }

    fn ids(registry: &mut HandlerRegistry<Arc<Slot>>) -> Vec<usize> {
        registry.members().map(|slot| slot.id()).collect()
    }

    #[test]
    fn free_id_is_reused() {
        let mut registry = HandlerRegistry::default();
        let first = add_handler(&mut registry);
        let _second = add_handler(&mut registry);
        first.release();
        first.release();
        assert_eq!(ids(&mut registry), [1]);
        assert_eq!(add_handler(&mut registry).id(), 0);
        first.release();
        assert_eq!(ids(&mut registry), [0, 1], "the ID is another's now");
    }

    /// In earlier versions, adding the handlers took cubic time, and removing them one by one took quadratic time.
    #[test]
    fn handler_registration_takes_constant_steps() {
        const HANDLER_COUNT: usize = 10_000;
        let mut registry = HandlerRegistry::default();
        let members: Vec<_> = (0..HANDLER_COUNT).map(|_| add_handler(&mut registry)).collect();
        assert_eq!(registry.steps, 0, "a new handler visits no other handler");
        for slot in members {
            slot.release();
            add_handler(&mut registry).release();
        }
        assert_eq!(registry.members().count(), 0);
        assert_eq!(registry.steps, 2 * HANDLER_COUNT, "only removed handlers are visited");
    }
}
