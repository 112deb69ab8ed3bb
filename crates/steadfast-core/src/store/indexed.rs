//! Writer's side of an index: edited with the store, and published with it.

use std::collections::BTreeMap;
use std::mem;
use std::ops::Range;
use std::sync::Arc;

use super::entries::{Extractor, Replacement};
use super::index::{AnyPublished, Published, SlotsByValue, StoreIndex, group_by_value};
use super::objects::Objects;
use crate::ordmap::OrdMap;
use crate::slots::{Sequence, Slot};

/// Writer's side of an index, independent of the type of its values.
///
/// An edit has three steps. [`prepare`](Self::prepare) calls the user's function first.
/// [`remove_prepared`](Self::remove_prepared) runs before the store is modified, and
/// [`insert_prepared`](Self::insert_prepared) afterwards: the order of the slots depends on the store.
pub(super) trait Maintained<K>: Send + Sync {
    /// Computes the new values of slots and drops earlier prepared ones. The index stays unchanged.
    /// `number` is the position of the index among those of the store.
    fn prepare(&mut self, replacements: &[Replacement<K>], number: usize);

    /// Returns the index function, independent of the type of its values.
    fn extractor(&self) -> Extractor<K>;

    /// Removes slots from the values that they no longer have. `objects` is the state before the edit.
    fn remove_prepared(&mut self, objects: &Objects<K>);

    /// Adds slots to their new values. `objects` is the state after the edit.
    fn insert_prepared(&mut self, objects: &Objects<K>);

    /// Returns the index for a snapshot.
    fn publish(&mut self) -> Arc<dyn AnyPublished>;
}

/// Capacity for prepared changes that is kept between edits. Only a relist exceeds it.
const KEPT_CAPACITY: usize = 64;

/// Index by values of the type `I`.
pub(super) struct Indexed<K, I> {
    index: StoreIndex<K, I>,
    slots_by_value: SlotsByValue<I>,
    values: SlotValues<I>,
    changes: Vec<Changed>,
    /// Values of the prepared changes, until they are applied.
    prepared: Vec<Option<I>>,
    /// Last published index, unless it was edited since.
    published: Option<Arc<Published<K, I>>>,
}

/// Slot whose values change.
struct Changed {
    slot: Slot,
    /// True if the slot keeps its key. Another key would change the slot's position under unchanged values too.
    keeps_key: bool,
    /// Range of the slot's values among the prepared ones.
    values: Range<usize>,
}

/// Current values of each slot, so that the function is not called for old states.
struct SlotValues<I> {
    /// First value; most objects have at most one.
    first: Vec<Option<Arc<I>>>,
    more: BTreeMap<Slot, Vec<Arc<I>>>,
    /// Number of values in `more`.
    more_len: usize,
}

impl<I> SlotValues<I> {
    fn empty() -> Self {
        Self { first: Vec::new(), more: BTreeMap::new(), more_len: 0 }
    }

    fn of(&self, slot: Slot) -> impl Iterator<Item = &Arc<I>> {
        let first = self.first.get(slot as usize).and_then(Option::as_ref);
        // A slot without a first value has no other value.
        let more = first.and_then(|_| self.more.get(&slot));
        first.into_iter().chain(more.into_iter().flatten())
    }

    fn take(&mut self, slot: Slot) -> impl Iterator<Item = Arc<I>> + use<I> {
        let first = self.first.get_mut(slot as usize).and_then(Option::take);
        let more = first.as_ref().and_then(|_| self.more.remove(&slot));
        self.more_len -= more.as_ref().map_or(0, Vec::len);
        first.into_iter().chain(more.into_iter().flatten())
    }

    fn add(&mut self, slot: Slot, value: Arc<I>) {
        let at = slot as usize;
        if at >= self.first.len() {
            self.first.resize_with(at + 1, || None);
        }
        match &mut self.first[at] {
            Some(_) => {
                self.more.entry(slot).or_default().push(value);
                self.more_len += 1;
            }
            none => *none = Some(value),
        }
    }

    /// Returns the memory in bytes.
    fn footprint(&self) -> usize {
        self.first.capacity() * size_of::<Option<Arc<I>>>()
            + self.more.len() * size_of::<(Slot, Vec<Arc<I>>)>()
            + self.more_len * size_of::<Arc<I>>()
    }
}

impl<K: Send + Sync + 'static, I: Ord + Clone + Send + Sync + 'static> Indexed<K, I> {
    /// Creates an empty index.
    pub(super) fn new(index: StoreIndex<K, I>) -> Self {
        Self {
            index,
            slots_by_value: OrdMap::default(),
            values: SlotValues::empty(),
            changes: Vec::new(),
            prepared: Vec::new(),
            published: None,
        }
    }

