//! Result of a scenario.

use std::time::Duration;

use serde::Serialize;
use steadfast_contract::HandlerCounts;
use steadfast_testing::scenarios::{CatalogFault, Scenario, ScenarioFindings, Timeline};

/// Reported result of a scenario.
#[derive(Debug, Default, Serialize)]
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
    /// Reasons why the scenario failed.
    pub(crate) problems: Vec<String>,
    /// Number of violations of the contract, and of checks without a result; `None` if the scenario did not complete.
    #[serde(skip)]
    pub(crate) violations: Option<usize>,
    /// Number of full transfers from the first fault on; `None` if the scenario did not complete.
    #[serde(skip)]
    pub(crate) lists_from_fault: Option<usize>,
    /// Course of each run.
    #[serde(skip)]
    pub(crate) timelines: Vec<Timeline>,
}

impl Outcome {
    /// Creates the result of a completed `scenario`.
    pub(crate) fn completed(scenario: &Scenario, findings: &ScenarioFindings) -> Self {
        // Starts from a failed result, so that only `with_counts` can mark the scenario as passed.
        let incomplete = Self::failed(scenario, String::new());
        Self { problems: findings.problems(), ..incomplete }.with_counts(findings)
    }

    /// Creates the result of several concurrent faults.
    pub(crate) fn combined(faults: &[CatalogFault], findings: &ScenarioFindings) -> Self {
        let incomplete = Self {
            name: "together",
            source: "catalog".to_owned(),
            faults: faults.iter().map(ToString::to_string).collect(),
            problems: findings.problems(),
            ..Self::default()
        };
        incomplete.with_counts(findings)
    }

    fn with_counts(self, findings: &ScenarioFindings) -> Self {
        let HandlerCounts { changes, seen, lost, repeated, out_of_order, .. } = findings.report.verdict.total();
        let report = &findings.report;
        let violations = report.violations.len() + report.malformed.len() + report.inconclusive.len();
        Self {
            passed: self.problems.is_empty(),
            changes,
            seen,
            lost,
            repeated,
            out_of_order,
            notice_ms: findings.detection.map(millis),
            recover_ms: findings.recovery.map(millis),
            lists: findings.requests.full_transfers(),
            watches: findings.requests.watches,
            bytes: findings.requests.bytes,
            took_ms: millis(findings.took),
            violations: Some(violations),
            lists_from_fault: Some(findings.cost.lists),
            timelines: findings.timelines.clone(),
            ..self
        }
    }

    /// Creates the result of a `scenario` that did not complete.
    pub(crate) fn failed(scenario: &Scenario, reason: String) -> Self {
        Self {
            name: scenario.name,
            source: scenario.source.to_string(),
            faults: scenario.faults.iter().map(ToString::to_string).collect(),
            notice_bound_ms: scenario.bounds.detection.map(millis),
            problems: vec![reason],
            ..Self::default()
        }
    }

    /// Returns whether the contract and all expectations of the scenario were met.
    pub(crate) fn passed(&self) -> bool {
        self.passed
    }
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis() as u64
}
