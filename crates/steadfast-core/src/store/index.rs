//! Indexes: objects by the values that a function returns for them.

use std::any::Any;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use super::entries::{Extractor, Replacement};
use super::objects::Objects;
use crate::footprint::shared;
use crate::object::{Entry, Object};
use crate::ordmap::OrdMap;
use crate::slots::{Sequence, Slot};

/// Function that passes each value of an object to a callback, so that no collection is allocated.
type Extract<K, I> = dyn Fn(&K, &mut dyn FnMut(I)) + Send + Sync;

/// For each value, the slots of the entries with this value, in the order of their keys. Each value is stored once.
pub(super) type SlotsByValue<I> = OrdMap<Arc<I>, Sequence>;

/// Index of a store, by values of the type `I`.
pub struct StoreIndex<K, I> {
    extract: Arc<Extract<K, I>>,
}

impl<K: 'static, I: 'static> StoreIndex<K, I> {
    pub(super) fn of<V: IntoIterator<Item = I>>(extract: impl Fn(&K) -> V + Send + Sync + 'static) -> Self {
        Self { extract: Arc::new(move |object, each| extract(object).into_iter().for_each(each)) }
    }

    pub(super) fn values(&self, entry: &Entry<K>, mut each: impl FnMut(I)) {
        if let Some(object) = entry.last() {
            object.decoded_for(|object| (self.extract)(object, &mut each));
        }
    }

    /// Passes the values of the new entry to `each`. The index has the position `number` among those of the store.
    pub(super) fn new_values(&self, replacement: &Replacement<K>, number: usize, mut each: impl FnMut(I))
    where
        I: Clone,
    {
        let Replacement { new, decoded, values, .. } = replacement;
        let values = values.as_ref().and_then(|values| values.get(number)?.downcast_ref::<Vec<I>>());
        match (decoded, values, new) {
            (Some(decoded), _, _) => (self.extract)(decoded, &mut each),
            (None, Some(values), _) => values.iter().cloned().for_each(each),
            (None, None, Some(new)) => self.values(new, each),
            (None, None, None) => {}
        }
    }

    /// Returns the index function, independent of the type of its values.
    pub(super) fn extractor(&self) -> Extractor<K>
    where
        I: Send + Sync,
    {
        let extract = self.extract.clone();
        Arc::new(move |object| {
            let mut values = Vec::<I>::new();
            extract(object, &mut |value| values.push(value));
            Box::new(values)
        })
    }

    /// Returns whether `entry` has `value`.
    pub(super) fn has(&self, entry: &Entry<K>, value: &I) -> bool
    where
        I: PartialEq,
    {
        let mut found = false;
        self.values(entry, |held| found |= held == *value);
        found
    }
}

// Not derived: a derive would require clonable objects and values.
impl<K, I> Clone for StoreIndex<K, I> {
    fn clone(&self) -> Self {
        Self { extract: self.extract.clone() }
    }
}

/// Builds the map of `found`. Also returns the stored value for each element of `found`, in the same order. Equal
/// values share one allocation.
pub(super) fn group_by_value<K, I: Ord>(
    mut found: Vec<(I, Slot)>,
    objects: &Objects<K>,
) -> (SlotsByValue<I>, Vec<(Arc<I>, Slot)>) {
    // Keys are more expensive to compare than values, but the slots usually arrive in the order of the keys. The sort
    // by value is stable and keeps this order.
    let by_key =
        |(_, a): &(I, Slot), (_, b): &(I, Slot)| if a == b { Ordering::Equal } else { objects.compare(*a, *b) };
    if !found.is_sorted_by(|a, b| by_key(a, b).is_le()) {
        found.sort_by(by_key);
    }
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    found.dedup();
    let mut kept: Vec<(Arc<I>, Slot)> = Vec::with_capacity(found.len());
    for (value, slot) in found {
        let value = match kept.last() {
            Some((last, _)) if **last == value => last.clone(),
            _ => Arc::new(value),
        };
        kept.push((value, slot));
    }
    let of_value = |same: &[(Arc<I>, Slot)]| {
        let slots: Vec<Slot> = same.iter().map(|(_, slot)| *slot).collect();
        (same[0].0.clone(), Sequence::from_sorted(&slots))
    };
    let slots_by_value = kept.chunk_by(|(a, _), (b, _)| Arc::ptr_eq(a, b)).map(of_value).collect();
    (OrdMap::from_sorted(slots_by_value), kept)
}