    /// Removes `slot` from `value`.
    fn remove(&mut self, value: &Arc<I>, slot: Slot, objects: &Objects<K>) {
        let Some(slots) = self.slots_by_value.get_mut(value) else { return };
        slots.remove(|held| objects.compare(held, slot));
        if slots.is_empty() {
            self.slots_by_value.remove(value);
        }
    }

    /// Adds `slot` to `value`, and returns the stored value.
    fn insert(&mut self, value: I, slot: Slot, objects: &Objects<K>) -> Arc<I> {
        let known = self.slots_by_value.range_by(|held| (**held).cmp(&value)).next().map(|(held, _)| held.clone());
        let value = known.unwrap_or_else(|| Arc::new(value));
        match self.slots_by_value.get_mut(&value) {
            Some(slots) => slots.insert(slot, |held| objects.compare(held, slot)),
            None => drop(self.slots_by_value.insert(value.clone(), Sequence::from_sorted(&[slot]))),
        }
        value
    }
}

impl<K: Send + Sync + 'static, I: Ord + Clone + Send + Sync + 'static> Maintained<K> for Indexed<K, I> {
    fn extractor(&self) -> Extractor<K> {
        self.index.extractor()
    }

    fn prepare(&mut self, replacements: &[Replacement<K>], number: usize) {
        self.changes.clear();
        self.prepared.clear();
        for replacement in replacements {
            let (slot, from) = (replacement.slot, self.prepared.len());
            let prepared = &mut self.prepared;
            self.index.new_values(replacement, number, |value| {
                // The user's function may return a value twice. The index stores each value
                // once per object.
                if !prepared[from..].iter().flatten().any(|other| *other == value) {
                    prepared.push(Some(value));
                }
            });
            let keeps_key = replacement.keeps_key();
            let current = self.values.of(slot).map(|value| &**value);
            // An object with unchanged values needs no modification.
            if (keeps_key || self.prepared.len() == from) && current.eq(self.prepared[from..].iter().flatten()) {
                self.prepared.truncate(from);
            } else {
                self.changes.push(Changed { slot, keeps_key, values: from..self.prepared.len() });
            }
        }
    }

    fn remove_prepared(&mut self, objects: &Objects<K>) {
        for at in 0..self.changes.len() {
            let Changed { slot, keeps_key, values } = &self.changes[at];
            let (slot, keeps_key, values) = (*slot, *keeps_key, values.clone());
            for value in self.values.take(slot) {
                let unchanged =
                    self.prepared[values.clone()].iter_mut().find(|prepared| prepared.as_ref() == Some(&*value));
                match unchanged {
                    // The slot keeps its position under this value, so the sequence stays
                    // untouched.
                    Some(unchanged) if keeps_key => {
                        *unchanged = None;
                        self.values.add(slot, value);
                    }
                    _ => self.remove(&value, slot, objects),
                }
            }
        }
    }

    fn insert_prepared(&mut self, objects: &Objects<K>) {
        if self.changes.is_empty() {
            return;
        }
        self.published = None;
        // Taken to release the borrow of `self`, and returned below to keep the capacity.
        let mut prepared = mem::take(&mut self.prepared);
        let changes = mem::take(&mut self.changes);
        // The first list of an index takes this path: sequences from sorted slots are linear to
        // build.
        if self.slots_by_value.is_empty() {
            let found = changes.iter().flat_map(|Changed { slot, values, .. }| {
                let slot = *slot;
                values.clone().map(move |at| (at, slot))
            });
            let found = found.filter_map(|(at, slot)| Some((prepared[at].take()?, slot))).collect();
            let (slots_by_value, values) = group_by_value(found, objects);
            self.slots_by_value = slots_by_value;
            for (value, slot) in values {
                self.values.add(slot, value);
            }
        } else {
            for Changed { slot, values, .. } in &changes {
                for value in prepared[values.clone()].iter_mut().filter_map(Option::take) {
                    let value = self.insert(value, *slot, objects);
                    self.values.add(*slot, value);
                }
            }
        }
        (self.prepared, self.changes) = (prepared, changes);
        self.prepared.clear();
        self.changes.clear();
        self.prepared.shrink_to(KEPT_CAPACITY);
        self.changes.shrink_to(KEPT_CAPACITY);
    }

    fn publish(&mut self) -> Arc<dyn AnyPublished> {
        let Self { index, slots_by_value, values, published, .. } = self;
        let publish = || Published {
            index: index.clone(),
            slots_by_value: slots_by_value.clone(),
            writer_bytes: values.footprint(),
        };
        published.get_or_insert_with(|| Arc::new(publish())).clone()
    }
}
