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
    for fault_result in &fault_results.results {
        let title = if previous_title == fault_result.title {
            String::new()
        } else {
            format!("{} {}", fault_result.fault, fault_result.title)
        };
        previous_title = &fault_result.title;
        if let Some(error) = &fault_result.error {
            let _ = writeln!(text, "| {title} | {} | not run: {error} | | | | | | | | |", fault_result.library);
            continue;
        }
        let _ = writeln!(
            text,
            "| {title} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            fault_result.library,
            fault_result.reported_after.map_or_else(|| "never".to_owned(), format_seconds),
            fault_result.recovery(),
            fault_result.lists,
            fault_result.watches,
            format_number((fault_result.bytes as f64 / 1e3).round()),
            count(fault_result.lost),
            count(fault_result.merged),
            count(fault_result.repeated),
            count(fault_result.older),
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
    for fault_result in &fault_results.results {
        let is_row =
            |(fault, title): &(&str, &str)| fault_result.fault == *fault && fault_result.title.starts_with(title);
        if !titles.contains(&(&fault_result.fault, &fault_result.title))
            && selected.is_none_or(|selected| selected.iter().any(is_row))
        {
            titles.push((&fault_result.fault, &fault_result.title));
        }
    }
    for (fault, title) in titles {
        let cells = Library::COMPARED.map(|library| {
            let is_row = |fault_result: &&FaultResult| {
                fault_result.library == library && fault_result.fault == fault && fault_result.title == title
            };
            fault_results.results.iter().find(is_row).map_or_else(|| "-".to_owned(), summary_cell_text)
        });
        let _ = writeln!(text, "| {fault} {title} | {} |", cells.join(" | "));
    }
    text
}

fn summary_cell_text(fault_result: &FaultResult) -> String {
    if fault_result.error.is_some() {
        return "not run".to_owned();
    }
    let lists = match fault_result.lists {
        1 => "1 list".to_owned(),
        lists => format!("{lists} lists"),
    };
    let deviations = [
        (fault_result.lost, "lost"),
        (fault_result.merged, "merged"),
        (fault_result.repeated, "repeated"),
        (fault_result.older, "older"),
    ];
    let deviations =
        deviations.iter().filter(|(times, _)| *times > 0).map(|(times, kind)| format!(", **{times} {kind}**"));
    format!("{}, {lists}{}", fault_result.recovery(), deviations.collect::<String>())
}

fn count(times: usize) -> String {
    if times == 0 { "0".to_owned() } else { format!("**{times}**") }
}
