//! Cache of decoded objects that callers still hold.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;

use crate::ordmap::OrdMap;

/// Decoded objects of one cache, for as long as callers hold them. Readers do not wait for each other.
///
/// The map is separate from the encoded objects. A weak pointer in an encoded object would keep the memory of the
/// decoded object allocated, 2.4 KB for a pod, for the lifetime of the encoded object.
pub(super) struct Remembered<K> {
    given: AtomicU64,
    shards: [ArcSwap<Shard<K>>; SHARDS],
}

/// Number of shards. Threads that decode concurrently rarely use the same shard.
const SHARDS: usize = 16;

/// Minimum number of entries before unused ones are removed. The next removal follows at twice the number of remaining
/// entries.
const MIN_CLEANUP_ENTRIES: usize = 64;

struct Shard<K> {
    decoded: OrdMap<u64, Weak<K>>,
    most: usize,
}

impl<K> Remembered<K> {
    /// Returns a number that is unique within this cache.
    pub(super) fn number(&self) -> u64 {
        self.given.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the decoded object of this number, if a caller holds it.
    pub(super) fn get(&self, number: u64) -> Option<Arc<K>> {
        self.shard(number).load().get(number)
    }

    /// Stores the decoded object of this number. Returns the object of another thread instead, if that thread decoded
    /// it concurrently.
    pub(super) fn put(&self, number: u64, decoded: &Arc<K>) -> Arc<K> {
        let mut kept = decoded.clone();
        // `rcu` may run the closure several times, each time with the current shard.
        self.shard(number).rcu(|shard| {
            let before = shard.get(number);
            kept = before.clone().unwrap_or_else(|| decoded.clone());
            if before.is_some() { shard.clone() } else { Arc::new(shard.with(number, decoded)) }
        });
        kept
    }

    fn shard(&self, number: u64) -> &ArcSwap<Shard<K>> {
        &self.shards[number as usize % SHARDS]
    }
}

impl<K> Shard<K> {
    fn get(&self, number: u64) -> Option<Arc<K>> {
        self.decoded.get(&number).and_then(|(_, decoded)| decoded.upgrade())
    }

    fn with(&self, number: u64, decoded: &Arc<K>) -> Self {
        let (mut all, mut most) = (self.decoded.clone(), self.most);
        // Dead entries are removed after the shard has doubled, so the cost per insertion stays
        // constant.
        if all.len() >= most {
            let held = all.iter().filter(|(_, decoded)| decoded.strong_count() > 0);
            all = OrdMap::from_sorted(held.map(|(number, decoded)| (*number, decoded.clone())).collect());
            most = (all.len() * 2).max(MIN_CLEANUP_ENTRIES);
        }
        all.insert(number, Arc::downgrade(decoded));
        Self { decoded: all, most }
    }
}

// Not derived: a derive would require `K: Default`.
impl<K> Default for Remembered<K> {
    fn default() -> Self {
        let empty = || ArcSwap::from_pointee(Shard { decoded: OrdMap::default(), most: MIN_CLEANUP_ENTRIES });
        Self { given: AtomicU64::new(0), shards: std::array::from_fn(|_| empty()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_objects_are_removed() {
        let remembered = Remembered::default();
        let held: Vec<Arc<u64>> = (0..100).map(|number| remembered.put(number, &Arc::new(number))).collect();
        for number in 100..100_000 {
            remembered.put(number, &Arc::new(number));
            assert!(remembered.get(number).is_none());
        }
        let most: usize = remembered.shards.iter().map(|shard| shard.load().decoded.len()).sum();
        assert!(most <= SHARDS * MIN_CLEANUP_ENTRIES, "{most}");
        assert!(held.iter().all(|held| Arc::ptr_eq(&remembered.get(**held).unwrap(), held)));
        assert!(Arc::ptr_eq(&remembered.put(7, &Arc::new(7)), &held[7]), "the first entry stays");
    }
}
