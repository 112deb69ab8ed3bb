//! Wait at the start of a leader's term until a cache contains all earlier writes.
//!
//! A cache without doubt may still be some seconds behind: doubt starts only when an expected proof is missing. The
//! earlier leader may have read a newer cache.

use std::time::Duration;

use kube::core::DynamicObject;
use steadfast::{Informer, Lazy, WaitError};
use tokio::time::sleep;

/// Deadline of one attempt to confirm a cache.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);

/// Delay after an attempt that failed before its deadline.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Waits until the cache contains all writes before this call. Returns false if the informer was stopped.
///
/// Retries without a limit. Dropping the future ends the wait.
pub(crate) async fn confirm(informer: &Informer<Lazy<DynamicObject>>) -> bool {
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
