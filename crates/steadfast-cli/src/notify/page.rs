//! The status of the program as one HTML page, for a browser. The page loads no other resources. Text from
//! Kubernetes objects and from the configuration is escaped.

use std::fmt::Write;

use serde_json::Value;

use crate::html::escape;

/// Start of the page: it reloads itself every five seconds.
const PAGE_START: &str = r#"<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="5">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>steadfast notify</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #1c2430; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; vertical-align: top; padding: .25rem .7rem .25rem 0;
border-bottom: 1px solid #dfe4ea; overflow-wrap: break-word; } th { white-space: nowrap; font-weight: 600; color: #55606e; }
code { font: 13px ui-monospace, monospace; } .good { color: #17723a; } .bad { color: #a4262c; font-weight: 600; }
</style></head><body><h1>steadfast notify</h1>
"#;

/// States without a need for action.
const GOOD_STATES: [&str; 5] = ["synced", "watching", "fresh", "converging", "connecting"];

/// Renders the document of `/status`.
pub(super) fn render_page(status: &Value) -> String {
    let mut page = PAGE_START.to_owned();
    if status["starting"] == true {
        page.push_str("<p>The program is starting.</p>\n");
    }
    section(&mut page, "Clusters", &["cluster", "state", "reason"], cluster_rows(status));
    section(&mut page, "Mirrors", &["mirror", "state", "entries", "skipped", "last read"], mirror_rows(status));
    section(
        &mut page,
        "Removals that need approval",
        &["mirror", "group", "entries", "approve with"],
        pending_removal_rows(status),
    );
    section(&mut page, "Skipped entries", &["mirror", "entry", "reason"], skipped_entry_rows(status));
    section(&mut page, "Sinks", &["sink", "delivered", "waiting", "dead letters", "failing"], sink_rows(status));
    section(&mut page, "Rules", &["rule", "watches", "state", "reason"], source_rows(status));
    section(&mut page, "Rules that could not be evaluated", &["rule", "times"], failed_rule_rows(status));
    page.push_str("<p>The same as JSON: <a href=\"/status\">/status</a></p>\n</body></html>\n");
    page
}

/// Appends a table with a heading, unless it is empty.
fn section(page: &mut String, title: &str, headings: &[&str], rows: Vec<Vec<String>>) {
    if rows.is_empty() {
        return;
    }
    // The cells are already HTML: the functions for rows escape all text.
    let cells = |tag: &str, cells: &mut dyn Iterator<Item = String>| {
        cells.map(|cell| format!("<{tag}>{cell}</{tag}>")).collect::<Vec<_>>().concat()
    };
    let head = cells("th", &mut headings.iter().map(|heading| (*heading).to_owned()));
    let _ = writeln!(page, "<h2>{title}</h2>\n<table><tr>{head}</tr>");
    for row in rows {
        let _ = writeln!(page, "<tr>{}</tr>", cells("td", &mut row.into_iter()));
    }
    page.push_str("</table>\n");
}

fn cluster_rows(status: &Value) -> Vec<Vec<String>> {
    let row = |cluster: &Value| {
        let missing = list(&cluster["missing"]).map(|missing| {
            format!(
                "rule {}: {}: {}",
                plain_text(&missing["rule"]),
                plain_text(&missing["resource"]),
                plain_text(&missing["reason"])
            )
        });
        let reason =
            cluster["reason"].as_str().map(str::to_owned).into_iter().chain(missing).collect::<Vec<_>>().join("; ");
        vec![html_text(&cluster["cluster"]), state_cell(&cluster["state"]), escape(&reason)]
    };
    list(&status["clusters"]).map(row).collect()
}

fn mirror_rows(status: &Value) -> Vec<Vec<String>> {
    let row = |mirror: &Value| {
        let last_read = mirror["last_read_seconds"].as_f64();
        let last_read = last_read.map_or("never".to_owned(), |seconds| format!("{seconds:.1} s ago"));
        let class = if GOOD_STATES.contains(&mirror["state"].as_str().unwrap_or_default()) { "good" } else { "bad" };
        let state = format!("<span class=\"{class}\">{}</span>", html_text(&mirror["reason"]));
        vec![
            html_text(&mirror["mirror"]),
            state,
            html_text(&mirror["entries"]),
            html_text(&mirror["skipped"]),
            last_read,
        ]
    };
    list(&status["mirrors"]).map(row).collect()
}

fn pending_removal_rows(status: &Value) -> Vec<Vec<String>> {
    let rows = list(&status["mirrors"]).flat_map(|mirror| {
        list(&mirror["pending_approvals"]).map(|request| {
            let names = list(&request["names"]).map(plain_text).collect::<Vec<_>>();
            let entries = format!("{} of {}: {}", names.len(), plain_text(&request["of"]), names.join(", "));
            let command = format!(
                "steadfast notify approve -c FILE {} {}",
                plain_text(&mirror["mirror"]),
                plain_text(&request["id"])
            );
            vec![
                html_text(&mirror["mirror"]),
                html_text(&request["group"]),
                escape(&entries),
                format!("<code>{}</code>", escape(&command)),
            ]
        })
    });
    rows.collect()
}

fn skipped_entry_rows(status: &Value) -> Vec<Vec<String>> {
    let rows = list(&status["mirrors"]).flat_map(|mirror| {
        let entries = mirror["skipped_entries"].as_object().into_iter().flatten();
        entries.map(|(entry, reason)| vec![html_text(&mirror["mirror"]), escape(entry), html_text(reason)])
    });
    rows.collect()
}

fn sink_rows(status: &Value) -> Vec<Vec<String>> {
    let fields = ["sink", "delivered", "waiting", "dead_letters", "failing"];
    let row = |sink: &Value| fields.map(|field| html_text(&sink[field])).to_vec();
    list(&status["sinks"]).map(row).collect()
}

fn source_rows(status: &Value) -> Vec<Vec<String>> {
    let row = |source: &Value| {
        vec![
            html_text(&source["rule"]),
            html_text(&source["of"]),
            state_cell(&source["state"]),
            html_text(&source["reason"]),
        ]
    };
    list(&status["sources"]).map(row).collect()
}

fn failed_rule_rows(status: &Value) -> Vec<Vec<String>> {
    let failed = status["failed"].as_object().into_iter().flatten();
    failed.map(|(rule, times)| vec![escape(rule), html_text(times)]).collect()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn state_cell(value: &Value) -> String {
    let class = if GOOD_STATES.contains(&value.as_str().unwrap_or_default()) { "good" } else { "bad" };
    format!("<span class=\"{class}\">{}</span>", html_text(value))
}

/// Converts a value to text without escaping.
fn plain_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Converts a value to escaped text.
fn html_text(value: &Value) -> String {
    escape(&plain_text(value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn page_shows_states_and_pending_removals() {
        let status = json!({
            "clusters": [{"cluster": "east", "state": "unreachable", "reason": "refused", "missing": []}],
            "mirrors": [{
                "mirror": "web", "state": "needs approval", "reason": "needs approval (abc)", "entries": 9, "skipped": 4, "last_read_seconds": 1.0,
                "pending_approvals": [{"id": "abc", "group": "east/shop", "names": ["a", "b"], "of": 3}], "skipped_entries": {"a": "it waits"},
            }],
            "sinks": [{"sink": "log", "delivered": 7, "waiting": 1, "dead_letters": 0, "failing": "no route"}],
        });
        let page = render_page(&status);
        for part in [
            "<span class=\"bad\">unreachable</span>",
            "approve -c FILE web abc",
            "2 of 3: a, b",
            "east/shop",
            "<td>7</td>",
            "it waits",
            "no route",
        ] {
            assert!(page.contains(part), "{part} is missing: {page}");
        }
        assert!(!page.contains("<h2>Rules</h2>"), "empty tables are left out");
    }

    #[test]
    fn text_of_tenants_is_escaped() {
        let hostile = "<script>alert('x')</script>\u{1b}[31m\"&";
        let status = json!({
            "clusters": [{"cluster": hostile, "state": hostile, "reason": hostile, "missing": [{"rule": hostile, "resource": hostile, "reason": hostile}]}],
            "mirrors": [{
                "mirror": hostile, "reason": hostile, "entries": 1, "skipped": 1, "skipped_entries": {hostile: hostile},
                "pending_approvals": [{"id": hostile, "group": hostile, "names": [hostile], "of": 1}],
            }],
            "sources": [{"rule": hostile, "of": hostile, "state": hostile, "reason": hostile}],
            "sinks": [{"sink": hostile, "failing": hostile}], "failed": {hostile: 1},
        });
        let page = render_page(&status);
        assert!(!page.contains("<script") && !page.contains('\u{1b}') && page.contains("&lt;script&gt;"));
        // The page must not load external resources.
        assert!(!page.contains("src=") && !page.contains("http://") && !page.contains("https://"));
    }
}
