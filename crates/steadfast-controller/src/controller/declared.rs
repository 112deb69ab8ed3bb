//! The caches that a controller declares, and how long each of them may delay its start.

use std::sync::Arc;
use std::time::Duration;

use steadfast::environment::{Instant, SharedEnvironment};
use steadfast::{Freshness, Informer, Kept, WaitError, Writes};

use super::view::View;
use super::when_stale::WhenStale;

/// How long caches that are only watched delay the start, and how long a doubt of them is tolerated.
const WATCHED_PATIENCE: Duration = Duration::from_secs(30);

/// How long caches may delay the start that need not, if they have not failed yet.
const GRACE: Duration = Duration::from_secs(1);

/// How often the freshness of a cache is checked while it delays the start.
const LOOK: Duration = Duration::from_secs(1);

/// A cache that a controller declares. Cheap to clone.
#[derive(Clone)]
pub(super) struct Declared {
    pub(super) view: Arc<dyn View>,
    pub(super) role: Role,
}

/// How a controller declares a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The controller's own objects.
    Objects,
    /// Objects that these own.
    Owned,
    /// A cache that calls are declared to read.
    Read,
    /// A cache that only leads to calls.
    Watched,
}

impl Role {
    /// Whether calls read the cache.
    pub(super) fn is_read(self) -> bool {
        self != Self::Watched
    }

    /// Returns whether reconciles run without the cache while the server rejects its list.
    pub(super) fn is_refusable(self) -> bool {
        self != Self::Read
    }
}

/// How long a cache delays the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// However long it takes.
    Unlimited,
    /// Until its doubt has lasted this long.
    Doubt(Duration),
    /// While it is fresh, and in the first second if no attempt has failed.
    Brief,
}

impl Patience {
    /// How long a cache in `role` delays a controller with this choice.
    pub(super) fn of(role: Role, when_stale: &WhenStale) -> Self {
        match role {
            Role::Objects => Self::Unlimited,
            _ if when_stale.acts() => Self::Brief,
            Role::Watched => Self::Doubt(WATCHED_PATIENCE),
            Role::Owned | Role::Read => when_stale.safe_bound().map_or(Self::Unlimited, Self::Doubt),
        }
    }

    /// Returns whether the cache still delays the start at `now`. `begun` is the start of the wait.
    pub(super) fn lasts(self, freshness: &Freshness, begun: Instant, now: Instant) -> bool {
        let Some(doubt) = freshness.doubt() else { return true };
        match self {
            Self::Unlimited => true,
            Self::Doubt(bound) => doubt.lasting < bound,
            Self::Brief => {
                matches!(freshness, Freshness::Starting(_)) && doubt.attempts == 0 && now.since(begun) < GRACE
            }
        }
    }
}

impl Declared {
    /// The caches of `informers`, all in the same role.
    pub(super) fn all<K: Kept>(informers: Vec<Informer<K>>, role: Role) -> Vec<Self> {
        informers.into_iter().map(|informer| Self { view: Arc::new(informer), role }).collect()
    }

    /// Waits until `is_over` holds, and checks that whenever the cache changes and once a second.
    pub(super) async fn until(&self, environment: &SharedEnvironment, is_over: impl Fn(&dyn View) -> bool) {
        let mut changed = self.view.changed();
        while !is_over(&*self.view) {
            tokio::select! {
                biased;
                _ = changed.changed() => {}
                () = environment.sleep_until(environment.now() + LOOK) => {}
            }
        }
    }

    /// Waits until the cache has `writes`, for at most `deadline` and while `patience` lasts.
    pub(super) async fn wait_for_writes(
        &self,
        environment: &SharedEnvironment,
        writes: &Writes,
        deadline: Duration,
        patience: Patience,
        begun: Instant,
    ) -> Result<(), WaitError> {
        let is_over = |view: &dyn View| !patience.lasts(&view.freshness(), begun, environment.now());
        tokio::select! {
            biased;
            () = self.until(environment, is_over) => Ok(()),
            waited = self.view.wait_for_writes(writes, deadline) => match waited {
                // Other notes report that.
                Err(WaitError::Stopped { .. }) => Ok(()),
                waited => waited,
            }
        }
    }
}
