//! Checks removals: compares the contents of the targets, read by their own tools, with the changes of the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Grace period for late removals: an entry may be removed this long after an absence of its pod, even if the pod
/// exists again.
const GRACE: Duration = Duration::from_secs(2);

/// Contents of one target, from one read.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) target: &'static str,
    /// Start of the read.
    pub(crate) started: Instant,
    /// End of the read.
    pub(crate) finished: Instant,
    pub(crate) names: BTreeSet<String>,
}

/// Period after a loss of contents, during which a system may lack entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loss {
    pub(crate) system: &'static str,
    pub(crate) from: Instant,
    pub(crate) to: Instant,
}

impl Loss {
    /// Returns whether a read of `system` overlaps this period.
    pub(crate) fn covers(&self, system: &str, started: Instant, finished: Instant) -> bool {
        self.system == system && started <= self.to && finished >= self.from
    }
}

/// Expected contents: instants at which each name was added or removed.
#[derive(Debug, Default)]
pub(crate) struct ExpectedEntries(BTreeMap<String, Vec<(Instant, bool)>>);

impl ExpectedEntries {
    /// Records a change. Must be called before a removal and after an addition.
    pub(crate) fn record(&mut self, name: &str, exists: bool) {
        let of = self.0.entry(name.to_owned()).or_default();
        if of.last().is_none_or(|(_, before)| *before != exists) {
            of.push((Instant::now(), exists));
        }
    }

    /// Records that a restore of the cluster has brought a removed object back. The program can detect this only by its
    /// next audit, within `limit`. Until then, the program may still remove the entry.
    pub(crate) fn record_revived(&mut self, name: &str, limit: Duration) {
        self.0.entry(name.to_owned()).or_default().push((Instant::now() + limit, true));
    }

    /// Returns the names that must exist now.
    pub(crate) fn now(&self) -> BTreeSet<String> {
        let existing = self.0.iter().filter(|(_, of)| of.last().is_some_and(|(_, exists)| *exists));
        existing.map(|(name, _)| name.clone()).collect()
    }

    /// Returns whether `name` had to exist during the whole period.
    fn had_to_exist(&self, name: &str, from: Instant, to: Instant) -> bool {
        let Some(of) = self.0.get(name) else { return false };
        let at_first = of.iter().rev().find(|(when, _)| *when <= from).is_some_and(|(_, exists)| *exists);
        at_first && of.iter().all(|(when, exists)| *exists || *when <= from || *when > to)
    }

    /// Describes the changes of `name`, by their time before `now`.
    fn history(&self, name: &str, now: Instant) -> String {
        let changes = self.0.get(name).into_iter().flatten();
        let described = changes.map(|(when, exists)| {
            let word = if *exists { "wanted" } else { "not wanted" };
            format!("{word} {:.1} s before", now.saturating_duration_since(*when).as_secs_f64())
        });
        described.collect::<Vec<_>>().join(", ")
    }
}

/// Returns the number of removed entries. An error names an entry of a ready pod that was removed outside of `losses`.
pub(crate) fn check_removals(expected: &ExpectedEntries, losses: &[Loss], samples: &[Sample]) -> Result<usize, String> {
    let (mut last, mut removals) = (BTreeMap::<&str, &Sample>::new(), 0);
    for sample in samples {
        if let Some(before) = last.insert(sample.target, sample) {
            let from = before.started.checked_sub(GRACE).unwrap_or(before.started);
            let is_lost = losses.iter().any(|loss| loss.covers(sample.target, before.started, sample.finished));
            for name in before.names.difference(&sample.names) {
                removals += 1;
                if !is_lost && expected.had_to_exist(name, from, sample.finished) {
                    let (target, of, left) = (sample.target, before.names.len(), sample.names.len());
                    let absent: Vec<_> = before.names.difference(&sample.names).collect();
                    let new: Vec<_> = sample.names.difference(&before.names).collect();
                    let history = expected.history(name, sample.finished);
                    return Err(format!(
                        "{target}: {name} was removed although it exists ({left} of {of} are left); {history}; \
                         absent {absent:?}, new {new:?}"
                    ));
                }
            }
        }
    }
    Ok(removals)
}

mod tests {
    use super::*;

    fn sample(started: Instant, names: &[&str]) -> Sample {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        Sample { target: "DNS", started, finished: started, names }
    }

    #[test]
    fn revived_object_is_judged_after_audit() {
        let mut expected = ExpectedEntries::default();
        expected.record("a", true);
        expected.record("a", false);
        let audit = Duration::from_secs(5);
        expected.record_revived("a", audit);
        assert_eq!(expected.now(), BTreeSet::from(["a".to_owned()]));
        let at = |seconds: u64| Instant::now() + Duration::from_secs(seconds);
        let removed = |seconds: u64| [sample(at(seconds), &["a"]), sample(at(seconds + 1), &[])];
        assert_eq!(check_removals(&expected, &[], &removed(4)), Ok(1), "not detected yet");
        let fault = check_removals(&expected, &[], &removed(9)).expect_err("detected for a while");
        assert!(fault.starts_with("DNS: a was removed although it exists"), "{fault}");
        // If the object is removed again, the entry may be removed without a delay.
        expected.record("a", false);
        assert_eq!(check_removals(&expected, &[], &removed(9)), Ok(1));
        assert!(expected.now().is_empty());
    }
}
