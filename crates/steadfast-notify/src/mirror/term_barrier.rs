//! State of the wait for [earlier writes](crate::earlier_writes) of one input, at the start of a leader's term.
//!
//! Without this wait, a new leader would remove entries that the earlier leader had just added, and add entries that it
//! had just removed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::core::DynamicObject;
use steadfast::{Informer, Lazy};
use steadfast_targets::AwakeTime;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::earlier_writes::confirm_caches;
use crate::lookups::LookupCaches;

/// Maximum time for which the entries of an unconfirmed input are neither added nor changed. Afterwards they are added,
/// because a target that was emptied during an outage of the API server must not stay empty. Nothing is removed before
/// the confirmation.
const MAX_HOLD: Duration = Duration::from_secs(5);

/// Progress of one input in one term. Dropping the value stops the wait.
pub(super) struct TermBarrier {
    term: u64,
    is_confirmed: Arc<AtomicBool>,
    /// Time for which the entries were held back, without freezes of the process.
    held: AwakeTime,
    _tasks: JoinSet<()>,
}

impl TermBarrier {
    /// Starts to wait until the caches of `informer` and `lookups` contain the writes before this call. Then calls
    /// `wake.notify_one()`.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub(super) fn start(
        term: u64,
        informer: Informer<Lazy<DynamicObject>>,
        lookups: Option<Arc<LookupCaches>>,
        wake: &Arc<Notify>,
    ) -> Self {
        let (is_confirmed, wake) = (Arc::<AtomicBool>::default(), wake.clone());
        let mut tasks = JoinSet::new();
        let confirmed = is_confirmed.clone();
        tasks.spawn(async move {
            if confirm_caches(&informer, lookups.as_deref()).await {
                confirmed.store(true, Ordering::Release);
                wake.notify_one();
            }
        });
        Self { term, is_confirmed, held: AwakeTime::start(), _tasks: tasks }
    }

    /// Returns true if the barrier belongs to this term.
    pub(super) fn is_of(&self, term: u64) -> bool {
        self.term == term
    }

    /// Returns true if a snapshot that is taken after this call contains all writes before the term.
    pub(super) fn is_confirmed(&self) -> bool {
        self.is_confirmed.load(Ordering::Acquire)
    }

    /// Records a pass of the mirror, which follows the pass before after at most `planned_pause`.
    pub(super) fn record_pass(&mut self, planned_pause: Duration) {
        self.held.record(planned_pause);
    }

    /// Returns true if the entries of the input must not be added or changed yet.
    pub(super) fn holds_back(&self) -> bool {
        !self.is_confirmed() && self.held.counted() < MAX_HOLD
    }
}
