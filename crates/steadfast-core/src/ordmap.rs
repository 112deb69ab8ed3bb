//! A persistent ordered map: cloned in O(1), edited by copying the path to what changed.
//!
//! A B+-tree whose nodes are shared between the clones. Whoever edits a clone copies the nodes on the way to the entry
//! unless nobody else holds them; all others keep what they had. So a snapshot is a clone, a reader never waits, and
//! a batch of edits copies each node at most once.
//!
//! A range is looked up by its *position*: a function that says of a key whether it lies before, at or behind what is
//! sought. So nothing has to be allocated to find all keys with the same beginning.

mod iter;
mod leaf;
mod node;
mod width;

use std::cmp::Ordering;
use std::sync::Arc;

pub use iter::Iter;
use leaf::Leaf;
use node::{Inner, Inserted, Node};

/// A map ordered by its keys, cheap to clone.
pub struct OrdMap<K, V> {
    root: Arc<Node<K, V>>,
    len: usize,
}

impl<K, V> OrdMap<K, V> {
    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether `other` is this very map, so that nothing in it can differ. False says nothing.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.root, &other.root)
    }

    /// What it takes, in bytes, beside what its keys and values point at; `value` says what each of these adds.
    pub fn footprint(&self, value: impl Fn(&V) -> usize) -> usize {
        self.root.footprint(&value)
    }

    /// All entries, in order.
    pub fn iter(&self) -> Iter<'_, K, V> {
        Iter::new(&self.root)
    }

    /// The entries from the first that does not lie before what is sought, in order.
    pub fn starting_at(&self, position: impl FnMut(&K) -> Ordering) -> Iter<'_, K, V> {
        Iter::starting_at(&self.root, position)
    }

    /// All entries whose keys `position` answers `Equal` for, in order: they must lie together.
    pub fn range_by(&self, mut position: impl FnMut(&K) -> Ordering) -> impl Iterator<Item = (&K, &V)> {
        self.starting_at(&mut position).take_while(move |(key, _)| position(key) == Ordering::Equal)
    }
}

impl<K: Ord, V> OrdMap<K, V> {
    /// The entry of `key`.
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
    /// The map of `entries`, which must be in order and without repetition.
    pub fn from_sorted(entries: Vec<(K, V)>) -> Self {
        debug_assert!(entries.is_sorted_by(|(a, _), (b, _)| a < b), "entries are sorted, each key once");
        let len = entries.len();
        Self { root: Arc::new(Node::from_sorted(entries)), len }
    }
}

impl<K: Ord + Clone, V: Clone> OrdMap<K, V> {
    /// Sets the value of `key` and hands back the one before; a key that is there already stays.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match Node::insert(&mut self.root, key, value) {
            Inserted::Replaced(before) => return before,
            Inserted::Within => {}
            Inserted::Split(separator, right) => {
                let children = vec![self.root.clone(), Arc::new(right)];
                self.root = Arc::new(Node::Inner(Inner { separators: Arc::new([separator]), children }));
            }
        }
        self.len += 1;
        None
    }

    /// The value of `key`, to be changed.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        // Asked first, so that nothing is copied for a key that is not there.
        self.get(key)?;
        Node::get_mut(&mut self.root, key)
    }

    /// Removes `key` and hands back its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        // Asked first, so that nothing is copied for a key that is not there.
        self.get(key)?;
        let removed = Node::remove(&mut self.root, key);
        while let Node::Inner(Inner { children, .. }) = &*self.root
            && let [only] = children.as_slice()
        {
            self.root = only.clone();
        }
        self.len -= 1;
        removed
    }
}

// By hand: a derive would ask for clonable keys and values.
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
