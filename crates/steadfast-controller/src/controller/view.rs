//! The caches that a controller looks at, whatever they hold.

use steadfast::{Freshness, Informer, Kept};
use tokio::sync::watch;

/// A cache, as a controller needs to know it.
pub(super) trait View: Send + Sync {
    /// The resource and its scope, for people.
    fn name(&self) -> &str;
    /// Whether its first list is complete.
    fn is_synced(&self) -> bool;
    /// Whether it is true.
    fn freshness(&self) -> Freshness;
    /// Tells when either may have changed.
    fn changed(&self) -> watch::Receiver<u64>;
}

impl<K: Kept> View for Informer<K> {
    fn name(&self) -> &str {
        Informer::name(self)
    }

    fn is_synced(&self) -> bool {
        self.has_synced()
    }

    fn freshness(&self) -> Freshness {
        Informer::freshness(self)
    }

    fn changed(&self) -> watch::Receiver<u64> {
        Informer::changed(self)
    }
}
