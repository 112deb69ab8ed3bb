//! Slots in an order that the caller defines, in a tree whose nodes are shared between clones.

use std::cmp::Ordering;
use std::slice;
use std::sync::Arc;

use super::Slot;
use crate::footprint::shared;

/// Maximum number of slots in a leaf. Slots are plain numbers, so copies are cheap.
const MAX_LEAF_SLOTS: usize = 64;

/// Maximum number of children of a node.
const MAX_CHILDREN: usize = 32;

/// Divisor of a node's maximum length. The quotient is the minimum length after a removal, if the node has neighbours.
const MIN_FILL_DIVISOR: usize = 4;

/// Ordered slots, cheap to clone.
///
/// A search uses a *position*: a function that returns whether a slot is before, at or after the searched slot.
#[derive(Clone)]
pub struct Sequence {
    root: SequenceNode,
}

#[derive(Clone)]
enum SequenceNode {
    /// Sequence with a single slot. This frequent case needs no allocation.
    One(Slot),
    Leaf(Arc<[Slot]>),
    Inner(Arc<SequenceInner>),
}

/// Node above other nodes. All its children have the same depth.
#[derive(Clone, Default)]
struct SequenceInner {
    len: usize,
    /// First slot of each child. A removed slot must not remain here, since its number may be reused.
    firsts: Vec<Slot>,
    children: Vec<SequenceNode>,
}

impl SequenceInner {
    fn of(children: Vec<SequenceNode>) -> Self {
        let firsts = children.iter().map(SequenceNode::first).collect();
        Self { len: children.iter().map(SequenceNode::len).sum(), firsts, children }
    }

    /// Returns the child that contains the searched slot, if any child does.
    fn child(&self, position: &mut impl FnMut(Slot) -> Ordering) -> usize {
        self.firsts[1..].partition_point(|first| position(*first).is_le())
    }

    /// Returns the upper half, if the node is too large.
    fn split(&mut self) -> Option<SequenceNode> {
        if self.children.len() <= MAX_CHILDREN {
            return None;
        }
        let half = self.children.len() / 2;
        self.firsts.truncate(half);
        let right = Self::of(self.children.split_off(half));
        self.len -= right.len;
        Some(SequenceNode::Inner(Arc::new(right)))
    }

    /// Fills the child at `at`, which has become small, from a neighbour.
    fn fill(&mut self, at: usize) {
        let Some(last) = self.children.len().checked_sub(2) else { return };
        // The last child merges with its left neighbour, any other with its right neighbour.
        let left = at.min(last);
        let right = self.children.remove(left + 1);
        self.firsts.remove(left + 1);
        if let Some(right) = self.children[left].merge(&right) {
            self.firsts.insert(left + 1, right.first());
            self.children.insert(left + 1, right);
        }
    }
}

impl SequenceNode {
    fn leaf(slots: &[Slot]) -> Self {
        match slots {
            [one] => Self::One(*one),
            slots => Self::Leaf(slots.into()),
        }
    }

    /// Returns the slots of a leaf.
    fn slots(&self) -> &[Slot] {
        match self {
            Self::One(slot) => slice::from_ref(slot),
            Self::Leaf(slots) => slots,
            Self::Inner(_) => &[],
        }
    }

    fn first(&self) -> Slot {
        match self {
            Self::Inner(inner) => inner.firsts[0],
            leaf => leaf.slots()[0],
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Inner(inner) => inner.len,
            leaf => leaf.slots().len(),
        }
    }

    fn is_small(&self) -> bool {
        match self {
            Self::Inner(inner) => inner.children.len() < MAX_CHILDREN / MIN_FILL_DIVISOR,
            leaf => leaf.slots().len() < MAX_LEAF_SLOTS / MIN_FILL_DIVISOR,
        }
    }

