//! Cache of a controller's source. It survives the stop of its informer.
//!
//! Any user of a factory can stop a shared informer, and can request another one for the same resource and scope later.
//! The controller then continues with the later informer.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::RwLock;
use steadfast::{
    CacheId, Cacheable, Freshness, Informer, InformerFactory, ObjectKey, Scope, Snapshot, WaitError, Writes,
};
use tokio::sync::watch;

use super::cache_handle::CacheHandle;

/// Cache with the informer that currently fills it. Cheap to clone.
pub(super) struct SourceCache<K: Cacheable>(Arc<Inner<K>>);

struct Inner<K: Cacheable> {
    /// Name and scope are equal for all informers of this cache.
    name: String,
    scope: Scope,
    factory: InformerFactory,
    informer: RwLock<Informer<K>>,
}

impl<K: Cacheable> Clone for SourceCache<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Cacheable> SourceCache<K> {
    /// Creates the cache that `informer` fills. Its successors come from `factory`.
    pub(super) fn new(informer: Informer<K>, factory: &InformerFactory) -> Self {
        let (name, scope, factory) = (informer.name().to_owned(), informer.scope().clone(), factory.clone());
        Self(Arc::new(Inner { name, scope, factory, informer: RwLock::new(informer) }))
    }

    /// Returns the scope of the cache.
    pub(super) fn scope(&self) -> &Scope {
        &self.0.scope
    }

    /// Returns the informer that fills the cache now.
    pub(super) fn informer(&self) -> Informer<K> {
        self.read(Informer::clone)
    }

    /// Returns a snapshot of the cache.
    pub(super) fn snapshot(&self) -> Arc<Snapshot<K>> {
        self.read(Informer::snapshot)
    }

    /// Returns the keys of all objects in the cache.
    pub(super) fn keys(&self) -> Vec<ObjectKey> {
        self.snapshot().iter().map(|entry| entry.key().clone()).collect()
    }

    /// Returns a function that returns the current keys at each call.
    pub(super) fn keys_later(&self) -> impl Fn() -> Vec<ObjectKey> + Send + use<K> {
        let cache = self.clone();
        move || cache.keys()
    }

    /// Replaces a stopped informer by its successor, and returns both.
    ///
    /// The successor must be synced. With an unsynced successor, reconciles would run with an incomplete cache, because
    /// the staleness gate accepts caches that are not synced yet.
    ///
    /// With `requires_fresh`, the successor must also be fresh. A cache that was restored from a checkpoint is synced,
    /// but may be old. The staleness gate would accept this cache, because its doubt has only started.
    pub(super) fn renew(&self, requires_fresh: bool) -> Option<Renewed<K>> {
        let stopped = self.informer();
        let is_usable =
            |informer: &Informer<K>| informer.has_synced() && (!requires_fresh || informer.freshness().is_fresh());
        let running = self.0.factory.successor(&stopped).filter(is_usable)?;
        *self.0.informer.write() = running.clone();
        Some(Renewed { stopped, running })
    }

    fn read<T>(&self, read: impl FnOnce(&Informer<K>) -> T) -> T {
        read(&self.0.informer.read())
    }
}

/// A stopped informer and its successor.
pub(super) struct Renewed<K: Cacheable> {
    pub(super) stopped: Informer<K>,
    pub(super) running: Informer<K>,
}

/// Returns the resource and the scopes of `caches` for messages.
pub(super) fn name_of<K: Cacheable>(caches: &[SourceCache<K>]) -> String {
    caches.iter().map(SourceCache::name).collect::<Vec<_>>().join(", ")
}

impl<K: Cacheable> CacheHandle for SourceCache<K> {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn namespace(&self) -> Option<&str> {
        self.0.scope.in_namespace()
    }

    fn cache_id(&self) -> CacheId {
        self.read(Informer::cache_id)
    }

    fn is_synced(&self) -> bool {
        self.read(Informer::has_synced)
    }

    fn freshness(&self) -> Freshness {
        self.read(Informer::freshness)
    }

    fn written_so_far(&self) -> Writes {
        self.read(Informer::written_so_far)
    }

    fn has_writes(&self, writes: &Writes) -> bool {
        self.read(|informer| informer.has_writes(writes))
    }

    fn wait_for_writes<'a>(&'a self, writes: &'a Writes, deadline: Duration) -> BoxFuture<'a, Result<(), WaitError>> {
        let informer = self.informer();
        Box::pin(async move { informer.wait_for_writes(writes, deadline).await })
    }

    fn changed(&self) -> watch::Receiver<u64> {
        self.read(Informer::changed)
    }

    fn renew(&self, requires_fresh: bool) {
        drop(Self::renew(self, requires_fresh));
    }
}
