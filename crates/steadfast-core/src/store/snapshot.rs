//! Snapshots: immutable states of the whole store, for readers.

use std::any::Any;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use kube::core::{Selector, SelectorExt};

use super::index::{AnyPublished, IndexSnapshot, Published, StoreIndex};
use super::objects::Objects;
use crate::decode::Cacheable;
use crate::hash::Fnv1a;
use crate::key::{KeyBytes, ObjectKey};
use crate::keyset::KeySet;
use crate::object::{Entry, Object};
use crate::version::ResourceVersion;

/// Consistent state of the store.
pub struct Snapshot<K> {
    pub(super) objects: Objects<K>,
    pub(super) version: Option<ResourceVersion>,
    pub(super) epoch: u64,
    pub(super) tainted: KeySet,
    pub(super) indexes: Arc<[Arc<dyn AnyPublished>]>,
}

/// Memory of a snapshot in bytes, as requested from the allocator.
///
/// Memory that snapshots share counts for each of them. Memory that the values of indexes point to does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Cached objects.
    pub objects: usize,
    /// Identities and versions of the objects, with their keys.
    pub entries: usize,
    /// Lookup structures: slots, hashes, order, and the keys of tainted entries.
    pub layout: usize,
    /// Indexes.
    pub indexes: usize,
}

impl<K> Snapshot<K> {
    pub(super) fn empty(mask: u32) -> Self {
        Self {
            objects: Objects::empty(mask),
            version: None,
            epoch: 0,
            tainted: KeySet::default(),
            indexes: Arc::new([]),
        }
    }

    /// Returns the number of objects, including tainted ones.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Returns whether the snapshot contains no object.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Returns the version of the store; `None` before the first list, and for servers without versions.
    pub fn version(&self) -> Option<&ResourceVersion> {
        self.version.as_ref()
    }

    /// Returns the number of epochs that have started since the first.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the keys of the objects whose newest states could not be decoded.
    pub fn tainted(&self) -> &KeySet {
        &self.tainted
    }

    /// Looks up `name` in `namespace`, which is `None` for cluster-scoped objects.
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Lookup<K> {
        Lookup::of(self.entry(namespace, name))
    }

    /// Looks up `key`. A key stores its hash, so repeated lookups of one key are cheapest with this method.
    pub fn get_by_key(&self, key: &ObjectKey) -> Lookup<K> {
        Lookup::of(self.objects.get(key).map(|(_, entry)| entry))
    }

    /// Returns the entry of `name` in `namespace`.
    pub fn entry(&self, namespace: Option<&str>, name: &str) -> Option<&Entry<K>> {
        self.objects.get_by_parts(KeyBytes::new(namespace, name))
    }

    /// Returns all entries in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = &Entry<K>> {
        self.objects.iter()
    }

    /// Calls `each` with the entries of this snapshot and of `after` for every position at which the two differ.
    /// `after` must be a later snapshot of the same store. If a slot was reused, one call contains both keys.
    ///
    /// The cost depends only on the number of changes between the two.
    pub fn differences<'a>(
        &'a self,
        after: &'a Self,
        mut each: impl FnMut(Option<&'a Entry<K>>, Option<&'a Entry<K>>),
    ) {
        self.objects.differences(&after.objects, |_, old, new| each(old, new));
    }

    /// Returns the entries of one namespace in the order of their names.
    pub fn namespace(&self, namespace: &str) -> impl Iterator<Item = &Entry<K>> {
        self.objects.range_by(move |key| key.order_namespace(namespace))
    }

    /// Returns the objects whose newest state is decodable, in the order of their keys. A resync delivers them.
    pub fn decodable(&self) -> impl Iterator<Item = &Object<K>> {
        self.iter().filter_map(Entry::object)
    }

    /// Returns the objects whose labels match `selector`, in `namespace` or in all namespaces, in the order of their
    /// keys.
    ///
    /// Objects whose newest state could not be decoded are not included.
    pub fn select<'a>(
        &'a self,
        namespace: Option<&'a str>,
        selector: &'a Selector,
    ) -> impl Iterator<Item = &'a Object<K>>
    where
        K: Cacheable,
    {
        let entries = self.objects.range_by(move |key| match namespace {
            Some(namespace) => key.order_namespace(namespace),
            None => Ordering::Equal,
        });
        let known = entries.filter_map(Entry::object);
        known.filter(move |object| selector.matches(&object.cached_labels().unwrap_or_default()))
    }

    /// Returns a checksum. Two stores with the same objects in the same versions have the same checksum; other stores
    /// almost always differ.
    pub fn checksum(&self) -> u64 {
        let mut sum = Fnv1a::new();
        for entry in self.iter() {
            for text in [entry.uid().unique_text(), entry.version().unique_text()] {
                sum.write(text.as_bytes());
                // The byte that terminates each text occurs in no text.
                sum.write(&[0xff]);
            }
        }
        sum.finish()
    }

    /// Returns the memory of this snapshot. The method visits all nodes of the trees. A node contains some tens of
    /// objects.
    #[doc(hidden)]
    pub fn footprint(&self) -> Footprint {
        let tainted = self.tainted.len() * Entry::<K>::FOOTPRINT;
        Footprint {
            objects: self.objects.objects_footprint(),
            // A tainted entry contains its last decodable state, if any.
            entries: self.objects.entries_footprint() + tainted,
            layout: self.objects.layout_footprint() + self.tainted.footprint(),
            indexes: self.indexes.iter().map(|index| index.footprint()).sum(),
        }
    }

    /// Returns the memory of objects and entries in bytes. This is most of the total, and available without a walk.
    pub fn held_bytes(&self) -> usize {
        self.objects.objects_footprint() + self.objects.entries_footprint()
    }

    /// Updates the set of tainted keys for `key`.
    pub(super) fn set_tainted(&mut self, key: &ObjectKey, entry: Option<&Entry<K>>) {
        self.tainted.set(key, entry.is_some_and(Entry::is_tainted));
    }
}

