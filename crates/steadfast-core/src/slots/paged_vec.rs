//! Values by slot, in pages that are shared between clones.

use std::array;
use std::iter;
use std::sync::Arc;

use super::Slot;
use crate::footprint::shared;

/// Number of values in a leaf. The replacement of one value clones all values of the leaf, and each clone may cause a
/// cache miss. The number is therefore small.
const LEAF_VALUES: usize = 8;

/// Number of children of a page.
const CHILDREN: usize = 16;

/// Values by slot, cheap to clone.
pub struct PagedVec<T> {
    root: Arc<[Option<Arc<Chunk<T>>>]>,
}

/// Tree of fixed depth: every slot is four steps away.
type Chunk<T> = Page<Page<Page<LeafPage<T>>>>;

#[derive(Clone)]
struct LeafPage<T>([Option<T>; LEAF_VALUES]);

struct Page<N>([Option<Arc<N>>; CHILDREN]);

/// Node of the tree. Indexes are relative to the first slot of the node: from 0 up to `SPAN`, exclusive.
trait TreeNode<T>: Sized {
    const SPAN: usize;

    fn empty() -> Self;
    fn is_empty(&self) -> bool;
    fn get(&self, index: usize) -> Option<&T>;

    /// Creates a node from the next `SPAN` values, or fewer; `None` if no value remains.
    fn from_values(values: &mut impl Iterator<Item = T>) -> Option<Arc<Self>>;

    /// Calls `on_difference` for all slots of the leaves that the two nodes do not share. `from` is the first slot.
    fn differences<'a>(
        before: Option<&'a Self>,
        after: Option<&'a Self>,
        from: usize,
        on_difference: &mut impl FnMut(Slot, Option<&'a T>, Option<&'a T>),
    ) where
        T: 'a;

    /// Returns the memory in bytes, without the values.
    fn footprint(&self) -> usize;
}

/// Node that can be edited.
trait EditableNode<T>: TreeNode<T> + Clone {
    fn set(&mut self, index: usize, value: Option<T>) -> Option<T>;
}

impl<T> TreeNode<T> for LeafPage<T> {
    const SPAN: usize = LEAF_VALUES;

    fn empty() -> Self {
        Self([const { None }; LEAF_VALUES])
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    fn get(&self, index: usize) -> Option<&T> {
        self.0[index % LEAF_VALUES].as_ref()
    }

    fn from_values(values: &mut impl Iterator<Item = T>) -> Option<Arc<Self>> {
        let mut next = Some(values.next()?);
        Some(Arc::new(Self(array::from_fn(|_| next.take().or_else(|| values.next())))))
    }

    fn differences<'a>(
        before: Option<&'a Self>,
        after: Option<&'a Self>,
        from: usize,
        on_difference: &mut impl FnMut(Slot, Option<&'a T>, Option<&'a T>),
    ) where
        T: 'a,
    {
        for index in 0..LEAF_VALUES {
            let held = |leaf: Option<&'a Self>| leaf.and_then(|leaf| leaf.get(index));
            on_difference((from + index) as Slot, held(before), held(after));
        }
    }

    fn footprint(&self) -> usize {
        shared(size_of::<Self>())
    }
}

impl<T: Clone> EditableNode<T> for LeafPage<T> {
    fn set(&mut self, index: usize, value: Option<T>) -> Option<T> {
        std::mem::replace(&mut self.0[index % LEAF_VALUES], value)
    }
}

impl<T, N: TreeNode<T>> TreeNode<T> for Page<N> {
    const SPAN: usize = N::SPAN * CHILDREN;

    fn empty() -> Self {
        Self([const { None }; CHILDREN])
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    fn get(&self, index: usize) -> Option<&T> {
        self.0[index / N::SPAN % CHILDREN].as_ref()?.get(index % N::SPAN)
    }

    fn from_values(values: &mut impl Iterator<Item = T>) -> Option<Arc<Self>> {
        let mut next = Some(N::from_values(values)?);
        Some(Arc::new(Self(array::from_fn(|_| next.take().or_else(|| N::from_values(values))))))
    }

    fn differences<'a>(
        before: Option<&'a Self>,
        after: Option<&'a Self>,
        from: usize,
        on_difference: &mut impl FnMut(Slot, Option<&'a T>, Option<&'a T>),
    ) where
        T: 'a,
    {
        for index in 0..CHILDREN {
            let child = |page: Option<&'a Self>| page.and_then(|page| page.0[index].as_ref());
            node_differences(child(before), child(after), from + index * N::SPAN, on_difference);
        }
    }

