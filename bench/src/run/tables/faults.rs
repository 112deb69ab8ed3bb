//! Tables of the results under faults.

use std::fmt::Write;

use crate::run::client_variant::Library;
use crate::run::number::{format_number, format_seconds};
use crate::run::results::{FaultResult, FaultResults};

/// Returns the complete table, with a row for each fault and library.
pub(in crate::run) fn table(fault_results: &FaultResults) -> String {
    let mut text = String::from(
        "| fault | | reported after | recovered after | LISTs | WATCHes | KB | lost | merged | repeated | older |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let mut previous_title = "";
    for verdict in &fault_results.verdicts {
        let title = if previous_title == verdict.title {
            String::new()
        } else {
            format!("{} {}", verdict.fault, verdict.title)
        };
        previous_title = &verdict.title;
        if let Some(error) = &verdict.error {
            let _ = writeln!(text, "| {title} | {} | not run: {error} | | | | | | | | |", verdict.library);
            continue;
        }
        let _ = writeln!(
            text,
            "| {title} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            verdict.library,
            verdict.noticed.map_or_else(|| "never".to_owned(), format_seconds),
            verdict.recovery(),
            verdict.lists,
            verdict.watches,
            format_number((verdict.bytes as f64 / 1e3).round()),
            count(verdict.lost),
            count(verdict.merged),
            count(verdict.repeated),
            count(verdict.older),
        );
    }
    text
}

/// Returns a table with a row for each fault and a column for each library. A cell contains the recovery time, the
/// number of lists, and the numbers of lost, merged, repeated and older events. `selected` contains the faults by number
/// and prefix of the title.
pub(in crate::run) fn summary(fault_results: &FaultResults, selected: Option<&[(&str, &str)]>) -> String {
    let mut text = String::from("| | Steadfast | kube-runtime | client-go |\n|---|---|---|---|\n");
    let mut titles: Vec<(&str, &str)> = Vec::new();
    for verdict in &fault_results.verdicts {
        let is_row = |(fault, title): &(&str, &str)| verdict.fault == *fault && verdict.title.starts_with(title);
        if !titles.contains(&(&verdict.fault, &verdict.title))
            && selected.is_none_or(|selected| selected.iter().any(is_row))
        {
            titles.push((&verdict.fault, &verdict.title));
        }
    }
    for (fault, title) in titles {
        let cells = Library::ALL.map(|library| {
            let is_row =
                |verdict: &&FaultResult| verdict.library == library && verdict.fault == fault && verdict.title == title;
            fault_results.verdicts.iter().find(is_row).map_or_else(|| "-".to_owned(), summary_cell_text)
        });
        let _ = writeln!(text, "| {fault} {title} | {} |", cells.join(" | "));
    }
    text
}

fn summary_cell_text(verdict: &FaultResult) -> String {
    if verdict.error.is_some() {
        return "not run".to_owned();
    }
    let lists = match verdict.lists {
        1 => "1 list".to_owned(),
        lists => format!("{lists} lists"),
    };
    let deviations =
        [(verdict.lost, "lost"), (verdict.merged, "merged"), (verdict.repeated, "repeated"), (verdict.older, "older")];
    let deviations =
        deviations.iter().filter(|(times, _)| *times > 0).map(|(times, kind)| format!(", **{times} {kind}**"));
    format!("{}, {lists}{}", verdict.recovery(), deviations.collect::<String>())
}

fn count(times: usize) -> String {
    if times == 0 { "0".to_owned() } else { format!("**{times}**") }
}
