//! The results of a run as one HTML page: a table, and a section with a time line for each scenario.
//!
//! The page is one file without scripts. Its content security policy forbids all requests, and permits only its own
//! style sheet. It is also well-formed XML.
//!
//! | module | responsibility |
//! |---|---|
//! | `section` | the section of a scenario: description, checks, problems, charts |
//! | `lanes` | the lanes of a chart: faults, freshness, events, requests |
//! | `chart` | a chart as SVG |
//! | `scale` | the time axis |
//! | `style` | the style sheet |

mod chart;
mod lanes;
mod scale;
mod section;
mod style;
#[cfg(test)]
mod tests;

use std::fmt::Write;

use steadfast_testing::CachedForm;

use super::outcome::Outcome;
use super::report::format_duration;
use crate::byte_count::format_bytes;
use crate::html::escape;

/// Settings of the run that the page shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunSettings {
    pub(super) seed: u64,
    pub(super) form: CachedForm,
}

/// States of the freshness with their meaning, for the legend.
const LEGEND: [(&str, &str); 7] = [
    ("fresh", "fresh: proven to be current (thin bar)"),
    ("starting", "starting or resuming: a list or a watch is in progress"),
    ("suspect", "suspect: a proof is late"),
    ("stale", "stale: known to be behind, or without a proof for too long"),
    ("failed", "failed: the server rejects the requests"),
    ("stopped", "stopped"),
    ("fault", "fault is active"),
];

/// Renders the page.
pub(super) fn render(outcomes: &[Outcome], settings: RunSettings) -> String {
    let mut page = head();
    let failed = outcomes.iter().filter(|outcome| !outcome.passed()).count();
    let verdict = match failed {
        0 => format!("<span class=\"good\">all {} passed</span>", outcomes.len()),
        _ => format!("<span class=\"bad\">{failed} of {} failed</span>", outcomes.len()),
    };
    let RunSettings { seed, form } = settings;
    let _ = writeln!(page, "<h1>steadfast lab</h1>\n<p>{verdict}; seed {seed}, form {form}</p>");
    put_table(&mut page, outcomes);
    put_legend(&mut page);
    for outcome in outcomes {
        section::put(&mut page, outcome);
    }
    page.push_str("</body></html>\n");
    page
}

fn head() -> String {
    let (style, source) = (style::STYLE, style::source_expression());
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src {source}; base-uri \
         'none'; form-action 'none'\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"referrer\" content=\"no-referrer\"/>\n\
         <title>steadfast lab</title>\n<style>{style}</style></head><body>\n"
    )
}

/// Appends the table of all scenarios. Its names are links to the sections.
fn put_table(page: &mut String, outcomes: &[Outcome]) {
    let headings = [
        "scenario",
        "result",
        "faults",
        "changes",
        "lost",
        "repeated",
        "disorder",
        "noticed",
        "recovered",
        "lists",
        "watches",
        "bytes",
    ];
    let headings = headings.map(|heading| format!("<th>{heading}</th>")).concat();
    let _ = writeln!(page, "<div class=\"scroll\"><table class=\"results\">\n<tr>{headings}</tr>");
    for outcome in outcomes {
        let name = escape(outcome.name);
        let (class, result) = section::verdict(outcome);
        let counts = [outcome.changes, outcome.lost, outcome.repeated, outcome.out_of_order];
        let cells = [escape(&outcome.faults.join(" "))]
            .into_iter()
            .chain(counts.map(|count| count.to_string()))
            .chain([format_duration(outcome.notice_ms), format_duration(outcome.recover_ms)].map(|text| escape(&text)))
            .chain([outcome.lists.to_string(), outcome.watches.to_string(), format_bytes(outcome.bytes)]);
        let cells = cells.map(|cell| format!("<td>{cell}</td>")).collect::<Vec<_>>().concat();
        let _ = writeln!(
            page,
            "<tr><td><a href=\"#{name}\">{name}</a></td><td class=\"{class}\">{result}</td>{cells}</tr>"
        );
    }
    page.push_str("</table></div>\n");
}

fn put_legend(page: &mut String) {
    page.push_str("<ul class=\"legend\">\n");
    for (class, meaning) in LEGEND {
        let (y, height) = if class == "fresh" { (5, 4) } else { (0, 14) };
        let _ = writeln!(
            page,
            "<li><svg width=\"18\" height=\"14\"><rect class=\"{class}\" width=\"18\" y=\"{y}\" height=\"{height}\"/></svg> \
             {meaning}</li>"
        );
    }
    page.push_str(
        "</ul>\n<p class=\"muted\">Times are seconds since the start of the server of a run. Events have three rows: added, \
         updated, deleted. A dark mark in a freshness bar is a list that the cache received. Details appear when the \
         pointer rests on a mark.</p>\n",
    );
}
