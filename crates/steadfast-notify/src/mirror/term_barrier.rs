//! Wait at the start of a leader's term until the caches of an input contain all earlier writes.
//!
//! A cache without doubt may still be some seconds behind: doubt starts only when an expected proof is missing. The
//! earlier leader may have read a newer cache. Without this wait, a new leader would remove entries that the earlier
//! leader had just added, and add entries that it had just removed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::core::DynamicObject;
use steadfast::{Informer, Lazy};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::earlier_writes::confirm;

/// Maximum time for which the entries of an unconfirmed input are held back. Afterwards they are added, because a
/// target that was emptied during an outage of the API server must not stay empty. Nothing is removed before the
/// confirmation.
const MAX_HOLD: Duration = Duration::from_secs(5);

/// Progress of one input in one term. Dropping the value stops the wait.
pub(super) struct TermBarrier {
    term: u64,
    started: Instant,
    is_confirmed: Arc<AtomicBool>,
    _tasks: JoinSet<()>,
}

impl TermBarrier {
    /// Starts to wait until all of `informers` contain the writes before this call. Then calls `wake.notify_one()`.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub(super) fn start(term: u64, informers: Vec<Informer<Lazy<DynamicObject>>>, wake: &Arc<Notify>) -> Self {
        let (is_confirmed, wake) = (Arc::<AtomicBool>::default(), wake.clone());
        let mut tasks = JoinSet::new();
        let confirmed = is_confirmed.clone();
        tasks.spawn(async move {
            for informer in &informers {
                if !confirm(informer).await {
                    return;
                }
            }
            confirmed.store(true, Ordering::Release);
            wake.notify_one();
        });
        Self { term, started: Instant::now(), is_confirmed, _tasks: tasks }
    }

    /// Returns true if the barrier belongs to this term.
    pub(super) fn is_of(&self, term: u64) -> bool {
        self.term == term
    }

    /// Returns true if a snapshot that is taken after this call contains all writes before the term.
    pub(super) fn is_confirmed(&self) -> bool {
        self.is_confirmed.load(Ordering::Acquire)
    }

    /// Returns true if the entries of the input must not be added yet.
    pub(super) fn holds_back(&self) -> bool {
        !self.is_confirmed() && self.started.elapsed() < MAX_HOLD
    }
}
