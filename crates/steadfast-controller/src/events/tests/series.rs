//! Tests of event identity and counts.

use super::*;

#[test]
fn event_has_all_api_fields() {
    let mut script = Script::new();
    let node =
        ObjectReference { kind: Some("Node".to_owned()), name: Some("n1".to_owned()), ..ObjectReference::default() };
    let draft = EventDraft::warning("Evicted", "Evicting").note("no memory").related(&node);
    script.publish(&ObjectReference { resource_version: Some("7".to_owned()), ..pod("web-0") }, draft);
    let event = script.accept_create();
    assert_eq!(event.metadata.namespace.as_deref(), Some("team"));
    let nanoseconds = 1_800_000_000_000_000_000_u64;
    assert_eq!(event.metadata.name, Some(format!("web-0.{nanoseconds:x}")));
    assert_eq!((event.type_.as_deref(), event.note.as_deref()), (Some("Warning"), Some("no memory")));
    assert_eq!((event.reason.as_deref(), event.action.as_deref()), (Some("Evicted"), Some("Evicting")));
    assert_eq!(event.regarding, Some(pod("web-0")), "without the version");
    assert_eq!(event.related, Some(node));
    assert_eq!(event.reporting_controller.as_deref(), Some("web"));
    assert_eq!(event.reporting_instance.as_deref(), Some("web-1"));
    assert_eq!(event.event_time.map(|time| time.0), Some(script.time().wall_time));
    assert_eq!(event.series, None);
}

#[test]
fn cluster_scoped_object_uses_default_namespace() {
    let mut script = Script::new();
    let node = ObjectReference { name: Some("n1".to_owned()), ..ObjectReference::default() };
    script.publish(&node, EventDraft::normal("Ready", "Checking"));
    let event = script.accept_create();
    assert_eq!(event.metadata.namespace.as_deref(), Some("default"));
    assert_eq!(event.regarding.and_then(|about| about.namespace), None);
    assert_eq!(event.note, None);
}

#[test]
fn repeated_event_becomes_series() {
    let mut script = Script::new();
    script.note("a");
    assert_eq!(script.send_all(), ["create web-0: a ×1"]);
    script.advance(1);
    script.note("a");
    assert_eq!(script.send_all(), ["patch web-0 ×2"]);
    let stats = script.correlator.stats();
    assert_eq!((stats.recorded, stats.delivered, stats.waiting, stats.series), (2, 2, 0, 1));
    assert_eq!((stats.creates, stats.patches, stats.retries), (1, 1, 0));
}

#[test]
fn any_difference_makes_another_event() {
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
    assert_eq!(script.correlator.stats().series, 9);
    assert_eq!(script.send_all().len(), 9);
}

#[test]
fn object_version_is_ignored() {
    let mut script = Script::new();
    for version in ["7", "8", "9"] {
        let about = ObjectReference { resource_version: Some(version.to_owned()), ..pod("web-0") };
        script.publish(&about, EventDraft::normal("Started", "Starting"));
    }
    assert_eq!(script.send_all(), ["create web-0:  ×3"], "client-go would make three");
}

#[test]
fn request_includes_earlier_recordings() {
    let mut script = Script::new();
    for _ in 0..5 {
        script.note("a");
    }
    assert_eq!(script.send_pending(), ["create web-0: a ×5"]);
    script.note("a");
    script.note("a");
    assert_eq!(script.send_pending(), repeated("", 0), "one request at a time");
    script.respond(RequestOutcome::Accepted);
    assert_eq!(script.send_pending(), repeated("", 0), "7 is not twice as many");
    for _ in 0..3 {
        script.note("a");
    }
    assert_eq!(script.send_pending(), ["patch web-0 ×10"]);
}

#[test]
fn sent_count_is_at_least_half() {
    let mut script = Script::new();
    let mut patches = Vec::new();
    for _ in 0..1000 {
        script.note("a");
        patches.extend(script.send_all());
    }
    let counts = ["create web-0: a ×1", "patch web-0 ×2", "patch web-0 ×4", "patch web-0 ×8"];
    assert_eq!(patches[..4], counts);
    assert_eq!(patches.len(), 10, "{patches:?}");
    assert_eq!(script.send_until_idle(), ["patch web-0 ×1000"], "at the end of the series");
}

#[test]
fn series_ends_after_six_minutes() {
    let mut script = Script::new();
    for _ in 0..3 {
        script.note("a");
        script.send_all();
        script.advance(6 * MINUTE - 1);
    }
    script.note("a");
    assert_eq!(script.send_all(), ["patch web-0 ×4"]);
    script.note("a");
    script.advance(6 * MINUTE);
    assert_eq!(script.send_all(), ["patch web-0 ×5"], "the final count");
    assert_eq!(script.correlator.stats().series, 0);
    script.note("a");
    assert_eq!(script.send_all(), ["create web-0: a ×1"]);
}

#[test]
fn series_ends_without_access() {
    let mut script = Script::new();
    script.note("a");
    script.send_all();
    script.advance(HOUR);
    assert_eq!(script.note("a"), RecordResult::Queued);
    assert_eq!(script.send_all(), ["create web-0: a ×1"]);
}

#[test]
fn continuing_series_refreshes_each_half_hour() {
    let mut script = Script::new();
    for _ in 0..1000 {
        script.note("a");
    }
    assert_eq!(script.send_all(), ["create web-0: a ×1000"]);
    let mut patches = Vec::new();
    for _ in 0..24 {
        script.advance(5 * MINUTE);
        script.note("a");
        patches.extend(script.send_all());
    }
    assert_eq!(patches, ["patch web-0 ×1006", "patch web-0 ×1012", "patch web-0 ×1018", "patch web-0 ×1024"]);
}

#[test]
fn last_time_never_goes_back() {
    let mut script = Script::new();
    let mut observed = Vec::new();
    for seconds in [10, 30, 20, 40] {
        let wall_time = Timestamp::constant(1_800_000_000 + seconds, 0);
        let at = RecordTime { now: script.now(), wall_time };
        script.correlator.record(pod("web-0"), EventDraft::normal("Started", "Starting"), at);
        script.correlator.flush();
        while let SenderAction::Send(number, order) = script.correlator.next(script.now()) {
            if let EventRequest::Patch { series, .. } = order {
                observed.push(series.last_observed_time.0.as_second() - 1_800_000_000);
            }
            script.correlator.on_outcome(number, RequestOutcome::Accepted, script.now(), 0);
        }
    }
    assert_eq!(observed, [30, 30, 40]);
}
