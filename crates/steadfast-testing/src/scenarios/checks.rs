//! Expectations of a scenario beyond the contract.

use std::fmt::Display;
use std::time::Duration;

/// Unmet expectations of one scenario.
#[derive(Debug, Default)]
pub(super) struct Checks {
    unmet: Vec<String>,
}

impl Checks {
    /// Expects `is_met` to be true. `failure` describes the failure.
    pub(super) fn expect(&mut self, is_met: bool, failure: impl Display) {
        if !is_met {
            self.unmet.push(failure.to_string());
        }
    }

    /// Expects both values to be equal.
    pub(super) fn expect_equal<T: PartialEq + std::fmt::Debug>(&mut self, subject: &str, actual: &T, expected: &T) {
        self.expect(actual == expected, format_args!("{subject}: {actual:?} instead of {expected:?}"));
    }

    /// Expects `actual` to be at most `limit`.
    pub(super) fn expect_at_most(&mut self, subject: &str, actual: usize, limit: usize) {
        self.expect(actual <= limit, format_args!("{subject}: {actual}, more than {limit}"));
    }

    /// Expects an event to have happened within `limit`.
    pub(super) fn expect_within(&mut self, subject: &str, took: Option<Duration>, limit: Duration) {
        match took {
            Some(took) if took <= limit => {}
            Some(took) => self.unmet.push(format!("{subject} took {took:.1?}, longer than {limit:.1?}")),
            None => self.unmet.push(format!("{subject} did not happen")),
        }
    }

    /// Expects `text` to contain all of `parts`.
    pub(super) fn expect_contains(&mut self, subject: &str, text: &str, parts: &[&str]) {
        for part in parts {
            self.expect(text.contains(part), format_args!("{subject} does not contain {part:?}: {text:?}"));
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
        checks.expect_equal("lists", &2, &1);
        checks.expect_at_most("attempts", 9, 9);
        checks.expect_at_most("attempts", 10, 9);
        checks.expect_within("recovery", Some(Duration::from_secs(2)), Duration::from_secs(1));
        checks.expect_within("recovery", None, Duration::from_secs(1));
        checks.expect_contains("the error", "pods not synced", &["pods", "rejected"]);
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
