//! Informers of several namespaces behind one interface: one reader, one freshness, one queue for each handler.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use kube::Resource;
use kube::core::Selector;
use steadfast_core::decode::Cacheable;
use steadfast_core::event::Event;
use steadfast_core::reflector::Diagnostic;
use steadfast_core::{Freshness, Object, ObjectKey};

use crate::error::{HandlerError, InformerError, NotSynced, UndecodableObject, WaitError};
use crate::handler::{AsyncHandler, Handler};
use crate::informer::Informer;
use crate::lister::{Index, Lister};
use crate::readiness;
use crate::registration::{HandlerBuilder, Registration};
use crate::writes::Writes;

/// A cache of one resource in several namespaces, with one informer for each. Cheap to clone.
///
/// The program needs permissions in these namespaces only. Each namespace has its own list and watch: a namespace that
/// is forbidden or stalled delays no other. Its doubt appears in the common [`freshness`](Self::freshness), and a
/// handler receives the events of the other namespaces.
///
/// ```no_run
/// # use std::time::Duration;
/// # use k8s_openapi::api::core::v1::Pod;
/// # use steadfast::{InformerFactory, Scope};
/// # async fn example(informers: InformerFactory) -> Result<(), Box<dyn std::error::Error>> {
/// let scopes = Scope::all().labels("app=web").in_each(["team-a", "team-b"]);
/// let pods = informers.multi_namespace_informer::<Pod>(scopes)?;
/// pods.on_event(|event| println!("{event:?}"))?;
/// pods.wait_for_sync(Duration::from_secs(30)).await?;
/// println!("{} pods, {}", pods.lister()?.len(), pods.freshness());
/// # Ok(())
/// # }
/// ```
///
/// The set of namespaces is fixed. For another set, request another `MultiNamespaceInformer` from the factory: it
/// shares the informers of the common namespaces, which keep their caches and watches.
pub struct MultiNamespaceInformer<K> {
    /// At least one informer, ordered by namespace.
    informers: Arc<[Informer<K>]>,
    name: Arc<str>,
}

impl<K> Clone for MultiNamespaceInformer<K> {
    fn clone(&self) -> Self {
        Self { informers: self.informers.clone(), name: self.name.clone() }
    }
}

impl<K> fmt::Debug for MultiNamespaceInformer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MultiNamespaceInformer({})", self.name)
    }
}

impl<K: Cacheable> MultiNamespaceInformer<K> {
    /// Combines `informers` of one resource, for example informers with settings of their own.
    ///
    /// # Errors
    ///
    /// Returns an error without informers, or if an informer is not limited to one namespace. Also returns an error if
    /// two informers have the same namespace, or if their resources or servers differ.
    pub fn new(informers: impl IntoIterator<Item = Informer<K>>) -> Result<Self, InformerError> {
        let mut informers: Vec<_> = informers.into_iter().collect();
        informers.sort_by(|one, other| one.scope().in_namespace().cmp(&other.scope().in_namespace()));
        let Some(first) = informers.first() else { return Err(InformerError::NoNamespace) };
        let unusable = |informer: &Informer<K>, reason| {
            let resource = informer.name().to_owned();
            Err(InformerError::NotCombined { resource, reason })
        };
        // Two informers with common objects would deliver each change twice.
        if let Some(all) = informers.iter().find(|informer| informer.scope().in_namespace().is_none()) {
            return unusable(all, "the scope is not limited to one namespace");
        }
        if let Some(other) = informers.iter().find(|informer| !informer.origin().has_same_resource(first.origin())) {
            return unusable(other, "the others have another resource or server");
        }
        let mut pairs = informers.iter().zip(informers.iter().skip(1));
        if let Some((_, other)) = pairs.find(|(one, other)| one.scope().in_namespace() == other.scope().in_namespace())
        {
            return unusable(other, "another informer has the same namespace");
        }
        let name = informers.iter().map(Informer::name).collect::<Vec<_>>().join(", ").into();
        Ok(Self { informers: informers.into(), name })
    }

    /// Returns the resource and the namespaces, for display.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the informer of each namespace, ordered by namespace.
    pub fn informers(&self) -> &[Informer<K>] {
        &self.informers
    }

    /// Returns the informer of `namespace`, or `None` if the namespace is not included.
    pub fn informer(&self, namespace: &str) -> Option<&Informer<K>> {
        of_namespace(&self.informers, |informer| informer.scope().in_namespace(), namespace)
    }

    /// Returns the freshness of the worst namespace.
    ///
    /// If all namespaces are fresh, the result has the lowest version and the highest age of all. Versions of different
    /// servers cannot be compared.
    pub fn freshness(&self) -> Freshness {
        readiness::worst(self.informers.iter().map(Informer::freshness))
    }

    /// Returns true after the first complete list of each namespace is in the cache.
    pub fn has_synced(&self) -> bool {
        self.informers.iter().all(Informer::has_synced)
    }

