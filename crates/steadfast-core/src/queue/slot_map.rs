//! Values by key, in numbered slots.
//!
//! A queue is as long as the first list for a short time, and nearly empty afterwards. The slots therefore form one
//! allocation, which is returned to the system as a whole. A tree for 100,000 objects would have many small nodes. The
//! allocator could not return their memory while later allocations use the same pages.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::key::ObjectKey;
use crate::slots::{Hashes, Slot};

/// Values by key.
pub(super) struct SlotMap<T> {
    /// Slots. The lowest vacant slot is used first, so that slots at the end become vacant and can be removed.
    slots: Vec<Option<(ObjectKey, T)>>,
    /// Index by hash; `None` while a linear search is sufficient.
    hashes: Option<Hashes>,
    /// Vacant slots. Entries may be outdated: the slot is beyond the end, or occupied again.
    vacant: BinaryHeap<Reverse<Slot>>,
    len: usize,
}

/// Number of slots that are searched linearly. Few queues exceed it after the first list. An empty queue
/// keeps at most this capacity.
const MAX_LINEAR_SLOTS: usize = 8;

impl<T> SlotMap<T> {
    /// Returns the slot of a key.
    pub(super) fn find(&self, key: &ObjectKey) -> Option<Slot> {
        match &self.hashes {
            Some(hashes) => hashes.find(key.hash(), |slot| self.key(slot).cmp(&Some(key))),
            None => occupied(&self.slots).find(|(_, occupant)| *occupant == key).map(|(slot, _)| slot),
        }
    }

    /// Returns the slot of a key, created if missing.
    pub(super) fn find_or_insert(&mut self, key: &ObjectKey, make: impl FnOnce() -> T) -> Slot {
        if let Some(slot) = self.find(key) {
            return slot;
        }
        let slot = self.vacant_slot();
        self.slots[slot as usize] = Some((key.clone(), make()));
        self.len += 1;
        let Self { slots, hashes, .. } = self;
        let compare = |a, b| key_in(slots, a).cmp(&key_in(slots, b));
        match hashes {
            Some(hashes) => hashes.insert(key.hash(), slot, compare),
            // A linear search is cheapest for a few keys.
            None if slots.len() > MAX_LINEAR_SLOTS => {
                *hashes = Some(Hashes::new(occupied(slots).map(|(slot, key)| (key.hash(), slot)), compare));
            }
            None => {}
        }
        slot
    }

    /// Returns a vacant slot.
    fn vacant_slot(&mut self) -> Slot {
        while let Some(Reverse(slot)) = self.vacant.pop() {
            if self.slots.get(slot as usize).is_some_and(Option::is_none) {
                return slot;
            }
        }
        self.slots.push(None);
        Slot::try_from(self.slots.len() - 1).expect("a cache has fewer than 2^32 objects")
    }

    /// Removes the value in a slot.
    pub(super) fn remove(&mut self, slot: Slot) {
        let Self { slots, hashes, .. } = self;
        let Some(key) = key_in(slots, slot) else { return };
        // The index compares keys through `slots`, so the entry must still exist.
        if let Some(hashes) = hashes {
            hashes.remove(key.hash(), slot, |a, b| key_in(slots, a).cmp(&key_in(slots, b)));
        }
        self.slots[slot as usize] = None;
        self.len -= 1;
        if self.len == 0 {
            // The first list has drained. The large allocation returns to the system.
            if self.hashes.is_some() {
                *self = Self::default();
            }
            self.slots.clear();
            self.vacant.clear();
            return;
        }
        self.vacant.push(Reverse(slot));
        while let Some(None) = self.slots.last() {
            self.slots.pop();
        }
        // The large difference to the growth threshold prevents repeated reallocations.
        if self.slots.len().max(MAX_LINEAR_SLOTS) < self.slots.capacity() / 4 {
            self.slots.shrink_to(self.slots.capacity() / 2);
        }
    }

    /// Returns the key of a slot.
    pub(super) fn key(&self, slot: Slot) -> Option<&ObjectKey> {
        key_in(&self.slots, slot)
    }

