//! Freshness of a cache: the cache is current, or in doubt with a start and a cause (C10).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::fault_injection::{FaultInjection, inject};
use crate::keyset::KeySet;
use crate::time::Instant;
use crate::version::ResourceVersion;

/// Cause of a doubt after the program stopped the informer.
pub(crate) const STOPPED: &str = "stopped";

/// Freshness of a cache at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Freshness {
    /// A proof shows that the cache had all changes up to `age` ago.
    Fresh {
        /// Version of the cache.
        version: Option<ResourceVersion>,
        /// Time since the last proof: an event, a rising bookmark, or a probe whose version the watch reached.
        age: Duration,
        /// Keys whose newest state could not be decoded. Their lookups return `Undecodable`.
        tainted: KeySet,
        /// List interval, if lists replace the watch. Changes then reach the cache only with the next list.
        polled: Option<Polled>,
    },
    /// The first list is not complete yet.
    Starting(Doubt),
    /// The stream broke and is being resumed.
    Resuming(Doubt),
    /// An expected proof did not arrive.
    Suspect(Doubt),
    /// Changes may be missing.
    Stale(Doubt),
    /// The server rejects the requests: a missing permission or resource. Retries continue.
    Failed(Doubt),
    /// The informer was stopped. The cache no longer changes.
    Stopped(Doubt),
}

/// Lists that replace a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Polled {
    /// Interval between two lists.
    pub every: Duration,
    /// Reason for the missing watch: the server's response and the permission that it requires.
    pub reason: Arc<str>,
}

impl fmt::Display for Polled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "listed every {} s without a watch: {}", self.every.as_secs(), self.reason)
    }
}

/// Details of a doubt.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Doubt {
    /// Duration of the doubt: from its first symptom, across all its states, until a proof ends it.
    pub elapsed: Duration,
    /// Time since the last proof; `None` before the first proof.
    pub age: Option<Duration>,
    /// Cause of the doubt.
    pub reason: Arc<str>,
    /// Last version that the cache is known to contain; `None` before the first list.
    pub version: Option<ResourceVersion>,
    /// Number of consecutive failed attempts. Lists after watches that could not resume count too, even if they
    /// succeeded. A proof resets the number of failures but not the number of these lists. A stream that stays open for
    /// 5 s resets both.
    pub attempts: u32,
    /// Time until the next attempt, if an attempt is scheduled.
    pub next_attempt: Option<Duration>,
}

impl Doubt {
    /// Creates a doubt of this duration and cause, for tests of code that reads freshness. All other fields are empty.
    pub fn new(elapsed: Duration, reason: impl Into<Arc<str>>) -> Self {
        Self { elapsed, age: None, reason: reason.into(), version: None, attempts: 0, next_attempt: None }
    }
}

impl Freshness {
    /// Returns whether the cache is fresh.
    pub fn is_fresh(&self) -> bool {
        matches!(self, Self::Fresh { .. })
    }

    /// Returns the doubt, or `None` if the cache is fresh.
    pub fn doubt(&self) -> Option<&Doubt> {
        match self {
            Self::Fresh { .. } => None,
            Self::Starting(doubt)
            | Self::Resuming(doubt)
            | Self::Suspect(doubt)
            | Self::Stale(doubt)
            | Self::Failed(doubt)
            | Self::Stopped(doubt) => Some(doubt),
        }
    }

    /// Returns the name of the state in lower case.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Fresh { .. } => "fresh",
            Self::Starting(_) => "starting",
            Self::Resuming(_) => "resuming",
            Self::Suspect(_) => "suspect",
            Self::Stale(_) => "stale",
            Self::Failed(_) => "failed",
            Self::Stopped(_) => "stopped",
        }
    }
}

impl fmt::Display for Freshness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(doubt) = self.doubt() {
            return write!(f, "{} for {}", self.name(), doubt);
        }
        let Self::Fresh { age, tainted, polled, .. } = self else { return Ok(()) };
        write!(f, "fresh, proven {} ago", Seconds(*age))?;
        if let Some(polled) = polled {
            write!(f, ", {polled}")?;
        }
        match (tainted.iter().next(), tainted.len()) {
            (None, _) => Ok(()),
            (Some(key), 1) => write!(f, ", but {key} cannot be decoded"),
            (Some(key), all) => write!(f, ", but {key} and {} more cannot be decoded", all - 1),
        }
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", Seconds(self.elapsed), self.reason)?;
        if let Some(age) = self.age {
            write!(f, ", proven {} ago", Seconds(age))?;
        }
        match self.attempts {
            0 => {}
            1 => f.write_str(", 1 attempt")?,
            attempts => write!(f, ", {attempts} attempts")?,
        }
        self.next_attempt.map_or(Ok(()), |next| write!(f, ", next in {}", Seconds(next)))
    }
}

/// Formats a duration in seconds for messages: `41 s`, `0.3 s`.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < Duration::from_secs(10) {
            write!(f, "{:.1} s", self.0.as_secs_f64())
        } else {
            write!(f, "{} s", self.0.as_secs())
        }
    }
}

