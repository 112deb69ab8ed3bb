//! Leaves of the tree, with the entries.

use std::array;
use std::iter;
use std::sync::Arc;

use super::width::MAX_NODE_LENGTH;

/// Entries with adjacent keys, in order.
#[derive(Clone)]
pub(super) struct Leaf<K, V> {
    /// Shared between the versions of a leaf, since many edits replace a value and keep the keys.
    keys: Arc<[K]>,
    /// One value for each key, followed by `None`.
    values: [Option<V>; MAX_NODE_LENGTH],
}

impl<K, V> Leaf<K, V> {
    pub(super) fn empty() -> Self {
        Self { keys: Arc::new([]), values: [const { None }; MAX_NODE_LENGTH] }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn keys(&self) -> &Arc<[K]> {
        &self.keys
    }

    pub(super) fn values(&self) -> &[Option<V>] {
        &self.values[..self.len()]
    }

    /// Returns the value at `at` for modification.
    pub(super) fn value_mut(&mut self, at: usize) -> Option<&mut V> {
        self.values[at].as_mut()
    }

    /// Returns the entry at `at`, if the leaf has one.
    pub(super) fn entry(&self, at: usize) -> Option<(&K, &V)> {
        Some((&self.keys[at], self.values[at].as_ref()?))
    }

    /// Sets the value at `at` and returns the previous one.
    pub(super) fn replace(&mut self, at: usize, value: V) -> Option<V> {
        self.values[at].replace(value)
    }
}

impl<K: Ord, V> Leaf<K, V> {
    /// Returns the index of `key`, or the index at which it would be inserted.
    pub(super) fn find(&self, key: &K) -> Result<usize, usize> {
        self.keys.binary_search(key)
    }
}

impl<K: Clone, V> Leaf<K, V> {
    /// Creates the leaf of these entries, which must be in order and fit into a node.
    pub(super) fn new(keys: Arc<[K]>, values: impl Iterator<Item = V>) -> Self {
        let mut values = values.fuse();
        Self { keys, values: array::from_fn(|_| values.next()) }
    }

    /// Inserts an entry at `at`; the leaf must have space.
    pub(super) fn insert(&mut self, at: usize, key: K, value: V) {
        let len = self.len();
        self.values[len] = Some(value);
        self.values[at..=len].rotate_right(1);
        let (before, behind) = self.keys.split_at(at);
        self.keys = before.iter().cloned().chain(iter::once(key)).chain(behind.iter().cloned()).collect();
    }

    /// Removes the entry at `at` and returns its value.
    pub(super) fn remove(&mut self, at: usize) -> Option<V> {
        let len = self.len();
        self.values[at..len].rotate_left(1);
        self.keys = self.keys[..at].iter().chain(&self.keys[at + 1..]).cloned().collect();
        self.values[len - 1].take()
    }

    /// Removes and returns the upper half.
    pub(super) fn split(&mut self) -> Self {
        let half = self.len() / 2;
        let right = Self::new(self.keys[half..].into(), self.values[half..].iter_mut().filter_map(Option::take));
        self.keys = self.keys[..half].into();
        right
    }

    /// Appends the greater entries of `right`. Returns the upper half if both exceed a single leaf.
    pub(super) fn merge(&mut self, right: Self) -> Option<Self> {
        let keys: Vec<K> = self.keys.iter().chain(&*right.keys).cloned().collect();
        let mut values: Vec<V> =
            self.values.iter_mut().filter_map(Option::take).chain(right.values.into_iter().flatten()).collect();
        let half = if keys.len() <= MAX_NODE_LENGTH { keys.len() } else { keys.len() / 2 };
        let behind = values.split_off(half);
        *self = Self::new(keys[..half].into(), values.into_iter());
        (half < keys.len()).then(|| Self::new(keys[half..].into(), behind.into_iter()))
    }
}
