//! New index before its addition to a store: filled from a snapshot, then updated to the store.

use std::fmt;

use super::entries::Replacement;
use super::index::StoreIndex;
use super::indexed::{Indexed, Maintained};
use super::objects::Objects;
use super::snapshot::Snapshot;

/// Filled index that is not part of the store yet.
///
/// The index function runs in the thread that fills the index and that calls [`catch_up_to`](Self::catch_up_to). The
/// writer of the store does not wait for this function.
pub struct PendingIndex<K> {
    indexed: Box<dyn Maintained<K>>,
    /// Objects that the index covers.
    objects: Objects<K>,
    updates: u32,
}

impl<K: Send + Sync + 'static> Snapshot<K> {
    /// Creates an index of this snapshot by the values that `extract` returns for an object.
    /// [`Store::add_filled_index`](super::Store::add_filled_index) adds the index to the store.
    ///
    /// Readers can use the index immediately. Until the store maintains the index, each read of the index checks every
    /// object of the snapshot.
    #[doc(hidden)]
    pub fn index<I, V>(&self, extract: impl Fn(&K) -> V + Send + Sync + 'static) -> (StoreIndex<K, I>, PendingIndex<K>)
    where
        I: Ord + Clone + Send + Sync + 'static,
        V: IntoIterator<Item = I>,
    {
        PendingIndex::new(self, extract)
    }
}

impl<K: Send + Sync + 'static> PendingIndex<K> {
    /// Creates the index of the objects of `snapshot`.
    pub(super) fn new<I, V>(
        snapshot: &Snapshot<K>,
        extract: impl Fn(&K) -> V + Send + Sync + 'static,
    ) -> (StoreIndex<K, I>, Self)
    where
        I: Ord + Clone + Send + Sync + 'static,
        V: IntoIterator<Item = I>,
    {
        let index = StoreIndex::of(extract);
        let indexed = Box::new(Indexed::new(index.clone()));
        let mut pending_index = Self { indexed, objects: snapshot.objects.new_empty(), updates: 0 };
        pending_index.catch_up_to(snapshot);
        // The initial fill does not count as an update.
        pending_index.updates = 0;
        (index, pending_index)
    }

    /// Updates the index to `snapshot`. The index function is called only for changed objects.
    pub fn catch_up_to(&mut self, snapshot: &Snapshot<K>) {
        self.updates += 1;
        if self.is_at(snapshot) {
            return;
        }
        let mut replacements = Vec::new();
        self.objects.differences(&snapshot.objects, |slot, old, new| {
            // If the slot was reused for another object, `old` and `new` have different keys.
            // `Replacement::keeps_key` detects this case.
            replacements.push(Replacement { slot, old: old.cloned(), new: new.cloned(), decoded: None, values: None });
        });
        // No values were computed in advance for an index that is not part of the store.
        self.indexed.prepare(&replacements, usize::MAX);
        self.indexed.remove_prepared(&self.objects);
        self.indexed.insert_prepared(&snapshot.objects);
        self.objects = snapshot.objects.clone();
    }

    /// Returns whether the index is up to date with `snapshot`.
    pub fn is_at(&self, snapshot: &Snapshot<K>) -> bool {
        self.objects.ptr_eq(&snapshot.objects)
    }

    /// Returns the number of updates.
    pub fn updates(&self) -> u32 {
        self.updates
    }

    pub(super) fn into_maintained(self) -> Box<dyn Maintained<K>> {
        self.indexed
    }
}

impl<K> fmt::Debug for PendingIndex<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PendingIndex {{ objects: {}, updates: {} }}", self.objects.len(), self.updates)
    }
}
