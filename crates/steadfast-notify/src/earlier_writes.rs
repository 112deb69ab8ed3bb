//! Wait until a cache contains all earlier writes: at the start of a leader's term, and after a freeze of the process.
//!
//! A cache without doubt may still be some seconds behind: doubt starts only when an expected proof is missing. The
//! earlier leader may have read a newer cache.

use std::time::Duration;

use kube::core::DynamicObject;
use steadfast::{Informer, Lazy, WaitError};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::lookups::LookupCaches;
use crate::rule_source::doubt;

/// Deadline of one attempt to confirm a cache.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);

/// Delay after an attempt that failed before its deadline.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Interval between checks whether a cache can be confirmed. A cache without doubt is usually confirmed earlier.
const CHECK_INTERVAL: Duration = Duration::from_secs(3);

/// Waits until the cache of `informer` and the caches of `lookups` contain all writes before this call. Returns false if
/// an informer was stopped.
///
/// Retries without a limit; dropping the future ends the wait. The wait skips a cache that cannot be confirmed: the
/// server's versions are opaque, or a looked-up resource is in doubt. The code that reads a looked-up resource handles
/// its doubt, and the proof that ends the doubt covers the earlier writes.
pub(crate) async fn confirm_caches(informer: &Informer<Lazy<DynamicObject>>, lookups: Option<&LookupCaches>) -> bool {
    let lookups = lookups.into_iter().flat_map(LookupCaches::informers);
    let informers = std::iter::once((informer, false)).chain(lookups.map(|informer| (informer, true)));
    // Concurrently: a quiet cache needs about a second. Dropping the set ends all waits.
    let mut waits = JoinSet::new();
    for (informer, may_be_in_doubt) in informers {
        let informer = informer.clone();
        waits.spawn(async move {
            tokio::select! {
                is_confirmed = confirm(&informer) => is_confirmed,
                () = cannot_be_confirmed(&informer, may_be_in_doubt) => true,
            }
        });
    }
    while let Some(waited) = waits.join_next().await {
        if !waited.unwrap_or_default() {
            return false;
        }
    }
    true
}

/// Completes when the wait must end without a confirmation. Checks this each [`CHECK_INTERVAL`].
async fn cannot_be_confirmed(informer: &Informer<Lazy<DynamicObject>>, may_be_in_doubt: bool) {
    loop {
        sleep(CHECK_INTERVAL).await;
        let is_opaque = informer.snapshot().version().is_some_and(|version| !version.is_ordered());
        if is_opaque || (may_be_in_doubt && doubt(informer).is_some()) {
            return;
        }
    }
}

/// Waits until the cache contains all writes before this call. Returns false if the informer was stopped.
async fn confirm(informer: &Informer<Lazy<DynamicObject>>) -> bool {
    let written = informer.written_so_far();
    loop {
        match informer.wait_for_writes(&written, ATTEMPT_TIMEOUT).await {
            Ok(()) => return true,
            // A stopped informer stays in doubt.
            Err(WaitError::Stopped { .. }) => return false,
            Err(WaitError::Deadline { .. }) => {}
            Err(_) => sleep(RETRY_DELAY).await,
        }
    }
}
