//! Entry points of the checker.

use crate::case::Case;
use crate::clauses;
use crate::enough;
use crate::history::History;
use crate::tally;
use crate::terms::Terms;
use crate::trace::Trace;
use crate::verdict::{Report, Verdict};
use crate::violation::Violations;

/// Checks a trace against a history, with the default bounds of the contract ([`Terms::default`]).
///
/// # Errors
/// Returns all violations of the contract, all contradictions within the history or the trace, and the missing
/// evidence. Only a settled trace of informers, checked against a history with changes, passes.
pub fn check(history: &History, trace: &Trace) -> Result<Verdict, Violations> {
    judge(history, trace).into_result()
}

/// Checks like [`check`], and returns counts even if the trace violates the contract or is still being recorded.
pub fn judge(history: &History, trace: &Trace) -> Report {
    Terms::default().judge(history, trace)
}

impl Terms {
    /// Checks a trace against a history, with these bounds.
    ///
    /// # Errors
    /// Returns the errors of [`check`].
    pub fn check(&self, history: &History, trace: &Trace) -> Result<Verdict, Violations> {
        self.judge(history, trace).into_result()
    }

    /// Checks like [`check`](Self::check), and returns counts even if the trace violates the contract or is still being
    /// recorded.
    pub fn judge(&self, history: &History, trace: &Trace) -> Report {
        // Parsed once, since the clauses share the positions of all calls.
        let case = Case::new(history, trace, self);
        Report {
            verdict: tally::verdict(&case),
            violations: clauses::judge(&case),
            inconclusive: enough::missing(&case),
            malformed: case.malformed,
        }
    }
}
