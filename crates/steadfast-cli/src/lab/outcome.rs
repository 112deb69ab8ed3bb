//! What came of a scenario.

use std::time::Duration;

use serde::Serialize;
use steadfast_contract::Tally;
use steadfast_testing::menu::{Findings, Scenario};

/// What came of a scenario, as it is told.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) name: &'static str,
    pub(crate) source: String,
    pub(crate) faults: Vec<String>,
    pub(crate) passed: bool,
    pub(crate) changes: usize,
    pub(crate) seen: usize,
    pub(crate) lost: usize,
    pub(crate) repeated: usize,
    pub(crate) out_of_order: usize,
    pub(crate) notice_ms: Option<u64>,
    pub(crate) notice_bound_ms: Option<u64>,
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
    pub(crate) fn of(scenario: &Scenario, findings: &Findings) -> Self {
        let problems = findings.problems();
        let Tally { changes, seen, lost, repeated, out_of_order, .. } = findings.report.verdict.total();
        let Findings { notice, recover, requests, took, .. } = *findings;
        Self {
            name: scenario.name,
            source: scenario.source.to_string(),
            faults: scenario.faults.iter().map(ToString::to_string).collect(),
            passed: problems.is_empty(),
            changes,
            seen,
            lost,
            repeated,
            out_of_order,
            notice_ms: notice.map(millis),
            notice_bound_ms: scenario.bounds.notice.map(millis),
            recover_ms: recover.map(millis),
            lists: requests.full_transfers(),
            watches: requests.watches,
            bytes: requests.bytes,
            took_ms: millis(took),
            problems,
        }
    }

    /// The outcome of `scenario` where it could not be played to its end.
    pub(crate) fn failed(scenario: &Scenario, why: String) -> Self {
        Self {
            name: scenario.name,
            source: scenario.source.to_string(),
            faults: scenario.faults.iter().map(ToString::to_string).collect(),
            passed: false,
            changes: 0,
            seen: 0,
            lost: 0,
            repeated: 0,
            out_of_order: 0,
            notice_ms: None,
            notice_bound_ms: scenario.bounds.notice.map(millis),
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
