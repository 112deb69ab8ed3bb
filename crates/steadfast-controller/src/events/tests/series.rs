//! What is one event, and what the server is told of it.

use super::*;

#[test]
fn an_event_has_all_that_the_api_wants_to_know() {
    let mut script = Script::new();
    let node =
        ObjectReference { kind: Some("Node".to_owned()), name: Some("n1".to_owned()), ..ObjectReference::default() };
    let draft = EventDraft::warning("Evicted", "Evicting").note("no memory").related(&node);
    script.publish(&ObjectReference { resource_version: Some("7".to_owned()), ..pod("web-0") }, draft);
    let event = script.created();
    assert_eq!(event.metadata.namespace.as_deref(), Some("team"));
    let nanoseconds = 1_800_000_000_000_000_000_u64;
    assert_eq!(event.metadata.name, Some(format!("web-0.{nanoseconds:x}")));
    assert_eq!((event.type_.as_deref(), event.note.as_deref()), (Some("Warning"), Some("no memory")));
    assert_eq!((event.reason.as_deref(), event.action.as_deref()), (Some("Evicted"), Some("Evicting")));
    assert_eq!(event.regarding, Some(pod("web-0")), "without the version");
    assert_eq!(event.related, Some(node));
    assert_eq!(event.reporting_controller.as_deref(), Some("web"));
    assert_eq!(event.reporting_instance.as_deref(), Some("web-1"));
    assert_eq!(event.event_time.map(|time| time.0), Some(script.moment().wall));
    assert_eq!(event.series, None);
}

#[test]
fn what_is_in_no_namespace_has_its_events_in_default() {
    let mut script = Script::new();
    let node = ObjectReference { name: Some("n1".to_owned()), ..ObjectReference::default() };
    script.publish(&node, EventDraft::normal("Ready", "Checking"));
    let event = script.created();
    assert_eq!(event.metadata.namespace.as_deref(), Some("default"));
    assert_eq!(event.regarding.and_then(|about| about.namespace), None);
    assert_eq!(event.note, None);
}

#[test]
fn what_is_recorded_again_is_a_series_of_one_event() {
    let mut script = Script::new();
    script.note("a");
    assert_eq!(script.all(), ["create web-0: a ×1"]);
    script.pass(1);
    script.note("a");
    assert_eq!(script.all(), ["patch web-0 ×2"]);
    let figures = script.correlator.figures();
    assert_eq!((figures.recorded, figures.delivered, figures.waiting, figures.series), (2, 2, 0, 1));
    assert_eq!((figures.creates, figures.patches, figures.retries), (1, 1, 0));
}

#[test]
fn what_differs_in_anything_is_another_event() {
    let mut script = Script::new();
    let draft = || EventDraft::normal("Started", "Starting").note("a");
    let web = pod("web-0");
    let other_field = ObjectReference { field_path: Some("spec.containers{a}".to_owned()), ..web.clone() };
    let recreated = ObjectReference { uid: Some("another".to_owned()), ..web.clone() };
    script.publish(&web, draft());
    script.publish(&web, EventDraft::warning("Started", "Starting").note("a"));
    script.publish(&web, EventDraft::normal("Restarted", "Starting").note("a"));
    script.publish(&web, EventDraft::normal("Started", "Restarting").note("a"));
    script.publish(&web, draft().note("b"));
    script.publish(&web, draft().related(&pod("web-1")));
    script.publish(&other_field, draft());
    script.publish(&recreated, draft());
    script.publish(&pod("web-2"), draft());
    assert_eq!(script.correlator.figures().series, 9);
    assert_eq!(script.all().len(), 9);
}

#[test]
fn a_version_of_the_object_makes_no_other_event() {
    let mut script = Script::new();
    for version in ["7", "8", "9"] {
        let about = ObjectReference { resource_version: Some(version.to_owned()), ..pod("web-0") };
        script.publish(&about, EventDraft::normal("Started", "Starting"));
    }
    assert_eq!(script.all(), ["create web-0:  ×3"], "client-go would make three");
}

#[test]
fn what_is_recorded_before_the_request_is_in_it() {
    let mut script = Script::new();
    for _ in 0..5 {
        script.note("a");
    }
    assert_eq!(script.sent(), ["create web-0: a ×5"]);
    script.note("a");
    script.note("a");
    assert_eq!(script.sent(), repeated("", 0), "one request at a time");
    script.answer(Answer::Accepted);
    assert_eq!(script.sent(), repeated("", 0), "7 is not twice as many");
    for _ in 0..3 {
        script.note("a");
    }
    assert_eq!(script.sent(), ["patch web-0 ×10"]);
}

#[test]
fn the_count_that_is_shown_is_never_less_than_half() {
    let mut script = Script::new();
    let mut patches = Vec::new();
    for _ in 0..1000 {
        script.note("a");
        patches.extend(script.all());
    }
    let counts = ["create web-0: a ×1", "patch web-0 ×2", "patch web-0 ×4", "patch web-0 ×8"];
    assert_eq!(patches[..4], counts);
    assert_eq!(patches.len(), 10, "{patches:?}");
    assert_eq!(script.rest(), ["patch web-0 ×1000"], "when it is over");
}

#[test]
fn six_minutes_without_one_end_a_series() {
    let mut script = Script::new();
    for _ in 0..3 {
        script.note("a");
        script.all();
        script.pass(6 * MINUTE - 1);
    }
    script.note("a");
    assert_eq!(script.all(), ["patch web-0 ×4"]);
    script.note("a");
    script.pass(6 * MINUTE);
    assert_eq!(script.all(), ["patch web-0 ×5"], "what it was in the end");
    assert_eq!(script.correlator.figures().series, 0);
    script.note("a");
    assert_eq!(script.all(), ["create web-0: a ×1"]);
}

#[test]
fn a_series_is_over_at_its_time_whether_somebody_looks_or_not() {
    let mut script = Script::new();
    script.note("a");
    script.all();
    script.pass(HOUR);
    assert_eq!(script.note("a"), Recorded::Queued);
    assert_eq!(script.all(), ["create web-0: a ×1"]);
}

#[test]
fn a_series_that_goes_on_is_refreshed_each_half_hour() {
    let mut script = Script::new();
    for _ in 0..1000 {
        script.note("a");
    }
    assert_eq!(script.all(), ["create web-0: a ×1000"]);
    let mut patches = Vec::new();
    for _ in 0..24 {
        script.pass(5 * MINUTE);
        script.note("a");
        patches.extend(script.all());
    }
    assert_eq!(patches, ["patch web-0 ×1006", "patch web-0 ×1012", "patch web-0 ×1018", "patch web-0 ×1024"]);
}

#[test]
fn a_series_says_when_its_last_event_was_whatever_the_clock_on_the_wall_does() {
    let mut script = Script::new();
    let mut observed = Vec::new();
    for seconds in [10, 30, 20, 40] {
        let wall = Timestamp::constant(1_800_000_000 + seconds, 0);
        let at = Moment { now: script.now(), wall };
        script.correlator.record(pod("web-0"), EventDraft::normal("Started", "Starting"), at);
        script.correlator.flush();
        while let Next::Send(number, order) = script.correlator.next(script.now()) {
            if let Order::Patch { series, .. } = order {
                observed.push(series.last_observed_time.0.as_second() - 1_800_000_000);
            }
            script.correlator.answered(number, Answer::Accepted, script.now(), 0);
        }
    }
    assert_eq!(observed, [30, 30, 40]);
}
