//! The walk over the entries of a map in the order of its keys.

use std::cmp::Ordering;
use std::iter::Zip;
use std::slice;
use std::sync::Arc;

use super::node::{Node, Slots};

/// The entries of a map, in order.
pub struct Iter<'a, K, V> {
    /// What is still ahead on each level above the leaf.
    ahead: Vec<slice::Iter<'a, Arc<Node<K, V>>>>,
    leaf: Zip<slice::Iter<'a, K>, slice::Iter<'a, V>>,
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
            match &node.slots {
                Slots::Children(children) => {
                    // All keys at what is sought may lie to the left of a separator that is at it too.
                    let at = node.keys[1..].partition_point(|key| position(key) == Ordering::Less);
                    iter.ahead.push(children[at + 1..].iter());
                    node = &children[at];
                }
                Slots::Values(values) => {
                    let at = node.keys.partition_point(|key| position(key) == Ordering::Less);
                    iter.leaf = node.keys[at..].iter().zip(&values[at..]);
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
            match &node.slots {
                Slots::Children(children) => {
                    let mut children = children.iter();
                    let Some(first) = children.next() else { return };
                    self.ahead.push(children);
                    node = first;
                }
                Slots::Values(values) => {
                    self.leaf = node.keys.iter().zip(values);
                    return;
                }
            }
        }
    }
}

impl<'a, K, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.leaf.next() {
                return Some(entry);
            }
            match self.ahead.last_mut()?.next() {
                Some(node) => self.descend(node),
                None => drop(self.ahead.pop()),
            }
        }
    }
}
