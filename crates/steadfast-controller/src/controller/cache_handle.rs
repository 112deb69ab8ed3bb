//! Type-erased handles of caches.

use std::time::Duration;

use futures::future::BoxFuture;
use steadfast::{CacheId, Freshness, WaitError, Writes};
use tokio::sync::watch;

/// Handle of a cache, independent of its object type.
pub(super) trait CacheHandle: Send + Sync {
    /// Returns the resource and its scope for messages.
    fn name(&self) -> &str;
    /// Returns the namespace of the cache, or none for all namespaces.
    fn namespace(&self) -> Option<&str>;
    /// Returns the identity of the cache.
    fn cache_id(&self) -> CacheId;
    /// Returns true if the first list is complete.
    fn is_synced(&self) -> bool;
    /// Returns the freshness of the cache.
    fn freshness(&self) -> Freshness;
    /// Returns all writes so far, by any client, to the resource of the cache.
    fn written_so_far(&self) -> Writes;
    /// Returns true if the cache contains `writes`, or will never contain them.
    fn has_writes(&self, writes: &Writes) -> bool;
    /// Waits until the cache contains `writes`.
    fn wait_for_writes<'a>(&'a self, writes: &'a Writes, deadline: Duration) -> BoxFuture<'a, Result<(), WaitError>>;
    /// Returns a receiver that is notified when any of these values may have changed.
    fn changed(&self) -> watch::Receiver<u64>;
    /// Continues with the successor of a stopped informer, if the successor is synced.
    fn renew(&self);
}
