//! What a controller does while a cache that it reads is in doubt.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use steadfast::ObjectKey;

/// Behaviour of a controller while a cache that it reads has been in doubt for longer than a bound.
///
/// The doubt is that of [`Informer::freshness`](steadfast::Informer::freshness), for a cache that was synced once. A cache
/// that was never synced cannot be read.
///
/// The choice applies at the start too, to the caches that are not synced yet. The start always waits for the cache of the
/// controller's own objects. It does not wait for a cache whose list the server rejects, unless reconciles are declared to
/// [read](crate::Controller::reads) that cache.
#[derive(Clone)]
pub struct WhenStale {
    pub(super) bound: Duration,
    pub(super) choice: Choice,
}

#[derive(Clone)]
pub(super) enum Choice {
    Act,
    Wait,
    Only(Safe),
}

pub(super) type Safe = Arc<dyn Fn(&ObjectKey) -> bool + Send + Sync>;

impl WhenStale {
    /// Calls nothing once the doubt is older than `bound`, until it is over. At the start nothing is called until each cache
    /// that the calls read is synced.
    pub fn wait(bound: Duration) -> Self {
        Self { bound, choice: Choice::Wait }
    }

    /// Calls as if there were no doubt: for controllers that read nothing from caches. At the start only the cache of the
    /// objects themselves is waited for; the others at most one second, and not after a failed attempt.
    pub fn act() -> Self {
        Self { bound: Duration::MAX, choice: Choice::Act }
    }

    /// Whether nothing is called while a cache is in doubt.
    pub(super) fn waits(&self) -> bool {
        matches!(self.choice, Choice::Wait)
    }

    /// Whether calls are made whatever is in doubt.
    pub(super) fn acts(&self) -> bool {
        matches!(self.choice, Choice::Act)
    }

    /// The age of a doubt from which on only safe calls are made, if such calls are.
    pub(super) fn safe_bound(&self) -> Option<Duration> {
        matches!(self.choice, Choice::Only(_)).then_some(self.bound)
    }

    /// Calls only what is `safe` once the doubt is older than `bound`: what can be repeated whatever has changed. Everything
    /// else is put off until the doubt is over. At the start the same holds for a cache that is not synced after `bound`.
    pub fn only(bound: Duration, safe: impl Fn(&ObjectKey) -> bool + Send + Sync + 'static) -> Self {
        Self { bound, choice: Choice::Only(Arc::new(safe)) }
    }
}

impl Default for WhenStale {
    /// Waits once a doubt is older than 30 s: longer than it takes to notice a server that has vanished (R1) and to resume.
    fn default() -> Self {
        Self::wait(Duration::from_secs(30))
    }
}

impl fmt::Debug for WhenStale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.choice {
            Choice::Act => f.write_str("act"),
            Choice::Wait => write!(f, "wait after {:?}", self.bound),
            Choice::Only(_) => write!(f, "only what is safe after {:?}", self.bound),
        }
    }
}
