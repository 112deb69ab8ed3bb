//! Tracking of one evaluation: its cost, its patterns, and the next change of its result.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::budget::Budget;
use crate::error::CelErrorKind;
use crate::pattern::{MAX_COMPUTED_PROGRAM_BYTES, Pattern};

/// Constant patterns of a program, compiled with the program.
pub(crate) type Patterns = BTreeMap<Arc<str>, Result<Pattern, &'static str>>;

/// Number of bytes of a string that cost one unit.
const BYTES_PER_UNIT: usize = 10;

/// Cost of compiling a pattern that is not a constant.
const COMPILE_COST: u64 = 20_000;

/// Maximum number of compiled patterns that an evaluation keeps.
const MAX_CACHED_PATTERNS: usize = 16;

/// Cost, time and patterns of one evaluation.
pub struct Meter<'m> {
    budget: &'m mut Budget,
    constant_patterns: &'m Patterns,
    computed_patterns: BTreeMap<String, Pattern>,
    now: Option<Timestamp>,
    recheck_at: Option<Timestamp>,
}

impl<'m> Meter<'m> {
    pub(crate) fn new(budget: &'m mut Budget, constant_patterns: &'m Patterns, now: Option<Timestamp>) -> Self {
        Self { budget, constant_patterns, computed_patterns: BTreeMap::new(), now, recheck_at: None }
    }

    /// Charges `cost` units.
    ///
    /// # Errors
    ///
    /// Returns [`CelErrorKind::BudgetExceeded`] if the budget does not have enough units left.
    pub fn charge(&mut self, cost: u64) -> Result<(), CelErrorKind> {
        if self.budget.spend(cost) { Ok(()) } else { Err(CelErrorKind::BudgetExceeded(self.budget.limit())) }
    }

    /// Charges for reading or building `bytes` bytes of strings: one unit, and one more per ten bytes.
    ///
    /// # Errors
    ///
    /// Returns [`CelErrorKind::BudgetExceeded`] if the budget does not have enough units left.
    pub fn charge_bytes(&mut self, bytes: usize) -> Result<(), CelErrorKind> {
        self.charge(1 + (bytes / BYTES_PER_UNIT) as u64)
    }

    /// Returns whether `text` contains a match of `pattern`.
    pub(crate) fn matches(&mut self, text: &str, pattern: &str) -> Result<bool, CelErrorKind> {
        let pattern = self.charge_search("matches", text, pattern)?;
        Ok(pattern.is_match(text))
    }

    /// Returns the matches of `pattern` in `text`, up to `limit`.
    pub(crate) fn find(&mut self, text: &str, pattern: &str, limit: usize) -> Result<Vec<String>, CelErrorKind> {
        let found = self.charge_search("find", text, pattern)?.find(text, limit);
        // `charge_search` has charged the search. Matches do not overlap, so their copies have at most the size of
        // `text`.
        self.charge(found.len() as u64)?;
        self.charge_bytes(text.len())?;
        Ok(found)
    }

    /// Charges for a search in `text`, and returns the compiled pattern.
    fn charge_search(&mut self, function: &str, text: &str, pattern: &str) -> Result<&Pattern, CelErrorKind> {
        let invalid = |reason| CelErrorKind::invalid_argument(function, reason);
        let constant_patterns = self.constant_patterns;
        if let Some(constant) = constant_patterns.get(pattern) {
            let pattern = constant.as_ref().map_err(|reason| invalid(reason))?;
            let cost = pattern.cost(text);
            self.charge(cost)?;
            return Ok(pattern);
        }
        if !self.computed_patterns.contains_key(pattern) {
            // The cost is charged before the compilation, so that an expression cannot compile patterns for free in a
            // loop.
            self.charge(COMPILE_COST)?;
            // Dropping all patterns is simple and bounds the memory. An expression rarely computes many patterns.
            if self.computed_patterns.len() >= MAX_CACHED_PATTERNS {
                self.computed_patterns.clear();
            }
            let compiled = Pattern::compile(pattern, MAX_COMPUTED_PROGRAM_BYTES).map_err(invalid)?;
            self.computed_patterns.insert(pattern.to_owned(), compiled);
        }
        let Some(cost) = self.computed_patterns.get(pattern).map(|pattern| pattern.cost(text)) else {
            return Err(invalid("the pattern is not a valid regular expression"));
        };
        self.charge(cost)?;
        self.computed_patterns.get(pattern).ok_or_else(|| invalid("the pattern is not a valid regular expression"))
    }

    /// Records that the result may change after `nanos` nanoseconds.
    pub(crate) fn recheck_after(&mut self, nanos: Option<i128>) {
        let (Some(now), Some(nanos)) = (self.now, nanos) else { return };
        // No result changes beyond the range of timestamps.
        let Ok(seconds) = i64::try_from(nanos / 1_000_000_000) else { return };
        let after = SignedDuration::new(seconds, (nanos % 1_000_000_000) as i32);
        let Ok(at) = now.checked_add(after) else { return };
        if self.recheck_at.is_none_or(|earliest| at < earliest) {
            self.recheck_at = Some(at);
        }
    }

    /// Returns the earliest instant at which the result may change.
    pub(crate) fn recheck_at(&self) -> Option<Timestamp> {
        self.recheck_at
    }
}
