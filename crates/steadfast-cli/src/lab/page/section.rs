//! The section of a scenario: description, checks, problems, and a chart for each run.

use std::fmt::Write;
use std::time::Duration;

use steadfast_testing::scenarios::{Scenario, Timeline, catalog};

use super::chart::Chart;
use super::lanes;
use super::scale::{Scale, format_time};
use crate::html::escape;
use crate::lab::outcome::Outcome;
use crate::lab::report::format_duration;

/// Maximum number of listed problems of one scenario; one cause often affects every object.
const MAX_PROBLEMS: usize = 50;
/// Maximum number of rows in the list of faults and states.
const MAX_COURSE_ROWS: usize = 300;

/// Returns the class and the text of a scenario's result.
pub(super) fn verdict(outcome: &Outcome) -> (&'static str, &'static str) {
    if outcome.passed() { ("good", "passed") } else { ("bad", "failed") }
}

/// Appends the section of a scenario.
pub(super) fn put(page: &mut String, outcome: &Outcome) {
    let name = escape(outcome.name);
    let (class, result) = verdict(outcome);
    let _ = writeln!(page, "<section id=\"{name}\">\n<h2>{name}: <span class=\"{class}\">{result}</span></h2>");
    let scenario = catalog::named(outcome.name);
    let summary = scenario.map_or("Several faults at once. The seed selects their times.", |scenario| scenario.summary);
    let _ = writeln!(page, "<p>{}</p>", escape(summary));
    put_source(page, outcome, scenario);
    put_checks(page, outcome, scenario);
    put_problems(page, &outcome.problems);
    for (index, timeline) in outcome.timelines.iter().enumerate() {
        put_run(page, outcome, index, timeline);
    }
    if outcome.timelines.is_empty() {
        page.push_str("<p class=\"muted\">No time line: the scenario did not reach its end.</p>\n");
    }
    page.push_str("</section>\n");
}

fn put_source(page: &mut String, outcome: &Outcome, scenario: Option<&Scenario>) {
    let faults = scenario.map(|scenario| scenario.faults).unwrap_or_default();
    let mut faults: Vec<String> = faults.iter().map(|fault| format!("{fault} {}", fault.title())).collect();
    if faults.is_empty() {
        faults.clone_from(&outcome.faults);
    }
    let faults = if faults.is_empty() { String::new() } else { format!("{}; ", faults.join("; ")) };
    let text = format!("{faults}source: {}", outcome.source);
    let _ = writeln!(page, "<p class=\"muted\">{}</p>", escape(&text));
}

/// Appends a table of the checks with their bounds and results.
fn put_checks(page: &mut String, outcome: &Outcome, scenario: Option<&Scenario>) {
    let clauses = scenario.map_or("all clauses", |scenario| scenario.clauses);
    let bounds = scenario.map(|scenario| scenario.bounds).unwrap_or_default();
    page.push_str(
        "<div class=\"scroll\"><table class=\"checks\">\n<tr><th>check</th><th>bound</th><th>result</th></tr>\n",
    );
    if let Some(violations) = outcome.violations {
        let counts = format!(
            "{violations} violations; {} changes, {} seen one by one, {} lost, {} repeated, {} out of order",
            outcome.changes, outcome.seen, outcome.lost, outcome.repeated, outcome.out_of_order
        );
        put_check(page, &format!("contract ({clauses})"), "no violation", &counts, Some(violations == 0));
    }
    put_time_check(page, "fault noticed", bounds.detection, outcome.notice_ms);
    put_time_check(page, "recovered", bounds.recovery, outcome.recover_ms);
    if let Some(lists) = outcome.lists_from_fault {
        let is_met = bounds.lists.map(|limit| lists <= limit);
        let bound = bounds.lists.map_or_else(|| "-".to_owned(), |limit| format!("at most {limit}"));
        put_check(page, "lists from the fault on", &bound, &lists.to_string(), is_met);
    }
    page.push_str("</table></div>\n");
}

