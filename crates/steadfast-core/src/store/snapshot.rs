//! What readers see: a state of the whole store that never changes.

use std::any::Any;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use kube::core::{Selector, SelectorExt};

use super::index::{AnyPublished, Index, IndexSnapshot, Published};
use super::objects::Objects;
use crate::decode::Kept;
use crate::key::{KeyBytes, ObjectKey};
use crate::keyset::KeySet;
use crate::object::{Entry, Object};
use crate::version::ResourceVersion;

/// A consistent state of the store.
pub struct Snapshot<K> {
    pub(super) objects: Objects<K>,
    pub(super) version: Option<ResourceVersion>,
    pub(super) epoch: u64,
    pub(super) tainted: KeySet,
    pub(super) indexes: Arc<[Arc<dyn AnyPublished>]>,
}

/// What a snapshot takes in memory, in bytes, as an allocator is asked for it.
///
/// What snapshots share is counted in each of them. What the values of indexes point at is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// The objects as they are kept.
    pub objects: usize,
    /// Who each object is, and in which version; the keys among that.
    pub entries: usize,
    /// What objects are found by: slots, hashes, order, and the keys of those that could not be decoded.
    pub layout: usize,
    /// The indexes.
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

    /// How many objects there are, the tainted ones among them.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// The version that the store has reached; none before the first list, and where the server gives none.
    pub fn version(&self) -> Option<&ResourceVersion> {
        self.version.as_ref()
    }

    /// How many epochs have begun since the first.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The keys of the objects whose newest states could not be decoded.
    pub fn tainted(&self) -> &KeySet {
        &self.tainted
    }

    /// What is known of `name` in `namespace`, which is none for cluster-scoped objects.
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Lookup<K> {
        Lookup::of(self.entry(namespace, name))
    }

    /// What is known of `key`. It has been hashed when it was made, so that this is the cheapest way to ask again and again.
    pub fn get_by_key(&self, key: &ObjectKey) -> Lookup<K> {
        Lookup::of(self.objects.get(key).map(|(_, entry)| entry))
    }

    /// The entry of `name` in `namespace`.
    pub fn entry(&self, namespace: Option<&str>, name: &str) -> Option<&Entry<K>> {
        self.objects.get_by_parts(KeyBytes::new(namespace, name))
    }

    /// All entries in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = &Entry<K>> {
        self.objects.iter()
    }

    /// Calls `each` with what this one has and what `after`, a later state of the same store, has in its place, wherever the
    /// two are not the very same: keys that came to stand where others stood are both in one call.
    ///
    /// It costs a look at what has changed between them, and none at the rest.
    pub fn differences<'a>(
        &'a self,
        after: &'a Self,
        mut each: impl FnMut(Option<&'a Entry<K>>, Option<&'a Entry<K>>),
    ) {
        self.objects.differences(&after.objects, |_, old, new| each(old, new));
    }

    /// The entries of one namespace in the order of their names.
    pub fn namespace(&self, namespace: &str) -> impl Iterator<Item = &Entry<K>> {
        self.objects.range_by(move |key| key.order_namespace(namespace))
    }

    /// The objects whose newest state is known, in the order of their keys: those that a resync looks at again.
    pub fn decodable(&self) -> impl Iterator<Item = &Object<K>> {
        self.iter().filter_map(Entry::object)
    }

    /// The objects whose labels match `selector`, in `namespace` or everywhere, in the order of their keys.
    ///
    /// Those whose newest state could not be decoded are not among them.
    pub fn select<'a>(
        &'a self,
        namespace: Option<&'a str>,
        selector: &'a Selector,
    ) -> impl Iterator<Item = &'a Object<K>>
    where
        K: Kept,
    {
        let entries = self.objects.range_by(move |key| match namespace {
            Some(namespace) => key.order_namespace(namespace),
            None => Ordering::Equal,
        });
        let known = entries.filter_map(Entry::object);
        known.filter(move |object| selector.matches(&object.labels().unwrap_or_default()))
    }

    /// A number that two stores share if, and almost only if, they hold the same objects in the same versions.
    pub fn checksum(&self) -> u64 {
        // FNV-1a; the byte that ends each text occurs in none.
        let mut sum: u64 = 0xcbf2_9ce4_8422_2325;
        let mut take = |text: &str| {
            for byte in text.bytes().chain([0xff]) {
                sum = (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        for entry in self.iter() {
            take(entry.uid().mark());
            take(entry.version().mark());
        }
        sum
    }

    /// What this takes in memory. It is found by a walk over the nodes of the trees, of which there is one for tens of objects.
    #[doc(hidden)]
    pub fn footprint(&self) -> Footprint {
        let tainted = self.tainted.len() * Entry::<K>::FOOTPRINT;
        Footprint {
            objects: self.objects.objects_footprint(),
            // A tainted entry has the last one before it, if any.
            entries: self.objects.entries_footprint() + tainted,
            layout: self.objects.layout_footprint() + self.tainted.footprint(),
            indexes: self.indexes.iter().map(|index| index.footprint()).sum(),
        }
    }

    /// What objects and entries take, in bytes: most of it, and at hand.
    pub fn held_bytes(&self) -> usize {
        self.objects.objects_footprint() + self.objects.entries_footprint()
    }

    /// Takes note of whether `key` is tainted.
    pub(super) fn set_tainted(&mut self, key: &ObjectKey, entry: Option<&Entry<K>>) {
        self.tainted.set(key, entry.is_some_and(Entry::is_tainted));
    }
}

impl<K: Send + Sync + 'static> Snapshot<K> {
    /// The objects that have `value` in `index`, in the order of their keys.
    ///
    /// A tainted object is found where its last decodable state was: it exists, and no handler was given anything else.
    /// A snapshot from before the index answers by looking at every object.
    #[doc(hidden)]
    pub fn by_index<'a, I>(&'a self, index: &'a Index<K, I>, value: &'a I) -> impl Iterator<Item = &'a Object<K>>
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

    /// All of `index` at this moment.
    ///
    /// A snapshot from before the index answers by looking at every object.
    #[doc(hidden)]
    pub fn index_snapshot<I>(&self, index: &Index<K, I>) -> Arc<IndexSnapshot<K, I>>
    where
        I: Ord + Clone + Send + Sync + 'static,
    {
        let mut all = self.indexes.iter().filter_map(|published| {
            let any: Arc<dyn Any + Send + Sync> = published.clone();
            any.downcast::<Published<K, I>>().ok()
        });
        let published = all.find(|published| published.is_of(index));
        let published = published.unwrap_or_else(|| Arc::new(Published::anew(index, &self.objects)));
        Arc::new(IndexSnapshot::new(published, self.objects.clone()))
    }

    fn published<I: Send + Sync + 'static>(&self, index: &Index<K, I>) -> Option<&Published<K, I>> {
        let mut all = self.indexes.iter().filter_map(|published| {
            let any: &dyn Any = &**published;
            any.downcast_ref::<Published<K, I>>()
        });
        all.find(|published| published.is_of(index))
    }
}

