//! Readers of a cache. Reads never block and never delay the watch.

use std::sync::Arc;

use kube::core::Selector;
use steadfast_core::decode::Cacheable;
use steadfast_core::store::{self, IndexSnapshot, Lookup, Snapshot};
use steadfast_core::{Entry, Freshness, Object, ObjectKey};

use crate::error::UndecodableObject;
use crate::owner::InformerReference;

/// Reads an informer's cache. Cheap to clone.
///
/// ```no_run
/// # use k8s_openapi::api::core::v1::Pod;
/// # fn example(pods: &steadfast::Informer<Pod>) -> Result<(), Box<dyn std::error::Error>> {
/// let lister = pods.lister()?;
/// // `Err` if the newest state of the pod cannot be decoded, so that absence and failure differ.
/// if let Some(pod) = lister.get("shop", "web-0")? {
///     println!("{} at version {}", pod.key(), pod.version());
/// }
/// println!("{} pods in shop, {} in all", lister.namespace("shop").len(), lister.len());
/// # Ok(())
/// # }
/// ```
pub struct Lister<K> {
    owner: InformerReference<K>,
}

impl<K> Clone for Lister<K> {
    fn clone(&self) -> Self {
        Self { owner: self.owner.clone() }
    }
}

impl<K: Cacheable> Lister<K> {
    pub(crate) fn new(owner: InformerReference<K>) -> Self {
        Self { owner }
    }

    /// Returns the object `name` in `namespace`, or `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// Returns an error if the object's newest state could not be decoded.
    pub fn get(&self, namespace: &str, name: &str) -> Result<Option<Object<K>>, UndecodableObject> {
        let found = self.owner.shared.store.reader().get(Some(namespace), name);
        known_object(found, || ObjectKey::namespaced(namespace, name))
    }

    /// Returns the cluster-scoped object `name`, or `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// Returns an error if the object's newest state could not be decoded.
    pub fn get_cluster(&self, name: &str) -> Result<Option<Object<K>>, UndecodableObject> {
        let found = self.owner.shared.store.reader().get(None, name);
        known_object(found, || ObjectKey::cluster(name))
    }

    /// Returns the object at `key`, cluster-scoped or not, or `None` if it does not exist.
    ///
    /// A key caches its hash, so this is the fastest method for repeated reads of an object.
    ///
    /// # Errors
    ///
    /// Returns an error if the object's newest state could not be decoded.
    pub fn get_by_key(&self, key: &ObjectKey) -> Result<Option<Object<K>>, UndecodableObject> {
        known_object(self.owner.shared.store.reader().get_by_key(key), || key.clone())
    }

    /// Returns all objects of one snapshot, ordered by namespace and name, without objects that could not be decoded.
    pub fn all(&self) -> Vec<Object<K>> {
        known_objects(self.snapshot().iter())
    }

    /// Returns all objects of `namespace` in one snapshot, ordered by name.
    pub fn namespace(&self, namespace: &str) -> Vec<Object<K>> {
        known_objects(self.snapshot().namespace(namespace))
    }

    /// Returns all objects of one snapshot whose labels match `selector`.
    ///
    /// [`parse_selector`](crate::parse_selector) parses a selector. To filter without holding each object, use the
    /// [`snapshot`](Self::snapshot) and its [`Snapshot::select`].
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # fn example(lister: &steadfast::Lister<Pod>) -> Result<(), Box<dyn std::error::Error>> {
    /// let web = steadfast::parse_selector("app=web,tier in (a,b),!legacy")?;
    /// println!("{} in all, {} in shop", lister.select(&web).len(), lister.select_in("shop", &web).len());
    ///
    /// // Iterates without copying objects:
    /// let snapshot = lister.snapshot();
    /// let hosts = snapshot.select(Some("shop"), &web).filter_map(|pod| pod.spec.as_ref()?.node_name.as_deref());
    /// println!("{hosts:?}", hosts = hosts.collect::<Vec<&str>>());
    /// # Ok(())
    /// # }
    /// ```
    pub fn select(&self, selector: &Selector) -> Vec<Object<K>> {
        self.snapshot().select(None, selector).cloned().collect()
    }

    /// Returns the objects of `namespace` in one snapshot whose labels match `selector`, without a scan of other
    /// namespaces.
    pub fn select_in(&self, namespace: &str, selector: &Selector) -> Vec<Object<K>> {
        self.snapshot().select(Some(namespace), selector).cloned().collect()
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.snapshot().len()
    }

    /// Returns true if the cache contains no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a snapshot of the cache. Several reads of one snapshot are consistent.
    pub fn snapshot(&self) -> Arc<Snapshot<K>> {
        self.owner.shared.snapshot()
    }

    /// Returns the freshness of the cache: fresh, stale or in doubt, with the time and the cause.
    pub fn freshness(&self) -> Freshness {
        self.owner.shared.freshness()
    }
}

fn known_object<K>(found: Lookup<K>, key: impl FnOnce() -> ObjectKey) -> Result<Option<Object<K>>, UndecodableObject> {
    match found {
        Lookup::Found(object) => Ok(Some(object)),
        Lookup::Absent => Ok(None),
        Lookup::Undecodable { version } => Err(UndecodableObject { key: key(), version }),
    }
}

fn known_objects<'a, K: 'a>(entries: impl Iterator<Item = &'a Entry<K>>) -> Vec<Object<K>> {
    entries.filter_map(Entry::object).cloned().collect()
}

/// Finds an informer's objects by a value that the user's function extracts. Cheap to clone.
///
/// ```no_run
/// # use k8s_openapi::api::core::v1::Pod;
/// # fn example(pods: &steadfast::Informer<Pod>) {
/// let by_node = pods.index(|pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone()));
/// for pod in by_node.get("node-1") {
///     println!("{}", pod.key());
/// }
/// # }
/// ```
pub struct Index<K, I> {
    owner: InformerReference<K>,
    index: store::StoreIndex<K, I>,
}

impl<K: 'static, I: 'static> Clone for Index<K, I> {
    fn clone(&self) -> Self {
        Self { owner: self.owner.clone(), index: self.index.clone() }
    }
}

impl<K: Cacheable, I: Ord + Clone + Send + Sync + 'static> Index<K, I> {
    pub(crate) fn new(owner: InformerReference<K>, index: store::StoreIndex<K, I>) -> Self {
        Self { owner, index }
    }

    /// Returns the objects of one snapshot that have `value`, ordered by namespace and name.
    ///
    /// An index of `String`s accepts a `&str`.
    pub fn get<Q: ToOwned<Owned = I> + ?Sized>(&self, value: &Q) -> Vec<Object<K>> {
        self.owner.shared.snapshot().by_index(&self.index, &value.to_owned()).cloned().collect()
    }

    /// Returns a snapshot of the index: its values, and the number and list of objects for each value. Nothing is
    /// copied.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # fn example(pods: &steadfast::Informer<Pod>) {
    /// let by_node = pods.index(|pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone()));
    /// let by_node = by_node.snapshot();
    /// for (node, pods) in by_node.counts() {
    ///     println!("{node}: {pods} pods");
    /// }
    /// println!("{} pods on node-1", by_node.count("node-1"));
    /// # }
    /// ```
    pub fn snapshot(&self) -> Arc<IndexSnapshot<K, I>> {
        self.owner.shared.snapshot().index_snapshot(&self.index)
    }
}
