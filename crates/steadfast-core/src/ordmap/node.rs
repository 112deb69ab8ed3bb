//! Nodes of the tree, with splits and merges.

use std::sync::Arc;
use std::{iter, mem, vec};

use super::leaf::Leaf;
use super::width::MAX_NODE_LENGTH;
use crate::footprint::shared;

/// Minimum length of each node except the root. After a removal, a shorter node merges with a neighbour.
const MIN_NODE_LENGTH: usize = MAX_NODE_LENGTH / 4;

/// Node of the tree.
#[derive(Clone)]
pub(super) enum Node<K, V> {
    Leaf(Leaf<K, V>),
    Inner(Inner<K, V>),
}

/// Node above other nodes. All its children have the same depth.
#[derive(Clone)]
pub(super) struct Inner<K, V> {
    /// Separators between adjacent children. A separator is greater than all keys below its left child. No key below
    /// its right child is smaller than the separator.
    pub(super) separators: Arc<[K]>,
    pub(super) children: Vec<Arc<Node<K, V>>>,
}

/// Result of an insertion into a node.
pub(super) enum Inserted<K, V> {
    /// The key existed, and its value was replaced. Contains the previous value: always `Some`, since leaves store
    /// values as options.
    Replaced(Option<V>),
    /// The key is new, and the node was not split.
    Added,
    /// The key is new, and the node was split. Contains the new node with the upper half, and the first key below it.
    Split(K, Node<K, V>),
}

impl<K: Ord, V> Inner<K, V> {
    /// Returns the index of the only child that can contain `key`.
    pub(super) fn child(&self, key: &K) -> usize {
        self.separators.partition_point(|separator| separator <= key)
    }
}

impl<K, V> Node<K, V> {
    fn len(&self) -> usize {
        match self {
            Self::Leaf(leaf) => leaf.len(),
            Self::Inner(inner) => inner.children.len(),
        }
    }

    /// Returns the memory in bytes. Includes the memory to which a value points: `value` returns it for each value.
    /// Does not include the memory to which keys point.
    pub(super) fn footprint(&self, value: &impl Fn(&V) -> usize) -> usize {
        let below = match self {
            Self::Leaf(leaf) => {
                shared(size_of_val(&**leaf.keys())) + leaf.values().iter().flatten().map(value).sum::<usize>()
            }
            Self::Inner(Inner { separators, children }) => {
                shared(size_of_val(&**separators))
                    + children.capacity() * size_of::<Arc<Self>>()
                    + children.iter().map(|child| child.footprint(value)).sum::<usize>()
            }
        };
        shared(size_of::<Self>()) + below
    }
}

impl<K: Clone, V> Node<K, V> {
    /// Creates the tree of `entries`, which must be in order.
    pub(super) fn from_sorted(entries: Vec<(K, V)>) -> Self {
        // Each node with its first key.
        let mut level: Vec<(K, Self)> = grouped(entries, |group| {
            let (keys, values): (Vec<K>, Vec<V>) = group.unzip();
            (keys[0].clone(), Self::Leaf(Leaf::new(keys.into(), values.into_iter())))
        });
        while level.len() > 1 {
            level = grouped(level, |group| {
                let (keys, children): (Vec<K>, Vec<_>) = group.map(|(key, node)| (key, Arc::new(node))).unzip();
                (keys[0].clone(), Self::Inner(Inner { separators: keys[1..].into(), children }))
            });
        }
        level.pop().map_or_else(|| Self::Leaf(Leaf::empty()), |(_, root)| root)
    }
}

/// Divides `items` into the fewest groups that fit into nodes, of about equal size.
fn grouped<T, G>(items: Vec<T>, group: impl Fn(iter::Take<&mut vec::IntoIter<T>>) -> G) -> Vec<G> {
    let count = items.len().div_ceil(MAX_NODE_LENGTH);
    let (size, larger) = (items.len().checked_div(count).unwrap_or(0), items.len().checked_rem(count).unwrap_or(0));
    let mut items = items.into_iter();
    (0..count).map(|at| group(items.by_ref().take(size + usize::from(at < larger)))).collect()
}

