//! Expectations of a scenario beyond the contract.

use std::fmt::Display;
use std::time::Duration;

/// Unmet expectations of one scenario.
#[derive(Debug, Default)]
pub(super) struct Checks {
    unmet: Vec<String>,
}

impl Checks {
    /// Expects `held` to be true. `what` describes the failure.
    pub(super) fn expect(&mut self, held: bool, what: impl Display) {
        if !held {
            self.unmet.push(what.to_string());
        }
    }

    /// Expects both values to be equal.
    pub(super) fn same<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, is: &T, wanted: &T) {
        self.expect(is == wanted, format_args!("{what}: {is:?} instead of {wanted:?}"));
    }

    /// Expects `is` to be at most `limit`.
    pub(super) fn at_most(&mut self, what: &str, is: usize, limit: usize) {
        self.expect(is <= limit, format_args!("{what}: {is}, more than {limit}"));
    }

    /// Expects an event to have happened within `limit`.
    pub(super) fn within(&mut self, what: &str, took: Option<Duration>, limit: Duration) {
        match took {
            Some(took) if took <= limit => {}
            Some(took) => self.unmet.push(format!("{what} took {took:.1?}, longer than {limit:.1?}")),
            None => self.unmet.push(format!("{what} did not happen")),
        }
    }

    /// Expects `text` to contain all of `parts`.
    pub(super) fn contains(&mut self, what: &str, text: &str, parts: &[&str]) {
        for part in parts {
            self.expect(text.contains(part), format_args!("{what} does not contain {part:?}: {text:?}"));
        }
    }

    /// Returns the unmet expectations.
    pub(super) fn into_unmet(self) -> Vec<String> {
        self.unmet
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unmet_expectation_reports_both_values() {
        let mut checks = Checks::default();
        checks.expect(true, "not reported");
        checks.same("lists", &2, &1);
        checks.at_most("attempts", 9, 9);
        checks.at_most("attempts", 10, 9);
        checks.within("recovery", Some(Duration::from_secs(2)), Duration::from_secs(1));
        checks.within("recovery", None, Duration::from_secs(1));
        checks.contains("the error", "pods not synced", &["pods", "rejected"]);
        assert_eq!(
            checks.into_unmet(),
            [
                "lists: 2 instead of 1",
                "attempts: 10, more than 9",
                "recovery took 2.0s, longer than 1.0s",
                "recovery did not happen",
                "the error does not contain \"rejected\": \"pods not synced\"",
            ]
        );
    }
}
