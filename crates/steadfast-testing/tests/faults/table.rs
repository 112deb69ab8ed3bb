//! Checks that `docs/faults.md` matches a fresh run. `STEADFAST_REWRITE=1` rewrites it.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use steadfast_testing::TestkitError;
use steadfast_testing::scenarios::{CatalogFault, Scenario, ScenarioFindings, ScenarioTarget, catalog};

use crate::run_scenario;

const INTRODUCTION: &str = "\
# Faults and scenarios

This page lists the faults that the tests inject, the detection and recovery times of Steadfast, and the cost for the server.
`cargo test -p steadfast-testing --test faults` creates the table from runs in virtual time, with the library's default
settings and seed 0. The test fails if the table is out of date; `STEADFAST_REWRITE=1` updates it. `steadfast lab all` runs the
same scenarios over TCP and TLS in real time. `steadfast lab --list F4` describes the scenarios of fault F4 with their bounds.

- **Checked clauses**: the clauses of [the contract](contract.md) that the scenario checks.
- **Noticed**: time from the fault to the first doubt in `freshness()`, with the permitted maximum in brackets. `-` if the
  scenario does not measure this time.
- **Recovered**: time from the end of the fault until the cache is complete and fresh, with the permitted maximum in brackets.
  For a fault that does not end, the time starts with the fault.
- **LISTs**, **WATCHes**, **probes**, **bytes**: requests and traffic from the first fault on, for all informers of the scenario
  together. LISTs are full transfers, including streamed lists and failed attempts. Their number is 0 if resuming is possible.

The checker of the contract also checks every run: no change is lost, delivered twice or out of order.

| fault | scenario | checked clauses | noticed | recovered | LISTs | WATCHes | probes | bytes |
|---|---|---|---|---|--:|--:|--:|--:|
";

const SCENARIOS: &str = "
## Scenarios

";

fn row(fault: CatalogFault, scenario: &Scenario, findings: &ScenarioFindings) -> String {
    let bounds = scenario.bounds;
    let lists = match bounds.lists {
        Some(max_lists) if max_lists > findings.cost.lists => format!("{} (≤ {max_lists})", findings.cost.lists),
        _ => findings.cost.lists.to_string(),
    };
    format!(
        "| {fault} {} | `{}` | {} | {} | {} | {lists} | {} | {} | {} |\n",
        fault.title(),
        scenario.name,
        scenario.clauses,
        time_cell(findings.detection, bounds.detection),
        time_cell(findings.recovery, bounds.recovery),
        findings.cost.watches,
        findings.cost.probes,
        bytes(findings.cost.bytes),
    )
}

fn bytes(count: u64) -> String {
    if count < 1000 { format!("{count} B") } else { format!("{} kB", count / 1000) }
}

fn time_cell(time: Option<Duration>, limit: Option<Duration>) -> String {
    let Some(time) = time else { return "-".to_owned() };
    // The time is rounded coarsely, so that the document does not change with each random jitter.
    let text = match time.as_millis() {
        0..10 => "immediately".to_owned(),
        10..1000 => "< 1 s".to_owned(),
        millis => format!("{} s", millis.div_ceil(1000)),
    };
    limit.map_or(text.clone(), |limit| format!("{text} (≤ {} s)", limit.as_secs()))
}

#[test]
fn fault_document_matches_fresh_run() -> Result<(), TestkitError> {
    let mut document = INTRODUCTION.to_owned();
    let mut summaries = SCENARIOS.to_owned();
    let mut untestable = String::new();
    for fault in CatalogFault::ALL {
        if let Some(reason) = fault.unsupported_reason() {
            let _ = writeln!(untestable, "- **{fault}, {}**: {reason}.", fault.title());
        }
        for scenario in catalog::of(fault) {
            let findings = run_scenario(scenario, ScenarioTarget::in_memory(0))?;
            assert_eq!(findings.problems(), [""; 0], "{fault}, {}", scenario.name);
            document.push_str(&row(fault, scenario, &findings));
            if scenario.faults[0] == fault {
                let _ = writeln!(summaries, "- **`{}`**: {}", scenario.name, scenario.summary);
            }
        }
    }
    let document = format!("{document}{summaries}\n## Not testable\n\n{untestable}");
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/faults.md");
    if std::env::var("STEADFAST_REWRITE").is_ok() {
        std::fs::write(&path, &document)?;
    }
    let current = std::fs::read_to_string(&path).unwrap_or_default();
    for (number, (new_line, current_line)) in document.lines().zip(current.lines()).enumerate() {
        assert_eq!(new_line, current_line, "line {} of docs/faults.md; STEADFAST_REWRITE=1 updates it", number + 1);
    }
    assert_eq!(document.len(), current.len(), "docs/faults.md ends elsewhere; STEADFAST_REWRITE=1 updates it");
    Ok(())
}
