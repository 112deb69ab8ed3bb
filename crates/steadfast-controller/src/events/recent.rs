//! What was used last, of what there may be any number of.

use std::collections::{BTreeMap, HashMap};

/// The values that were used last, and no more of them than that.
///
/// Known by the hashes of their keys alone, so that a key of any length costs eight bytes: among thousands of values two keys
/// of one hash are as good as impossible, and what they would share are limits, not events.
#[derive(Debug)]
pub(super) struct Recent<V> {
    most: usize,
    uses: u64,
    values: HashMap<u64, (u64, V)>,
    /// By their last uses.
    order: BTreeMap<u64, u64>,
}

impl<V: Default> Recent<V> {
    pub(super) fn new(most: usize) -> Self {
        Self { most, uses: 0, values: HashMap::new(), order: BTreeMap::new() }
    }

    /// The value of a key, which is used by that; another one is forgotten for it where there are too many.
    pub(super) fn used(&mut self, key: u64) -> &mut V {
        self.uses += 1;
        if let Some((last, _)) = self.values.get(&key) {
            self.order.remove(last);
        } else if self.values.len() >= self.most
            && let Some((_, longest_ago)) = self.order.pop_first()
        {
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
    fn what_was_used_longest_ago_is_forgotten() {
        let mut recent = Recent::<&str>::new(2);
        *recent.used(1) = "one";
        *recent.used(2) = "two";
        assert_eq!(*recent.used(1), "one");
        *recent.used(3) = "three";
        assert_eq!(recent.len(), 2);
        assert_eq!(*recent.used(1), "one");
        assert_eq!(*recent.used(2), "", "it was forgotten for the third");
        assert_eq!(*recent.used(3), "", "and the third for that");
    }
}