/// Evidence of a reflector: the data from which [`Evidence::at`] computes the freshness at any later time.
///
/// Readers compute the freshness with their own clock. A stuck reflector, or a thread that does not run, therefore
/// cannot keep a cache `Fresh`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// State of the reflector.
    pub state: FreshnessState,
    /// Start of the current freshness or doubt. A doubt that changes its state keeps its start.
    pub since: Instant,
    /// Cause of the last failure.
    pub reason: Arc<str>,
    /// Version of the cache.
    pub version: Option<ResourceVersion>,
    /// Number of consecutive failed attempts, as in [`Doubt::attempts`].
    pub attempts: u32,
    /// Time of the next attempt.
    pub next_attempt: Option<Instant>,
    /// Time of the last proof.
    pub proven: Option<Instant>,
    /// List interval and reason, if lists replace the watch.
    pub polled: Option<Polled>,
    /// Maximum age of a fresh cache: two periods of the current stream (R2).
    pub max_fresh_age: Duration,
    /// Maximum time without a stream, or without a proof after a stream broke. Beyond this time the cache is stale.
    pub stale_after: Duration,
    /// Keys whose lookups return `Undecodable`.
    pub tainted: KeySet,
    /// Set after a record that belongs to no identifiable object, or that contradicts the cache. Until a list resolves
    /// the record, the cache may lack the change of that record, even if the cache has reached a higher version.
    pub needs_list: bool,
    /// Faults that a test injects.
    pub faults: FaultInjection,
}

/// Freshness of a reflector, independent of ages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreshnessState {
    /// Before the first complete list.
    Starting,
    /// A stream is open and no symptom of a doubt exists; or lists replace an unavailable watch.
    Streaming,
    /// No stream is open, and a resume or relist is in progress. Also: a new stream replaced a broken one, and no proof
    /// has arrived since.
    Resuming,
    /// A stream is open, but a requested proof did not arrive. Also: the server does not respond on the connection of
    /// the watch or of a requested watch.
    Suspect,
    /// Known to be behind.
    Stale,
    /// Rejected by the server.
    Failed,
    /// Stopped.
    Stopped,
}

impl Evidence {
    /// Changes the state to `state` at `now`, with the cause `reason`. A doubt keeps its start when its state
    /// changes, until a proof or a stop ends the doubt.
    pub fn set_state(&mut self, now: Instant, state: FreshnessState, reason: impl Into<Arc<str>>) {
        // A change between two doubts keeps the start, so the duration covers the whole doubt.
        let doubted = |state| !matches!(state, FreshnessState::Starting | FreshnessState::Streaming);
        let same = doubted(self.state) && doubted(state) && state != FreshnessState::Stopped;
        if self.state != state && !same {
            self.since = now;
        }
        self.state = state;
        self.reason = reason.into();
    }

    /// Returns this evidence for a reflector that was stopped at `since` and may not have processed the stop yet.
    #[must_use]
    pub fn stopped(&self, since: Instant) -> Self {
        Self { state: FreshnessState::Stopped, since, reason: STOPPED.into(), next_attempt: None, ..self.clone() }
    }

    /// Computes the freshness at `now`.
    pub fn at(&self, now: Instant) -> Freshness {
        let age = self.proven.map(|proven| now.since(proven));
        let doubt = |since: Instant, reason: Arc<str>| Doubt {
            elapsed: now.since(since),
            age,
            reason,
            version: self.version.clone(),
            attempts: self.attempts,
            next_attempt: self.next_attempt.map(|at| at.since(now)),
        };
        let fresh = |age| Freshness::Fresh {
            version: self.version.clone(),
            age,
            tainted: self.tainted.clone(),
            polled: self.polled.clone(),
        };
        if inject!(self.faults, AlwaysFresh) && self.proven.is_some() {
            return fresh(Duration::ZERO);
        }
        let since = || doubt(self.since, self.reason.clone());
        // The cache counts as outdated from the instant at which its age passed the bound, independent of the
        // state.
        let outdated =
            age.filter(|age| *age > self.max_fresh_age).map(|age| now - age.saturating_sub(self.max_fresh_age));
        match (self.state, age, outdated) {
            (FreshnessState::Stopped, ..) => Freshness::Stopped(since()),
            (FreshnessState::Failed, ..) => Freshness::Failed(since()),
            (FreshnessState::Starting, ..) => Freshness::Starting(since()),
            (FreshnessState::Stale, ..) => Freshness::Stale(since()),
            // A silent stream becomes outdated at the bound. An existing doubt keeps its earlier
            // start.
            (FreshnessState::Streaming, _, Some(outdated)) => Freshness::Stale(doubt(outdated, self.reason.clone())),
            (FreshnessState::Suspect | FreshnessState::Resuming, _, Some(outdated)) => {
                Freshness::Stale(doubt(outdated.min(self.since), self.reason.clone()))
            }
            (FreshnessState::Resuming, ..) if now.since(self.since) > self.stale_after => Freshness::Stale(since()),
            (FreshnessState::Resuming, ..) => Freshness::Resuming(since()),
            (FreshnessState::Streaming, Some(age), None) => fresh(age),
            (FreshnessState::Suspect | FreshnessState::Streaming, ..) => Freshness::Suspect(since()),
        }
    }
}