// By hand: a derive would ask `K: Clone`, and only pointers are cloned.
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

// The objects stay out of it: they may be Secrets.
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

/// What a store knows of a name.
pub enum Lookup<K> {
    /// The object.
    Found(Object<K>),
    /// There is an object, but its newest state could not be decoded.
    Unknown {
        /// The version of that state.
        version: ResourceVersion,
    },
    /// There is no such object.
    Absent,
}

impl<K> Lookup<K> {
    fn of(entry: Option<&Entry<K>>) -> Self {
        match entry {
            None => Self::Absent,
            Some(entry) => match entry.object() {
                Some(object) => Self::Found(object.clone()),
                None => Self::Unknown { version: entry.version().clone() },
            },
        }
    }

    /// The object, if it is known.
    pub fn found(self) -> Option<Object<K>> {
        match self {
            Self::Found(object) => Some(object),
            Self::Unknown { .. } | Self::Absent => None,
        }
    }
}

// The object stays out of it: it may be a Secret.
impl<K> fmt::Debug for Lookup<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found(_) => f.write_str("Found"),
            Self::Unknown { version } => write!(f, "Unknown {{ version: {version:?} }}"),
            Self::Absent => f.write_str("Absent"),
        }
    }
}

/// A reader's side of a store: never blocks, and never makes the writer wait.
pub struct StoreReader<K> {
    published: Arc<ArcSwap<Snapshot<K>>>,
}

impl<K> StoreReader<K> {
    pub(super) fn new(published: Arc<ArcSwap<Snapshot<K>>>) -> Self {
        Self { published }
    }

    /// The latest state of the store.
    pub fn snapshot(&self) -> Arc<Snapshot<K>> {
        self.published.load_full()
    }

    /// What is known now of `name` in `namespace`, which is none for cluster-scoped objects.
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Lookup<K> {
        self.published.load().get(namespace, name)
    }

    /// What is known now of `key`. It has been hashed when it was made, so that this is the cheapest way to ask again and
    /// again.
    pub fn get_by_key(&self, key: &ObjectKey) -> Lookup<K> {
        self.published.load().get_by_key(key)
    }
}

// By hand: a derive would ask `K: Clone`, and only a pointer is cloned.
impl<K> Clone for StoreReader<K> {
    fn clone(&self) -> Self {
        Self { published: self.published.clone() }
    }
}
