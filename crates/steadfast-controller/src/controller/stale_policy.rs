//! Behaviour of a controller while a cache is in doubt.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use steadfast::ObjectKey;

use crate::panics;

/// Behaviour of a controller while a cache that it reads has been in doubt for longer than a bound.
///
/// [`Informer::freshness`](steadfast::Informer::freshness) returns the doubt. The bound applies to caches that were
/// synced once; a cache that was never synced cannot be read.
///
/// The policy also applies at the start, to caches that are not synced yet. The start waits for the cache of the
/// controller's own objects. If each of several namespaces has its own cache, an unsynced cache delays the start for
/// 1 s at most. The start does not wait for a cache whose list the server rejects, unless reconciles are declared to
/// [read](crate::Controller::reads) that cache.
///
/// After a pause, and at the start, paused keys also wait until the cache contains the writes of their previous
/// reconcile and of other processes.
#[derive(Clone)]
pub struct StalePolicy {
    pub(super) bound: Duration,
    pub(super) behaviour: StaleBehaviour,
}

#[derive(Clone)]
pub(super) enum StaleBehaviour {
    Pause,
    NeverPause,
    PauseExcept(Safe),
}

pub(super) type Safe = Arc<dyn Fn(&ObjectKey) -> bool + Send + Sync>;

impl StalePolicy {
    /// Pauses all reconciles while a cache has been in doubt for longer than `bound`. The start waits until each cache
    /// that reconciles read is synced.
    pub fn pause_after(bound: Duration) -> Self {
        Self { bound, behaviour: StaleBehaviour::Pause }
    }

    /// Never pauses: for controllers that read nothing from caches. The start waits for the cache of the controller's
    /// objects, and at most 1 s for the other caches if no attempt has failed. A key does not wait for its own writes
    /// in a cache that has been in doubt for more than 30 s.
    pub fn never_pause() -> Self {
        Self { bound: Duration::MAX, behaviour: StaleBehaviour::NeverPause }
    }

    /// Returns true if all reconciles pause while a cache is in doubt.
    pub(super) fn pauses_all(&self) -> bool {
        matches!(self.behaviour, StaleBehaviour::Pause)
    }

    /// Returns true if reconciles never pause.
    pub(super) fn never_pauses(&self) -> bool {
        matches!(self.behaviour, StaleBehaviour::NeverPause)
    }

    /// Returns true if a reconcile of `key` must see the writes of its predecessor even if a cache is in doubt.
    pub(super) fn requires_writes_in_doubt(&self, key: &ObjectKey) -> bool {
        match &self.behaviour {
            StaleBehaviour::Pause => true,
            StaleBehaviour::NeverPause => false,
            StaleBehaviour::PauseExcept(safe) => {
                // Destructors and background tasks call this too, and a panic of user code must not escape from them. The
                // staleness gate calls the function again and reports the panic.
                let is_safe = catch_unwind(AssertUnwindSafe(|| safe(key))).unwrap_or_else(|panic| {
                    drop(panics::message(panic));
                    false
                });
                !is_safe
            }
        }
    }

    /// Returns the bound for unsafe keys, if safe keys run anyway.
    pub(super) fn safe_bound(&self) -> Option<Duration> {
        matches!(self.behaviour, StaleBehaviour::PauseExcept(_)).then_some(self.bound)
    }

    /// Pauses all reconciles except those of `safe` keys while a cache has been in doubt for longer than `bound`. Use
    /// this for idempotent actions. The other keys wait until the doubt ends. At the start, a cache that is not synced
    /// within `bound` counts as in doubt.
    ///
    /// A safe key does not wait for its own writes in a cache that has been in doubt for more than 30 s.
    pub fn pause_except(bound: Duration, safe: impl Fn(&ObjectKey) -> bool + Send + Sync + 'static) -> Self {
        Self { bound, behaviour: StaleBehaviour::PauseExcept(Arc::new(safe)) }
    }
}

impl Default for StalePolicy {
    /// Pauses after 30 s of doubt. This exceeds the time for detecting a dead server (15 s, R1 of the contract) and
    /// resuming.
    fn default() -> Self {
        Self::pause_after(Duration::from_secs(30))
    }
}

impl fmt::Debug for StalePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.behaviour {
            StaleBehaviour::NeverPause => f.write_str("never_pause"),
            StaleBehaviour::Pause => write!(f, "pause_after {:?}", self.bound),
            StaleBehaviour::PauseExcept(_) => write!(f, "pause_except {:?}", self.bound),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_secs(20);

    #[test]
    fn debug_prints_names_of_constructors() {
        assert_eq!(format!("{:?}", StalePolicy::never_pause()), "never_pause");
        assert_eq!(format!("{:?}", StalePolicy::pause_after(BOUND)), "pause_after 20s");
        assert_eq!(format!("{:?}", StalePolicy::pause_except(BOUND, |_| true)), "pause_except 20s");
    }

    #[test]
    fn panic_in_safe_counts_as_unsafe() {
        let key = ObjectKey::cluster("a");
        let policy = StalePolicy::pause_except(BOUND, |_| panic!("planted"));
        assert!(policy.requires_writes_in_doubt(&key));
        assert!(!StalePolicy::pause_except(BOUND, |_| true).requires_writes_in_doubt(&key));
    }
}
