//! What is reported of a trace that does not keep the contract.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::clause::Clause;
use crate::seen::Key;

/// One contradiction between a trace and the contract.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Breach {
    /// The clause that is broken.
    pub clause: Clause,
    /// The informer at which it showed.
    pub informer: String,
    /// The handler at which it showed, if it was one.
    pub handler: Option<String>,
    /// The object, if it is about one.
    pub object: Option<Key>,
    /// The two moments that contradict each other: what was so, and what was reported.
    pub moments: (Duration, Duration),
    /// What happened, in words.
    pub what: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.clause)?;
        if let Some(object) = &self.object {
            write!(f, "{object}, ")?;
        }
        if let Some(handler) = &self.handler {
            write!(f, "handler {handler} of ")?;
        }
        let (from, to) = self.moments;
        write!(f, "informer {}, {from:.3?} to {to:.3?}: {}", self.informer, self.what)
    }
}

/// A history or trace that contradicts itself, so that nothing can be said of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Malformed {
    /// The moment.
    pub at: Duration,
    /// The contradiction, in words.
    pub what: String,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot be judged, at {:.3?}: {}", self.at, self.what)
    }
}

/// What a history or a trace lacks, so that the contract may be broken and nobody would see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Inconclusive {
    /// The informer of which too little is known; `None` where that is so of all.
    pub informer: Option<String>,
    /// What is missing, and what to do about it.
    pub what: String,
}

impl fmt::Display for Inconclusive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.informer {
            Some(informer) => write!(f, "inconclusive, informer {informer}: {}", self.what),
            None => write!(f, "inconclusive: {}", self.what),
        }
    }
}

/// Why a trace was not passed: every breach, in the order in which they showed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Breaches {
    /// The clauses broken.
    pub breaches: Vec<Breach>,
    /// Where history or trace contradict themselves.
    pub malformed: Vec<Malformed>,
    /// What is missing to say that the contract was kept.
    pub inconclusive: Vec<Inconclusive>,
}

impl Breaches {
    /// The breaches of one clause.
    pub fn of(&self, clause: Clause) -> impl Iterator<Item = &Breach> {
        self.breaches.iter().filter(move |breach| breach.clause == clause)
    }
}

impl fmt::Display for Breaches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Enough to see the pattern; one root cause often shows at every object.
        const SHOWN: usize = 20;
        let lines = self.malformed.iter().map(ToString::to_string);
        let lines = lines.chain(self.breaches.iter().map(ToString::to_string));
        let lines: Vec<_> = lines.chain(self.inconclusive.iter().map(ToString::to_string)).collect();
        match self.breaches.len() {
            0 => f.write_str("it cannot be said that the contract was kept")?,
            breaches => write!(f, "the contract is broken {breaches} time(s)")?,
        }
        for line in lines.iter().take(SHOWN) {
            write!(f, "\n  {line}")?;
        }
        match lines.len().checked_sub(SHOWN) {
            Some(more @ 1..) => write!(f, "\n  and {more} more"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for Breaches {}