    /// Returns the value in a slot.
    pub(super) fn get(&self, slot: Slot) -> Option<&T> {
        self.slots.get(slot as usize)?.as_ref().map(|(_, value)| value)
    }

    /// Returns the value in a slot for modification.
    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        self.slots.get_mut(slot as usize)?.as_mut().map(|(_, value)| value)
    }

    /// Returns the number of keys.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no key has a slot.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns all values, in any order.
    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten().map(|(_, value)| value)
    }

    /// Returns the memory in bytes, without the heap memory of the values. An empty queue has only the capacity for a
    /// few slots.
    pub(super) fn footprint(&self) -> usize {
        if self.is_empty() {
            return 0;
        }
        let slots = self.slots.capacity() * size_of::<Option<(ObjectKey, T)>>();
        slots + self.vacant.capacity() * size_of::<Slot>() + self.hashes.as_ref().map_or(0, Hashes::footprint)
    }
}

/// Returns the occupied slots with their keys.
fn occupied<T>(slots: &[Option<(ObjectKey, T)>]) -> impl Iterator<Item = (Slot, &ObjectKey)> {
    slots.iter().zip(0..).filter_map(|(entry, slot)| entry.as_ref().map(|(key, _)| (slot, key)))
}

fn key_in<T>(slots: &[Option<(ObjectKey, T)>], slot: Slot) -> Option<&ObjectKey> {
    slots.get(slot as usize)?.as_ref().map(|(key, _)| key)
}

// Not derived: a derive would require values with a default.
impl<T> Default for SlotMap<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), hashes: None, vacant: BinaryHeap::new(), len: 0 }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::random::Random;

    fn key(number: u64) -> ObjectKey {
        ObjectKey::namespaced(format!("n-{}", number % 7), number.to_string())
    }

    #[test]
    fn keys_keep_their_slots() {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let mut map = SlotMap::default();
            let mut model: BTreeMap<u64, (Slot, u64)> = BTreeMap::new();
            for step in 0..5_000 {
                let number = random.draw() % 300;
                // The number of values grows for a while, then shrinks.
                if random.draw() % 1_000 < if step % 1_000 < 500 { 700 } else { 200 } {
                    let slot = map.find_or_insert(&key(number), || step);
                    model.entry(number).or_insert((slot, step));
                } else if let Some((slot, _)) = model.remove(&number) {
                    map.remove(slot);
                    assert_eq!(map.get(slot), None, "seed {seed}");
                }
                let found = map.find(&key(number)).map(|slot| (slot, *map.get(slot).unwrap()));
                assert_eq!(found, model.get(&number).copied(), "seed {seed}, step {step}");
            }
            assert_eq!(map.len(), model.len());
            let mut values: Vec<u64> = map.values().copied().collect();
            let mut expected: Vec<u64> = model.values().map(|(_, value)| *value).collect();
            values.sort_unstable();
            expected.sort_unstable();
            assert_eq!(values, expected, "seed {seed}");
            for (number, (slot, value)) in &model {
                assert_eq!((map.key(*slot), map.get(*slot)), (Some(&key(*number)), Some(value)), "seed {seed}");
            }
        }
    }

    #[test]
    fn removed_keys_release_memory() {
        let mut map = SlotMap::default();
        let all: Vec<Slot> = (0..10_000).map(|number| map.find_or_insert(&key(number), || number)).collect();
        let most = map.footprint();
        for slot in all[10..].iter().rev() {
            map.remove(*slot);
        }
        assert!(map.footprint() < most / 10, "{} of {most}", map.footprint());
        for number in 0..10_000 {
            let slot = map.find_or_insert(&key(number + 10), || number);
            map.remove(slot);
        }
        assert!(map.footprint() < most / 10, "{} of {most}", map.footprint());
        for slot in &all[..10] {
            map.remove(*slot);
        }
        assert_eq!((map.footprint(), map.slots.capacity(), map.vacant.capacity()), (0, 0, 0));
    }
}
