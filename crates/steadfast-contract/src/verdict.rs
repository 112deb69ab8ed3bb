//! Results of a check, with the counts of each handler.

use std::collections::BTreeMap;
use std::iter::Sum;
use std::ops::Add;

use serde::Serialize;

use crate::clause::Clause;
use crate::violation::{CheckError, Inconclusive, Malformed, Violation};

/// Counts of one handler.
///
/// In a settled trace `changes` is `seen + coalesced + lost`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HandlerCounts {
    /// Number of changes on the server in the handler's scope since the registration.
    pub changes: usize,
    /// Number of changes that were delivered individually.
    pub seen: usize,
    /// Number of changes that a later delivery covered.
    pub coalesced: usize,
    /// Number of final states, including deletions, that were never delivered.
    pub lost: usize,
    /// Number of events that repeated a delivered state and were not marked as a retry.
    pub repeated: usize,
    /// Number of events with a state older than a delivered one.
    pub out_of_order: usize,
    /// Number of calls, including retries.
    pub calls: usize,
    /// Number of calls that repeated a panicked call.
    pub retries: usize,
    /// Number of events skipped after their last retry.
    pub skipped: usize,
    /// Number of `Added` events marked as part of an initial list.
    pub initial: usize,
    /// Number of `Deleted` events inferred from a list.
    pub inferred: usize,
}

impl Add for HandlerCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            changes: self.changes + other.changes,
            seen: self.seen + other.seen,
            coalesced: self.coalesced + other.coalesced,
            lost: self.lost + other.lost,
            repeated: self.repeated + other.repeated,
            out_of_order: self.out_of_order + other.out_of_order,
            calls: self.calls + other.calls,
            retries: self.retries + other.retries,
            skipped: self.skipped + other.skipped,
            initial: self.initial + other.initial,
            inferred: self.inferred + other.inferred,
        }
    }
}

impl Sum for HandlerCounts {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        tallies.fold(Self::default(), Add::add)
    }
}

/// Summary of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Verdict {
    /// True if the trace contains `Settled` after `Quiet`, or continues after `Quiet` until the bound for convergence.
    /// Only then are losses and convergence checked.
    pub settled: bool,
    /// Counts of each handler, by name.
    pub handlers: BTreeMap<String, HandlerCounts>,
}

impl Verdict {
    /// Returns the sum of the counts of all handlers.
    pub fn total(&self) -> HandlerCounts {
        self.handlers.values().copied().sum()
    }
}

/// Full result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Counts, even if the trace is invalid.
    pub verdict: Verdict,
    /// Violations of the contract, in order of detection.
    pub violations: Vec<Violation>,
    /// Contradictions within the history or the trace.
    pub malformed: Vec<Malformed>,
    /// Missing evidence: an empty history or trace, or a trace that has not settled.
    pub inconclusive: Vec<Inconclusive>,
}

impl Report {
    /// Returns whether the trace keeps the contract and contains enough evidence.
    pub fn passed(&self) -> bool {
        self.has_no_violation() && self.inconclusive.is_empty()
    }

    /// Returns whether the trace contains no violation so far. An incomplete or empty trace passes too, so that a trace
    /// can be checked while it is recorded.
    pub fn has_no_violation(&self) -> bool {
        self.violations.is_empty() && self.malformed.is_empty()
    }

    /// Returns the violations of one clause.
    pub fn violations_of(&self, clause: Clause) -> impl Iterator<Item = &Violation> {
        self.violations.iter().filter(move |violation| violation.clause == clause)
    }

    /// Returns the verdict of a trace that keeps the contract.
    ///
    /// # Errors
    /// Returns all violations, all contradictions within the history or the trace, and the missing evidence.
    pub fn into_result(self) -> Result<Verdict, CheckError> {
        if self.passed() {
            return Ok(self.verdict);
        }
        Err(CheckError { violations: self.violations, malformed: self.malformed, inconclusive: self.inconclusive })
    }
}
