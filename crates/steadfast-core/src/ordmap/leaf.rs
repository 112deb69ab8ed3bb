//! The leaves of the tree: the entries themselves.

use std::array;
use std::hash::Hash;
use std::iter;
use std::sync::Arc;

use super::sought::{Sought, fingerprint};
use super::width::MOST;

/// Entries whose keys lie together, in order.
///
/// Keys are apt to lie scattered in memory, each a wait of its own; so a leaf is searched by fingerprints, which lie in
/// one place, and reads as a rule only the key that it finds.
#[derive(Clone)]
pub(super) struct Leaf<K, V> {
    fingerprints: [u32; MOST],
    /// Shared between the versions of a leaf, since most edits replace a value and leave the keys as they are.
    keys: Arc<[K]>,
    /// As many as there are keys, and then none.
    values: [Option<V>; MOST],
}

impl<K, V> Leaf<K, V> {
    pub(super) fn empty() -> Self {
        Self { fingerprints: [0; MOST], keys: Arc::new([]), values: [const { None }; MOST] }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn keys(&self) -> &[K] {
        &self.keys
    }

    pub(super) fn values(&self) -> &[Option<V>] {
        &self.values[..self.len()]
    }

    /// The entry at `at`, which is one of them.
    pub(super) fn entry(&self, at: usize) -> Option<(&K, &V)> {
        Some((&self.keys[at], self.values[at].as_ref()?))
    }

    /// Where `sought` is, if it is here.
    pub(super) fn find(&self, sought: &impl Sought<K>) -> Option<usize> {
        let fingerprint = fingerprint(sought);
        // All of them at once rather than up to the first: the compiler makes a few instructions of it.
        let mut found =
            self.fingerprints.iter().rev().fold(0_u32, |found, held| found << 1 | u32::from(*held == fingerprint));
        while found != 0 {
            let at = found.trailing_zeros() as usize;
            if at < self.len() && sought.order(&self.keys[at]).is_eq() {
                return Some(at);
            }
            found &= found - 1;
        }
        None
    }

    /// Sets the value at `at` and hands back the one before.
    pub(super) fn replace(&mut self, at: usize, value: V) -> Option<V> {
        self.values[at].replace(value)
    }
}

impl<K: Clone + Hash, V> Leaf<K, V> {
    /// The leaf of these entries, which are in order and no more than a node holds.
    pub(super) fn new(keys: Arc<[K]>, values: impl Iterator<Item = V>) -> Self {
        let mut fingerprints = [0; MOST];
        for (print, key) in fingerprints.iter_mut().zip(&*keys) {
            *print = fingerprint(key);
        }
        let mut values = values.fuse();
        Self { fingerprints, keys, values: array::from_fn(|_| values.next()) }
    }

    /// Inserts an entry at `at`; there must be room.
    pub(super) fn insert(&mut self, at: usize, key: K, value: V) {
        let len = self.len();
        self.fingerprints.copy_within(at..len, at + 1);
        self.fingerprints[at] = fingerprint(&key);
        self.values[len] = Some(value);
        self.values[at..=len].rotate_right(1);
        let (before, behind) = self.keys.split_at(at);
        self.keys = before.iter().cloned().chain(iter::once(key)).chain(behind.iter().cloned()).collect();
    }

    /// Removes the entry at `at` and hands back its value.
    pub(super) fn remove(&mut self, at: usize) -> Option<V> {
        let len = self.len();
        self.fingerprints.copy_within(at + 1..len, at);
        self.values[at..len].rotate_left(1);
        self.keys = self.keys[..at].iter().chain(&self.keys[at + 1..]).cloned().collect();
        self.values[len - 1].take()
    }

    /// Takes the upper half.
    pub(super) fn split(&mut self) -> Self {
        let half = self.len() / 2;
        let right = Self::new(self.keys[half..].into(), self.values[half..].iter_mut().filter_map(Option::take));
        self.keys = self.keys[..half].into();
        right
    }

    /// Takes over the entries of `right`, all of which are greater, but hands back the upper half of both if they are
    /// too many for one leaf.
    pub(super) fn merge(&mut self, right: Self) -> Option<Self> {
        let keys: Vec<K> = self.keys.iter().chain(&*right.keys).cloned().collect();
        let mut values: Vec<V> =
            self.values.iter_mut().filter_map(Option::take).chain(right.values.into_iter().flatten()).collect();
        let half = if keys.len() <= MOST { keys.len() } else { keys.len() / 2 };
        let behind = values.split_off(half);
        *self = Self::new(keys[..half].into(), values.into_iter());
        (half < keys.len()).then(|| Self::new(keys[half..].into(), behind.into_iter()))
    }
}
