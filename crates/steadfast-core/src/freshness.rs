//! Freshness: whether a cache is true, and if that is in doubt, since when and why (C10).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::breach::{Breach, Breaches};
use crate::keyset::KeySet;
use crate::time::Instant;
use crate::version::ResourceVersion;

/// Why a cache is stopped, where this program did it.
pub(crate) const STOPPED: &str = "stopped";

/// How true a cache is at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// The cache had everything up to `age` ago, by proof.
    Fresh {
        /// The version that it holds.
        version: Option<ResourceVersion>,
        /// The time since the last proof: an event, a rising bookmark, a probe's version reached.
        age: Duration,
        /// The keys whose newest state could not be decoded: they answer `Unknown`.
        tainted: KeySet,
        /// How often it is listed, where there is no watch: changes are known as late as that.
        polled: Option<Polled>,
    },
    /// The first list is not complete yet.
    Starting(Doubt),
    /// The stream broke and is being resumed.
    Resuming(Doubt),
    /// Something that should have been heard was not.
    Suspect(Doubt),
    /// Changes may be missing.
    Stale(Doubt),
    /// The server refuses: permission or resource missing. It is tried again all the same.
    Failed(Doubt),
    /// The informer was stopped; what it holds will not change.
    Stopped(Doubt),
}

/// Lists in place of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Polled {
    /// The time from one list to the next.
    pub every: Duration,
    /// Why there is no watch: what the server answered, and which permission it needs.
    pub why: Arc<str>,
}

impl fmt::Display for Polled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "listed every {} s for want of a watch: {}", self.every.as_secs(), self.why)
    }
}

/// What is known of a doubt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// How long it has lasted: from its first sign on, whatever states it went through, until a proof ends it.
    pub lasting: Duration,
    /// The time since the last proof; none before the first.
    pub age: Option<Duration>,
    /// The cause.
    pub why: Arc<str>,
    /// The last version that the cache is known to hold; none before the first list.
    pub version: Option<ResourceVersion>,
    /// The attempts that have failed since the last sign of health.
    pub attempts: u32,
    /// The time until the next attempt, where one is waited for.
    pub next_attempt: Option<Duration>,
}

impl Freshness {
    /// Whether there is no doubt.
    pub fn is_fresh(&self) -> bool {
        matches!(self, Self::Fresh { .. })
    }

    /// The doubt, if there is one.
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

    /// The state's name in lower case.
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
        write!(f, "{}: {}", Seconds(self.lasting), self.why)?;
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

/// A duration as people say it: `41 s`, `0.3 s`.
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

/// What a reflector has proof of: everything needed to tell the freshness at any later moment, without asking it.
///
/// A reader computes [`Evidence::at`] by its own clock, so that a reflector that is stuck, or a thread that does not
/// run, cannot keep a cache looking fresh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// The state of affairs.
    pub condition: Condition,
    /// Since when there is no doubt, or since when there is one: a doubt that takes another form is the same doubt.
    pub since: Instant,
    /// The cause of the last trouble.
    pub why: Arc<str>,
    /// The version held.
    pub version: Option<ResourceVersion>,
    /// The attempts that failed since the last sign of health.
    pub attempts: u32,
    /// When the next attempt is due.
    pub next_attempt: Option<Instant>,
    /// The last proof.
    pub proven: Option<Instant>,
    /// How often it is listed, where there is no watch.
    pub polled: Option<Polled>,
    /// Beyond this age nothing is fresh: two periods of the present stream (R2).
    pub bound: Duration,
    /// Beyond this time without a stream, or without a proof after one broke, a cache is stale.
    pub patience: Duration,
    /// The keys that answer `Unknown`.
    pub tainted: KeySet,
    /// Whether something came that belongs to no object that can be named, or that contradicts what is held, and no list has
    /// told yet what it was: what is held may lack it, at whatever version.
    pub unnamed: bool,
    /// The breaches that a test commits.
    pub breaches: Breaches,
}

/// The state of affairs of a reflector, ages aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Before the first complete list.
    Starting,
    /// A stream is open and nothing speaks against it; or lists follow each other, where there can be no stream.
    Streaming,
    /// No stream: being resumed or listed anew; or a stream again, after one that broke, and no proof yet.
    Resuming,
    /// A stream is open, and a proof that was sought did not come; or where it is, or is requested, the server answers nothing.
    Suspect,
    /// Known to be behind.
    Stale,
    /// Refused.
    Failed,
    /// Ended.
    Stopped,
}

impl Evidence {
    /// Turns to `condition` at `now`, because of `why`. A doubt that takes another form is the same doubt, until a proof
    /// or the stop ends it.
    pub fn turn(&mut self, now: Instant, condition: Condition, why: impl Into<Arc<str>>) {
        let doubted = |condition| !matches!(condition, Condition::Starting | Condition::Streaming);
        let same = doubted(self.condition) && doubted(condition) && condition != Condition::Stopped;
        if self.condition != condition && !same {
            self.since = now;
        }
        self.condition = condition;
        self.why = why.into();
    }

    /// The same of a reflector that was stopped at `since` and may not know of it yet.
    #[must_use]
    pub fn stopped(&self, since: Instant) -> Self {
        Self { condition: Condition::Stopped, since, why: STOPPED.into(), next_attempt: None, ..self.clone() }
    }

    /// The freshness at `now`.
    pub fn at(&self, now: Instant) -> Freshness {
        let age = self.proven.map(|proven| now.since(proven));
        let doubt = |since: Instant, why: Arc<str>| Doubt {
            lasting: now.since(since),
            age,
            why,
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
        if self.breaches.commit(Breach::AlwaysFresh) && self.proven.is_some() {
            return fresh(Duration::ZERO);
        }
        let since = || doubt(self.since, self.why.clone());
        // Known to be old since the bound was passed, whatever the condition says.
        let outdated = age.filter(|age| *age > self.bound).map(|age| now - age.saturating_sub(self.bound));
        match (self.condition, age, outdated) {
            (Condition::Stopped, ..) => Freshness::Stopped(since()),
            (Condition::Failed, ..) => Freshness::Failed(since()),
            (Condition::Starting, ..) => Freshness::Starting(since()),
            (Condition::Stale, ..) => Freshness::Stale(since()),
            (Condition::Streaming, _, Some(outdated)) => Freshness::Stale(doubt(outdated, self.why.clone())),
            (Condition::Suspect | Condition::Resuming, _, Some(outdated)) => {
                Freshness::Stale(doubt(outdated.min(self.since), self.why.clone()))
            }
            (Condition::Resuming, ..) if now.since(self.since) > self.patience => Freshness::Stale(since()),
            (Condition::Resuming, ..) => Freshness::Resuming(since()),
            (Condition::Streaming, Some(age), None) => fresh(age),
            (Condition::Suspect | Condition::Streaming, ..) => Freshness::Suspect(since()),
        }
    }
}
