//! Values by key, in numbered places.
//!
//! A queue is as long as the first list for a short time, and nearly empty afterwards. The places therefore form one
//! allocation, which is returned to the system as a whole. The nodes of a tree, for 100,000 objects, would stay in the
//! allocator below later allocations.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::key::ObjectKey;
use crate::slots::{Hashes, Slot};

/// Values by key.
pub(super) struct Places<T> {
    /// Places. The lowest vacant place is taken first, so that places at the end become vacant and can be removed.
    held: Vec<Option<(ObjectKey, T)>>,
    /// Index by hash; `None` while a linear search is sufficient.
    hashes: Option<Hashes>,
    /// Vacant places. Entries may be outdated: the place is beyond the end, or taken again.
    vacant: BinaryHeap<Reverse<Slot>>,
    len: usize,
}

/// Number of places that are searched linearly. Few queues exceed it after the first list. An empty queue keeps this
/// capacity.
const MAX_LINEAR_PLACES: usize = 8;

impl<T> Places<T> {
    /// Returns the place of a key.
    pub(super) fn find(&self, key: &ObjectKey) -> Option<Slot> {
        match &self.hashes {
            Some(hashes) => hashes.find(key.hash(), |place| self.key(place).cmp(&Some(key))),
            None => taken(&self.held).find(|(_, held)| *held == key).map(|(place, _)| place),
        }
    }

    /// Returns the place of a key, created if missing.
    pub(super) fn find_or_make(&mut self, key: &ObjectKey, make: impl FnOnce() -> T) -> Slot {
        if let Some(place) = self.find(key) {
            return place;
        }
        let place = self.take();
        self.held[place as usize] = Some((key.clone(), make()));
        self.len += 1;
        let Self { held, hashes, .. } = self;
        let compare = |a, b| key_in(held, a).cmp(&key_in(held, b));
        match hashes {
            Some(hashes) => hashes.insert(key.hash(), place, compare),
            // A linear search is cheapest for a few keys.
            None if held.len() > MAX_LINEAR_PLACES => {
                *hashes = Some(Hashes::new(taken(held).map(|(place, key)| (key.hash(), place)), compare));
            }
            None => {}
        }
        place
    }

    /// Returns a vacant place.
    fn take(&mut self) -> Slot {
        while let Some(Reverse(place)) = self.vacant.pop() {
            if self.held.get(place as usize).is_some_and(Option::is_none) {
                return place;
            }
        }
        self.held.push(None);
        Slot::try_from(self.held.len() - 1).expect("a cache has fewer than 2^32 objects")
    }

    /// Removes the value in a place.
    pub(super) fn remove(&mut self, place: Slot) {
        let Self { held, hashes, .. } = self;
        let Some(key) = key_in(held, place) else { return };
        // The index compares keys through `held`, so the entry must still exist.
        if let Some(hashes) = hashes {
            hashes.remove(key.hash(), place, |a, b| key_in(held, a).cmp(&key_in(held, b)));
        }
        self.held[place as usize] = None;
        self.len -= 1;
        if self.len == 0 {
            // The first list has drained. The large allocation returns to the system.
            if self.hashes.is_some() {
                *self = Self::default();
            }
            self.held.clear();
            self.vacant.clear();
            return;
        }
        self.vacant.push(Reverse(place));
        while let Some(None) = self.held.last() {
            self.held.pop();
        }
        // The large difference to the growth threshold prevents repeated reallocations.
        if self.held.len().max(MAX_LINEAR_PLACES) < self.held.capacity() / 4 {
            self.held.shrink_to(self.held.capacity() / 2);
        }
    }

    /// Returns the key of a place.
    pub(super) fn key(&self, place: Slot) -> Option<&ObjectKey> {
        key_in(&self.held, place)
    }

    /// Returns the value in a place.
    pub(super) fn get(&self, place: Slot) -> Option<&T> {
        self.held.get(place as usize)?.as_ref().map(|(_, value)| value)
    }

    /// Returns the value in a place for modification.
    pub(super) fn get_mut(&mut self, place: Slot) -> Option<&mut T> {
        self.held.get_mut(place as usize)?.as_mut().map(|(_, value)| value)
    }

    /// Returns the number of keys.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no key has a place.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns all values, in any order.
    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.held.iter().flatten().map(|(_, value)| value)
    }

    /// Returns the memory in bytes, without the heap memory of the values. An empty queue has only the capacity for a
    /// few places.
    pub(super) fn footprint(&self) -> usize {
        if self.is_empty() {
            return 0;
        }
        let held = self.held.capacity() * size_of::<Option<(ObjectKey, T)>>();
        held + self.vacant.capacity() * size_of::<Slot>() + self.hashes.as_ref().map_or(0, Hashes::footprint)
    }
}

/// Returns the occupied places with their keys.
fn taken<T>(held: &[Option<(ObjectKey, T)>]) -> impl Iterator<Item = (Slot, &ObjectKey)> {
    held.iter().zip(0..).filter_map(|(held, place)| held.as_ref().map(|(key, _)| (place, key)))
}

fn key_in<T>(held: &[Option<(ObjectKey, T)>], place: Slot) -> Option<&ObjectKey> {
    held.get(place as usize)?.as_ref().map(|(key, _)| key)
}

// Not derived: a derive would require values with a default.
impl<T> Default for Places<T> {
    fn default() -> Self {
        Self { held: Vec::new(), hashes: None, vacant: BinaryHeap::new(), len: 0 }
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
    fn keys_keep_their_places() {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let mut places = Places::default();
            let mut model: BTreeMap<u64, (Slot, u64)> = BTreeMap::new();
            for step in 0..5_000 {
                let number = random.draw() % 300;
                // The number of values grows for a while, then shrinks.
                if random.draw() % 1_000 < if step % 1_000 < 500 { 700 } else { 200 } {
                    let place = places.find_or_make(&key(number), || step);
                    model.entry(number).or_insert((place, step));
                } else if let Some((place, _)) = model.remove(&number) {
                    places.remove(place);
                    assert_eq!(places.get(place), None, "seed {seed}");
                }
                let found = places.find(&key(number)).map(|place| (place, *places.get(place).unwrap()));
                assert_eq!(found, model.get(&number).copied(), "seed {seed}, step {step}");
            }
            assert_eq!(places.len(), model.len());
            let mut values: Vec<u64> = places.values().copied().collect();
            let mut expected: Vec<u64> = model.values().map(|(_, value)| *value).collect();
            values.sort_unstable();
            expected.sort_unstable();
            assert_eq!(values, expected, "seed {seed}");
            for (number, (place, value)) in &model {
                assert_eq!((places.key(*place), places.get(*place)), (Some(&key(*number)), Some(value)), "seed {seed}");
            }
        }
    }

    #[test]
    fn removed_keys_release_memory() {
        let mut places = Places::default();
        let all: Vec<Slot> = (0..10_000).map(|number| places.find_or_make(&key(number), || number)).collect();
        let most = places.footprint();
        for place in all[10..].iter().rev() {
            places.remove(*place);
        }
        assert!(places.footprint() < most / 10, "{} of {most}", places.footprint());
        for number in 0..10_000 {
            let place = places.find_or_make(&key(number + 10), || number);
            places.remove(place);
        }
        assert!(places.footprint() < most / 10, "{} of {most}", places.footprint());
        for place in &all[..10] {
            places.remove(*place);
        }
        assert_eq!((places.footprint(), places.held.capacity(), places.vacant.capacity()), (0, 0, 0));
    }
}
