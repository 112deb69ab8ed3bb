//! Iterator over the entries of a map in the order of its keys.

use std::cmp::Ordering;
use std::iter::Zip;
use std::slice;
use std::sync::Arc;

use super::leaf::Leaf;
use super::node::Node;

/// Entries of a map, in order.
pub struct Iter<'a, K, V> {
    /// Remaining nodes on each level above the leaf.
    ahead: Vec<slice::Iter<'a, Arc<Node<K, V>>>>,
    leaf: Zip<slice::Iter<'a, K>, slice::Iter<'a, Option<V>>>,
}

impl<'a, K, V> Iter<'a, K, V> {
    pub(super) fn new(root: &'a Node<K, V>) -> Self {
        let mut iter = Self::nowhere();
        iter.descend(root);
        iter
    }

    pub(super) fn starting_at(root: &'a Node<K, V>, mut position: impl FnMut(&K) -> Ordering) -> Self {
        let mut iter = Self::nowhere();
        let mut node = root;
        loop {
            match node {
                Node::Inner(inner) => {
                    let at = inner.separators.partition_point(|key| position(key) == Ordering::Less);
                    // Ancestors keep their remaining children for the way back.
                    iter.ahead.push(inner.children[at + 1..].iter());
                    node = &inner.children[at];
                }
                Node::Leaf(leaf) => {
                    iter.enter(leaf, leaf.keys().partition_point(|key| position(key) == Ordering::Less));
                    return iter;
                }
            }
        }
    }

    fn nowhere() -> Self {
        Self { ahead: Vec::new(), leaf: [].iter().zip([].iter()) }
    }

    fn descend(&mut self, mut node: &'a Node<K, V>) {
        loop {
            match node {
                Node::Inner(inner) => {
                    let mut children = inner.children.iter();
                    let Some(first) = children.next() else { return };
                    self.ahead.push(children);
                    node = first;
                }
                Node::Leaf(leaf) => return self.enter(leaf, 0),
            }
        }
    }

    fn enter(&mut self, leaf: &'a Leaf<K, V>, at: usize) {
        self.leaf = leaf.keys()[at..].iter().zip(&leaf.values()[at..]);
    }
}

impl<'a, K, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((key, value)) = self.leaf.next() {
                return Some((key, value.as_ref()?));
            }
            match self.ahead.last_mut()?.next() {
                Some(node) => self.descend(node),
                None => drop(self.ahead.pop()),
            }
        }
    }
}