    /// Inserts `slot` at its `position`. Returns the upper half if the node becomes too large.
    fn insert(&mut self, slot: Slot, position: &mut impl FnMut(Slot) -> Ordering) -> Option<Self> {
        if let Self::Inner(inner) = self {
            let inner = Arc::make_mut(inner);
            let at = inner.child(position);
            let right = inner.children[at].insert(slot, position);
            inner.len += 1;
            // The new slot may precede all others of this child.
            inner.firsts[at] = inner.children[at].first();
            if let Some(right) = right {
                inner.firsts.insert(at + 1, right.first());
                inner.children.insert(at + 1, right);
            }
            return inner.split();
        }
        let slots = self.slots();
        let at = slots.partition_point(|held| position(*held).is_lt());
        let (before, behind) = slots.split_at(at);
        let slots: Arc<[Slot]> = before.iter().chain([&slot]).chain(behind).copied().collect();
        if slots.len() <= MAX_LEAF_SLOTS {
            *self = if slots.len() == 1 { Self::One(slot) } else { Self::Leaf(slots) };
            return None;
        }
        let (left, right) = slots.split_at(slots.len() / 2);
        *self = Self::leaf(left);
        Some(Self::leaf(right))
    }

    /// Removes the slot at `position`, which must exist.
    fn remove(&mut self, position: &mut impl FnMut(Slot) -> Ordering) {
        if let Self::Inner(inner) = self {
            let inner = Arc::make_mut(inner);
            let at = inner.child(position);
            inner.children[at].remove(position);
            inner.len -= 1;
            if inner.children[at].len() == 0 {
                inner.children.remove(at);
                inner.firsts.remove(at);
            } else {
                inner.firsts[at] = inner.children[at].first();
                if inner.children[at].is_small() {
                    inner.fill(at);
                }
            }
            return;
        }
        let slots = self.slots();
        let at = slots.partition_point(|held| position(*held).is_lt());
        *self = match (&slots[..at], &slots[at + 1..]) {
            ([one], []) | ([], [one]) => Self::One(*one),
            (before, behind) => Self::Leaf(before.iter().chain(behind).copied().collect()),
        };
    }

    /// Appends the content of `right`, which is ordered after this node. Returns the upper half if the node becomes too
    /// large.
    fn merge(&mut self, right: &Self) -> Option<Self> {
        if let (Self::Inner(left), Self::Inner(right)) = (&mut *self, right) {
            let left = Arc::make_mut(left);
            left.firsts.extend(&right.firsts);
            left.children.extend(right.children.iter().cloned());
            left.len += right.len;
            return left.split();
        }
        let slots = [self.slots(), right.slots()].concat();
        let half = if slots.len() <= MAX_LEAF_SLOTS { slots.len() } else { slots.len() / 2 };
        *self = Self::leaf(&slots[..half]);
        (half < slots.len()).then(|| Self::leaf(&slots[half..]))
    }

    fn footprint(&self) -> usize {
        match self {
            Self::One(_) => 0,
            Self::Leaf(slots) => shared(size_of_val(&**slots)),
            Self::Inner(inner) => {
                shared(size_of::<SequenceInner>())
                    + inner.firsts.capacity() * size_of::<Slot>()
                    + inner.children.capacity() * size_of::<Self>()
                    + inner.children.iter().map(Self::footprint).sum::<usize>()
            }
        }
    }
}

/// Returns the size of each group if `len` items are divided evenly into the fewest groups of at most `most`. The last
/// group may be smaller.
fn group_size(len: usize, most: usize) -> usize {
    len.div_ceil(len.div_ceil(most).max(1)).max(1)
}

impl Sequence {
    /// Creates the sequence of `slots`, which must be in order.
    pub fn from_sorted(slots: &[Slot]) -> Self {
        let mut level: Vec<SequenceNode> =
            slots.chunks(group_size(slots.len(), MAX_LEAF_SLOTS)).map(SequenceNode::leaf).collect();
        while level.len() > 1 {
            let size = group_size(level.len(), MAX_CHILDREN);
            let mut nodes = level.into_iter();
            level = std::iter::from_fn(|| {
                let children: Vec<SequenceNode> = nodes.by_ref().take(size).collect();
                (!children.is_empty()).then(|| SequenceNode::Inner(Arc::new(SequenceInner::of(children))))
            })
            .collect();
        }
        level.pop().map_or_else(Self::default, |root| Self { root })
    }

