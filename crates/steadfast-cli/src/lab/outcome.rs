//! What came of a scenario.

use std::time::Duration;

use serde::Serialize;
use steadfast_apiserver::RequestCounts;
use steadfast_contract::{Report, Tally};

use super::scenario::Scenario;

/// What a scenario found out.
#[derive(Debug)]
pub(crate) struct Findings {
    /// What the checker of the contract says.
    pub(crate) report: Report,
    /// What the scenario itself expected and did not find.
    pub(crate) unmet: Vec<String>,
    /// From the fault to the first doubt; none where nothing had to be noticed, or it was over too soon to be seen.
    pub(crate) notice: Option<Duration>,
    /// From the end of the fault until everything was there and fresh; none where there was nothing to recover.
    pub(crate) recover: Option<Duration>,
    /// What the server was asked for.
    pub(crate) requests: RequestCounts,
    /// How long it all took.
    pub(crate) took: Duration,
}

/// What came of a scenario, as it is told.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) name: &'static str,
    pub(crate) source: String,
    pub(crate) passed: bool,
    pub(crate) changes: usize,
    pub(crate) seen: usize,
    pub(crate) lost: usize,
    pub(crate) repeated: usize,
    pub(crate) out_of_order: usize,
    pub(crate) notice_ms: Option<u64>,
    pub(crate) recover_ms: Option<u64>,
    pub(crate) lists: usize,
    pub(crate) watches: usize,
    pub(crate) bytes: u64,
    pub(crate) took_ms: u64,
    /// Why it was not passed.
    pub(crate) problems: Vec<String>,
}

impl Outcome {
    /// The outcome of `scenario`, played to its end.
    pub(crate) fn of(scenario: &Scenario, findings: Findings) -> Self {
        let Findings { report, mut unmet, notice, recover, requests, took } = findings;
        let Tally { changes, seen, lost, repeated, out_of_order, .. } = report.verdict.total();
        let broken = report.malformed.iter().map(ToString::to_string);
        unmet.extend(broken.chain(report.breaches.iter().map(ToString::to_string)));
        if !report.verdict.settled {
            unmet.push("the recorder was never settled, so nothing was judged as lost".to_owned());
        }
        Self {
            name: scenario.name,
            source: scenario.source.to_string(),
            passed: unmet.is_empty(),
            changes,
            seen,
            lost,
            repeated,
            out_of_order,
            notice_ms: notice.map(millis),
            recover_ms: recover.map(millis),
            lists: requests.full_transfers(),
            watches: requests.watches,
            bytes: requests.bytes,
            took_ms: millis(took),
            problems: unmet,
        }
    }

    /// The outcome of `scenario` where it could not be played to its end.
    pub(crate) fn failed(scenario: &Scenario, why: String) -> Self {
        Self {
            name: scenario.name,
            source: scenario.source.to_string(),
            passed: false,
            changes: 0,
            seen: 0,
            lost: 0,
            repeated: 0,
            out_of_order: 0,
            notice_ms: None,
            recover_ms: None,
            lists: 0,
            watches: 0,
            bytes: 0,
            took_ms: 0,
            problems: vec![why],
        }
    }

    /// Whether the contract held and the scenario found what it expected.
    pub(crate) fn passed(&self) -> bool {
        self.passed
    }
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis() as u64
}
