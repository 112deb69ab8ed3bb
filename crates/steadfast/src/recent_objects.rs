//! Decoded objects of the last watch events of a cache that keeps its objects encoded.
//!
//! Only the handlers need these objects, so a handler's thread would drop them. Their memory was allocated by the
//! driver's thread. A drop on another thread is expensive, because the allocator must return the memory to the
//! allocating thread. With glibc, this took a third of the CPU time of an event. The driver therefore keeps each object
//! until the handlers have most likely returned. The driver drops the object before it decodes a later one. The later
//! object then reuses memory that is still in the processor's cache.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use steadfast_core::{Instant, WithSize};

/// Maximum memory of the objects in bytes. It suffices for the objects of a publication, which the handlers receive
/// together, and for those of the next one.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// Time from the first added object until all objects are dropped. Without events, no later decode would reuse their
/// memory.
const RETENTION: Duration = Duration::from_secs(15);

/// Decoded objects of the last watch events, from the oldest to the newest.
pub(crate) struct RecentObjects<K> {
    objects: VecDeque<RecentObject<K>>,
    /// Memory of the objects in bytes. Shared, because the memory report of the cache includes it.
    bytes: Arc<AtomicUsize>,
    /// Time at which all objects are dropped; `None` without objects.
    expires_at: Option<Instant>,
}

struct RecentObject<K> {
    bytes: usize,
    /// Only held, since its drop returns the memory.
    _object: Arc<K>,
}

impl<K> RecentObjects<K> {
    /// Creates an empty list that counts its memory in `bytes`.
    pub(crate) fn new(bytes: Arc<AtomicUsize>) -> Self {
        Self { objects: VecDeque::new(), bytes, expires_at: None }
    }

    /// Adds the object of a watch event.
    pub(crate) fn add(&mut self, object: &WithSize<K>, now: Instant) {
        self.objects.push_back(RecentObject { bytes: object.bytes, _object: object.object.clone() });
        self.bytes.fetch_add(object.bytes, Ordering::Relaxed);
        self.expires_at.get_or_insert(now + RETENTION);
    }

    /// Drops the oldest objects if the memory exceeds its limit. Called before a decode, which reuses their memory.
    pub(crate) fn make_room(&mut self) {
        while self.bytes.load(Ordering::Relaxed) > MAX_BYTES
            && let Some(oldest) = self.objects.pop_front()
        {
            self.bytes.fetch_sub(oldest.bytes, Ordering::Relaxed);
        }
    }

    /// Returns the time at which [`expire`](Self::expire) must run; `None` without objects.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.expires_at
    }

    /// Drops all objects if they have expired.
    pub(crate) fn expire(&mut self, now: Instant) {
        if self.expires_at.is_some_and(|at| at <= now) {
            self.expires_at = None;
            self.bytes.store(0, Ordering::Relaxed);
            self.objects = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use steadfast_core::random::Random;

    use super::*;

    fn object(bytes: usize) -> WithSize<u32> {
        let mut object = WithSize::from(Arc::new(0));
        object.bytes = bytes;
        object
    }

    #[test]
    fn memory_stays_within_limit() {
        let mut random = Random::new(1);
        let bytes = Arc::<AtomicUsize>::default();
        let mut recent = RecentObjects::new(bytes.clone());
        let mut added: VecDeque<(usize, Weak<u32>)> = VecDeque::new();
        let mut now = Instant::ZERO;
        for _ in 0..10_000 {
            if random.draw().is_multiple_of(500) {
                now = now + RETENTION;
                recent.expire(now);
                assert!(recent.next().is_none() && added.iter().all(|(_, object)| object.strong_count() == 0));
            }
            recent.make_room();
            assert!(bytes.load(Ordering::Relaxed) <= MAX_BYTES);
            let new = object(random.draw() as usize % (MAX_BYTES / 10));
            recent.add(&new, now);
            added.push_back((new.bytes, Arc::downgrade(&new.object)));
            drop(new);
            let held: usize =
                added.iter().filter(|(_, object)| object.strong_count() > 0).map(|(bytes, _)| bytes).sum();
            assert_eq!(held, bytes.load(Ordering::Relaxed));
            assert!(added.back().is_some_and(|(_, object)| object.strong_count() == 1), "the newest object stays");
        }
    }

    #[test]
    fn object_beyond_limit_is_dropped_next() {
        let mut recent = RecentObjects::new(Arc::default());
        let large = object(usize::MAX / 2);
        recent.add(&large, Instant::ZERO);
        recent.make_room();
        assert_eq!(Arc::strong_count(&large.object), 1);
        assert_eq!(recent.bytes.load(Ordering::Relaxed), 0);
    }
}
