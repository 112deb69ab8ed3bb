//! Slots by hash, in a tree whose nodes are shared between clones.
//!
//! Users choose the names in a cluster, and could choose names with equal hashes. The hash function has no secret, so a
//! key has an equal hash in every process. Such an attack does not slow down lookups. Each node uses four bits of a
//! hash, so a search has at most eight steps. If a leaf cannot hold all slots of one hash, they form a [`Sequence`] in
//! the order of their keys. This sequence is searched like an ordered tree.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{Sequence, Slot};
use crate::footprint::shared;

/// Number of hash bits that select a child of a node.
const BITS_PER_LEVEL: u32 = 4;

/// Number of children of a node.
const CHILDREN: usize = 1 << BITS_PER_LEVEL;

/// Maximum number of slots in a leaf. Their hashes may differ.
const MAX_LEAF_SLOTS: usize = 64;

/// Slots by hash, cheap to clone.
#[derive(Clone, Default)]
pub struct Hashes {
    root: HashNode,
}

#[derive(Clone, Default)]
enum HashNode {
    #[default]
    Empty,
    /// Slots in the order of their hashes.
    Leaf(Arc<[Hashed]>),
    Inner(Arc<HashInner>),
    /// All slots of this hash, in the order of their keys.
    Collisions(u32, Sequence),
}

#[derive(Clone)]
struct HashInner {
    len: usize,
    children: [HashNode; CHILDREN],
}

/// Slot with its hash, combined into one number that is ordered by hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Hashed(u64);

impl Hashed {
    fn new(hash: u32, slot: Slot) -> Self {
        Self(u64::from(hash) << u32::BITS | u64::from(slot))
    }

    fn hash(self) -> u32 {
        (self.0 >> u32::BITS) as u32
    }

    fn slot(self) -> Slot {
        self.0 as Slot
    }
}

/// Returns the index of the child for `hash` in a node with `bits` remaining bits.
fn child(hash: u32, bits: u32) -> usize {
    (hash >> (bits - BITS_PER_LEVEL)) as usize % CHILDREN
}

/// Creates the node for `hashed`, which are in order and equal in all but the remaining `bits` bits.
fn build(hashed: &[Hashed], bits: u32, compare: &mut impl FnMut(Slot, Slot) -> Ordering) -> HashNode {
    match hashed {
        [] => HashNode::Empty,
        few if few.len() <= MAX_LEAF_SLOTS => HashNode::Leaf(few.into()),
        // All bits of the hash are equal, so the slots are ordered by their keys.
        many if bits == 0 => {
            let mut slots: Vec<Slot> = many.iter().map(|hashed| hashed.slot()).collect();
            slots.sort_by(|a, b| compare(*a, *b));
            HashNode::Collisions(many[0].hash(), Sequence::from_sorted(&slots))
        }
        many => {
            let mut rest = many;
            let children = std::array::from_fn(|number| {
                let (here, behind) = rest.split_at(rest.partition_point(|held| child(held.hash(), bits) <= number));
                rest = behind;
                build(here, bits - BITS_PER_LEVEL, compare)
            });
            HashNode::Inner(Arc::new(HashInner { len: many.len(), children }))
        }
    }
}

impl HashNode {
    fn insert(&mut self, new: Hashed, bits: u32, compare: &mut impl FnMut(Slot, Slot) -> Ordering) {
        match self {
            Self::Empty => *self = Self::Leaf(Arc::new([new])),
            Self::Leaf(leaf) => {
                let (before, behind) = leaf.split_at(leaf.partition_point(|held| *held < new));
                let hashed: Arc<[Hashed]> = before.iter().chain([&new]).chain(behind).copied().collect();
                *self = if hashed.len() <= MAX_LEAF_SLOTS { Self::Leaf(hashed) } else { build(&hashed, bits, compare) };
            }
            Self::Inner(inner) => {
                let inner = Arc::make_mut(inner);
                inner.len += 1;
                inner.children[child(new.hash(), bits)].insert(new, bits - BITS_PER_LEVEL, compare);
            }
            Self::Collisions(_, slots) => slots.insert(new.slot(), |held| compare(held, new.slot())),
        }
    }

