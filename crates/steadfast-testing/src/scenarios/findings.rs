//! The result of a scenario.

use std::time::Duration;

use steadfast_apiserver::RequestCounts;
use steadfast_contract::Report;

use super::timeline::Timeline;

/// Result of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScenarioFindings {
    /// Report of the contract checker.
    pub report: Report,
    /// Unmet expectations of the scenario itself, including its bounds.
    pub unmet: Vec<String>,
    /// Time from the fault to the first doubt. `None` if no doubt was expected, or if the fault ended before it could
    /// be noticed.
    pub detection: Option<Duration>,
    /// Time from the end of the fault until every object was present and fresh. `None` if nothing had to recover.
    pub recovery: Option<Duration>,
    /// Number of all requests to the server.
    pub requests: RequestCounts,
    /// Cost for the server from the first fault on.
    pub cost: Cost,
    /// Duration of the run.
    pub took: Duration,
    /// Course of the run. A scenario of several runs has one for each, in order.
    pub timelines: Vec<Timeline>,
}

/// Cost of a fault for the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cost {
    /// Full transfers, streamed or paged.
    pub lists: usize,
    /// Watches from a version.
    pub watches: usize,
    /// Lists with `limit=1`.
    pub probes: usize,
    /// Bytes in the bodies of all responses.
    pub bytes: u64,
}

impl Cost {
    /// Counts the requests between two snapshots.
    pub(super) fn between(before: &RequestCounts, after: &RequestCounts) -> Self {
        // Counters never decrease: the server keeps them across restarts.
        Self {
            lists: after.full_transfers() - before.full_transfers(),
            watches: after.watches - before.watches,
            probes: after.probes - before.probes,
            bytes: after.bytes - before.bytes,
        }
    }
}

impl ScenarioFindings {
    /// Returns all problems: the unmet expectations, and the violations that the checker found. Empty if the scenario
    /// passed.
    pub fn problems(&self) -> Vec<String> {
        let malformed = self.report.malformed.iter().map(ToString::to_string);
        let violations = malformed.chain(self.report.violations.iter().map(ToString::to_string));
        // An inconclusive check counts as a problem, too. Otherwise a broken recorder would look like a success.
        let inconclusive = self.report.inconclusive.iter().map(ToString::to_string);
        self.unmet.iter().cloned().chain(violations).chain(inconclusive).collect()
    }

    /// Combines these findings with those of another run of the same scenario.
    #[must_use]
    pub(super) fn and(mut self, other: Self) -> Self {
        self.report.violations.extend(other.report.violations);
        self.report.malformed.extend(other.report.malformed);
        self.report.inconclusive.extend(other.report.inconclusive);
        // Both runs must have settled.
        self.report.verdict.settled &= other.report.verdict.settled;
        for (handler, tally) in other.report.verdict.handlers {
            let sum = self.report.verdict.handlers.entry(handler).or_default();
            *sum = *sum + tally;
        }
        self.unmet.extend(other.unmet);
        // A time exists only if both runs have one.
        let max_if_both = |one: Option<Duration>, two: Option<Duration>| one.zip(two).map(|(one, two)| one.max(two));
        self.detection = max_if_both(self.detection, other.detection);
        self.recovery = max_if_both(self.recovery, other.recovery);
        self.requests = sum(&self.requests, &other.requests);
        self.cost = Cost {
            lists: self.cost.lists + other.cost.lists,
            watches: self.cost.watches + other.cost.watches,
            probes: self.cost.probes + other.cost.probes,
            bytes: self.cost.bytes + other.cost.bytes,
        };
        self.took += other.took;
        self.timelines.extend(other.timelines);
        self
    }
}

fn sum(one: &RequestCounts, other: &RequestCounts) -> RequestCounts {
    let mut sum = *one;
    sum.lists += other.lists;
    sum.pages += other.pages;
    sum.probes += other.probes;
    sum.streamed_lists += other.streamed_lists;
    sum.watches += other.watches;
    sum.gets += other.gets;
    sum.writes += other.writes;
    sum.bytes += other.bytes;
    sum.most_concurrent_transfers = sum.most_concurrent_transfers.max(other.most_concurrent_transfers);
    sum
}