    /// Waits until the first complete list of each namespace is in the cache.
    ///
    /// # Errors
    ///
    /// Returns the state and the cause of the first namespace that is not synced, if `deadline` passes first.
    pub async fn wait_for_sync(&self, deadline: Duration) -> Result<(), NotSynced> {
        let waits = self.informers.iter().map(|informer| informer.wait_for_sync(deadline));
        try_join_all(waits).await.map(drop)
    }

    /// Returns a reader of all namespaces.
    ///
    /// # Errors
    ///
    /// Returns an error before the first complete list of each namespace. To read only the namespaces that are already
    /// listed, use their [`informers`](Self::informers).
    pub fn lister(&self) -> Result<MultiNamespaceLister<K>, NotSynced> {
        let listers = self.informers.iter().map(|informer| {
            let namespace = informer.scope().in_namespace().unwrap_or_default().into();
            Ok(NamespaceLister { namespace, lister: informer.lister()? })
        });
        Ok(MultiNamespaceLister { listers: listers.collect::<Result<_, _>>()? })
    }

    /// Adds an index by the values that `extract` returns for an object, like [`Informer::index`].
    pub fn index<I, V>(&self, extract: impl Fn(&K) -> V + Send + Sync + 'static) -> MultiNamespaceIndex<K, I>
    where
        I: Ord + Clone + Send + Sync + 'static,
        V: IntoIterator<Item = I>,
    {
        let extract = Arc::new(extract);
        let indexes = self.informers.iter().map(|informer| {
            let extract = extract.clone();
            informer.index(move |object: &K| extract(object))
        });
        MultiNamespaceIndex { indexes: indexes.collect() }
    }

    /// Returns a builder for a handler with options. The handler has one queue for all namespaces.
    ///
    /// Calls never overlap, unless the handler declares a concurrency. Events of one object keep their order. Events of
    /// different namespaces have no common order, because each namespace has its own watch. The handler is synced after
    /// the initial objects of all namespaces, and ends with the last informer.
    pub fn handler(&self) -> HandlerBuilder<'_, K> {
        // The constructor guarantees at least one informer.
        let (first, others) = (&self.informers[0], &self.informers[1..]);
        first.handler().with_others(others.iter().map(Informer::owner).collect())
    }

    /// Calls `handle` for every change in any namespace, one call at a time, on a thread of its own.
    ///
    /// # Errors
    ///
    /// Returns an error if one of the informers was stopped.
    pub fn on_event(&self, handle: impl Fn(Event<K>) + Send + Sync + 'static) -> Result<Registration<K>, HandlerError> {
        self.handler().on_event(handle)
    }

    /// Calls `handle` for every change in any namespace, one call at a time, on the current async runtime.
    ///
    /// # Errors
    ///
    /// Returns an error outside an async runtime, or if one of the informers was stopped.
    pub fn on_event_async<F, Fut>(&self, handle: F) -> Result<Registration<K>, HandlerError>
    where
        F: Fn(Event<K>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.handler().on_event_async(handle)
    }

    /// Adds a handler with state, or with access to [`Call`](crate::Call) data such as retries.
    ///
    /// # Errors
    ///
    /// Returns an error if one of the informers was stopped.
    pub fn add_handler(&self, handler: impl Handler<K>) -> Result<Registration<K>, HandlerError> {
        self.handler().add_handler(handler)
    }

    /// Adds an async handler with state, or with access to call data such as retries.
    ///
    /// # Errors
    ///
    /// Returns an error outside an async runtime, or if one of the informers was stopped.
    pub fn add_async_handler(&self, handler: impl AsyncHandler<K>) -> Result<Registration<K>, HandlerError> {
        self.handler().add_async_handler(handler)
    }

    /// Calls `callback` for each diagnostic, with the informer's name, like [`Informer::on_diagnostic`].
    pub fn on_diagnostic(&self, callback: impl Fn(&str, &Diagnostic) + Send + Sync + 'static) {
        let callback = Arc::new(callback);
        for informer in &*self.informers {
            let (callback, name) = (callback.clone(), informer.name().to_owned());
            informer.on_diagnostic(move |diagnostic| callback(&name, diagnostic));
        }
    }

    /// Waits for at most 30 s until the cache has reached the version of `written`, like [`Informer::wait_for`].
    /// Returns immediately for an object of another namespace.
    ///
    /// # Errors
    ///
    /// Returns an error after 30 s, if the informer is stopped, or if the version cannot be compared.
    pub async fn wait_for<R: Resource>(&self, written: &R) -> Result<(), WaitError> {
        let namespace = written.meta().namespace.as_deref().unwrap_or_default();
        match self.informer(namespace) {
            Some(informer) => informer.wait_for(written).await,
            None => Ok(()),
        }
    }

    /// Waits until the cache contains all of `writes` to its resource and namespaces, like
    /// [`Informer::wait_for_writes`].
    ///
    /// # Errors
    ///
    /// Returns an error if `deadline` passes first, if an informer is stopped, or if a version cannot be compared.
    pub async fn wait_for_writes(&self, writes: &Writes, deadline: Duration) -> Result<(), WaitError> {
        let waits = self.informers.iter().map(|informer| informer.wait_for_writes(writes, deadline));
        try_join_all(waits).await.map(drop)
    }

