//! Pages of recorded and of hostile runs.

mod markup;

use std::time::Duration;

use steadfast_apiserver::Verb;
use steadfast_contract::Freshness;
use steadfast_testing::CachedForm;
use steadfast_testing::scenarios::{
    FaultInterval, FreshnessChange, HandlerEventKind, InformerTimeline, TimedEvent, TimedRequest, Timeline,
};

use super::{Outcome, RunSettings, render};
use markup::{attribute, elements, texts_of};

/// Text that HTML, XML or a terminal would interpret.
const HOSTILE: &str = "<script>alert('x')</script>\"&\u{1b}[31m]]>";

fn settings() -> RunSettings {
    RunSettings { seed: 7, form: CachedForm::default() }
}

/// Fills an empty time line of 40 s.
fn filled(mut timeline: Timeline, name: &str, informers: usize) -> Timeline {
    let at = Duration::from_secs;
    timeline.end = at(40);
    timeline.faults = vec![
        FaultInterval::new(&format!("{name} cut"), at(5), at(10)),
        FaultInterval::new(&format!("{name} reset"), at(20), at(20)),
    ];
    timeline.informers =
        (0..informers).map(|number| informer(InformerTimeline::default(), &format!("{name} {number}"))).collect();
    timeline.requests = vec![
        TimedRequest::new(at(0), Verb::List, name, Some(200)),
        TimedRequest::new(at(1), Verb::Watch, name, None),
        TimedRequest::new(at(12), Verb::Get, name, Some(503)),
    ];
    timeline.changes = vec![at(7), at(30)];
    timeline
}

/// Fills an empty time line of an informer.
fn informer(mut informer: InformerTimeline, name: &str) -> InformerTimeline {
    let at = Duration::from_secs;
    let fresh = || Freshness::Fresh { version: "1".to_owned(), age: Duration::ZERO };
    let states = [(0, Freshness::Starting), (1, fresh()), (6, Freshness::Suspect), (11, fresh())];
    informer.name = name.to_owned();
    informer.freshness = states.map(|(seconds, state)| FreshnessChange::new(at(seconds), state)).to_vec();
    let kinds =
        [HandlerEventKind::Added, HandlerEventKind::Updated, HandlerEventKind::Deleted, HandlerEventKind::Resynced];
    let event = |(seconds, kind)| TimedEvent::new(at(seconds), kind, name);
    informer.events = [0, 9, 18, 27].into_iter().zip(kinds).map(event).collect();
    informer.lists = vec![at(1)];
    informer
}

fn outcome(name: &'static str, text: &str, informers: usize) -> Outcome {
    Outcome {
        name,
        source: text.to_owned(),
        faults: vec![text.to_owned()],
        problems: vec![text.to_owned()],
        notice_ms: Some(1200),
        violations: Some(2),
        lists_from_fault: Some(1),
        timelines: vec![filled(Timeline::default(), text, informers)],
        ..Outcome::default()
    }
}

#[test]
fn page_is_well_formed_with_each_scenario() {
    let outcomes = [outcome("black-hole", "a", 1), outcome("time-travel", "b", 9), outcome("together", "c", 0)];
    let page = render(&outcomes, settings());
    let found = elements(&page);
    let ids: Vec<_> = found.iter().filter_map(|element| attribute(element, "id")).collect();
    assert_eq!(ids, ["black-hole", "time-travel", "together"]);
    let links: Vec<_> = found.iter().filter_map(|element| attribute(element, "href")).collect();
    assert_eq!(links, ["#black-hole", "#time-travel", "#together"]);
    for part in ["cannot be delivered", "Packets are lost without an error", "within 15 s", "contract (C10, R1, R4)"] {
        assert_eq!(page.contains(part), part != "cannot be delivered", "{part}");
    }
    // Nine informers have a common lane, and their own lanes in a second chart.
    assert!(page.contains("freshness: the worst of 9 informers") && page.contains("Freshness of each of 9 informers"));
    assert_eq!(page.matches("<figure>").count(), 3);
}

#[test]
fn text_of_run_is_escaped() {
    let page = render(&[outcome("hostile", HOSTILE, 2)], settings());
    let names: Vec<_> = elements(&page).iter().map(|element| element.name.clone()).collect();
    assert!(!names.iter().any(|name| name == "script"), "{names:?}");
    assert!(!page.contains('\u{1b}') && page.contains("&lt;script&gt;alert(&#39;x&#39;)"));
}

