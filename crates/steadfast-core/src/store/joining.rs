//! An index on its way into a store: filled from a snapshot, then brought up to the store.

use std::cmp::Ordering;
use std::fmt;

use super::entries::{Objects, Replacement};
use super::index::{Indexed, Maintained};
use super::{Index, Snapshot};
use crate::key::ObjectKey;
use crate::object::Entry;
use crate::ordmap::OrdMap;

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
        let mut joining = Self { indexed, objects: OrdMap::default(), rounds: 0 };
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
        let replacements = differences(&self.objects, &snapshot.objects);
        self.indexed.prepare(&replacements);
        self.indexed.carry_out();
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

/// What was replaced between two states; entries that are the same are the same by pointer.
fn differences<K>(before: &Objects<K>, after: &Objects<K>) -> Vec<Replacement<K>> {
    type Held<'a, K> = (&'a ObjectKey, &'a Entry<K>);
    let mut replacements = Vec::new();
    let mut replaced = |key: &ObjectKey, old: Option<Held<'_, K>>, new: Option<Held<'_, K>>| {
        let entry = |held: Option<Held<'_, K>>| held.map(|(_, entry)| entry.clone());
        replacements.push(Replacement { key: key.clone(), old: entry(old), new: entry(new) });
    };
    let (mut before, mut after) = (before.iter().peekable(), after.iter().peekable());
    loop {
        let order = match (before.peek(), after.peek()) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((old, _)), Some((new, _))) => old.cmp(new),
        };
        let old = if order == Ordering::Greater { None } else { before.next() };
        let new = if order == Ordering::Less { None } else { after.next() };
        if let (Some((_, old)), Some((_, new))) = (old, new)
            && old.is(new)
        {
            continue;
        }
        if let Some((key, _)) = new.or(old) {
            replaced(key, old, new);
        }
    }
    replacements
}
