//! Errors of a check: contract violations, contradictory recordings and missing evidence.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::clause::Clause;
use crate::objects::Key;

/// Contradiction between a trace and the contract.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Violation {
    /// Violated clause.
    pub clause: Clause,
    /// Informer that shows the violation.
    pub informer: String,
    /// Handler that shows the violation, if one does.
    pub handler: Option<String>,
    /// Affected object, if the violation concerns one.
    pub object: Option<Key>,
    /// Times of the two contradicting facts, on the clock of the trace: the actual state, and the report.
    #[serde(rename = "moments")]
    pub times: (Duration, Duration),
    /// Description of the violation.
    #[serde(rename = "what")]
    pub description: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.clause)?;
        if let Some(object) = &self.object {
            write!(f, "{object}, ")?;
        }
        if let Some(handler) = &self.handler {
            write!(f, "handler {handler} of ")?;
        }
        let (from, to) = self.times;
        write!(f, "informer {}, {from:.3?} to {to:.3?}: {}", self.informer, self.description)
    }
}

/// Contradiction within a history or a trace. Such a recording cannot be checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Malformed {
    /// Time of the contradiction, on the clock of the trace.
    pub at: Duration,
    /// Description of the contradiction.
    #[serde(rename = "what")]
    pub description: String,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot be checked, at {:.3?}: {}", self.at, self.description)
    }
}

/// Missing evidence in a history or a trace. Without it, a violation could stay undetected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Inconclusive {
    /// Informer with too little evidence; `None` if all informers are concerned.
    pub informer: Option<String>,
    /// The missing evidence, and how to record it.
    #[serde(rename = "what")]
    pub description: String,
}

impl fmt::Display for Inconclusive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.informer {
            Some(informer) => write!(f, "inconclusive, informer {informer}: {}", self.description),
            None => write!(f, "inconclusive: {}", self.description),
        }
    }
}

/// Reasons to reject a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CheckError {
    /// Violations of the contract.
    pub violations: Vec<Violation>,
    /// Contradictions within the history or the trace.
    pub malformed: Vec<Malformed>,
    /// Missing evidence.
    pub inconclusive: Vec<Inconclusive>,
}

impl CheckError {
    /// Returns the violations of one clause.
    pub fn violations_of(&self, clause: Clause) -> impl Iterator<Item = &Violation> {
        self.violations.iter().filter(move |violation| violation.clause == clause)
    }
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Maximum number of reasons that `Display` lists. One root cause often affects every object, and 20 show the
        /// pattern.
        const MAX_LISTED: usize = 20;
        // Contradictions in the recording come first: they can be the cause of all violations below.
        let lines = self.malformed.iter().map(ToString::to_string);
        let lines = lines.chain(self.violations.iter().map(ToString::to_string));
        let lines: Vec<_> = lines.chain(self.inconclusive.iter().map(ToString::to_string)).collect();
        match self.violations.len() {
            0 if !self.malformed.is_empty() => f.write_str("the recording contradicts itself and cannot be checked")?,
            0 => f.write_str("the trace has too little evidence that the contract is kept")?,
            violations => write!(f, "the contract is violated {violations} time(s)")?,
        }
        for line in lines.iter().take(MAX_LISTED) {
            write!(f, "\n  {line}")?;
        }
        match lines.len().checked_sub(MAX_LISTED) {
            Some(more @ 1..) => write!(f, "\n  and {more} more"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for CheckError {}
