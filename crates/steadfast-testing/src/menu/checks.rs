//! What a scenario expects beside the contract.

use std::fmt::Display;
use std::time::Duration;

/// The expectations of one scenario, and those that were not met.
#[derive(Debug, Default)]
pub(super) struct Checks {
    unmet: Vec<String>,
}

impl Checks {
    /// Expects `held`; `what` says what is wrong where it does not hold.
    pub(super) fn expect(&mut self, held: bool, what: impl Display) {
        if !held {
            self.unmet.push(what.to_string());
        }
    }

    /// Expects the same of both.
    pub(super) fn same<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, is: &T, wanted: &T) {
        self.expect(is == wanted, format_args!("{what}: {is:?} and not {wanted:?}"));
    }

    /// Expects at most `limit`.
    pub(super) fn at_most(&mut self, what: &str, is: usize, limit: usize) {
        self.expect(is <= limit, format_args!("{what}: {is}, more than {limit}"));
    }

    /// Expects something to have happened within `limit`.
    pub(super) fn within(&mut self, what: &str, took: Option<Duration>, limit: Duration) {
        match took {
            Some(took) if took <= limit => {}
            Some(took) => self.unmet.push(format!("{what} took {took:.1?}, longer than {limit:.1?}")),
            None => self.unmet.push(format!("{what} did not happen")),
        }
    }

    /// Expects `text` to hold all of `parts`.
    pub(super) fn says(&mut self, what: &str, text: &str, parts: &[&str]) {
        for part in parts {
            self.expect(text.contains(part), format_args!("{what} does not say {part:?}: {text:?}"));
        }
    }

    /// What was not met.
    pub(super) fn into_unmet(self) -> Vec<String> {
        self.unmet
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_hold_is_told_with_both_sides() {
        let mut checks = Checks::default();
        checks.expect(true, "never told");
        checks.same("lists", &2, &1);
        checks.at_most("attempts", 9, 9);
        checks.at_most("attempts", 10, 9);
        checks.within("recovery", Some(Duration::from_secs(2)), Duration::from_secs(1));
        checks.within("recovery", None, Duration::from_secs(1));
        checks.says("the error", "pods not synced", &["pods", "refused"]);
        assert_eq!(
            checks.into_unmet(),
            [
                "lists: 2 and not 1",
                "attempts: 10, more than 9",
                "recovery took 2.0s, longer than 1.0s",
                "recovery did not happen",
                "the error does not say \"refused\": \"pods not synced\"",
            ]
        );
    }
}
