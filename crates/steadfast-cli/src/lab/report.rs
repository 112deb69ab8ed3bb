//! Reports of the results, as text or JSON.

use std::fmt::Arguments;
use std::io::{self, Write};

use serde::Serialize;
use steadfast_testing::scenarios::Scenario;

use super::outcome::Outcome;
use crate::byte_count::format_bytes;
use crate::cli::Output;
use crate::failure::Failure;

/// Maximum number of problems of one scenario in a text report; one cause often affects every object.
const MAX_SHOWN_PROBLEMS: usize = 8;

/// Prints descriptions of scenarios.
pub(crate) fn print_descriptions(scenarios: &[&Scenario]) {
    for scenario in scenarios {
        let Scenario { name, source, summary, clauses, bounds, .. } = scenario;
        let faults = faults(scenario.faults);
        let separator = if faults.is_empty() { "" } else { ", " };
        let mut expectations = vec![format!("checks {clauses}")];
        let mut add_bound = |description: &str, limit: Option<std::time::Duration>| {
            expectations.extend(limit.map(|limit| format!("{description} within {} s", limit.as_secs())));
        };
        add_bound("noticed", bounds.detection);
        add_bound("recovered", bounds.recovery);
        expectations.extend(bounds.lists.map(|lists| format!("at most {lists} LISTs from the fault on")));
        let expectations = expectations.join("; ");
        print_line(
            Output::Text,
            format_args!("{name} ({faults}{separator}{source})\n    {summary}\n    {expectations}"),
        );
    }
}

fn faults(faults: &[steadfast_testing::scenarios::CatalogFault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// Reports the start of the run.
pub(crate) fn report_start(scenarios: &[&Scenario], output: Output) {
    let seconds = scenarios.iter().map(|scenario| scenario.seconds).max().unwrap_or_default();
    let count = scenarios.len();
    print_line(
        output,
        format_args!("{count} scenarios, each with a server of its own, over TCP; the longest takes {seconds} s"),
    );
}

/// Reports the schedule of faults.
pub(crate) fn report_schedule(log: &str, output: Output) {
    print_line(output, format_args!("{}", log.trim_end()));
}

/// Reports a result immediately after its scenario.
pub(crate) fn report_outcome(outcome: &Outcome, output: Output) {
    let verdict = if outcome.passed { "ok    " } else { "FAILED" };
    let Outcome { name, changes, lost, repeated, out_of_order, took_ms, .. } = outcome;
    let took = format_duration(Some(*took_ms));
    print_line(
        output,
        format_args!(
            "{verdict} {name:<22} {changes} changes: {lost} lost, {repeated} repeated, {out_of_order} out of order; \
             took {took}"
        ),
    );
    for problem in outcome.problems.iter().take(MAX_SHOWN_PROBLEMS) {
        print_line(output, format_args!("         {problem}"));
    }
    if outcome.problems.len() > MAX_SHOWN_PROBLEMS {
        print_line(output, format_args!("         and {} more", outcome.problems.len() - MAX_SHOWN_PROBLEMS));
    }
}

/// Prints the table at the end.
pub(crate) fn print_table(outcomes: &[Outcome]) {
    let headings = [
        "scenario", "changes", "seen", "lost", "repeated", "disorder", "notice", "at most", "recover", "LISTs",
        "WATCHes", "bytes",
    ];
    let cells = |outcome: &Outcome| {
        [
            outcome.name.to_owned(),
            outcome.changes.to_string(),
            outcome.seen.to_string(),
            outcome.lost.to_string(),
            outcome.repeated.to_string(),
            outcome.out_of_order.to_string(),
            format_duration(outcome.notice_ms),
            format_duration(outcome.notice_bound_ms),
            format_duration(outcome.recover_ms),
            outcome.lists.to_string(),
            outcome.watches.to_string(),
            format_bytes(outcome.bytes),
        ]
    };
    let rows: Vec<[String; 12]> = outcomes.iter().map(cells).collect();
    let widths: Vec<usize> = (0..headings.len())
        .map(|column| {
            rows.iter().map(|row| row[column].len()).chain([headings[column].len()]).max().unwrap_or_default()
        })
        .collect();
    let line = |cells: &[String]| {
        let padded = cells.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        padded.collect::<Vec<_>>().join("  ")
    };
    print_line(Output::Text, format_args!("\n{}", line(&headings.map(str::to_owned))));
    for row in &rows {
        print_line(Output::Text, format_args!("{}", line(row)));
    }
    let failed = outcomes.iter().filter(|outcome| !outcome.passed).count();
    match failed {
        0 => print_line(Output::Text, format_args!("\nall {} passed", outcomes.len())),
        _ => print_line(Output::Text, format_args!("\n{failed} of {} failed", outcomes.len())),
    }
}

#[derive(Serialize)]
struct LabReport<'a> {
    passed: bool,
    scenarios: &'a [Outcome],
}

/// Prints all results as one JSON object.
pub(crate) fn print_json(outcomes: &[Outcome]) -> Result<(), Failure> {
    let lab_report = LabReport { passed: outcomes.iter().all(Outcome::passed), scenarios: outcomes };
    let text = serde_json::to_string_pretty(&lab_report).map_err(Failure::run)?;
    writeln!(io::stdout(), "{text}").map_err(|error| Failure::run(format!("the outcome cannot be written: {error}")))
}

/// Writes a progress line: to standard output, or to standard error if standard output is JSON. A closed pipe is
/// ignored.
fn print_line(output: Output, line: Arguments<'_>) {
    // Standard output carries only the JSON document in that format.
    let _ = match output {
        Output::Text => writeln!(io::stdout(), "{line}"),
        Output::Json => writeln!(io::stderr(), "{line}"),
    };
}

/// Formats a duration: `-`, `<1 ms`, `12 ms`, `3.4 s`.
pub(crate) fn format_duration(ms: Option<u64>) -> String {
    match ms {
        None => "-".to_owned(),
        Some(0) => "<1 ms".to_owned(),
        Some(ms @ 1..1000) => format!("{ms} ms"),
        Some(ms) => format!("{:.1} s", ms as f64 / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_readable() {
        assert_eq!([None, Some(0), Some(12), Some(3449)].map(format_duration), ["-", "<1 ms", "12 ms", "3.4 s"]);
    }
}
