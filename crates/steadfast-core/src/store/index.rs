//! Indexes: the objects by values that a function finds in them.

use std::any::Any;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use super::objects::Objects;
use crate::footprint::shared;
use crate::object::{Entry, Object};
use crate::ordmap::OrdMap;
use crate::slots::{Sequence, Slot};

/// Hands each value of an object to the function it is given, so that none is collected on the way.
type Extract<K, I> = dyn Fn(&K, &mut dyn FnMut(I)) + Send + Sync;

/// The slots of the entries that have a value, in the order of their keys, by value. A value is kept once.
pub(super) type Places<I> = OrdMap<Arc<I>, Sequence>;

/// An index of a store, by values of the type `I`.
pub struct Index<K, I> {
    extract: Arc<Extract<K, I>>,
}

impl<K: 'static, I: 'static> Index<K, I> {
    pub(super) fn of<V: IntoIterator<Item = I>>(extract: impl Fn(&K) -> V + Send + Sync + 'static) -> Self {
        Self { extract: Arc::new(move |object, each| extract(object).into_iter().for_each(each)) }
    }

    pub(super) fn values(&self, entry: &Entry<K>, mut each: impl FnMut(I)) {
        if let Some(object) = entry.last() {
            (self.extract)(object, &mut each);
        }
    }

    /// Whether `value` is among the values of `entry`.
    pub(super) fn has(&self, entry: &Entry<K>, value: &I) -> bool
    where
        I: PartialEq,
    {
        let mut found = false;
        self.values(entry, |held| found |= held == *value);
        found
    }
}

// By hand: a derive would ask for clonable objects and values.
impl<K, I> Clone for Index<K, I> {
    fn clone(&self) -> Self {
        Self { extract: self.extract.clone() }
    }
}

/// The places of `found`, and of each of these, in the same order, the value as it is kept: equal ones are the same.
pub(super) fn places<K, I: Ord>(mut found: Vec<(I, Slot)>, objects: &Objects<K>) -> (Places<I>, Vec<(Arc<I>, Slot)>) {
    // As a rule they come in the order of the keys, which are dearer to compare than values: each sort is stable.
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
    let places = kept.chunk_by(|(a, _), (b, _)| Arc::ptr_eq(a, b)).map(of_value).collect();
    (OrdMap::from_sorted(places), kept)
}

/// An index as it is published: which slots have which values. What is in the slots is the snapshot's to say.
pub(super) struct Published<K, I> {
    pub(super) index: Index<K, I>,
    pub(super) places: Places<I>,
    /// What the writer keeps beside them, in bytes.
    pub(super) beside: usize,
}

impl<K, I> Published<K, I> {
    pub(super) fn is_of(&self, index: &Index<K, I>) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.index.extract), Arc::as_ptr(&index.extract))
    }
}

impl<K, I: Ord> Published<K, I> {
    /// The index of `objects`, found anew.
    pub(super) fn anew(index: &Index<K, I>, objects: &Objects<K>) -> Self
    where
        K: 'static,
        I: 'static,
    {
        let mut found = Vec::new();
        for slot in objects.slots() {
            index.values(objects.at(slot), |value| found.push((value, slot)));
        }
        Self { index: index.clone(), places: places(found, objects).0, beside: 0 }
    }

    fn slots<Q: Ord + ?Sized>(&self, value: &Q) -> Option<&Sequence>
    where
        I: Borrow<Q>,
    {
        let mut found = self.places.range_by(|held| (**held).borrow().cmp(value));
        found.next().map(|(_, slots)| slots)
    }

    /// Those of `objects` that have `value`, in the order of their keys.
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

/// A published index, whatever its values are.
pub(super) trait AnyPublished: Any + Send + Sync {
    /// What it takes, in bytes, without what its values point at.
    fn footprint(&self) -> usize;
}

impl<K: Send + Sync + 'static, I: Send + Sync + 'static> AnyPublished for Published<K, I> {
    fn footprint(&self) -> usize {
        let value = shared(size_of::<I>());
        self.beside + self.places.footprint(|slots| value + slots.footprint())
    }
}

/// An index at one moment: its values, and the objects that have them, in the same state throughout.
pub struct IndexSnapshot<K, I> {
    published: Arc<Published<K, I>>,
    objects: Objects<K>,
}

impl<K, I: Ord> IndexSnapshot<K, I> {
    pub(super) fn new(published: Arc<Published<K, I>>, objects: Objects<K>) -> Self {
        Self { published, objects }
    }

    /// The objects that have `value`, in the order of their keys.
    pub fn get<'a, Q: Ord + ?Sized>(&'a self, value: &'a Q) -> impl Iterator<Item = &'a Object<K>>
    where
        I: Borrow<Q>,
    {
        self.published.get(&self.objects, value)
    }

    /// How many objects have `value`.
    pub fn count<Q: Ord + ?Sized>(&self, value: &Q) -> usize
    where
        I: Borrow<Q>,
    {
        self.published.slots(value).map_or(0, Sequence::len)
    }

    /// The values that any object has, in order, each with how many objects have it.
    pub fn counts(&self) -> impl Iterator<Item = (&I, usize)> {
        self.published.places.iter().map(|(value, slots)| (&**value, slots.len()))
    }
}

// The objects and values stay out of it: they may be of Secrets.
impl<K, I> fmt::Debug for IndexSnapshot<K, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places: usize = self.published.places.iter().map(|(_, slots)| slots.len()).sum();
        write!(f, "IndexSnapshot {{ places: {places} }}")
    }
}
