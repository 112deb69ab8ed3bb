//! What playing a scenario finds out.

use std::time::Duration;

use steadfast_apiserver::RequestCounts;
use steadfast_contract::Report;

/// What playing a scenario found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Findings {
    /// What the checker of the contract says.
    pub report: Report,
    /// What the scenario itself expected and did not find, its bounds included.
    pub unmet: Vec<String>,
    /// From the fault to the first doubt; none where nothing had to be noticed, or it was over too soon to be seen.
    pub notice: Option<Duration>,
    /// From the end of the fault until everything was there and fresh; none where there was nothing to recover.
    pub recover: Option<Duration>,
    /// What was requested of the server in all.
    pub requests: RequestCounts,
    /// What was requested of it from the first fault on.
    pub cost: Cost,
    /// How long it all took.
    pub took: Duration,
}

/// What was requested of the server because of a fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Full transfers, streamed or in pages.
    pub lists: usize,
    /// Watches from a version.
    pub watches: usize,
    /// Lists with `limit=1`.
    pub probes: usize,
    /// Bytes of the bodies of all answers.
    pub bytes: u64,
}

impl Cost {
    /// What was requested between two counts.
    pub(super) fn between(before: &RequestCounts, after: &RequestCounts) -> Self {
        Self {
            lists: after.full_transfers() - before.full_transfers(),
            watches: after.watches - before.watches,
            probes: after.probes - before.probes,
            bytes: after.bytes - before.bytes,
        }
    }
}

impl Findings {
    /// Everything that is wrong: what was not met, and what the checker says. Empty where the scenario was passed.
    pub fn problems(&self) -> Vec<String> {
        let malformed = self.report.malformed.iter().map(ToString::to_string);
        let broken = malformed.chain(self.report.breaches.iter().map(ToString::to_string));
        let missing = self.report.inconclusive.iter().map(ToString::to_string);
        self.unmet.iter().cloned().chain(broken).chain(missing).collect()
    }

    /// These and those of another run of the same scenario, as one.
    #[must_use]
    pub(super) fn and(mut self, other: Self) -> Self {
        self.report.breaches.extend(other.report.breaches);
        self.report.malformed.extend(other.report.malformed);
        self.report.inconclusive.extend(other.report.inconclusive);
        self.report.verdict.settled &= other.report.verdict.settled;
        for (handler, tally) in other.report.verdict.handlers {
            let sum = self.report.verdict.handlers.entry(handler).or_default();
            *sum = *sum + tally;
        }
        self.unmet.extend(other.unmet);
        // What did not happen in one of them did not happen.
        let both = |one: Option<Duration>, two: Option<Duration>| one.zip(two).map(|(one, two)| one.max(two));
        self.notice = both(self.notice, other.notice);
        self.recover = both(self.recover, other.recover);
        self.requests = sum(&self.requests, &other.requests);
        self.cost = Cost {
            lists: self.cost.lists + other.cost.lists,
            watches: self.cost.watches + other.cost.watches,
            probes: self.cost.probes + other.cost.probes,
            bytes: self.cost.bytes + other.cost.bytes,
        };
        self.took += other.took;
        self
    }
}

fn sum(one: &RequestCounts, other: &RequestCounts) -> RequestCounts {
    RequestCounts {
        lists: one.lists + other.lists,
        pages: one.pages + other.pages,
        probes: one.probes + other.probes,
        streamed_lists: one.streamed_lists + other.streamed_lists,
        watches: one.watches + other.watches,
        gets: one.gets + other.gets,
        writes: one.writes + other.writes,
        bytes: one.bytes + other.bytes,
        most_concurrent_transfers: one.most_concurrent_transfers.max(other.most_concurrent_transfers),
    }
}