    /// Returns the number of slots.
    pub fn len(&self) -> usize {
        self.root.len()
    }

    /// Returns whether the sequence is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Inserts `slot` at its `position`.
    pub fn insert(&mut self, slot: Slot, mut position: impl FnMut(Slot) -> Ordering) {
        let Some(right) = self.root.insert(slot, &mut position) else { return };
        // The root was split, so the tree grows by a level.
        let left = std::mem::replace(&mut self.root, SequenceNode::One(slot));
        self.root = SequenceNode::Inner(Arc::new(SequenceInner::of(vec![left, right])));
    }

    /// Removes the slot at `position`. Returns whether such a slot existed.
    pub fn remove(&mut self, mut position: impl FnMut(Slot) -> Ordering) -> bool {
        // The lookup comes first, so that nothing is copied for a missing slot.
        if self.find(&mut position).is_none() {
            return false;
        }
        self.root.remove(&mut position);
        while let SequenceNode::Inner(inner) = &self.root
            && let [only] = inner.children.as_slice()
        {
            self.root = only.clone();
        }
        true
    }

    /// Returns the slot at `position`.
    pub fn find(&self, mut position: impl FnMut(Slot) -> Ordering) -> Option<Slot> {
        self.starting_at(&mut position).next().filter(|slot| position(*slot).is_eq())
    }

    /// Returns all slots, in order.
    pub fn iter(&self) -> impl Iterator<Item = Slot> {
        self.starting_at(|_| Ordering::Equal)
    }

    /// Returns all slots for which `position` returns `Equal`, in order. These slots must be adjacent.
    pub fn range_by(&self, mut position: impl FnMut(Slot) -> Ordering) -> impl Iterator<Item = Slot> {
        // Both ends of the range are searched first, so the iteration between them compares no keys.
        let behind = self.starting_at(|slot| position(slot).then(Ordering::Less)).next();
        self.starting_at(position).take_while(move |slot| Some(*slot) != behind)
    }

    fn starting_at(&self, mut position: impl FnMut(Slot) -> Ordering) -> SequenceIter<'_> {
        let mut iter = SequenceIter { ahead: Vec::new(), slots: [].iter() };
        let mut node = &self.root;
        while let SequenceNode::Inner(inner) = node {
            // The range may start in the middle of a child, whose first slot is then before the range. The iteration
            // therefore starts at the last such child.
            let at = inner.firsts[1..].partition_point(|first| position(*first).is_lt());
            iter.ahead.push(inner.children[at + 1..].iter());
            node = &inner.children[at];
        }
        let slots = node.slots();
        iter.slots = slots[slots.partition_point(|slot| position(*slot).is_lt())..].iter();
        iter
    }

    /// Returns the memory in bytes.
    pub fn footprint(&self) -> usize {
        self.root.footprint()
    }
}

impl Default for Sequence {
    fn default() -> Self {
        Self { root: SequenceNode::Leaf(Arc::new([])) }
    }
}

/// Iterator over the slots of a sequence, in order.
struct SequenceIter<'a> {
    /// Remaining nodes on each level above the leaf.
    ahead: Vec<slice::Iter<'a, SequenceNode>>,
    slots: slice::Iter<'a, Slot>,
}

impl Iterator for SequenceIter<'_> {
    type Item = Slot;

    fn next(&mut self) -> Option<Slot> {
        loop {
            if let Some(slot) = self.slots.next() {
                return Some(*slot);
            }
            let Some(mut node) = self.ahead.last_mut()?.next() else {
                self.ahead.pop();
                continue;
            };
            while let SequenceNode::Inner(inner) = node {
                let mut children = inner.children.iter();
                let Some(first) = children.next() else { break };
                self.ahead.push(children);
                node = first;
            }
            self.slots = node.slots().iter();
        }
    }
}
