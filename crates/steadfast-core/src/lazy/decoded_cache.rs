//! Cache of decoded objects that callers still hold.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;

use crate::ordmap::OrdMap;

/// Decoded objects of one cache, for as long as callers hold them. Readers do not wait for each other.
///
/// The map is separate from the encoded objects. A weak pointer in an encoded object would keep the memory of the
/// decoded object allocated as long as the encoded object exists. For a pod, this memory is 2.4 KB.
pub(super) struct DecodedCache<K> {
    next_id: AtomicU64,
    shards: [ArcSwap<Shard<K>>; SHARDS],
}

/// Number of shards. Threads that decode concurrently rarely use the same shard.
const SHARDS: usize = 16;

/// Minimum number of entries before unused entries are removed. The next removal follows at twice the number of
/// remaining entries.
const MIN_CLEANUP_ENTRIES: usize = 64;

struct Shard<K> {
    decoded: OrdMap<u64, Weak<K>>,
    cleanup_threshold: usize,
}

impl<K> DecodedCache<K> {
    /// Returns an identifier that is unique within this cache.
    pub(super) fn allocate_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the decoded object with this identifier, if a caller holds it.
    pub(super) fn get(&self, id: u64) -> Option<Arc<K>> {
        self.shard(id).load().get(id)
    }

    /// Stores the decoded object with this identifier. Returns the object of another thread instead, if that thread
    /// decoded it concurrently.
    pub(super) fn put(&self, id: u64, decoded: &Arc<K>) -> Arc<K> {
        let mut kept = decoded.clone();
        // `rcu` may run the closure several times, each time with the current shard.
        self.shard(id).rcu(|shard| {
            let existing = shard.get(id);
            kept = existing.clone().unwrap_or_else(|| decoded.clone());
            if existing.is_some() { shard.clone() } else { Arc::new(shard.with(id, decoded)) }
        });
        kept
    }

    fn shard(&self, id: u64) -> &ArcSwap<Shard<K>> {
        &self.shards[id as usize % SHARDS]
    }
}

impl<K> Shard<K> {
    fn get(&self, id: u64) -> Option<Arc<K>> {
        self.decoded.get(&id).and_then(|(_, decoded)| decoded.upgrade())
    }

    fn with(&self, id: u64, decoded: &Arc<K>) -> Self {
        let (mut all, mut cleanup_threshold) = (self.decoded.clone(), self.cleanup_threshold);
        // Dead entries are removed after the shard has doubled, so the cost per insertion stays
        // constant.
        if all.len() >= cleanup_threshold {
            let held = all.iter().filter(|(_, decoded)| decoded.strong_count() > 0);
            all = OrdMap::from_sorted(held.map(|(id, decoded)| (*id, decoded.clone())).collect());
            cleanup_threshold = (all.len() * 2).max(MIN_CLEANUP_ENTRIES);
        }
        all.insert(id, Arc::downgrade(decoded));
        Self { decoded: all, cleanup_threshold }
    }
}

// Not derived: a derive would require `K: Default`.
impl<K> Default for DecodedCache<K> {
    fn default() -> Self {
        let empty =
            || ArcSwap::from_pointee(Shard { decoded: OrdMap::default(), cleanup_threshold: MIN_CLEANUP_ENTRIES });
        Self { next_id: AtomicU64::new(0), shards: std::array::from_fn(|_| empty()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_objects_are_removed() {
        let cache = DecodedCache::default();
        let held: Vec<Arc<u64>> = (0..100).map(|id| cache.put(id, &Arc::new(id))).collect();
        for id in 100..100_000 {
            cache.put(id, &Arc::new(id));
            assert!(cache.get(id).is_none());
        }
        let entries: usize = cache.shards.iter().map(|shard| shard.load().decoded.len()).sum();
        assert!(entries <= SHARDS * MIN_CLEANUP_ENTRIES, "{entries}");
        assert!(held.iter().all(|held| Arc::ptr_eq(&cache.get(**held).unwrap(), held)));
        assert!(Arc::ptr_eq(&cache.put(7, &Arc::new(7)), &held[7]), "the first entry stays");
    }
}
