//! Number of failed evaluations by rule and namespace, to report the failures of each namespace.
//!
//! Most failures of a rule are not reported. One namespace with many failures must not hide the failures of others.

use std::collections::HashMap;

use crate::message::ClusterNamespace;

/// Maximum number of counters. Beyond the limit, only the number of all failures of the rule selects the reports.
const MAX_COUNTERS: usize = 10_000;

/// Counters of failures by rule and namespace.
#[derive(Debug, Default)]
pub(crate) struct NamespaceFailures(HashMap<(String, ClusterNamespace), u64>);

impl NamespaceFailures {
    /// Counts a failure. Returns true if the number of failures of the rule in this namespace is a power of two.
    pub(crate) fn record(&mut self, rule: &str, namespace: ClusterNamespace) -> bool {
        let key = (rule.to_owned(), namespace);
        if self.0.len() >= MAX_COUNTERS && !self.0.contains_key(&key) {
            return false;
        }
        let failures = self.0.entry(key).or_default();
        *failures = failures.saturating_add(1);
        failures.is_power_of_two()
    }

    /// Drops the counters of removed rules.
    pub(crate) fn retain_rules(&mut self, is_configured: impl Fn(&str) -> bool) {
        self.0.retain(|(rule, _), _| is_configured(rule));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failing_namespace_hides_no_other() {
        let mut failures = NamespaceFailures::default();
        let mut record = |rule: &str, namespace: &str| failures.record(rule, ("c".to_owned(), namespace.to_owned()));
        assert_eq!((0..1000).filter(|_| record("r", "hostile")).count(), 10);
        assert!(record("r", "quiet") && record("r", "quiet") && !record("r", "quiet"));
        assert!(record("other", "hostile"));
        for number in 0..2 * MAX_COUNTERS {
            record("r", &format!("n-{number}"));
        }
        assert!(!record("r", "new"));
        assert_eq!(failures.0.len(), MAX_COUNTERS);
        failures.retain_rules(|rule| rule == "other");
        assert_eq!(failures.0.len(), 1);
    }
}
