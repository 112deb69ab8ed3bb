//! Entries of a store: by slot, by hash of their keys, and in the order of their keys.

use std::cmp::Ordering;

use super::entries::Replacement;
use crate::key::{KeyBytes, ObjectKey};
use crate::object::Entry;
use crate::slots::{Hashes, PagedVec, Sequence, Slot};

/// Entries of a store, cheap to clone.
///
/// An edit that replaces an entry keeps its slot, and therefore modifies only the page of the slot.
pub(super) struct Objects<K> {
    pages: PagedVec<Entry<K>>,
    hashes: Hashes,
    order: Sequence,
    /// Memory of the keys, in bytes.
    key_bytes: usize,
    /// Memory of the objects, in bytes.
    object_bytes: usize,
    /// Mask of the hash bits in use: all of them, except in tests of hash collisions.
    mask: u32,
}

impl<K> Objects<K> {
    /// Creates an empty set of entries that uses the hash bits in `mask`.
    pub(super) fn empty(mask: u32) -> Self {
        Self {
            pages: PagedVec::default(),
            hashes: Hashes::default(),
            order: Sequence::default(),
            key_bytes: 0,
            object_bytes: 0,
            mask,
        }
    }

    /// Creates an empty set of entries with an equal configuration.
    pub(super) fn new_empty(&self) -> Self {
        Self::empty(self.mask)
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Returns whether both share their memory and are therefore equal. Separate memory may have equal content, too.
    pub(super) fn ptr_eq(&self, other: &Self) -> bool {
        self.pages.ptr_eq(&other.pages)
    }

    /// Returns the entry of a key, and its slot.
    pub(super) fn get(&self, key: &ObjectKey) -> Option<(Slot, &Entry<K>)> {
        self.find(key.hash(), |held| held.cmp(key))
    }

    /// Returns the entry of a key in parts.
    pub(super) fn get_by_parts(&self, key: KeyBytes<'_>) -> Option<&Entry<K>> {
        self.find(key.hash(), |held| held.bytes().cmp(&key)).map(|(_, entry)| entry)
    }

    fn find(&self, hash: u32, mut position: impl FnMut(&ObjectKey) -> Ordering) -> Option<(Slot, &Entry<K>)> {
        let mut found = None;
        let slot = self.hashes.find(hash & self.mask, |slot| {
            let entry = self.at(slot);
            let order = position(entry.key());
            if order.is_eq() {
                found = Some(entry);
            }
            order
        })?;
        Some((slot, found?))
    }

    /// Returns the entry in an occupied slot.
    pub(super) fn at(&self, slot: Slot) -> &Entry<K> {
        self.pages.get(slot).expect("a slot that is found has an entry")
    }

    /// Returns all entries, in the order of their keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry<K>> {
        self.order.iter().map(|slot| self.at(slot))
    }

    /// Returns the slots of all entries, in the order of their keys.
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> {
        self.order.iter()
    }

    /// Returns the entries whose keys `position` maps to `Equal`, in the order of their keys.
    pub(super) fn range_by(&self, mut position: impl FnMut(&ObjectKey) -> Ordering) -> impl Iterator<Item = &Entry<K>> {
        self.order.range_by(move |slot| position(self.at(slot).key())).map(|slot| self.at(slot))
    }

    /// Compares the keys of two occupied slots.
    pub(super) fn compare(&self, a: Slot, b: Slot) -> Ordering {
        self.at(a).key().cmp(self.at(b).key())
    }

