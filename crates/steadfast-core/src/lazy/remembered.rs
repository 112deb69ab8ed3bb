//! What has been decoded and is still held by somebody.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;

use crate::ordmap::OrdMap;

/// The decoded objects of one cache, for as long as somebody holds them. Nobody who reads waits for another.
///
/// Apart from what they were decoded of: a pointer in each would keep an object's own place in memory, 2.4 KB for a pod,
/// as long as the encoded one lives.
pub(super) struct Remembered<K> {
    given: AtomicU64,
    shards: [ArcSwap<Shard<K>>; SHARDS],
}

/// So that those who decode on several threads seldom meet.
const SHARDS: usize = 16;

/// What nobody holds any more is looked for when so many are remembered, or twice as many as were held the last time.
const FEW: usize = 64;

struct Shard<K> {
    decoded: OrdMap<u64, Weak<K>>,
    most: usize,
}

impl<K> Remembered<K> {
    /// A number that no other object of this cache has.
    pub(super) fn number(&self) -> u64 {
        self.given.fetch_add(1, Ordering::Relaxed)
    }

    /// The object of this number, where it is decoded and held.
    pub(super) fn get(&self, number: u64) -> Option<Arc<K>> {
        self.shard(number).load().get(number)
    }

    /// Remembers what was decoded of this number; returns what others decoded meanwhile, if they did.
    pub(super) fn put(&self, number: u64, decoded: &Arc<K>) -> Arc<K> {
        let mut kept = decoded.clone();
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
        if all.len() >= most {
            let held = all.iter().filter(|(_, decoded)| decoded.strong_count() > 0);
            all = OrdMap::from_sorted(held.map(|(number, decoded)| (*number, decoded.clone())).collect());
            most = (all.len() * 2).max(FEW);
        }
        all.insert(number, Arc::downgrade(decoded));
        Self { decoded: all, most }
    }
}

// By hand: a derive would ask for objects with a default.
impl<K> Default for Remembered<K> {
    fn default() -> Self {
        let empty = || ArcSwap::from_pointee(Shard { decoded: OrdMap::default(), most: FEW });
        Self { given: AtomicU64::new(0), shards: std::array::from_fn(|_| empty()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_holds_any_more_is_forgotten() {
        let remembered = Remembered::default();
        let held: Vec<Arc<u64>> = (0..100).map(|number| remembered.put(number, &Arc::new(number))).collect();
        for number in 100..100_000 {
            remembered.put(number, &Arc::new(number));
            assert!(remembered.get(number).is_none());
        }
        let most: usize = remembered.shards.iter().map(|shard| shard.load().decoded.len()).sum();
        assert!(most <= SHARDS * FEW, "{most}");
        assert!(held.iter().all(|held| Arc::ptr_eq(&remembered.get(**held).unwrap(), held)));
        assert!(Arc::ptr_eq(&remembered.put(7, &Arc::new(7)), &held[7]), "the first one counts");
    }
}
