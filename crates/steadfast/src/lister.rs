//! Readers of a cache: they never block, and never make the watch wait.

use std::sync::Arc;

use kube::core::{Selector, SelectorExt};
use steadfast_core::decode::Kept;
use steadfast_core::store::{self, Lookup, Snapshot};
use steadfast_core::{Freshness, ObjectKey};

use crate::error::Unknown;
use crate::owner::Owner;

/// Reads an informer's cache. Cheap to clone.
pub struct Lister<K> {
    owner: Arc<Owner<K>>,
}

impl<K> Clone for Lister<K> {
    fn clone(&self) -> Self {
        Self { owner: self.owner.clone() }
    }
}

impl<K: Kept> Lister<K> {
    pub(crate) fn new(owner: Arc<Owner<K>>) -> Self {
        Self { owner }
    }

    /// The object `name` in `namespace`.
    ///
    /// # Errors
    ///
    /// Where the object's newest state could not be decoded, so that nothing true can be said of it.
    pub fn get(&self, namespace: &str, name: &str) -> Result<Option<Arc<K>>, Unknown> {
        self.look_up(Some(namespace), name)
    }

    /// The cluster-scoped object `name`.
    ///
    /// # Errors
    ///
    /// Where the object's newest state could not be decoded, so that nothing true can be said of it.
    pub fn get_cluster(&self, name: &str) -> Result<Option<Arc<K>>, Unknown> {
        self.look_up(None, name)
    }

    fn look_up(&self, namespace: Option<&str>, name: &str) -> Result<Option<Arc<K>>, Unknown> {
        match self.owner.shared.reader().get(namespace, name) {
            Lookup::Found(object) => Ok(Some(object)),
            Lookup::Absent => Ok(None),
            Lookup::Unknown { version } => {
                let key = match namespace {
                    Some(namespace) => ObjectKey::namespaced(namespace, name),
                    None => ObjectKey::cluster(name),
                };
                Err(Unknown { key, version })
            }
        }
    }

    /// All objects, ordered by namespace and name, of one moment; those that could not be decoded are not among them.
    pub fn all(&self) -> Vec<Arc<K>> {
        known(self.snapshot().iter())
    }

    /// All objects of `namespace`, ordered by name, of one moment.
    pub fn namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        known(self.snapshot().namespace(namespace))
    }

    /// All objects whose labels match `selector`, of one moment.
    pub fn select(&self, selector: &Selector) -> Vec<Arc<K>> {
        let none = std::collections::BTreeMap::new();
        self.all().into_iter().filter(|object| selector.matches(object.labels().unwrap_or(&none))).collect()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.snapshot().len()
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Everything at one moment: several reads of a snapshot fit together.
    pub fn snapshot(&self) -> Arc<Snapshot<K>> {
        self.owner.shared.snapshot()
    }

    /// Whether what is read here is true, and if not, since when and why.
    pub fn freshness(&self) -> Freshness {
        self.owner.shared.freshness()
    }
}

fn known<'a, K: 'a>(
    entries: impl Iterator<Item = (&'a ObjectKey, &'a Arc<steadfast_core::event::Entry<K>>)>,
) -> Vec<Arc<K>> {
    entries.filter(|(_, entry)| !entry.tainted).filter_map(|(_, entry)| entry.object.clone()).collect()
}

/// Finds an informer's objects by a value that a function of the user's finds in them. Cheap to clone.
pub struct Index<K, I> {
    owner: Arc<Owner<K>>,
    index: store::Index<K, I>,
}

impl<K: 'static, I: 'static> Clone for Index<K, I> {
    fn clone(&self) -> Self {
        Self { owner: self.owner.clone(), index: self.index.clone() }
    }
}

impl<K: Kept, I: Ord + Clone + Send + Sync + 'static> Index<K, I> {
    pub(crate) fn new(owner: Arc<Owner<K>>, index: store::Index<K, I>) -> Self {
        Self { owner, index }
    }

    /// The objects that have `value`, ordered by namespace and name, of one moment.
    ///
    /// An index of `String`s is asked with a `&str`.
    pub fn get<Q: ToOwned<Owned = I> + ?Sized>(&self, value: &Q) -> Vec<Arc<K>> {
        self.owner.shared.snapshot().by_index(&self.index, &value.to_owned()).cloned().collect()
    }
}
