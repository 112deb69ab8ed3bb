//! What is reported of every trace: its counts.

use std::collections::BTreeMap;
use std::iter::Sum;
use std::ops::Add;

use serde::Serialize;

use crate::breach::{Breach, Breaches, Inconclusive, Malformed};
use crate::clause::Clause;

/// The counts of one handler.
///
/// In a settled trace `changes` is `seen + coalesced + lost`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Changes that the server made in the handler's scope since it was registered.
    pub changes: usize,
    /// Changes among them that it was given, each as itself.
    pub seen: usize,
    /// Changes among them that a later one covered.
    pub coalesced: usize,
    /// Final states, deletions among them, that it was never given.
    pub lost: usize,
    /// Events that gave it a state that it had seen, not marked as a retry.
    pub repeated: usize,
    /// Events that gave it a state older than one that it had seen.
    pub out_of_order: usize,
    /// Calls, retries included.
    pub calls: usize,
    /// Calls that repeated one that panicked.
    pub retries: usize,
    /// Events given up after their last retry.
    pub skipped: usize,
    /// `Added` that were said to belong to an initial list.
    pub initial: usize,
    /// `Deleted` that were inferred from a list.
    pub inferred: usize,
}

impl Add for Tally {
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

impl Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        tallies.fold(Self::default(), Add::add)
    }
}

/// What a trace amounts to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Whether the trace ended quiet and settled, so that losses and convergence were judged too.
    pub settled: bool,
    /// The counts of each handler, by name.
    pub handlers: BTreeMap<String, Tally>,
}

impl Verdict {
    /// The counts of all handlers together.
    pub fn total(&self) -> Tally {
        self.handlers.values().copied().sum()
    }
}

/// All that a judgement tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The counts, whether or not the trace keeps the contract.
    pub verdict: Verdict,
    /// The clauses broken, in the order in which they showed.
    pub breaches: Vec<Breach>,
    /// Where history or trace contradict themselves.
    pub malformed: Vec<Malformed>,
    /// What is missing to say that the contract was kept: an empty history or trace, or one that has not settled.
    pub inconclusive: Vec<Inconclusive>,
}

impl Report {
    /// Whether the trace keeps the contract, and has enough in it to say so.
    pub fn passed(&self) -> bool {
        self.keeps_so_far() && self.inconclusive.is_empty()
    }

    /// Whether nothing in the trace breaks the contract. The end of it may be missing, or all of it: for a trace that is
    /// judged while it goes on.
    pub fn keeps_so_far(&self) -> bool {
        self.breaches.is_empty() && self.malformed.is_empty()
    }

    /// The breaches of one clause.
    pub fn of(&self, clause: Clause) -> impl Iterator<Item = &Breach> {
        self.breaches.iter().filter(move |breach| breach.clause == clause)
    }

    /// The verdict of a trace that keeps the contract, or what breaks it.
    ///
    /// # Errors
    /// Every breach, every place where history or trace contradict themselves, and what is missing to say that the contract
    /// was kept.
    pub fn into_result(self) -> Result<Verdict, Breaches> {
        if self.passed() {
            return Ok(self.verdict);
        }
        Err(Breaches { breaches: self.breaches, malformed: self.malformed, inconclusive: self.inconclusive })
    }
}