fn put_time_check(page: &mut String, check: &str, bound: Option<Duration>, result_ms: Option<u64>) {
    if bound.is_none() && result_ms.is_none() {
        return;
    }
    let is_met = bound.map(|bound| result_ms.is_some_and(|ms| u128::from(ms) <= bound.as_millis()));
    let bound = bound.map_or_else(|| "-".to_owned(), |bound| format!("within {} s", bound.as_secs()));
    put_check(page, check, &bound, &format_duration(result_ms), is_met);
}

fn put_check(page: &mut String, check: &str, bound: &str, result: &str, is_met: Option<bool>) {
    let class = match is_met {
        Some(true) => " class=\"good\"",
        Some(false) => " class=\"bad\"",
        None => "",
    };
    let (check, bound, result) = (escape(check), escape(bound), escape(result));
    let _ = writeln!(page, "<tr><td>{check}</td><td>{bound}</td><td{class}>{result}</td></tr>");
}

fn put_problems(page: &mut String, problems: &[String]) {
    if problems.is_empty() {
        return;
    }
    page.push_str("<ul class=\"bad\">\n");
    for problem in problems.iter().take(MAX_PROBLEMS) {
        let _ = writeln!(page, "<li>{}</li>", escape(problem));
    }
    if problems.len() > MAX_PROBLEMS {
        let _ = writeln!(page, "<li>and {} more</li>", problems.len() - MAX_PROBLEMS);
    }
    page.push_str("</ul>\n");
}

/// Appends the chart of one run, and its faults and states as a list.
fn put_run(page: &mut String, outcome: &Outcome, index: usize, timeline: &Timeline) {
    let scale = Scale::until(timeline.end);
    let mut chart = Chart::new(scale);
    lanes::add_all(&mut chart, timeline);
    let caption = match outcome.timelines.len() {
        1 => String::new(),
        count => format!("<figcaption>Run {} of {count}</figcaption>", index + 1),
    };
    let description = format!("Time line of {}, run {}, {}", outcome.name, index + 1, format_time(scale.end()));
    let _ = writeln!(page, "<figure>{caption}{}</figure>", chart.finish(&description));
    if lanes::has_hidden_informers(timeline) {
        let mut chart = Chart::new(scale);
        lanes::add_freshness_of_each(&mut chart, timeline);
        let (count, chart) =
            (timeline.informers.len(), chart.finish(&format!("Freshness of each informer of {}", outcome.name)));
        let _ = writeln!(page, "<details><summary>Freshness of each of {count} informers</summary>{chart}</details>");
    }
    put_course(page, timeline);
}

/// Appends the faults and the changes of the freshness as a list in the order of their times.
fn put_course(page: &mut String, timeline: &Timeline) {
    let mut rows = Vec::new();
    for fault in &timeline.faults {
        rows.push((fault.start, format!("{} starts", fault.name)));
        if fault.end > fault.start {
            rows.push((fault.end, format!("{} ends", fault.name)));
        }
    }
    for informer in &timeline.informers {
        let name = &informer.name;
        rows.extend(
            informer
                .freshness
                .iter()
                .map(|change| (change.at, format!("{name}: {}", lanes::state_name(&change.state)))),
        );
        rows.extend(informer.lists.iter().map(|at| (*at, format!("{name}: received a list"))));
    }
    rows.sort_by_key(|(at, _)| *at);
    page.push_str("<details><summary>Faults and states as a list</summary><div class=\"scroll\"><table>\n");
    for (at, text) in rows.iter().take(MAX_COURSE_ROWS) {
        let _ = writeln!(page, "<tr><td>{}</td><td>{}</td></tr>", format_time(*at), escape(text));
    }
    if rows.len() > MAX_COURSE_ROWS {
        let _ = writeln!(page, "<tr><td></td><td>and {} more</td></tr>", rows.len() - MAX_COURSE_ROWS);
    }
    page.push_str("</table></div></details>\n");
}
