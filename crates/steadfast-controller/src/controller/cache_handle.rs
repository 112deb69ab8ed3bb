//! Type-erased handles of caches.

use std::time::Duration;

use futures::future::BoxFuture;
use steadfast::environment::SharedEnvironment;
use steadfast::{CacheId, Freshness, WaitError, Writes};
use tokio::sync::watch;

/// Interval between attempts of a wait while the informer of the cache is stopped. The controller checks for a
/// successor at the same interval.
const STOPPED_RETRY_INTERVAL: Duration = Duration::from_secs(1);

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
    /// Continues with the successor of a stopped informer, if the successor is synced. With `requires_fresh`, the
    /// successor must also be fresh.
    fn renew(&self, requires_fresh: bool);
}

/// Waits until `cache` contains `writes`, for at most `deadline`. If the informer of the cache is stopped, the wait
/// continues with its successor.
///
/// A stopped informer delivers no more writes. If the wait ended with the stop, reconciles would read a cache without
/// their own writes, and would repeat these writes.
///
/// Returns [`WaitError::Stopped`] if the informer is still stopped at the deadline.
pub(super) async fn wait_for_writes_across_stops(
    cache: &dyn CacheHandle,
    environment: &SharedEnvironment,
    writes: &Writes,
    deadline: Duration,
) -> Result<(), WaitError> {
    let end = environment.now() + deadline;
    loop {
        // Each attempt uses the current informer of the cache.
        let stopped = match cache.wait_for_writes(writes, end.since(environment.now())).await {
            Err(error @ WaitError::Stopped { .. }) => error,
            ended => return ended,
        };
        let now = environment.now();
        if now >= end {
            return Err(stopped);
        }
        environment.sleep_until((now + STOPPED_RETRY_INTERVAL).min(end)).await;
    }
}
