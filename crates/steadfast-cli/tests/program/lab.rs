//! `steadfast lab`.

use serde_json::Value;

use crate::run::{stderr_text, steadfast, temp_path};

#[test]
fn named_scenarios_are_reported_as_json() {
    let output = steadfast(&["lab", "recreate-while-cut", "watch-closed", "-o", "json"]);
    assert!(output.status.success(), "{}\n{}", stderr_text(&output), String::from_utf8_lossy(&output.stdout));
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(report["passed"], true);
    let scenarios = report["scenarios"].as_array().expect("a list of scenarios");
    let names: Vec<_> = scenarios.iter().map(|scenario| scenario["name"].as_str().unwrap_or_default()).collect();
    assert_eq!(names, ["recreate-while-cut", "watch-closed"]);
    for scenario in scenarios {
        assert_eq!(scenario["passed"], true);
        for key in ["changes", "lists", "bytes"] {
            assert!(scenario[key].as_u64().is_some_and(|count| count > 0), "{key} in {scenario}");
        }
        for key in ["lost", "repeated", "out_of_order"] {
            assert_eq!(scenario[key], 0, "{key} in {scenario}");
        }
        assert!(scenario["watches"].is_u64() && scenario["source"].is_string(), "{scenario}");
        assert!(scenario["recover_ms"].is_u64(), "{scenario}");
    }
    let (recreated, closed) = (&scenarios[0], &scenarios[1]);
    assert_eq!(recreated["source"], "client-go-failure-scenarios 5");
    assert!(recreated["notice_ms"].is_u64(), "{recreated}");
    assert_eq!((&closed["lists"], &closed["changes"]), (&1.into(), &10.into()));
    // Progress is on standard error.
    assert!(stderr_text(&output).contains("ok     watch-closed"), "{}", stderr_text(&output));
}

#[test]
fn table_has_row_per_scenario() {
    let output = steadfast(&["lab", "undecodable-object"]);
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{report}");
    assert!(report.contains("scenario") && report.contains("at most") && report.contains("LISTs"), "{report}");
    assert!(report.ends_with("all 1 passed\n"), "{report}");
}

#[test]
fn list_names_client_go_scenarios() {
    let output = steadfast(&["lab", "--list"]);
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success());
    for number in 1..=5 {
        assert!(report.contains(&format!("client-go-failure-scenarios {number})")), "{report}");
    }
    for name in ["watch-closed", "no-spin", "apiserver-restart", "dead-connection", "time-travel"] {
        assert!(report.contains(&format!("{name} (")), "{report}");
    }
}

#[test]
fn fault_number_selects_its_scenarios() {
    let output = steadfast(&["lab", "F4", "f12", "--list"]);
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", stderr_text(&output));
    assert!(report.contains("black-hole (F4, catalog)") && report.contains("noticed within 15 s"), "{report}");
    assert!(report.contains("recreate-while-cut (F12, client-go-failure-scenarios 5)"), "{report}");

    let output = steadfast(&["lab", "F20", "-o", "json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!((&report["passed"], &report["scenarios"][0]["faults"][0]), (&true.into(), &"F20".into()), "{report}");
}

#[test]
fn impossible_selection_is_rejected_with_reason() {
    let output = steadfast(&["lab", "F8", "F25", "--together"]);
    assert!(
        !output.status.success() && stderr_text(&output).contains("F25 (huge list) runs alone"),
        "{}",
        stderr_text(&output)
    );
    for (name, reason) in [("F31", "cannot be made"), ("F35", "unknown scenario or fault"), ("nope", "--list")] {
        let output = steadfast(&["lab", name]);
        assert!(!output.status.success(), "{name}");
        assert!(stderr_text(&output).contains(reason), "{name}: {}", stderr_text(&output));
    }
}

/// Returns the section of a scenario in a page.
fn section<'a>(page: &'a str, scenario: &str) -> &'a str {
    let start = page.find(&format!("<section id=\"{scenario}\">")).expect("a section");
    page[start..].split_once("</section>").expect("the section ends").0
}

#[test]
fn report_shows_time_line_of_each_scenario() {
    let file = temp_path("lab-report.html");
    let output = steadfast(&["lab", "recreate-while-cut", "watch-closed", "--report", &file]);
    assert!(output.status.success(), "{}", stderr_text(&output));
    let page = std::fs::read_to_string(&file).expect("the page exists");
    let cut = section(&page, "recreate-while-cut");
    for part in
        ["fault: cut", "freshness: ", "class=\"span fresh\"", "requests: watches", "events: ", "deleted default/"]
    {
        assert!(cut.contains(part), "{part} is missing in {cut}");
    }
    let doubts = ["resuming", "suspect", "stale"].map(|state| format!("class=\"span {state}\""));
    assert!(doubts.iter().any(|doubt| cut.contains(doubt)), "the cut causes a doubt: {cut}");
    let closed = section(&page, "watch-closed");
    assert!(closed.contains("fault: end_watches") && closed.contains("changes at the server"), "{closed}");
    assert!(page.contains("all 2 passed"));
    assert!(!page.contains("http:") && !page.contains("https:"), "the page loads nothing");
}

#[test]
fn unwritable_report_is_rejected_at_start() {
    let output = steadfast(&["lab", "watch-closed", "--report", "/nonexistent/page.html"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr_text(&output).contains("choose another file with --report"), "{}", stderr_text(&output));
    assert!(output.stdout.is_empty(), "no scenario runs");
}
