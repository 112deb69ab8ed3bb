//! The way in.

use crate::breach::Breaches;
use crate::case::Case;
use crate::clauses;
use crate::history::History;
use crate::tally;
use crate::terms::Terms;
use crate::trace::Trace;
use crate::verdict::{Report, Verdict};

/// Holds a trace against a history, with the bounds of the contract's defaults.
///
/// # Errors
/// Every breach of the contract, and every place where history or trace contradict themselves.
pub fn check(history: &History, trace: &Trace) -> Result<Verdict, Breaches> {
    judge(history, trace).into_result()
}

/// As [`check`], but tells the counts of a trace that breaks the contract too.
pub fn judge(history: &History, trace: &Trace) -> Report {
    Terms::default().judge(history, trace)
}

impl Terms {
    /// Holds a trace against a history, with these bounds.
    ///
    /// # Errors
    /// Every breach of the contract, and every place where history or trace contradict themselves.
    pub fn check(&self, history: &History, trace: &Trace) -> Result<Verdict, Breaches> {
        self.judge(history, trace).into_result()
    }

    /// As [`check`](Self::check), but tells the counts of a trace that breaks the contract too.
    pub fn judge(&self, history: &History, trace: &Trace) -> Report {
        let case = Case::new(history, trace, self);
        Report { verdict: tally::verdict(&case), breaches: clauses::judge(&case), malformed: case.malformed }
    }
}
