//! Tables of figures: a row for each client, a column for each measurement.

use std::fmt::Write;

use crate::run::client_variant::{Library, Resource};
use crate::run::number::format_number;
use crate::run::results::{Figure, Outcomes};

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
            ("sync, processor", Prominence::Summary),
            ("sync, server's processor", Prominence::Summary),
            ("read a field of each", Prominence::Summary),
            ("resident", Prominence::FirstPage),
            ("resident, peak of the sync", Prominence::Summary),
        ],
    ),
    (
        "events",
        &[
            ("events", Prominence::Summary),
            ("processor an event", Prominence::FirstPage),
            ("server's processor a write", Prominence::Tables),
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
            ("relist, processor", Prominence::FirstPage),
            ("relist, peak to settled", Prominence::Summary),
        ],
    ),
];

/// Returns all tables of a part, each with a heading of the third level.
pub(in crate::run) fn tables(outcomes: &Outcomes) -> String {
    let mut text = String::new();
    let mut done: Vec<(usize, Resource)> = Vec::new();
    for figure in outcomes.figures() {
        let (size, resource) = (figure.size, figure.resource);
        if done.contains(&(size, resource)) {
            continue;
        }
        done.push((size, resource));
        let figures: Vec<&Figure> =
            // A table contains one size and one resource, because figures of different sizes are not comparable.
            outcomes.figures().iter().filter(|figure| (figure.size, figure.resource) == (size, resource)).collect();
        for (group, columns) in GROUPS {
            let columns: Vec<&str> = columns.iter().map(|(what, _)| *what).collect();
            one(&mut text, &format!("{} {resource}: {group}", format_number(size as f64)), &columns, &figures);
        }
    }
    for failure in outcomes.failures() {
        let size = format_number(failure.size as f64);
        let _ = writeln!(text, "Not measured: {} with {size} objects: {}.\n", failure.client, failure.why);
    }
    text
}

fn one(text: &mut String, title: &str, columns: &[&str], figures: &[&Figure]) {
    let columns: Vec<(&str, Vec<&Figure>)> = columns
        .iter()
        .map(|what| (*what, figures.iter().copied().filter(|figure| figure.what == *what).collect::<Vec<_>>()))
        // A column without a figure is left out, for example at sizes that are measured without events.
        .filter(|(_, figures)| !figures.is_empty())
        .collect();
    if columns.is_empty() {
        return;
    }
    let heads = columns.iter().map(|(what, figures)| format!("{what} ({})", figures[0].unit));
    let _ = writeln!(text, "### {title}\n\n| | {} |", heads.collect::<Vec<_>>().join(" | "));
    let _ = writeln!(text, "|---|{}", "---|".repeat(columns.len()));
    for variant in distinct(columns.iter().flat_map(|(_, figures)| figures.iter().map(|figure| &*figure.client))) {
        let cells = columns.iter().map(|(_, figures)| {
            let ours = figures.iter().find(|figure| figure.library == Library::Steadfast).map(|figure| figure.median());
            let figure = figures.iter().find(|figure| figure.client == variant);
            figure.map_or_else(|| "-".to_owned(), |figure| cell(figure, ours))
        });
        let _ = writeln!(text, "| {variant} | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
    text.push('\n');
}

/// Formats the median, the minimum and the maximum of the rounds, and the ratio to Steadfast: below 1 is better.
fn cell(figure: &Figure, ours: Option<f64>) -> String {
    let mut cell = format_number(figure.median());
    if let Some((least, most)) = figure.spread() {
        let _ = write!(cell, " ({}–{})", format_number(least), format_number(most));
    }
    if let Some(ours) = ours.filter(|_| figure.library != Library::Steadfast) {
        // Rates are inverted, so that a value below 1 is better in each column.
        let ratio = if figure.is_rate() { ours / figure.median() } else { figure.median() / ours };
        let _ = write!(cell, " {}×", format_number(ratio));
    }
    cell
}

/// Returns the summary: the best setting of each library, for each measurement at its largest size.
pub(in crate::run) fn summary(outcomes: &Outcomes) -> String {
    bests(outcomes, &[Resource::Pods, Resource::Widgets], Prominence::Summary)
}

/// Returns the summary of a few measurements, for pods only.
pub(in crate::run) fn first_page(outcomes: &Outcomes) -> String {
    bests(outcomes, &[Resource::Pods], Prominence::FirstPage)
}

fn bests(outcomes: &Outcomes, resources: &[Resource], place: Prominence) -> String {
    let columns = GROUPS.iter().flat_map(|(_, columns)| columns.iter());
    let whats: Vec<&str> = columns.filter(|(_, shown)| *shown >= place).map(|(what, _)| *what).collect();
    let mut text = String::from("| | Steadfast | kube-runtime | client-go |\n|---|---|---|---|\n");
    for &resource in resources {
        for what in &whats {
            let figures =
                || outcomes.figures().iter().filter(|figure| figure.resource == resource && figure.what == *what);
            let Some(size) = figures().map(|figure| figure.size).max() else { continue };
            let bests = Library::ALL
                .map(|library| best(figures().filter(|figure| figure.library == library && figure.size == size)));
            let winner = best(bests.iter().flatten().copied());
            let cells =
                bests.map(|figure| figure.map_or_else(|| "-".to_owned(), |figure| summary_cell(figure, winner)));
            let unit = figures().next().map_or("", |figure| &figure.unit);
            let of = if resource == Resource::Widgets { format!("{resource}: ") } else { String::new() };
            let _ = writeln!(
                text,
                "| {of}{what} ({unit}; {} objects) | {} |",
                format_number(size as f64),
                cells.join(" | ")
            );
        }
    }
    text
}

fn best<'a>(figures: impl Iterator<Item = &'a Figure>) -> Option<&'a Figure> {
    figures.reduce(|best, other| {
        let better = if best.is_rate() { other.median() > best.median() } else { other.median() < best.median() };
        if better { other } else { best }
    })
}

/// Formats the figure with its setting, in bold if no other library's figure is better.
fn summary_cell(figure: &Figure, winner: Option<&Figure>) -> String {
    let median = format_number(figure.median());
    // The printed values are compared: figures that look equal must both be bold.
    let won = winner.is_some_and(|winner| format_number(winner.median()) == median);
    let setting = figure.client.split_once(", ").map_or("", |(_, setting)| setting);
    format!("{}{}{} ({setting})", if won { "**" } else { "" }, median, if won { "**" } else { "" })
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