    /// Calls `each` with the slot and both entries, for every slot whose entry in `after` differs.
    pub(super) fn differences<'a>(
        &'a self,
        after: &'a Self,
        mut each: impl FnMut(Slot, Option<&'a Entry<K>>, Option<&'a Entry<K>>),
    ) {
        self.pages.differences(&after.pages, |slot, old, new| {
            let same = match (old, new) {
                (Some(old), Some(new)) => old.is(new),
                (None, None) => true,
                _ => false,
            };
            if !same {
                each(slot, old, new);
            }
        });
    }

    /// Returns the memory of the lookup structures in bytes: pages, hashes and order.
    pub(super) fn layout_footprint(&self) -> usize {
        self.pages.footprint() + self.hashes.footprint() + self.order.footprint()
    }

    /// Returns the memory of the kept objects in bytes, including the last decodable states of tainted ones.
    pub(super) fn objects_footprint(&self) -> usize {
        self.object_bytes
    }

    /// Returns the memory of the entries and their keys in bytes.
    pub(super) fn entries_footprint(&self) -> usize {
        self.len() * Entry::<K>::FOOTPRINT + self.key_bytes
    }

    /// Applies one replacement.
    pub(super) fn edit(&mut self, replacement: &Replacement<K>) {
        let Replacement { slot, old, new, .. } = replacement;
        match (old, new) {
            (Some(_), Some(new)) => self.replace(*slot, new.clone()),
            (None, Some(new)) => self.add(*slot, new.clone()),
            (_, None) => self.remove(*slot),
        }
    }

    /// Replaces the entry in `slot` by another entry of its key.
    pub(super) fn replace(&mut self, slot: Slot, entry: Entry<K>) {
        // The key is equal, so hashes and order keep the slot.
        self.object_bytes = self.object_bytes + entry.bytes() - self.at(slot).bytes();
        self.pages.set(slot, Some(entry));
    }

    /// Adds the entry of a new key in a vacant slot.
    fn add(&mut self, slot: Slot, entry: Entry<K>) {
        let hash = entry.key().hash() & self.mask;
        self.key_bytes += entry.key().footprint();
        self.object_bytes += entry.bytes();
        // The page comes first: the comparisons below read keys through the pages.
        self.pages.set(slot, Some(entry));
        let Self { pages, hashes, order, .. } = self;
        let key = |slot| pages.get(slot).map(Entry::key);
        hashes.insert(hash, slot, |a, b| key(a).cmp(&key(b)));
        order.insert(slot, |held| key(held).cmp(&key(slot)));
    }

    /// Removes the entry in `slot`.
    fn remove(&mut self, slot: Slot) {
        let Self { pages, hashes, order, .. } = self;
        let key = |slot| pages.get(slot).map(Entry::key);
        let Some(removed) = key(slot) else { return };
        // The page is cleared last: the comparisons below still read the removed key.
        hashes.remove(removed.hash() & self.mask, slot, |a, b| key(a).cmp(&key(b)));
        order.remove(|held| key(held).cmp(&Some(removed)));
        self.key_bytes -= removed.footprint();
        self.object_bytes -= self.at(slot).bytes();
        self.pages.set(slot, None);
    }

    /// Applies many replacements in one step. `order` contains all slots in the resulting order of their keys.
    pub(super) fn rearrange(&mut self, replacements: &[Replacement<K>], order: &[Slot]) {
        if self.is_empty() {
            // All entries are new and occupy the slots from 0.
            self.pages = replacements.iter().filter_map(|replacement| replacement.new.clone()).collect();
        } else {
            for Replacement { slot, new, .. } in replacements {
                self.pages.set(*slot, new.clone());
            }
        }
        // One rebuild is linear; single insertions would cost more after a relist.
        let hashed = order.iter().map(|slot| (self.at(*slot).key().hash() & self.mask, *slot));
        self.hashes = Hashes::new(hashed, |a, b| self.compare(a, b));
        self.object_bytes = order.iter().map(|slot| self.at(*slot).bytes()).sum();
        self.key_bytes = order.iter().map(|slot| self.at(*slot).key().footprint()).sum();
        self.order = Sequence::from_sorted(order);
    }
}

// Not derived: a derive would require clonable objects.
impl<K> Clone for Objects<K> {
    fn clone(&self) -> Self {
        let Self { pages, hashes, order, key_bytes, object_bytes, mask } = self;
        let (pages, hashes, order) = (pages.clone(), hashes.clone(), order.clone());
        Self { pages, hashes, order, key_bytes: *key_bytes, object_bytes: *object_bytes, mask: *mask }
    }
}
