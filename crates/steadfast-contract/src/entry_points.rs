//! Entry points of the checker.

use crate::bounds::Bounds;
use crate::clauses;
use crate::counts;
use crate::history::History;
use crate::parsed_trace::ParsedTrace;
use crate::sufficiency;
use crate::trace::Trace;
use crate::verdict::{Report, Verdict};
use crate::violation::CheckError;

/// Checks a trace against a history, with the default bounds of the contract ([`Bounds::default`]).
///
/// # Errors
/// Returns all violations of the contract, all contradictions within the history or the trace, and the missing
/// evidence. Only a settled trace of informers, checked against a history with changes, passes.
pub fn check(history: &History, trace: &Trace) -> Result<Verdict, CheckError> {
    report(history, trace).into_result()
}

/// Checks like [`check`], and returns counts even if the trace violates the contract or is still being recorded.
pub fn report(history: &History, trace: &Trace) -> Report {
    Bounds::default().report(history, trace)
}

impl Bounds {
    /// Checks a trace against a history, with these bounds.
    ///
    /// # Errors
    /// Returns the errors of [`check`].
    pub fn check(&self, history: &History, trace: &Trace) -> Result<Verdict, CheckError> {
        self.report(history, trace).into_result()
    }

    /// Checks like [`check`](Self::check), and returns counts even if the trace violates the contract or is still being
    /// recorded.
    pub fn report(&self, history: &History, trace: &Trace) -> Report {
        // Parsed once, since the clauses share the positions of all calls.
        let parsed = ParsedTrace::new(history, trace, self);
        Report {
            verdict: counts::verdict(&parsed),
            violations: clauses::check(&parsed),
            inconclusive: sufficiency::find_missing(&parsed),
            malformed: parsed.malformed,
        }
    }
}
