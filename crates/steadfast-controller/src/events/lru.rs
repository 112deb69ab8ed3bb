//! Map with a limited number of recently used values.

use std::collections::{BTreeMap, HashMap};

/// Least-recently-used map with a limited number of values.
///
/// Stores hashes instead of keys, so the memory of an entry does not depend on its key. If two keys have the same hash,
/// they share one value, and therefore one limit. No event is lost.
#[derive(Debug)]
pub(super) struct LruMap<V> {
    capacity: usize,
    /// Number of the last use of any value.
    last_use: u64,
    /// Values by key, each with the number of its last use.
    values: HashMap<u64, (u64, V)>,
    /// Keys by the number of their last use.
    by_use: BTreeMap<u64, u64>,
}

impl<V: Default> LruMap<V> {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, last_use: 0, values: HashMap::new(), by_use: BTreeMap::new() }
    }

    /// Returns the value of a key, by default an empty one, and marks it as used. Evicts the least recently used value
    /// if necessary.
    pub(super) fn get_or_default(&mut self, key: u64) -> &mut V {
        self.last_use += 1;
        if let Some((last, _)) = self.values.get(&key) {
            self.by_use.remove(last);
        } else if self.values.len() >= self.capacity
            && let Some((_, longest_ago)) = self.by_use.pop_first()
        {
            // The key with the oldest use is evicted; use numbers are unique and increasing.
            self.values.remove(&longest_ago);
        }
        self.by_use.insert(self.last_use, key);
        let (last, value) = self.values.entry(key).or_default();
        *last = self.last_use;
        value
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_recently_used_value_is_evicted() {
        let mut recent = LruMap::<&str>::new(2);
        *recent.get_or_default(1) = "one";
        *recent.get_or_default(2) = "two";
        assert_eq!(*recent.get_or_default(1), "one");
        *recent.get_or_default(3) = "three";
        assert_eq!(recent.len(), 2);
        assert_eq!(*recent.get_or_default(1), "one");
        assert_eq!(*recent.get_or_default(2), "", "evicted for the third");
        assert_eq!(*recent.get_or_default(3), "", "evicted for the second");
    }
}