#[test]
fn page_needs_no_other_resource() {
    let page = render(&[outcome("black-hole", "a", 2)], settings());
    for forbidden in
        ["http:", "https:", "\"//", "url(", "@import", " src=", " style=", "<script", "<link", "javascript:"]
    {
        let found = page.find(forbidden).map(|index| &page[index.saturating_sub(40)..(index + 40).min(page.len())]);
        assert_eq!(found, None, "{forbidden}");
    }
    let found = elements(&page);
    let policy = found.iter().find(|element| attribute(element, "http-equiv").is_some()).expect("a policy");
    let policy = attribute(policy, "content").expect("a content");
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
    assert!(
        found.iter().any(|element| attribute(element, "content").is_some_and(|text| text.contains("device-width")))
    );
    assert!(page.contains("prefers-color-scheme: dark"));
}

#[test]
fn times_of_each_lane_are_in_order() {
    let page = render(&[outcome("black-hole", "a", 2), outcome("no-spin", "b", 12)], settings());
    let mut lanes = 0;
    for lane in page.split("<g>").skip(1) {
        let lane = lane.split_once("</g>").expect("the lane ends").0;
        // The marks of a lane follow its intervals.
        let (spans, marks): (Vec<&str>, Vec<&str>) =
            lane.lines().filter(|line| line.contains("<title>")).partition(|line| line.contains("class=\"span"));
        for lines in [&spans, &marks] {
            let times: Vec<f64> = lines.iter().map(|line| seconds(texts_of(line, "title")[0])).collect();
            assert!(times.is_sorted(), "{times:?} in {lane}");
        }
        assert!(spans.len() + marks.len() > 0, "{lane}");
        lanes += 1;
    }
    assert!(lanes > 20, "{lanes}");
    let course = page.split("Faults and states as a list").nth(1).expect("a list");
    let rows = course.split_once("</details>").expect("the list ends").0;
    let times: Vec<f64> = rows.split("<tr><td>").skip(1).map(seconds).collect();
    assert!(times.len() >= 10 && times.is_sorted(), "{times:?}");
}

#[test]
fn incomplete_scenario_has_no_met_check() {
    let incomplete =
        Outcome { violations: None, lists_from_fault: None, notice_ms: None, ..outcome("black-hole", "a", 0) };
    let page = render(&[Outcome { timelines: Vec::new(), ..incomplete }], settings());
    let section = page.split("<section").nth(1).expect("a section");
    assert!(section.contains("No time line") && !section.contains("class=\"good\""), "{section}");
    assert!(!section.contains("contract ("), "{section}");
    let violated = render(&[outcome("black-hole", "a", 0)], settings());
    assert!(violated.contains("<td class=\"bad\">2 violations;"), "{violated}");
}

#[test]
fn positions_share_one_axis() {
    let page = render(&[outcome("black-hole", "a", 1)], settings());
    // The cut from 5 s to 10 s of 40 s, the suspect state from 6 s to 11 s, and the change at 30 s.
    for position in ["x=\"12.500%\"", "x=\"15.000%\"", "x=\"75.000%\""] {
        assert!(page.contains(position), "{position}");
    }
    assert!(page.contains("width=\"12.500%\""), "the cut and the suspect state last 5 s");
}

#[test]
fn number_of_marks_is_limited() {
    let mut busy = filled(Timeline::default(), "a", 1);
    let event =
        |number: u64| TimedEvent::new(Duration::from_micros(number * 400), HandlerEventKind::Updated, "default/a");
    busy.informers[0].events = (0..100_000).map(event).collect();
    let mut outcome = outcome("black-hole", "a", 1);
    outcome.timelines = vec![busy];
    let page = render(&[outcome], settings());
    assert!(page.len() < 200_000, "{} bytes", page.len());
    assert!(page.contains("and 249 more"));
}

/// Returns the seconds at the start of a text.
fn seconds(text: &str) -> f64 {
    let number = text.split_once(" s").unwrap_or_else(|| panic!("no time: {text}")).0;
    number.parse().unwrap_or_else(|_| panic!("no time: {text}"))
}