impl<K: Ord + Clone, V: Clone> Node<K, V> {
    /// Sets the value of `key` in the tree below `node`.
    pub(super) fn insert(node: &mut Arc<Self>, key: K, value: V) -> Inserted<K, V> {
        match Arc::make_mut(node) {
            Self::Leaf(leaf) => {
                let at = match leaf.find(&key) {
                    Ok(at) => return Inserted::Replaced(leaf.replace(at, value)),
                    Err(at) => at,
                };
                if leaf.len() < MAX_NODE_LENGTH {
                    leaf.insert(at, key, value);
                    return Inserted::Added;
                }
                let mut right = leaf.split();
                // The upper half moved to the right leaf, so higher positions belong there.
                match at.checked_sub(leaf.len()) {
                    Some(at) if at > 0 => right.insert(at, key, value),
                    _ => leaf.insert(at, key, value),
                }
                Inserted::Split(right.keys()[0].clone(), Self::Leaf(right))
            }
            Self::Inner(inner) => {
                let at = inner.child(&key);
                let inserted = Self::insert(&mut inner.children[at], key, value);
                let Inserted::Split(separator, right) = inserted else { return inserted };
                inner.insert(at, &separator, Arc::new(right));
                match inner.split() {
                    Some((separator, right)) => Inserted::Split(separator, Self::Inner(right)),
                    None => Inserted::Added,
                }
            }
        }
    }

    /// Returns the value of `key` in the tree below `node` for modification.
    pub(super) fn get_mut<'a>(node: &'a mut Arc<Self>, key: &K) -> Option<&'a mut V> {
        match Arc::make_mut(node) {
            Self::Leaf(leaf) => leaf.value_mut(leaf.find(key).ok()?),
            Self::Inner(inner) => {
                let at = inner.child(key);
                Self::get_mut(&mut inner.children[at], key)
            }
        }
    }

    /// Removes `key` from the tree below `node`.
    pub(super) fn remove(node: &mut Arc<Self>, key: &K) -> Option<V> {
        match Arc::make_mut(node) {
            Self::Leaf(leaf) => leaf.remove(leaf.find(key).ok()?),
            Self::Inner(inner) => {
                let at = inner.child(key);
                let removed = Self::remove(&mut inner.children[at], key);
                // A sparse node merges with a neighbour, or takes some of the neighbour's entries.
                if inner.children[at].len() < MIN_NODE_LENGTH {
                    inner.merge_with_neighbour(at);
                }
                removed
            }
        }
    }

    /// Appends the content of `right`, which starts at `separator`. Returns the upper half of both if they exceed one
    /// node.
    fn merge(&mut self, separator: &K, right: Self) -> Option<(K, Self)> {
        match (self, right) {
            (Self::Leaf(left), Self::Leaf(right)) => {
                left.merge(right).map(|right| (right.keys()[0].clone(), Self::Leaf(right)))
            }
            (Self::Inner(left), Self::Inner(right)) => {
                left.separators =
                    left.separators.iter().chain([separator]).chain(&*right.separators).cloned().collect();
                left.children.extend(right.children);
                left.split().map(|(separator, right)| (separator, Self::Inner(right)))
            }
            _ => unreachable!("all leaves are at the same depth"),
        }
    }
}

impl<K: Ord + Clone, V: Clone> Inner<K, V> {
    /// Inserts a child after the one at `at`.
    fn insert(&mut self, at: usize, separator: &K, right: Arc<Node<K, V>>) {
        let (before, after) = self.separators.split_at(at);
        self.separators = before.iter().chain([separator]).chain(after).cloned().collect();
        self.children.insert(at + 1, right);
    }

    /// Merges the child at `at`, which has become small, with a neighbour. Splits the result if it exceeds one node.
    fn merge_with_neighbour(&mut self, at: usize) {
        // Only a root can have a single child, and that root is then removed.
        let Some(last) = self.separators.len().checked_sub(1) else { return };
        let left = at.min(last);
        let separator = self.separators[left].clone();
        self.separators = self.separators[..left].iter().chain(&self.separators[left + 1..]).cloned().collect();
        let right = Arc::unwrap_or_clone(self.children.remove(left + 1));
        if let Some((separator, right)) = Arc::make_mut(&mut self.children[left]).merge(&separator, right) {
            self.insert(left, &separator, Arc::new(right));
        }
    }

    /// Removes and returns the upper half of a node that is too large, with its first key.
    fn split(&mut self) -> Option<(K, Self)> {
        if self.children.len() <= MAX_NODE_LENGTH {
            return None;
        }
        let half = self.children.len() / 2;
        let separators = mem::take(&mut self.separators);
        self.separators = separators[..half - 1].into();
        let right = Self { separators: separators[half..].into(), children: self.children.split_off(half) };
        Some((separators[half - 1].clone(), right))
    }
}