    /// Removes a slot that must exist.
    fn remove(&mut self, old: Hashed, bits: u32, compare: &mut impl FnMut(Slot, Slot) -> Ordering) {
        match self {
            Self::Empty => {}
            Self::Leaf(leaf) => {
                let rest: Arc<[Hashed]> = match leaf.binary_search(&old) {
                    Ok(at) => leaf[..at].iter().chain(&leaf[at + 1..]).copied().collect(),
                    Err(_) => return,
                };
                *self = if rest.is_empty() { Self::Empty } else { Self::Leaf(rest) };
            }
            Self::Inner(inner) => {
                let inner = Arc::make_mut(inner);
                inner.len -= 1;
                inner.children[child(old.hash(), bits)].remove(old, bits - BITS_PER_LEVEL, compare);
                // This threshold is well below the growth threshold, so that alternating edits do not rebuild the node
                // repeatedly.
                if inner.len <= MAX_LEAF_SLOTS / 2 {
                    let mut hashed = Vec::with_capacity(inner.len);
                    self.collect(&mut hashed);
                    hashed.sort_unstable();
                    *self = build(&hashed, bits, compare);
                }
            }
            Self::Collisions(hash, slots) => {
                slots.remove(|held| compare(held, old.slot()));
                if slots.len() <= MAX_LEAF_SLOTS / 2 {
                    let mut hashed: Vec<Hashed> = slots.iter().map(|slot| Hashed::new(*hash, slot)).collect();
                    hashed.sort_unstable();
                    *self = build(&hashed, bits, compare);
                }
            }
        }
    }

    fn collect(&self, hashed: &mut Vec<Hashed>) {
        match self {
            Self::Empty => {}
            Self::Leaf(leaf) => hashed.extend_from_slice(leaf),
            Self::Inner(inner) => inner.children.iter().for_each(|child| child.collect(hashed)),
            Self::Collisions(hash, slots) => hashed.extend(slots.iter().map(|slot| Hashed::new(*hash, slot))),
        }
    }

    fn footprint(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::Leaf(leaf) => shared(size_of_val(&**leaf)),
            Self::Inner(inner) => {
                shared(size_of::<HashInner>()) + inner.children.iter().map(Self::footprint).sum::<usize>()
            }
            Self::Collisions(_, slots) => slots.footprint(),
        }
    }
}

impl Hashes {
    /// Creates the structure from slots with their hashes, in any order, each slot once. `compare` orders slots by
    /// their keys, which must differ.
    pub fn new(hashed: impl IntoIterator<Item = (u32, Slot)>, mut compare: impl FnMut(Slot, Slot) -> Ordering) -> Self {
        let mut hashed: Vec<Hashed> = hashed.into_iter().map(|(hash, slot)| Hashed::new(hash, slot)).collect();
        hashed.sort_unstable();
        Self { root: build(&hashed, u32::BITS, &mut compare) }
    }

    /// Returns the slot of this hash for which `position` returns `Equal`. `position` compares the key of a slot with
    /// the searched key.
    pub fn find(&self, hash: u32, mut position: impl FnMut(Slot) -> Ordering) -> Option<Slot> {
        let (mut node, mut bits) = (&self.root, u32::BITS);
        loop {
            match node {
                HashNode::Inner(inner) => {
                    node = &inner.children[child(hash, bits)];
                    bits -= BITS_PER_LEVEL;
                }
                HashNode::Leaf(leaf) => {
                    let from = leaf.partition_point(|held| held.hash() < hash);
                    let same = leaf[from..].iter().take_while(|held| held.hash() == hash);
                    return same.map(|held| held.slot()).find(|slot| position(*slot).is_eq());
                }
                HashNode::Collisions(held, slots) => return if *held == hash { slots.find(position) } else { None },
                HashNode::Empty => return None,
            }
        }
    }

    /// Inserts a slot that must be absent. `compare` orders slots by their keys, which must differ.
    pub fn insert(&mut self, hash: u32, slot: Slot, mut compare: impl FnMut(Slot, Slot) -> Ordering) {
        self.root.insert(Hashed::new(hash, slot), u32::BITS, &mut compare);
    }

    /// Removes a slot that must exist. `compare` orders slots by their keys, including the removed one.
    pub fn remove(&mut self, hash: u32, slot: Slot, mut compare: impl FnMut(Slot, Slot) -> Ordering) {
        self.root.remove(Hashed::new(hash, slot), u32::BITS, &mut compare);
    }

    /// Returns the memory in bytes.
    pub fn footprint(&self) -> usize {
        self.root.footprint()
    }
}
