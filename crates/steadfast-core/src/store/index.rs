//! Indexes: the objects by values that a function finds in them.

use std::any::Any;
use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::entries::{Objects, Replacement};
use crate::key::ObjectKey;
use crate::object::{Entry, Object};
use crate::ordmap::OrdMap;

/// Hands each value of an object to the function it is given, so that none is collected on the way.
type Extract<K, I> = dyn Fn(&K, &mut dyn FnMut(I)) + Send + Sync;

/// Where an entry is in an index: by value, then by key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place<I> {
    value: I,
    key: ObjectKey,
}

// By hand: values need not be hashable, and the keys alone are different enough.
impl<I> Hash for Place<I> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
    }
}

/// An index of a store, by values of the type `I`.
pub struct Index<K, I> {
    extract: Arc<Extract<K, I>>,
}

impl<K: 'static, I: 'static> Index<K, I> {
    pub(super) fn of<V: IntoIterator<Item = I>>(extract: impl Fn(&K) -> V + Send + Sync + 'static) -> Self {
        Self { extract: Arc::new(move |object, each| extract(object).into_iter().for_each(each)) }
    }

    fn values(&self, entry: &Entry<K>, mut each: impl FnMut(I)) {
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

/// An index at one moment: its values, and the objects that have them, in the same state throughout.
pub struct IndexSnapshot<K, I> {
    index: Index<K, I>,
    entries: OrdMap<Place<I>, Entry<K>>,
}

impl<K, I: Ord + Clone> IndexSnapshot<K, I> {
    /// The index of `objects`, found anew.
    pub(super) fn of(index: &Index<K, I>, objects: &Objects<K>) -> Self
    where
        K: 'static,
        I: 'static,
    {
        let mut entries = Vec::new();
        for (key, entry) in objects {
            index.values(entry, |value| entries.push((Place { value, key: key.clone() }, entry.clone())));
        }
        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        entries.dedup_by(|(a, _), (b, _)| a == b);
        Self { index: index.clone(), entries: OrdMap::from_sorted(entries) }
    }
}

impl<K, I: Ord> IndexSnapshot<K, I> {
    pub(super) fn is_of(&self, index: &Index<K, I>) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.index.extract), Arc::as_ptr(&index.extract))
    }

    /// The objects that have `value`, in the order of their keys.
    pub fn get<'a, Q: Ord + ?Sized>(&'a self, value: &'a Q) -> impl Iterator<Item = &'a Object<K>>
    where
        I: Borrow<Q>,
    {
        let found = self.entries.range_by(move |place| place.value.borrow().cmp(value));
        found.filter_map(|(_, entry)| entry.last())
    }

    /// How many objects have `value`.
    pub fn count<Q: Ord + ?Sized>(&self, value: &Q) -> usize
    where
        I: Borrow<Q>,
    {
        self.entries.range_by(move |place| place.value.borrow().cmp(value)).count()
    }

    /// The values that any object has, in order, each with how many objects have it.
    pub fn counts(&self) -> impl Iterator<Item = (&I, usize)> {
        let mut places = self.entries.iter().map(|(place, _)| &place.value).peekable();
        std::iter::from_fn(move || {
            let value = places.next()?;
            let mut count = 1;
            while places.next_if(|next| *next == value).is_some() {
                count += 1;
            }
            Some((value, count))
        })
    }
}

// The objects and values stay out of it: they may be of Secrets.
impl<K, I> fmt::Debug for IndexSnapshot<K, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IndexSnapshot {{ places: {} }}", self.entries.len())
    }
}

/// An index as the writer keeps it, whatever its values are.
pub(super) trait Maintained<K>: Send + Sync {
    /// Finds the values that entries leave and enter, and forgets what was prepared before. The index stays as it is.
    fn prepare(&mut self, replacements: &[Replacement<K>]);

    /// Carries out what was prepared.
    fn carry_out(&mut self);

    /// The index for a snapshot.
    fn freeze(&mut self) -> Arc<dyn Any + Send + Sync>;
}

/// How many prepared changes keep their room; more come with a relist only.
const ROOM: usize = 64;

/// An index by values of the type `I`.
pub(super) struct Indexed<K, I> {
    index: Index<K, I>,
    entries: OrdMap<Place<I>, Entry<K>>,
    leaving: Vec<Place<I>>,
    entering: Vec<(Place<I>, Entry<K>)>,
    /// As it was last published, unless it was edited since.
    frozen: Option<Arc<IndexSnapshot<K, I>>>,
}

impl<K: Send + Sync + 'static, I: Ord + Clone + Send + Sync + 'static> Indexed<K, I> {
    /// An index of nothing.
    pub(super) fn new(index: Index<K, I>) -> Self {
        Self { index, entries: OrdMap::default(), leaving: Vec::new(), entering: Vec::new(), frozen: None }
    }

    fn enter(&mut self, key: &ObjectKey, entry: &Entry<K>) {
        self.index.values(entry, |value| self.entering.push((Place { value, key: key.clone() }, entry.clone())));
    }
}

impl<K: Send + Sync + 'static, I: Ord + Clone + Send + Sync + 'static> Maintained<K> for Indexed<K, I> {
    fn prepare(&mut self, replacements: &[Replacement<K>]) {
        self.leaving.clear();
        self.entering.clear();
        for Replacement { key, old, new } in replacements {
            let earlier = self.entering.len();
            if let Some(new) = new {
                self.enter(key, new);
            }
            let Some(old) = old else { continue };
            self.index.values(old, |value| {
                if !self.entering[earlier..].iter().any(|(stays, _)| stays.value == value) {
                    self.leaving.push(Place { value, key: key.clone() });
                }
            });
        }
    }

    fn carry_out(&mut self) {
        if self.leaving.is_empty() && self.entering.is_empty() {
            return;
        }
        self.frozen = None;
        if self.entries.is_empty() {
            let mut entries = std::mem::take(&mut self.entering);
            entries.sort_by(|(a, _), (b, _)| a.cmp(b));
            entries.dedup_by(|(a, _), (b, _)| a == b);
            self.entries = OrdMap::from_sorted(entries);
            return;
        }
        for place in self.leaving.drain(..) {
            self.entries.remove(&place);
        }
        for (place, entry) in self.entering.drain(..) {
            self.entries.insert(place, entry);
        }
        self.leaving.shrink_to(ROOM);
        self.entering.shrink_to(ROOM);
    }

    fn freeze(&mut self) -> Arc<dyn Any + Send + Sync> {
        let Self { index, entries, frozen, .. } = self;
        frozen.get_or_insert_with(|| Arc::new(IndexSnapshot { index: index.clone(), entries: entries.clone() })).clone()
    }
}
