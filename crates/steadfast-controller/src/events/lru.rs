//! Map with a limited number of recently used values.

use std::collections::{BTreeMap, HashMap};

/// Least-recently-used map with a limited number of values.
///
/// Stores only hashes of keys, so each key costs eight bytes. A collision among thousands of values is very unlikely, and
/// would only merge limits, not events.
#[derive(Debug)]
pub(super) struct LruMap<V> {
    most: usize,
    uses: u64,
    values: HashMap<u64, (u64, V)>,
    /// Keys by last use.
    order: BTreeMap<u64, u64>,
}

impl<V: Default> LruMap<V> {
    pub(super) fn new(most: usize) -> Self {
        Self { most, uses: 0, values: HashMap::new(), order: BTreeMap::new() }
    }

    /// Returns the value of a key and marks it as used. Evicts the least recently used value if necessary.
    pub(super) fn used(&mut self, key: u64) -> &mut V {
        self.uses += 1;
        if let Some((last, _)) = self.values.get(&key) {
            self.order.remove(last);
        } else if self.values.len() >= self.most
            && let Some((_, longest_ago)) = self.order.pop_first()
        {
            // The key with the oldest use is evicted; use numbers are unique and increasing.
            self.values.remove(&longest_ago);
        }
        self.order.insert(self.uses, key);
        let (last, value) = self.values.entry(key).or_default();
        *last = self.uses;
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
        *recent.used(1) = "one";
        *recent.used(2) = "two";
        assert_eq!(*recent.used(1), "one");
        *recent.used(3) = "three";
        assert_eq!(recent.len(), 2);
        assert_eq!(*recent.used(1), "one");
        assert_eq!(*recent.used(2), "", "evicted for the third");
        assert_eq!(*recent.used(3), "", "evicted for the second");
    }
}