/// Published index: the slots of each value. The snapshot contains the entries of the slots.
pub(super) struct Published<K, I> {
    pub(super) index: StoreIndex<K, I>,
    pub(super) slots_by_value: SlotsByValue<I>,
    /// Additional memory of the writer, in bytes.
    pub(super) writer_bytes: usize,
}

impl<K, I> Published<K, I> {
    pub(super) fn is_of(&self, index: &StoreIndex<K, I>) -> bool {
        // Closures have no identity. The address of the shared allocation identifies the index;
        // `addr_eq` ignores the vtable.
        std::ptr::addr_eq(Arc::as_ptr(&self.index.extract), Arc::as_ptr(&index.extract))
    }
}

impl<K, I: Ord> Published<K, I> {
    /// Builds the index of `objects`.
    pub(super) fn build(index: &StoreIndex<K, I>, objects: &Objects<K>) -> Self
    where
        K: 'static,
        I: 'static,
    {
        let mut found = Vec::new();
        for slot in objects.slots() {
            index.values(objects.at(slot), |value| found.push((value, slot)));
        }
        Self { index: index.clone(), slots_by_value: group_by_value(found, objects).0, writer_bytes: 0 }
    }

    fn slots<Q: Ord + ?Sized>(&self, value: &Q) -> Option<&Sequence>
    where
        I: Borrow<Q>,
    {
        let mut found = self.slots_by_value.range_by(|held| (**held).borrow().cmp(value));
        found.next().map(|(_, slots)| slots)
    }

    /// Returns the objects among `objects` that have `value`, in the order of their keys.
    pub(super) fn get<'a, Q: Ord + ?Sized>(
        &'a self,
        objects: &'a Objects<K>,
        value: &Q,
    ) -> impl Iterator<Item = &'a Object<K>> + use<'a, K, I, Q>
    where
        I: Borrow<Q>,
    {
        self.slots(value).into_iter().flat_map(Sequence::iter).filter_map(|slot| objects.at(slot).last())
    }
}

/// Published index, independent of the type of its values.
pub(super) trait AnyPublished: Any + Send + Sync {
    /// Returns the memory in bytes, without memory to which the values point.
    fn footprint(&self) -> usize;
}

impl<K: Send + Sync + 'static, I: Send + Sync + 'static> AnyPublished for Published<K, I> {
    fn footprint(&self) -> usize {
        let value = shared(size_of::<I>());
        self.writer_bytes + self.slots_by_value.footprint(|slots| value + slots.footprint())
    }
}

/// Index of one snapshot: its values, and the objects with these values, all in the same state of the store.
pub struct IndexSnapshot<K, I> {
    published: Arc<Published<K, I>>,
    objects: Objects<K>,
}

impl<K, I: Ord> IndexSnapshot<K, I> {
    pub(super) fn new(published: Arc<Published<K, I>>, objects: Objects<K>) -> Self {
        Self { published, objects }
    }

    /// Returns the objects with `value`, in the order of their keys.
    pub fn get<'a, Q: Ord + ?Sized>(&'a self, value: &'a Q) -> impl Iterator<Item = &'a Object<K>>
    where
        I: Borrow<Q>,
    {
        self.published.get(&self.objects, value)
    }

    /// Returns the number of objects with `value`.
    pub fn count<Q: Ord + ?Sized>(&self, value: &Q) -> usize
    where
        I: Borrow<Q>,
    {
        self.published.slots(value).map_or(0, Sequence::len)
    }

    /// Returns the values of all objects, in order, each with its number of objects.
    pub fn counts(&self) -> impl Iterator<Item = (&I, usize)> {
        self.published.slots_by_value.iter().map(|(value, slots)| (&**value, slots.len()))
    }
}

// Prints no objects and no values, since they may come from Secrets.
impl<K, I> fmt::Debug for IndexSnapshot<K, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slots: usize = self.published.slots_by_value.iter().map(|(_, slots)| slots.len()).sum();
        write!(f, "IndexSnapshot {{ slots: {slots} }}")
    }
}
