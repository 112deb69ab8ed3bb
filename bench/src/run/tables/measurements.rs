//! Tables of figures: a row for each client, a column for each measurement.

use std::fmt::Write;

use crate::run::client_variant::{Library, Resource};
use crate::run::number::format_number;
use crate::run::results::{Measurement, PartResults};

/// Most prominent table that contains a measurement. The tables of all earlier variants contain it, too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Prominence {
    /// In the complete tables.
    Tables,
    /// In the summary.
    Summary,
    /// On the first page, which has space for a few.
    FirstPage,
}

/// Groups of columns with their titles, and the most prominent table of each column.
const GROUPS: &[(&str, &[(&str, Prominence)])] = &[
    (
        "sync and memory",
        &[
            ("sync", Prominence::FirstPage),
            ("sync, CPU time", Prominence::Summary),
            ("sync, server's CPU time", Prominence::Summary),
            ("read a field of each", Prominence::Summary),
            ("resident", Prominence::FirstPage),
            ("resident, peak of the sync", Prominence::Summary),
        ],
    ),
    (
        "events",
        &[
            ("events", Prominence::Summary),
            ("CPU time per event", Prominence::FirstPage),
            ("server's CPU time per write", Prominence::Tables),
            ("resident, after the events", Prominence::Tables),
            ("write to handler, p50", Prominence::Summary),
            ("write to handler, p99", Prominence::FirstPage),
        ],
    ),
    (
        "reads during writes, and a relist",
        &[
            ("reads during writes", Prominence::Summary),
            ("get by names, p50", Prominence::Summary),
            ("get by names, p99", Prominence::Tables),
            ("get by key, p50", Prominence::FirstPage),
            ("get by key, p99", Prominence::Tables),
            ("list a namespace, p50", Prominence::Summary),
            ("list a namespace, p99", Prominence::Summary),
            ("relist, CPU time", Prominence::FirstPage),
            ("relist, peak relative to memory before", Prominence::Summary),
        ],
    ),
];

/// Returns all tables of a part, each with a heading of the third level.
pub(in crate::run) fn tables(part_results: &PartResults) -> String {
    let mut text = String::new();
    let mut finished_tables: Vec<(usize, Resource)> = Vec::new();
    for measurement in part_results.measurements() {
        let (size, resource) = (measurement.size, measurement.resource);
        if finished_tables.contains(&(size, resource)) {
            continue;
        }
        finished_tables.push((size, resource));
        let measurements: Vec<&Measurement> =
            // A table contains one size and one resource, because figures of different sizes are not comparable.
            part_results.measurements().iter().filter(|measurement| (measurement.size, measurement.resource) == (size, resource)).collect();
        for (group, columns) in GROUPS {
            let columns: Vec<&str> = columns.iter().map(|(metric, _)| *metric).collect();
            write_table(
                &mut text,
                &format!("{} {resource}: {group}", format_number(size as f64)),
                &columns,
                &measurements,
            );
        }
    }
    for failure in part_results.failures() {
        let size = format_number(failure.size as f64);
        let _ = writeln!(text, "Not measured: {} with {size} objects: {}.\n", failure.client, failure.why);
    }
    text
}