    fn footprint(&self) -> usize {
        shared(size_of::<Self>()) + self.0.iter().flatten().map(|child| child.footprint()).sum::<usize>()
    }
}

impl<T, N: EditableNode<T>> EditableNode<T> for Page<N> {
    fn set(&mut self, index: usize, value: Option<T>) -> Option<T> {
        set_in_node(&mut self.0[index / N::SPAN % CHILDREN], index % N::SPAN, value)
    }
}

// Not derived: a derive would require clonable children, although only pointers are cloned.
impl<N> Clone for Page<N> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

fn node_differences<'a, T: 'a, N: TreeNode<T>>(
    before: Option<&'a Arc<N>>,
    after: Option<&'a Arc<N>>,
    from: usize,
    on_difference: &mut impl FnMut(Slot, Option<&'a T>, Option<&'a T>),
) {
    // Shared nodes cannot differ, so the cost depends only on the number of edits.
    let is_same = match (before, after) {
        (Some(before), Some(after)) => Arc::ptr_eq(before, after),
        (None, None) => true,
        _ => false,
    };
    if !is_same {
        N::differences(before.map(|node| &**node), after.map(|node| &**node), from, on_difference);
    }
}

/// Sets a value below `node`. The node is created when needed and removed when it becomes empty.
fn set_in_node<T, N: EditableNode<T>>(node: &mut Option<Arc<N>>, index: usize, value: Option<T>) -> Option<T> {
    let removes = value.is_none();
    // A node that a snapshot shares is copied. An unshared node is edited in place.
    let node_mut = Arc::make_mut(node.get_or_insert_with(|| Arc::new(N::empty())));
    let previous = node_mut.set(index, value);
    if removes && node_mut.is_empty() {
        *node = None;
    }
    previous
}

impl<T> PagedVec<T> {
    /// Returns the value in `slot`.
    pub fn get(&self, slot: Slot) -> Option<&T> {
        let index = slot as usize;
        self.root.get(index / Chunk::<T>::SPAN)?.as_ref()?.get(index % Chunk::<T>::SPAN)
    }

    /// Returns whether both share their root and are therefore equal. Values with different roots may also be equal.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.root, &other.root)
    }

    /// Calls `on_difference` for every slot whose value may differ in `after`, with both values. Shared nodes are
    /// skipped.
    pub fn differences<'a>(
        &'a self,
        after: &'a Self,
        mut on_difference: impl FnMut(Slot, Option<&'a T>, Option<&'a T>),
    ) {
        for number in 0..self.root.len().max(after.root.len()) {
            let chunk = |pages: &'a Self| pages.root.get(number).and_then(Option::as_ref);
            node_differences(chunk(self), chunk(after), number * Chunk::<T>::SPAN, &mut on_difference);
        }
    }

    /// Returns the memory in bytes, without the values.
    pub fn footprint(&self) -> usize {
        shared(size_of_val(&*self.root)) + self.root.iter().flatten().map(|chunk| chunk.footprint()).sum::<usize>()
    }
}

impl<T: Clone> PagedVec<T> {
    /// Sets or removes the value in `slot` and returns the previous value.
    pub fn set(&mut self, slot: Slot, value: Option<T>) -> Option<T> {
        let (number, index) = (slot as usize / Chunk::<T>::SPAN, slot as usize % Chunk::<T>::SPAN);
        if number >= self.root.len() {
            let more = number + 1 - self.root.len();
            self.root = self.root.iter().cloned().chain(iter::repeat_n(None, more)).collect();
        }
        set_in_node(&mut Arc::make_mut(&mut self.root)[number], index, value)
    }
}

/// Assigns the values to the slots from 0 on.
impl<T> FromIterator<T> for PagedVec<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut values = values.into_iter().fuse();
        let chunks: Vec<_> = iter::from_fn(|| Chunk::from_values(&mut values).map(Some)).collect();
        Self { root: chunks.into() }
    }
}

impl<T> Default for PagedVec<T> {
    fn default() -> Self {
        Self { root: Arc::new([]) }
    }
}

// Not derived: a derive would require clonable values.
impl<T> Clone for PagedVec<T> {
    fn clone(&self) -> Self {
        Self { root: self.root.clone() }
    }
}
