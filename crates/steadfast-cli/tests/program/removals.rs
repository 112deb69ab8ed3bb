//! Checks removals: compares the contents of the targets, read by their own tools, with the changes of the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Grace period for late removals: an entry may be removed this long after an absence of its pod, even if the pod
/// exists again.
const REMOVAL_GRACE: Duration = Duration::from_secs(2);

/// Contents of one target, from one read.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) target: &'static str,
    /// Start of the read.
    pub(crate) start: Instant,
    /// End of the read.
    pub(crate) end: Instant,
    pub(crate) names: BTreeSet<String>,
}

/// Period after a loss of contents, during which a system may lack entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContentLossPeriod {
    pub(crate) system: &'static str,
    pub(crate) start: Instant,
    pub(crate) end: Instant,
}

impl ContentLossPeriod {
    /// Returns whether a read of `system` overlaps this period.
    pub(crate) fn covers(&self, system: &str, start: Instant, end: Instant) -> bool {
        self.system == system && start <= self.end && end >= self.start
    }
}

/// Expected contents: instants at which each name was added or removed.
#[derive(Debug, Default)]
pub(crate) struct ExpectedEntries(BTreeMap<String, Vec<(Instant, bool)>>);

impl ExpectedEntries {
    /// Records a change. Must be called before a removal and after an addition.
    pub(crate) fn record(&mut self, name: &str, exists: bool) {
        let changes = self.0.entry(name.to_owned()).or_default();
        if changes.last().is_none_or(|(_, before)| *before != exists) {
            changes.push((Instant::now(), exists));
        }
    }

    /// Records that a restore of the cluster has brought a removed object back. The program can detect this only by its
    /// next audit, within `limit`. Until then, the program may still remove the entry.
    pub(crate) fn record_revived(&mut self, name: &str, limit: Duration) {
        self.0.entry(name.to_owned()).or_default().push((Instant::now() + limit, true));
    }

    /// Returns the names that must exist now.
    pub(crate) fn expected_names(&self) -> BTreeSet<String> {
        let existing = self.0.iter().filter(|(_, changes)| changes.last().is_some_and(|(_, exists)| *exists));
        existing.map(|(name, _)| name.clone()).collect()
    }

    /// Returns whether `name` had to exist during the whole period.
    fn had_to_exist(&self, name: &str, start: Instant, end: Instant) -> bool {
        let Some(changes) = self.0.get(name) else { return false };
        let existed_at_start = changes.iter().rev().find(|(time, _)| *time <= start).is_some_and(|(_, exists)| *exists);
        existed_at_start && changes.iter().all(|(time, exists)| *exists || *time <= start || *time > end)
    }

    /// Describes the changes of `name`, by their time before `now`.
    fn history(&self, name: &str, now: Instant) -> String {
        let changes = self.0.get(name).into_iter().flatten();
        let descriptions = changes.map(|(time, exists)| {
            let state_text = if *exists { "wanted" } else { "not wanted" };
            format!("{state_text} {:.1} s before", now.saturating_duration_since(*time).as_secs_f64())
        });
        descriptions.collect::<Vec<_>>().join(", ")
    }
}

/// Returns the number of removed entries. An error names an entry of a ready pod that was removed outside of `losses`.
pub(crate) fn check_removals(
    expected: &ExpectedEntries,
    losses: &[ContentLossPeriod],
    samples: &[Sample],
) -> Result<usize, String> {
    let (mut last_samples, mut removals) = (BTreeMap::<&str, &Sample>::new(), 0);
    for sample in samples {
        if let Some(before) = last_samples.insert(sample.target, sample) {
            let start = before.start.checked_sub(REMOVAL_GRACE).unwrap_or(before.start);
            let is_lost = losses.iter().any(|loss| loss.covers(sample.target, before.start, sample.end));
            for name in before.names.difference(&sample.names) {
                removals += 1;
                if !is_lost && expected.had_to_exist(name, start, sample.end) {
                    let (target, total, remaining_count) = (sample.target, before.names.len(), sample.names.len());
                    let absent_names: Vec<_> = before.names.difference(&sample.names).collect();
                    let new_names: Vec<_> = sample.names.difference(&before.names).collect();
                    let history = expected.history(name, sample.end);
                    return Err(format!(
                        "{target}: {name} was removed although it exists ({remaining_count} of {total} are left); {history}; \
                         absent {absent_names:?}, new {new_names:?}"
                    ));
                }
            }
        }
    }
    Ok(removals)
}

mod tests {
    use super::*;

    fn sample(start: Instant, names: &[&str]) -> Sample {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        Sample { target: "DNS", start, end: start, names }
    }

    #[test]
    fn revived_object_is_judged_after_audit() {
        let mut expected = ExpectedEntries::default();
        expected.record("a", true);
        expected.record("a", false);
        let audit = Duration::from_secs(5);
        expected.record_revived("a", audit);
        assert_eq!(expected.expected_names(), BTreeSet::from(["a".to_owned()]));
        let at = |seconds: u64| Instant::now() + Duration::from_secs(seconds);
        let removed = |seconds: u64| [sample(at(seconds), &["a"]), sample(at(seconds + 1), &[])];
        assert_eq!(check_removals(&expected, &[], &removed(4)), Ok(1), "not detected yet");
        let fault = check_removals(&expected, &[], &removed(9)).expect_err("detected for a while");
        assert!(fault.starts_with("DNS: a was removed although it exists"), "{fault}");
        // If the object is removed again, the entry may be removed without a delay.
        expected.record("a", false);
        assert_eq!(check_removals(&expected, &[], &removed(9)), Ok(1));
        assert!(expected.expected_names().is_empty());
    }
}
