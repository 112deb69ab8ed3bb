//! The caches that a controller looks at, whatever they hold.

use std::time::Duration;

use futures::future::BoxFuture;
use steadfast::{CacheId, Freshness, Informer, Kept, WaitError, Writes};
use tokio::sync::watch;

/// A cache, as a controller needs to know it.
pub(super) trait View: Send + Sync {
    /// The resource and its scope, for people.
    fn name(&self) -> &str;
    /// Its identity.
    fn cache_id(&self) -> CacheId;
    /// Whether its first list is complete.
    fn is_synced(&self) -> bool;
    /// Whether it is true.
    fn freshness(&self) -> Freshness;
    /// Whatever anybody may have written so far to what it looks at.
    fn written_so_far(&self) -> Writes;
    /// Whether it has these, as far as it is going to.
    fn has_writes(&self, writes: &Writes) -> bool;
    /// Waits until it has these.
    fn wait_for_writes<'a>(&'a self, writes: &'a Writes, deadline: Duration) -> BoxFuture<'a, Result<(), WaitError>>;
    /// Tells when any of this may have changed.
    fn changed(&self) -> watch::Receiver<u64>;
}

/// The resource and the scopes of informers, for people.
pub(super) fn name_of<K: Kept>(informers: &[Informer<K>]) -> String {
    informers.iter().map(Informer::name).collect::<Vec<_>>().join(", ")
}

impl<K: Kept> View for Informer<K> {
    fn name(&self) -> &str {
        Informer::name(self)
    }

    fn cache_id(&self) -> CacheId {
        Informer::cache_id(self)
    }

    fn is_synced(&self) -> bool {
        self.has_synced()
    }

    fn freshness(&self) -> Freshness {
        Informer::freshness(self)
    }

    fn written_so_far(&self) -> Writes {
        Informer::written_so_far(self)
    }

    fn has_writes(&self, writes: &Writes) -> bool {
        Informer::has_writes(self, writes)
    }

    fn wait_for_writes<'a>(&'a self, writes: &'a Writes, deadline: Duration) -> BoxFuture<'a, Result<(), WaitError>> {
        Box::pin(Informer::wait_for_writes(self, writes, deadline))
    }

    fn changed(&self) -> watch::Receiver<u64> {
        Informer::changed(self)
    }
}