fn write_table(text: &mut String, title: &str, columns: &[&str], measurements: &[&Measurement]) {
    let columns: Vec<(&str, Vec<&Measurement>)> = columns
        .iter()
        .map(|metric| {
            (
                *metric,
                measurements.iter().copied().filter(|measurement| measurement.metric == *metric).collect::<Vec<_>>(),
            )
        })
        // A column without a figure is left out, for example at sizes that are measured without events.
        .filter(|(_, measurements)| !measurements.is_empty())
        .collect();
    if columns.is_empty() {
        return;
    }
    let headings = columns.iter().map(|(metric, measurements)| format!("{metric} ({})", measurements[0].unit));
    let _ = writeln!(text, "### {title}\n\n| | {} |", headings.collect::<Vec<_>>().join(" | "));
    let _ = writeln!(text, "|---|{}", "---|".repeat(columns.len()));
    for variant in distinct(
        columns.iter().flat_map(|(_, measurements)| measurements.iter().map(|measurement| &*measurement.client)),
    ) {
        let cells = columns.iter().map(|(_, measurements)| {
            let ours = measurements
                .iter()
                .find(|measurement| measurement.library == Library::Steadfast)
                .map(|measurement| measurement.median());
            let measurement = measurements.iter().find(|measurement| measurement.client == variant);
            measurement.map_or_else(|| "-".to_owned(), |measurement| cell(measurement, ours))
        });
        let _ = writeln!(text, "| {variant} | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
    text.push('\n');
}

/// Formats the median, the minimum and the maximum of the rounds, and the ratio to Steadfast: below 1 is better.
fn cell(measurement: &Measurement, ours: Option<f64>) -> String {
    let mut cell = format_number(measurement.median());
    if let Some((min, max)) = measurement.spread() {
        let _ = write!(cell, " ({}–{})", format_number(min), format_number(max));
    }
    if let Some(ours) = ours.filter(|_| measurement.library != Library::Steadfast) {
        // Rates are inverted, so that a value below 1 is better in each column.
        let ratio = if measurement.is_rate() { ours / measurement.median() } else { measurement.median() / ours };
        let _ = write!(cell, " {}×", format_number(ratio));
    }
    cell
}

/// Header of the tables with a column for each library.
const LIBRARY_HEADER: &str = "| | Steadfast | kube-runtime | client-go |\n|---|---|---|---|\n";

/// Returns the summary: the best setting of each library, for each measurement at its largest size.
pub(in crate::run) fn summary(part_results: &PartResults) -> String {
    let mut text = LIBRARY_HEADER.to_owned();
    for resource in [Resource::Pods, Resource::Widgets] {
        let prefix = if resource == Resource::Widgets { format!("{resource}: ") } else { String::new() };
        for metric in metrics(Prominence::Summary) {
            let measurements = at_largest_size(part_results, metric, |measurement| measurement.resource == resource);
            let best_settings = Library::COMPARED
                .map(|library| best(measurements.iter().copied().filter(|measurement| measurement.library == library)));
            write_row(&mut text, &prefix, &measurements, &best_settings, cell_with_setting);
        }
    }
    text
}

/// Clients for pods with the default settings of their library. client-go and Steadfast request protobuf and streamed
/// lists of built-in types, kube-runtime requests pages of JSON.
const DEFAULT_POD_CLIENTS: [&str; 3] =
    ["steadfast, protobuf, streamed", "kube-runtime, JSON, pages", "client-go, protobuf, streamed"];

/// As [`DEFAULT_POD_CLIENTS`], for dynamic objects.
const DEFAULT_DYNAMIC_CLIENTS: [&str; 3] = ["steadfast, dynamic", "kube-runtime, dynamic", "client-go, dynamic"];

/// Clients of the first page: the defaults, and encoded objects in Steadfast.
const FIRST_PAGE_CLIENTS: [&str; 4] =
    [DEFAULT_POD_CLIENTS[0], "steadfast, lazy, protobuf, streamed", DEFAULT_POD_CLIENTS[1], DEFAULT_POD_CLIENTS[2]];

/// Returns the summary of each library at its default settings.
pub(in crate::run) fn defaults(part_results: &PartResults) -> String {
    let mut text = LIBRARY_HEADER.to_owned();
    write_client_rows(&mut text, part_results, &DEFAULT_POD_CLIENTS, "", Prominence::Summary);
    let prefix = format!("{}: ", Resource::Widgets);
    write_client_rows(&mut text, part_results, &DEFAULT_DYNAMIC_CLIENTS, &prefix, Prominence::Summary);
    text
}

/// Returns the summary of a few measurements, for pods only.
pub(in crate::run) fn first_page(part_results: &PartResults) -> String {
    let mut text = "| | Steadfast | Steadfast, `Lazy` | kube-runtime | client-go |\n|---|---|---|---|---|\n".to_owned();
    write_client_rows(&mut text, part_results, &FIRST_PAGE_CLIENTS, "", Prominence::FirstPage);
    text
}

/// Appends a row for each measurement, with a column for each of `clients`.
fn write_client_rows(
    text: &mut String,
    part_results: &PartResults,
    clients: &[&str],
    prefix: &str,
    prominence: Prominence,
) {
    for metric in metrics(prominence) {
        let is_shown = |measurement: &Measurement| clients.contains(&&*measurement.client);
        let measurements = at_largest_size(part_results, metric, is_shown);
        let cells: Vec<Option<&Measurement>> = clients
            .iter()
            .map(|client| measurements.iter().copied().find(|measurement| measurement.client == *client))
            .collect();
        write_row(text, prefix, &measurements, &cells, figure);
    }
}

/// Returns the measurements of `metric` that match, at the largest size among them.
fn at_largest_size<'a>(
    part_results: &'a PartResults,
    metric: &str,
    matches: impl Fn(&Measurement) -> bool,
) -> Vec<&'a Measurement> {
    let all = part_results.measurements().iter();
    let mut measurements: Vec<&Measurement> =
        all.filter(|measurement| measurement.metric == metric && matches(measurement)).collect();
    let size = measurements.iter().map(|measurement| measurement.size).max();
    measurements.retain(|measurement| Some(measurement.size) == size);
    measurements
}

