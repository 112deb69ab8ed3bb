//! The entries of a store: by slot, by hash of their keys, and in the order of their keys.

use std::cmp::Ordering;

use super::entries::Replacement;
use crate::key::{KeyBytes, ObjectKey};
use crate::object::Entry;
use crate::slots::{Hashes, Pages, Sequence, Slot};

/// The entries of a store, cheap to clone.
///
/// An edit that replaces an entry leaves it in its slot, and so touches nothing but the slot's page.
pub(super) struct Objects<K> {
    pages: Pages<Entry<K>>,
    hashes: Hashes,
    order: Sequence,
    /// What the texts of all keys take.
    keys: usize,
    /// What the objects take.
    bytes: usize,
    /// The bits of a hash that count: all of them, but in tests of what happens when hashes are the same.
    mask: u32,
}

impl<K> Objects<K> {
    /// No entries, of whose hashes only the bits in `mask` count.
    pub(super) fn empty(mask: u32) -> Self {
        Self { pages: Pages::default(), hashes: Hashes::default(), order: Sequence::default(), keys: 0, bytes: 0, mask }
    }

    /// Nothing, to be filled in the same way as these.
    pub(super) fn anew(&self) -> Self {
        Self::empty(self.mask)
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Whether `other` is this very one, so that nothing in it can differ. False says nothing.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.pages.is(&other.pages)
    }

    /// The entry of a key, and its slot.
    pub(super) fn get(&self, key: &ObjectKey) -> Option<(Slot, &Entry<K>)> {
        self.find(key.hash(), |held| held.cmp(key))
    }

    /// The entry of a key in parts.
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

    /// The entry in a slot that has one.
    pub(super) fn at(&self, slot: Slot) -> &Entry<K> {
        self.pages.get(slot).expect("a slot that is found has an entry")
    }

    /// All entries, in the order of their keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry<K>> {
        self.order.iter().map(|slot| self.at(slot))
    }

    /// The slots of all entries, in the order of their keys.
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> {
        self.order.iter()
    }

    /// The entries whose keys `position` answers `Equal` for, in the order of their keys.
    pub(super) fn range_by(&self, mut position: impl FnMut(&ObjectKey) -> Ordering) -> impl Iterator<Item = &Entry<K>> {
        self.order.range_by(move |slot| position(self.at(slot).key())).map(|slot| self.at(slot))
    }

    /// How the keys of two slots that have entries are ordered.
    pub(super) fn compare(&self, a: Slot, b: Slot) -> Ordering {
        self.at(a).key().cmp(self.at(b).key())
    }

    /// Calls `each` for every slot in which another entry is in `after`, with both.
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

    /// What keeps entries found, in bytes: pages, hashes and order.
    pub(super) fn layout_footprint(&self) -> usize {
        self.pages.footprint() + self.hashes.footprint() + self.order.footprint()
    }

    /// The objects as they are kept, in bytes: of those that cannot be decoded, the last states that could.
    pub(super) fn objects_footprint(&self) -> usize {
        self.bytes
    }

    /// The entries themselves and their keys, in bytes.
    pub(super) fn entries_footprint(&self) -> usize {
        self.len() * Entry::<K>::FOOTPRINT + self.keys
    }

    /// Carries out one replacement.
    pub(super) fn edit(&mut self, replacement: &Replacement<K>) {
        let Replacement { slot, old, new } = replacement;
        match (old, new) {
            (Some(_), Some(new)) => self.replace(*slot, new.clone()),
            (None, Some(new)) => self.add(*slot, new.clone()),
            (_, None) => self.remove(*slot),
        }
    }

    /// Puts an entry in the place of another one of the same key.
    pub(super) fn replace(&mut self, slot: Slot, entry: Entry<K>) {
        self.bytes = self.bytes + entry.bytes() - self.at(slot).bytes();
        self.pages.set(slot, Some(entry));
    }

    /// Takes in the entry of a key that is not there, in a slot that is vacant.
    fn add(&mut self, slot: Slot, entry: Entry<K>) {
        let hash = entry.key().hash() & self.mask;
        self.keys += entry.key().footprint();
        self.bytes += entry.bytes();
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
        let Some(gone) = key(slot) else { return };
        hashes.remove(gone.hash() & self.mask, slot, |a, b| key(a).cmp(&key(b)));
        order.remove(|held| key(held).cmp(&Some(gone)));
        self.keys -= gone.footprint();
        self.bytes -= self.at(slot).bytes();
        self.pages.set(slot, None);
    }

    /// Carries out many at once. `order` has all slots in the order of their keys, as it is then.
    pub(super) fn rearrange(&mut self, replacements: &[Replacement<K>], order: &[Slot]) {
        if self.is_empty() {
            // All of them are new, and in the slots from 0.
            self.pages = replacements.iter().filter_map(|replacement| replacement.new.clone()).collect();
        } else {
            for Replacement { slot, new, .. } in replacements {
                self.pages.set(*slot, new.clone());
            }
        }
        let hashed = order.iter().map(|slot| (self.at(*slot).key().hash() & self.mask, *slot));
        self.hashes = Hashes::new(hashed, |a, b| self.compare(a, b));
        self.bytes = order.iter().map(|slot| self.at(*slot).bytes()).sum();
        self.keys = order.iter().map(|slot| self.at(*slot).key().footprint()).sum();
        self.order = Sequence::from_sorted(order);
    }
}

// By hand: a derive would ask for clonable objects.
impl<K> Clone for Objects<K> {
    fn clone(&self) -> Self {
        let Self { pages, hashes, order, keys, bytes, mask } = self;
        let (pages, hashes, order) = (pages.clone(), hashes.clone(), order.clone());
        Self { pages, hashes, order, keys: *keys, bytes: *bytes, mask: *mask }
    }
}
