//! An index on its way into a store: filled from a snapshot, then brought up to the store.

use std::fmt;

use super::entries::Replacement;
use super::index::Index;
use super::indexed::{Indexed, Maintained};
use super::objects::Objects;
use super::snapshot::Snapshot;

/// An index that is filled and not in the store yet.
///
/// Its function runs where it is filled and where it [follows](Self::follow) the store, so that whoever edits the store
/// need not wait for that.
pub struct Joining<K> {
    indexed: Box<dyn Maintained<K>>,
    /// What it is an index of.
    objects: Objects<K>,
    rounds: u32,
}

impl<K: Send + Sync + 'static> Snapshot<K> {
    /// An index of what is held here, by the values that `extract` finds in an object, for
    /// [`Store::admit`](super::Store::admit).
    ///
    /// Readers can use it from here on: snapshots without it answer by looking at every object.
    #[doc(hidden)]
    pub fn index<I, V>(&self, extract: impl Fn(&K) -> V + Send + Sync + 'static) -> (Index<K, I>, Joining<K>)
    where
        I: Ord + Clone + Send + Sync + 'static,
        V: IntoIterator<Item = I>,
    {
        Joining::new(self, extract)
    }
}

impl<K: Send + Sync + 'static> Joining<K> {
    /// The index of the objects of `snapshot`.
    pub(super) fn new<I, V>(
        snapshot: &Snapshot<K>,
        extract: impl Fn(&K) -> V + Send + Sync + 'static,
    ) -> (Index<K, I>, Self)
    where
        I: Ord + Clone + Send + Sync + 'static,
        V: IntoIterator<Item = I>,
    {
        let index = Index::of(extract);
        let indexed = Box::new(Indexed::new(index.clone()));
        let mut joining = Self { indexed, objects: snapshot.objects.anew(), rounds: 0 };
        joining.follow(snapshot);
        joining.rounds = 0;
        (index, joining)
    }

    /// Takes in what differs in `snapshot`: the index's function is asked of that alone.
    pub fn follow(&mut self, snapshot: &Snapshot<K>) {
        self.rounds += 1;
        if self.is_at(snapshot) {
            return;
        }
        let mut replacements = Vec::new();
        self.objects.differences(&snapshot.objects, |slot, old, new| {
            replacements.push(Replacement { slot, old: old.cloned(), new: new.cloned() });
        });
        self.indexed.prepare(&replacements);
        self.indexed.leave(&self.objects);
        self.indexed.enter(&snapshot.objects);
        self.objects = snapshot.objects.clone();
    }

    /// Whether nothing is to be taken in of `snapshot`.
    pub fn is_at(&self, snapshot: &Snapshot<K>) -> bool {
        self.objects.is(&snapshot.objects)
    }

    /// How often it has followed the store.
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    pub(super) fn into_maintained(self) -> Box<dyn Maintained<K>> {
        self.indexed
    }
}

impl<K> fmt::Debug for Joining<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Joining {{ objects: {}, rounds: {} }}", self.objects.len(), self.rounds)
    }
}
