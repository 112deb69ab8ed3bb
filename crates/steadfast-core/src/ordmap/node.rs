//! The nodes of the tree, and how they split and merge.

use std::cmp::Ordering;
use std::iter;
use std::sync::Arc;

/// The most slots of a node: a narrow one is copied sooner, a wide one found sooner.
const MOST: usize = 32;
/// The fewest slots of a node other than the root, after a removal below it.
const FEWEST: usize = MOST / 4;

/// A node: keys in order, with a value or a child each.
pub(super) struct Node<K, V> {
    /// Shared apart from the slots, since most edits replace a value and leave the keys as they are.
    ///
    /// Above the leaves a key separates its child from the one on the left: no key below the child is before it. The
    /// first one is never looked at, for smaller keys may have come in below its child.
    pub(super) keys: Arc<[K]>,
    pub(super) slots: Slots<K, V>,
}

/// What a node holds for its keys.
pub(super) enum Slots<K, V> {
    /// A leaf's values.
    Values(Vec<V>),
    /// The nodes below; never none.
    Children(Vec<Arc<Node<K, V>>>),
}

/// What an insertion did to a node.
pub(super) enum Inserted<K, V> {
    /// The key was there; this was its value.
    Replaced(V),
    /// The key is new.
    Within,
    /// The key is new and the node's upper half has become this one.
    Split(Arc<Node<K, V>>),
}

impl<K, V> Node<K, V> {
    pub(super) fn empty() -> Self {
        Self { keys: Arc::new([]), slots: Slots::Values(Vec::new()) }
    }

    fn len(&self) -> usize {
        match &self.slots {
            Slots::Values(values) => values.len(),
            Slots::Children(children) => children.len(),
        }
    }
}

impl<K: Clone, V> Node<K, V> {
    /// The node above `children`.
    pub(super) fn above(children: Vec<Arc<Self>>) -> Self {
        Self { keys: children.iter().map(|child| child.keys[0].clone()).collect(), slots: Slots::Children(children) }
    }

    /// The tree of `entries`, which are in order.
    pub(super) fn from_sorted(entries: Vec<(K, V)>) -> Self {
        let mut level: Vec<Self> = grouped(entries, |group| {
            let (keys, values): (Vec<K>, Vec<V>) = group.unzip();
            Self { keys: keys.into(), slots: Slots::Values(values) }
        });
        while level.len() > 1 {
            level = grouped(level, |group| Self::above(group.map(Arc::new).collect()));
        }
        level.pop().unwrap_or_else(Self::empty)
    }
}

/// Puts `items` into as few groups as nodes can hold, of about the same size.
fn grouped<T, G>(items: Vec<T>, mut group: impl FnMut(iter::Take<&mut std::vec::IntoIter<T>>) -> G) -> Vec<G> {
    let count = items.len().div_ceil(MOST);
    let (size, larger) = (items.len().checked_div(count).unwrap_or(0), items.len().checked_rem(count).unwrap_or(0));
    let mut items = items.into_iter();
    (0..count).map(|at| group(items.by_ref().take(size + usize::from(at < larger)))).collect()
}

impl<K: Ord + Clone, V: Clone> Node<K, V> {
    /// Sets the value of `key` in the tree below `node`.
    pub(super) fn insert(node: &mut Arc<Self>, key: K, value: V) -> Inserted<K, V> {
        let node = Arc::make_mut(node);
        match &mut node.slots {
            Slots::Values(values) => match node.keys.binary_search(&key) {
                Ok(at) => return Inserted::Replaced(std::mem::replace(&mut values[at], value)),
                Err(at) => {
                    node.keys = with(&node.keys, at, key);
                    values.insert(at, value);
                }
            },
            Slots::Children(children) => {
                let at = child(&node.keys, |held| held.cmp(&key));
                match Self::insert(&mut children[at], key, value) {
                    Inserted::Split(right) => {
                        node.keys = with(&node.keys, at + 1, right.keys[0].clone());
                        children.insert(at + 1, right);
                    }
                    done => return done,
                }
            }
        }
        node.split().map_or(Inserted::Within, |right| Inserted::Split(Arc::new(right)))
    }

    /// Removes `key` from the tree below `node`.
    pub(super) fn remove(node: &mut Arc<Self>, key: &K) -> Option<V> {
        let node = Arc::make_mut(node);
        match &mut node.slots {
            Slots::Values(values) => {
                let at = node.keys.binary_search(key).ok()?;
                node.keys = without(&node.keys, at);
                Some(values.remove(at))
            }
            Slots::Children(children) => {
                let at = child(&node.keys, |held| held.cmp(key));
                let removed = Self::remove(&mut children[at], key);
                if children[at].len() < FEWEST {
                    node.fill(at);
                }
                removed
            }
        }
    }

    /// Gives the child `at`, which has become small, the slots of a neighbour, and parts the two again if they are too
    /// many for one node.
    fn fill(&mut self, at: usize) {
        let Slots::Children(children) = &mut self.slots else { return };
        // Only a root has no other child; it is taken away by its owner.
        let Some(left) = children.len().checked_sub(2).map(|last| at.min(last)) else { return };
        let right = Arc::unwrap_or_clone(children.remove(left + 1));
        self.keys = without(&self.keys, left + 1);
        let merged = Arc::make_mut(&mut children[left]);
        merged.keys = merged.keys.iter().chain(&*right.keys).cloned().collect();
        match (&mut merged.slots, right.slots) {
            (Slots::Values(left), Slots::Values(right)) => left.extend(right),
            (Slots::Children(left), Slots::Children(right)) => left.extend(right),
            _ => unreachable!("all leaves are at the same depth"),
        }
        if let Some(right) = merged.split() {
            self.keys = with(&self.keys, left + 1, right.keys[0].clone());
            children.insert(left + 1, Arc::new(right));
        }
    }

    /// Takes the upper half of a node that has become too large.
    fn split(&mut self) -> Option<Self> {
        if self.len() <= MOST {
            return None;
        }
        let half = self.len() / 2;
        let slots = match &mut self.slots {
            Slots::Values(values) => Slots::Values(values.split_off(half)),
            Slots::Children(children) => Slots::Children(children.split_off(half)),
        };
        let right = Self { keys: self.keys[half..].into(), slots };
        self.keys = self.keys[..half].into();
        Some(right)
    }
}

/// Which child has what is sought, if any has, in a node with these keys.
pub(super) fn child<K>(keys: &[K], mut position: impl FnMut(&K) -> Ordering) -> usize {
    keys[1..].partition_point(|key| position(key) != Ordering::Greater)
}

fn with<K: Clone>(keys: &[K], at: usize, key: K) -> Arc<[K]> {
    let (before, behind) = keys.split_at(at);
    before.iter().cloned().chain(iter::once(key)).chain(behind.iter().cloned()).collect()
}

fn without<K: Clone>(keys: &[K], at: usize) -> Arc<[K]> {
    keys[..at].iter().chain(&keys[at + 1..]).cloned().collect()
}

// By hand: a derive would ask for clonable keys, and those are shared.
impl<K, V: Clone> Clone for Node<K, V> {
    fn clone(&self) -> Self {
        let slots = match &self.slots {
            Slots::Values(values) => Slots::Values(values.clone()),
            Slots::Children(children) => Slots::Children(children.clone()),
        };
        Self { keys: self.keys.clone(), slots }
    }
}