/// Appends the row of the metric of `measurements`, with the best cell in bold. Appends nothing without measurements.
fn write_row(
    text: &mut String,
    prefix: &str,
    measurements: &[&Measurement],
    cells: &[Option<&Measurement>],
    format_cell: fn(&Measurement, Option<&Measurement>) -> String,
) {
    let Some(Measurement { metric, unit, size, .. }) = measurements.first() else { return };
    let winner = best(cells.iter().flatten().copied());
    let cells: Vec<String> = cells
        .iter()
        .map(|measurement| measurement.map_or_else(|| "-".to_owned(), |measurement| format_cell(measurement, winner)))
        .collect();
    let size = format_number(*size as f64);
    let _ = writeln!(text, "| {prefix}{metric} ({unit}; {size} objects) | {} |", cells.join(" | "));
}

/// Returns the measurements that are at least as prominent as `prominence`.
fn metrics(prominence: Prominence) -> impl Iterator<Item = &'static str> {
    let columns = GROUPS.iter().flat_map(|(_, columns)| columns.iter());
    columns.filter(move |(_, column_prominence)| *column_prominence >= prominence).map(|(metric, _)| *metric)
}

fn best<'a>(measurements: impl Iterator<Item = &'a Measurement>) -> Option<&'a Measurement> {
    measurements.reduce(|best, other| {
        let better = if best.is_rate() { other.median() > best.median() } else { other.median() < best.median() };
        if better { other } else { best }
    })
}

/// Formats the figure with its setting.
fn cell_with_setting(measurement: &Measurement, winner: Option<&Measurement>) -> String {
    let setting = measurement.client.split_once(", ").map_or("", |(_, setting)| setting);
    format!("{} ({setting})", figure(measurement, winner))
}

/// Formats the figure, in bold if no other figure of its row is better.
fn figure(measurement: &Measurement, winner: Option<&Measurement>) -> String {
    let median = format_number(measurement.median());
    // The printed values are compared: figures that look equal must both be bold.
    let is_best = winner.is_some_and(|winner| format_number(winner.median()) == median);
    if is_best { format!("**{median}**") } else { median }
}

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut distinct = Vec::new();
    for name in names {
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    distinct
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::client_variant::client_named;

    #[test]
    fn clients_of_tables_exist() {
        for name in [&DEFAULT_POD_CLIENTS[..], &DEFAULT_DYNAMIC_CLIENTS, &FIRST_PAGE_CLIENTS].concat() {
            assert!(client_named(name).is_ok(), "{name}");
        }
    }
}