    /// Stops the informers of all namespaces immediately, for all their users. The cache stays readable.
    pub fn stop(&self) {
        self.informers.iter().for_each(Informer::stop);
    }
}

/// Reads the caches of a [`MultiNamespaceInformer`]. Cheap to clone.
///
/// Each namespace is read from one snapshot of its own.
pub struct MultiNamespaceLister<K> {
    /// Ordered by namespace.
    listers: Arc<[NamespaceLister<K>]>,
}

struct NamespaceLister<K> {
    namespace: Box<str>,
    lister: Lister<K>,
}

impl<K> Clone for MultiNamespaceLister<K> {
    fn clone(&self) -> Self {
        Self { listers: self.listers.clone() }
    }
}

impl<K> fmt::Debug for MultiNamespaceLister<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.listers.iter().map(|own| &own.namespace)).finish()
    }
}

impl<K: Cacheable> MultiNamespaceLister<K> {
    fn of(&self, namespace: &str) -> Option<&Lister<K>> {
        of_namespace(&self.listers, |own| Some(&own.namespace), namespace).map(|own| &own.lister)
    }

    /// Returns the object `name` in `namespace`, or `None` if it does not exist or the namespace is not included.
    ///
    /// # Errors
    ///
    /// Returns an error if the object's newest state could not be decoded.
    pub fn get(&self, namespace: &str, name: &str) -> Result<Option<Object<K>>, UndecodableObject> {
        self.of(namespace).map_or(Ok(None), |lister| lister.get(namespace, name))
    }

    /// Returns the object at `key`, or `None` if it does not exist or its namespace is not included.
    ///
    /// # Errors
    ///
    /// Returns an error if the object's newest state could not be decoded.
    pub fn get_by_key(&self, key: &ObjectKey) -> Result<Option<Object<K>>, UndecodableObject> {
        self.of(key.namespace().unwrap_or_default()).map_or(Ok(None), |lister| lister.get_by_key(key))
    }

    /// Returns all objects, ordered by namespace and name, without objects that could not be decoded.
    pub fn all(&self) -> Vec<Object<K>> {
        self.listers.iter().flat_map(|own| own.lister.all()).collect()
    }

    /// Returns all objects of `namespace`, ordered by name.
    pub fn namespace(&self, namespace: &str) -> Vec<Object<K>> {
        self.of(namespace).map(|lister| lister.namespace(namespace)).unwrap_or_default()
    }

    /// Returns all objects whose labels match `selector`, ordered by namespace and name.
    pub fn select(&self, selector: &Selector) -> Vec<Object<K>> {
        self.listers.iter().flat_map(|own| own.lister.select(selector)).collect()
    }

    /// Returns the objects of `namespace` whose labels match `selector`, ordered by name.
    pub fn select_in(&self, namespace: &str, selector: &Selector) -> Vec<Object<K>> {
        self.of(namespace).map(|lister| lister.select_in(namespace, selector)).unwrap_or_default()
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.listers.iter().map(|own| own.lister.len()).sum()
    }

    /// Returns true if the cache contains no object.
    pub fn is_empty(&self) -> bool {
        self.listers.iter().all(|own| own.lister.is_empty())
    }

    /// Returns the freshness of the worst namespace, like [`MultiNamespaceInformer::freshness`].
    pub fn freshness(&self) -> Freshness {
        readiness::worst(self.listers.iter().map(|own| own.lister.freshness()))
    }
}

/// Finds the objects of a [`MultiNamespaceInformer`] by a value that the user's function extracts. Cheap to clone.
pub struct MultiNamespaceIndex<K, I> {
    /// Ordered by namespace.
    indexes: Arc<[Index<K, I>]>,
}

impl<K, I> Clone for MultiNamespaceIndex<K, I> {
    fn clone(&self) -> Self {
        Self { indexes: self.indexes.clone() }
    }
}

impl<K, I> fmt::Debug for MultiNamespaceIndex<K, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiNamespaceIndex").field("namespaces", &self.indexes.len()).finish()
    }
}

impl<K: Cacheable, I: Ord + Clone + Send + Sync + 'static> MultiNamespaceIndex<K, I> {
    /// Returns the objects that have `value`, ordered by namespace and name.
    pub fn get<Q: ToOwned<Owned = I> + ?Sized>(&self, value: &Q) -> Vec<Object<K>> {
        self.indexes.iter().flat_map(|index| index.get(value)).collect()
    }
}

/// Returns the item of `namespace` among `items`, which are ordered by namespace.
fn of_namespace<'a, T>(items: &'a [T], own: impl Fn(&T) -> Option<&str>, namespace: &str) -> Option<&'a T> {
    let found = items.binary_search_by(|item| own(item).unwrap_or_default().cmp(namespace));
    found.ok().map(|place| &items[place])
}
