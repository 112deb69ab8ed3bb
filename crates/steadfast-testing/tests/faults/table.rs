//! `docs/faults.md` is what a fresh run gives; `STEADFAST_REWRITE=1` writes it.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use steadfast_testing::menu::{Fault, Findings, Ground, Scenario, Trouble, scenarios};

use crate::play;

const HEAD: &str = "\
# The menu of faults, played

What is done to Steadfast, what it notices and when, and what that costs the server. The table is made from runs in
virtual time, with the library's default settings and seed 0, by `cargo test -p steadfast-testing --test faults`, which
fails where it is no longer true (`STEADFAST_REWRITE=1` writes it anew). `steadfast lab all` plays the same over TCP and
TLS in real time; `steadfast lab --list F4` explains a scenario with its bounds.

- **Noticed**: from the fault to the first doubt in `freshness()`, reported to an observer that sees nothing else; in brackets
  what it may be at most. `-` where no doubt has to arise, because nothing is missing that long.
- **Recovered**: from the end of the fault (or from its beginning, where it does not end) until everything is there and
  fresh; in brackets what it may be at most.
- **LISTs**, **WATCHes**, **probes**, **bytes**: what the server was asked for from the first fault on, by all informers of
  the scenario together. LISTs are full transfers, streamed ones and attempts included; 0 wherever resuming is possible.

Every run is judged by the checker of [the contract](contract.md) too: no change lost, none delivered twice, none out of order.

| fault | scenario | held to | noticed | recovered | LISTs | WATCHes | probes | bytes |
|---|---|---|---|---|--:|--:|--:|--:|
";

const SCENARIOS: &str = "
## What each scenario is

";

fn row(fault: Fault, scenario: &Scenario, findings: &Findings) -> String {
    let bounds = scenario.bounds;
    let lists = match bounds.lists {
        Some(most) if most > findings.cost.lists => format!("{} (≤ {most})", findings.cost.lists),
        _ => findings.cost.lists.to_string(),
    };
    format!(
        "| {fault} {} | `{}` | {} | {} | {} | {lists} | {} | {} | {} |\n",
        fault.title(),
        scenario.name,
        scenario.clauses,
        dated(findings.notice, bounds.notice),
        dated(findings.recover, bounds.recover),
        findings.cost.watches,
        findings.cost.probes,
        bytes(findings.cost.bytes),
    )
}

fn bytes(count: u64) -> String {
    if count < 1000 { format!("{count} B") } else { format!("{} kB", count / 1000) }
}

fn dated(took: Option<Duration>, limit: Option<Duration>) -> String {
    let Some(took) = took else { return "-".to_owned() };
    // Coarse, so that the document changes with what the library does and not with each draw of its jitter.
    let told = match took.as_millis() {
        0..10 => "at once".to_owned(),
        10..1000 => "< 1 s".to_owned(),
        millis => format!("{} s", millis.div_ceil(1000)),
    };
    limit.map_or(told.clone(), |limit| format!("{told} (≤ {} s)", limit.as_secs()))
}

#[test]
fn the_document_says_what_a_fresh_run_gives() -> Result<(), Trouble> {
    let mut document = HEAD.to_owned();
    let mut summaries = SCENARIOS.to_owned();
    let mut missing = String::new();
    for fault in Fault::ALL {
        if let Some(why) = fault.cannot_be_made() {
            let _ = writeln!(missing, "- **{fault}, {}**: {why}.", fault.title());
        }
        for scenario in scenarios::of(fault) {
            let findings = play(scenario, Ground::in_memory(0))?;
            assert_eq!(findings.problems(), [""; 0], "{fault}, {}", scenario.name);
            document.push_str(&row(fault, scenario, &findings));
            if scenario.faults[0] == fault {
                let _ = writeln!(summaries, "- **`{}`**: {}", scenario.name, scenario.summary);
            }
        }
    }
    let document = format!("{document}{summaries}\n## What cannot be made\n\n{missing}");
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/faults.md");
    if std::env::var("STEADFAST_REWRITE").is_ok() {
        std::fs::write(&path, &document)?;
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    for (line, (is, was)) in document.lines().zip(written.lines()).enumerate() {
        assert_eq!(is, was, "line {} of docs/faults.md; STEADFAST_REWRITE=1 writes it anew", line + 1);
    }
    assert_eq!(document.len(), written.len(), "docs/faults.md ends elsewhere; STEADFAST_REWRITE=1 writes it anew");
    Ok(())
}
