//! The way in.

use crate::breach::Breaches;
use crate::case::Case;
use crate::clauses;
use crate::enough;
use crate::history::History;
use crate::tally;
use crate::terms::Terms;
use crate::trace::Trace;
use crate::verdict::{Report, Verdict};

/// Holds a trace against a history, with the bounds of the contract's defaults.
///
/// # Errors
/// Every breach of the contract, every place where history or trace contradict themselves, and what is missing to say that
/// the contract was kept: nothing less than a settled trace of informers, held against a history with changes in it, passes.
pub fn check(history: &History, trace: &Trace) -> Result<Verdict, Breaches> {
    judge(history, trace).into_result()
}

/// As [`check`], but tells the counts of a trace that breaks the contract too, and of one that goes on.
pub fn judge(history: &History, trace: &Trace) -> Report {
    Terms::default().judge(history, trace)
}

impl Terms {
    /// Holds a trace against a history, with these bounds.
    ///
    /// # Errors
    /// As [`check`].
    pub fn check(&self, history: &History, trace: &Trace) -> Result<Verdict, Breaches> {
        self.judge(history, trace).into_result()
    }

    /// As [`check`](Self::check), but tells the counts of a trace that breaks the contract too, and of one that goes on.
    pub fn judge(&self, history: &History, trace: &Trace) -> Report {
        let case = Case::new(history, trace, self);
        Report {
            verdict: tally::verdict(&case),
            breaches: clauses::judge(&case),
            inconclusive: enough::missing(&case),
            malformed: case.malformed,
        }
    }
}
