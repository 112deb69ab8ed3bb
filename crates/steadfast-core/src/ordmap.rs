//! Persistent ordered map: clones in O(1), edits that copy the path to the change.
//!
//! The map is a B+-tree whose nodes are shared between clones. An edit copies the nodes on the path to the entry,
//! unless no clone shares them. Other clones stay unchanged. A snapshot is therefore a clone, a reader never waits, and
//! a batch of edits copies each node at most once.
//!
//! A range lookup uses a *position*: a function that returns whether a key is before, at or after the searched range. A
//! lookup of all keys with a common prefix therefore needs no allocation.

mod iter;
mod leaf;
mod node;
mod width;

use std::cmp::Ordering;
use std::sync::Arc;

pub use iter::Iter;
use leaf::Leaf;
use node::{Inner, Inserted, Node};

/// Map ordered by its keys, cheap to clone.
pub struct OrdMap<K, V> {
    root: Arc<Node<K, V>>,
    len: usize,
}

impl<K, V> OrdMap<K, V> {
    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether both maps share their root and are therefore equal. Maps with different roots may also be equal.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.root, &other.root)
    }

    /// Returns the memory in bytes. The memory to which values point is included, as `value` returns it for each value.
    /// The memory to which keys point is not included.
    pub fn footprint(&self, value: impl Fn(&V) -> usize) -> usize {
        self.root.footprint(&value)
    }

    /// Returns all entries, in order.
    pub fn iter(&self) -> Iter<'_, K, V> {
        Iter::new(&self.root)
    }

    /// Returns the entries from the first entry that is not before the `position`, in order.
    pub fn starting_at(&self, position: impl FnMut(&K) -> Ordering) -> Iter<'_, K, V> {
        Iter::starting_at(&self.root, position)
    }

    /// Returns all entries for whose keys `position` returns `Equal`, in order. These entries must be adjacent.
    pub fn range_by(&self, mut position: impl FnMut(&K) -> Ordering) -> impl Iterator<Item = (&K, &V)> {
        self.starting_at(&mut position).take_while(move |(key, _)| position(key) == Ordering::Equal)
    }
}

impl<K: Ord, V> OrdMap<K, V> {
    /// Returns the entry of `key`.
    pub fn get(&self, key: &K) -> Option<(&K, &V)> {
        let mut node = &*self.root;
        loop {
            match node {
                Node::Inner(inner) => node = &inner.children[inner.child(key)],
                Node::Leaf(leaf) => return leaf.entry(leaf.find(key).ok()?),
            }
        }
    }
}

impl<K: Ord + Clone, V> OrdMap<K, V> {
    /// Creates the map of `entries`, which must be in order and without duplicates.
    pub fn from_sorted(entries: Vec<(K, V)>) -> Self {
        debug_assert!(entries.is_sorted_by(|(a, _), (b, _)| a < b), "entries are sorted, each key once");
        let len = entries.len();
        Self { root: Arc::new(Node::from_sorted(entries)), len }
    }
}

impl<K: Ord + Clone, V: Clone> OrdMap<K, V> {
    /// Sets the value of `key` and returns the previous one. An existing key is kept.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match Node::insert(&mut self.root, key, value) {
            Inserted::Replaced(before) => return before,
            Inserted::Added => {}
            Inserted::Split(separator, right) => {
                let children = vec![self.root.clone(), Arc::new(right)];
                self.root = Arc::new(Node::Inner(Inner { separators: Arc::new([separator]), children }));
            }
        }
        self.len += 1;
        None
    }

    /// Returns the value of `key` for modification.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        // The lookup comes first, so that nothing is copied for a missing key.
        self.get(key)?;
        Node::get_mut(&mut self.root, key)
    }

    /// Removes `key` and returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        // The lookup comes first, so that nothing is copied for a missing key.
        self.get(key)?;
        let removed = Node::remove(&mut self.root, key);
        // A root with a single child is replaced by this child.
        while let Node::Inner(Inner { children, .. }) = &*self.root
            && let [only] = children.as_slice()
        {
            self.root = only.clone();
        }
        self.len -= 1;
        removed
    }
}

// Not derived: a derive would require clonable keys and values.
impl<K, V> Clone for OrdMap<K, V> {
    fn clone(&self) -> Self {
        Self { root: self.root.clone(), len: self.len }
    }
}

impl<K, V> Default for OrdMap<K, V> {
    fn default() -> Self {
        Self { root: Arc::new(Node::Leaf(Leaf::empty())), len: 0 }
    }
}

impl<'a, K, V> IntoIterator for &'a OrdMap<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Iter<'a, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
