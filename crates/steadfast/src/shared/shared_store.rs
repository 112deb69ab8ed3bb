//! Store of an informer, with lock-free reads and the indexes that are being added.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use steadfast_core::store::{PendingIndex, Snapshot, Store, StoreIndex, StoreReader};

/// Number of rounds in which a new index catches up with the store without the lock. Changes after the last round are
/// applied under the lock.
const UNLOCKED_ROUNDS: u32 = 8;

/// Store with its published snapshots. Readers take no lock.
pub(crate) struct SharedStore<K> {
    reader: StoreReader<K>,
    /// Store of the driver. The driver holds this lock while user functions compute index values, so no reader takes
    /// the lock.
    store: Mutex<Store<K>>,
    /// Filled indexes that are not in the store yet.
    pending_indexes: Mutex<Vec<PendingIndex<K>>>,
}

impl<K: Send + Sync + 'static> SharedStore<K> {
    /// Shares `store`.
    pub(super) fn new(store: Store<K>) -> Self {
        Self { reader: store.reader(), store: Mutex::new(store), pending_indexes: Mutex::default() }
    }

    /// Returns the published state.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot<K>> {
        self.reader.snapshot()
    }

    /// Returns the reader of the published states.
    pub(crate) fn reader(&self) -> &StoreReader<K> {
        &self.reader
    }

    /// Edits the store, then adds the indexes that waited for the edit.
    pub(super) fn edit<T>(&self, edit: impl FnOnce(&mut Store<K>) -> T) -> T {
        // The store is consistent even if code under the lock panics (`Store::add_index`).
        let edited = edit(&mut self.store.lock());
        self.admit_indexes();
        edited
    }

    /// Adds an index and fills it from a snapshot, so that the user's function delays no change.
    ///
    /// The caller may be the `extract` function of another index. The new index is then added to the store after that
    /// function returns.
    pub(crate) fn add_index<I, V>(&self, extract: impl Fn(&K) -> V + Send + Sync + 'static) -> StoreIndex<K, I>
    where
        I: Ord + Clone + Send + Sync + 'static,
        V: IntoIterator<Item = I>,
    {
        let (index, filled) = self.snapshot().index(extract);
        self.pending_indexes.lock().push(filled);
        self.admit_indexes();
        index
    }

    /// Lets the waiting indexes catch up with the store, and adds the indexes that have caught up.
    ///
    /// If the store is being edited, the editing thread does this afterwards.
    fn admit_indexes(&self) {
        loop {
            let mut waiting = std::mem::take(&mut *self.pending_indexes.lock());
            if waiting.is_empty() {
                return;
            }
            // Without the lock, because this runs the user's function for each changed object.
            for pending_index in &mut waiting {
                pending_index.catch_up_to(&self.snapshot());
            }
            if let Some(mut store) = self.try_store() {
                for pending_index in waiting {
                    if pending_index.is_at(store.working()) || pending_index.updates() >= UNLOCKED_ROUNDS {
                        store.add_filled_index(pending_index);
                    } else {
                        self.pending_indexes.lock().push(pending_index);
                    }
                }
                store.publish();
                continue;
            }
            self.pending_indexes.lock().append(&mut waiting);
            // The previous holder may have released the lock before the waiting indexes were visible to it.
            if self.try_store().is_none() {
                return;
            }
        }
    }

    fn try_store(&self) -> Option<MutexGuard<'_, Store<K>>> {
        self.store.try_lock()
    }
}