impl<K: Send + Sync + 'static> Snapshot<K> {
    /// Returns the objects with `value` in `index`, in the order of their keys.
    ///
    /// A tainted object is indexed by its last decodable state: the object exists, and handlers received no later
    /// state. If the snapshot is older than the index, the method checks every object instead.
    #[doc(hidden)]
    pub fn by_index<'a, I>(&'a self, index: &'a StoreIndex<K, I>, value: &'a I) -> impl Iterator<Item = &'a Object<K>>
    where
        I: Ord + Clone + Send + Sync + 'static,
    {
        let published = self.published(index);
        let scanned = published.is_none().then(|| {
            let entries = self.objects.iter().filter(|entry| index.has(entry, value));
            entries.filter_map(Entry::last)
        });
        let found = published.map(|published| published.get(&self.objects, value));
        found.into_iter().flatten().chain(scanned.into_iter().flatten())
    }

    /// Returns the content of `index` in this snapshot.
    ///
    /// If the snapshot is older than the index, the method checks every object.
    #[doc(hidden)]
    pub fn index_snapshot<I>(&self, index: &StoreIndex<K, I>) -> Arc<IndexSnapshot<K, I>>
    where
        I: Ord + Clone + Send + Sync + 'static,
    {
        let mut all = self.indexes.iter().filter_map(|published| {
            let any: Arc<dyn Any + Send + Sync> = published.clone();
            any.downcast::<Published<K, I>>().ok()
        });
        let published = all.find(|published| published.is_of(index));
        let published = published.unwrap_or_else(|| Arc::new(Published::build(index, &self.objects)));
        Arc::new(IndexSnapshot::new(published, self.objects.clone()))
    }

    fn published<I: Send + Sync + 'static>(&self, index: &StoreIndex<K, I>) -> Option<&Published<K, I>> {
        let mut all = self.indexes.iter().filter_map(|published| {
            let any: &dyn Any = &**published;
            any.downcast_ref::<Published<K, I>>()
        });
        all.find(|published| published.is_of(index))
    }
}

// Not derived: a derive would require `K: Clone`, although only pointers are cloned.
impl<K> Clone for Snapshot<K> {
    fn clone(&self) -> Self {
        Self {
            objects: self.objects.clone(),
            version: self.version.clone(),
            epoch: self.epoch,
            tainted: self.tainted.clone(),
            indexes: self.indexes.clone(),
        }
    }
}

// Prints no objects, since they may be Secrets.
impl<K> fmt::Debug for Snapshot<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { objects, version, epoch, tainted, .. } = self;
        write!(
            f,
            "Snapshot {{ objects: {}, version: {version:?}, epoch: {epoch}, tainted: {} }}",
            objects.len(),
            tainted.len()
        )
    }
}

/// Result of a lookup.
pub enum Lookup<K> {
    /// The object exists.
    Found(Object<K>),
    /// The object exists, but its newest state could not be decoded.
    Undecodable {
        /// Version of the undecodable state.
        version: ResourceVersion,
    },
    /// No such object exists.
    Absent,
}

impl<K> Lookup<K> {
    fn of(entry: Option<&Entry<K>>) -> Self {
        match entry {
            None => Self::Absent,
            Some(entry) => match entry.object() {
                Some(object) => Self::Found(object.clone()),
                None => Self::Undecodable { version: entry.version().clone() },
            },
        }
    }

    /// Returns the object, if its newest state is known.
    pub fn found(self) -> Option<Object<K>> {
        match self {
            Self::Found(object) => Some(object),
            Self::Undecodable { .. } | Self::Absent => None,
        }
    }
}

// Does not print the object, since it may be a Secret.
impl<K> fmt::Debug for Lookup<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found(_) => f.write_str("Found"),
            Self::Undecodable { version } => write!(f, "Undecodable {{ version: {version:?} }}"),
            Self::Absent => f.write_str("Absent"),
        }
    }
}

/// Reader's side of a store. A reader never blocks and never delays the writer.
pub struct StoreReader<K> {
    published: Arc<ArcSwap<Snapshot<K>>>,
}

impl<K> StoreReader<K> {
    pub(super) fn new(published: Arc<ArcSwap<Snapshot<K>>>) -> Self {
        Self { published }
    }

    /// Returns the latest published state of the store.
    pub fn snapshot(&self) -> Arc<Snapshot<K>> {
        self.published.load_full()
    }

    /// Looks up `name` in `namespace`, which is `None` for cluster-scoped objects, in the latest published state.
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Lookup<K> {
        self.published.load().get(namespace, name)
    }

    /// Looks up `key` in the latest published state. A key stores its hash, so repeated lookups of one key are cheapest
    /// with this method.
    pub fn get_by_key(&self, key: &ObjectKey) -> Lookup<K> {
        self.published.load().get_by_key(key)
    }
}

// Not derived: a derive would require `K: Clone`, although only a pointer is cloned.
impl<K> Clone for StoreReader<K> {
    fn clone(&self) -> Self {
        Self { published: self.published.clone() }
    }
}
