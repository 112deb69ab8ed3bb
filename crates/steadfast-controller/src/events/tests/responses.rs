//! Tests of responses and the following requests.

use super::*;

#[test]
fn deleted_event_is_recreated_with_count() {
    let mut script = Script::new();
    script.note("a");
    script.send_all();
    script.note("a");
    assert_eq!(script.send_pending(), ["patch web-0 ×2"]);
    script.respond(RequestOutcome::Missing);
    assert_eq!(script.send_pending(), ["create web-0: a ×2"], "at once");
    let EventRequest::Create(event) = &script.in_flight[0].1 else { panic!("no create request") };
    assert_eq!(event.series.as_ref().map(|series| series.last_observed_time.0), Some(script.time().wall_time));
    script.respond(RequestOutcome::Accepted);
    let stats = script.correlator.stats();
    assert_eq!((stats.delivered, stats.retries, stats.waiting), (2, 1, 0));
}

#[test]
fn missing_namespace_abandons_event() {
    let mut script = Script::new();
    script.note("a");
    script.send_pending();
    let abandoned = script.respond(RequestOutcome::Missing).expect("the event is abandoned");
    assert_eq!((abandoned.object.as_str(), abandoned.count), ("Pod team/web-0", 1));
    assert_eq!(script.correlator.stats().failed, 1);
    assert_eq!(script.send_until_idle(), repeated("", 0));
}

#[test]
fn lost_response_creates_no_second_event() {
    let mut script = Script::new();
    script.note("a");
    script.send_pending();
    script.respond(RETRY_LATER);
    script.note("a");
    script.advance(1);
    assert_eq!(script.send_pending(), ["create web-0: a ×2"]);
    script.respond(RequestOutcome::Exists);
    assert_eq!(script.send_pending(), ["patch web-0 ×2"], "the event exists with its first count");
    script.respond(RequestOutcome::Accepted);
    assert_eq!(script.correlator.stats().delivered, 2);

    script.note("b");
    script.send_pending();
    script.respond(RETRY_LATER);
    script.advance(1);
    assert_eq!(script.send_pending(), ["create web-0: b ×1"]);
    script.respond(RequestOutcome::Exists);
    assert_eq!(script.send_pending(), repeated("", 0), "the event exists with the current count");
    assert_eq!(script.correlator.stats().delivered, 3);
}

#[test]
fn taken_name_is_replaced() {
    let mut script = Script::new();
    script.note("a");
    script.send_pending();
    let name = |script: &Script| match &script.in_flight[0].1 {
        EventRequest::Create(event) => event.metadata.name.clone(),
        EventRequest::Patch { .. } => None,
    };
    let first = name(&script);
    script.respond(RequestOutcome::Exists);
    assert_eq!(script.send_pending(), ["create web-0: a ×1"]);
    assert!(name(&script).is_some_and(|second| Some(second) != first));
    script.respond(RequestOutcome::RetryLater { code: Some(429), retry_after: None });
    script.advance(1);
    script.send_pending();
    let second = name(&script);
    script.respond(RequestOutcome::Exists);
    script.send_pending();
    assert_ne!(name(&script), second, "code 429 created nothing");
}

#[test]
fn rejected_event_is_abandoned_and_restarted() {
    let mut script = Script::new();
    script.note("a");
    script.send_pending();
    script.note("a");
    let rejection = Rejection { code: 403, reason: "Forbidden".to_owned(), ..Rejection::default() };
    let abandoned = script.respond(RequestOutcome::Rejected(rejection.clone())).expect("the event is abandoned");
    assert_eq!((abandoned.count, abandoned.rejection), (2, Some(rejection)));
    script.note("a");
    assert_eq!(script.send_all(), ["create web-0: a ×1"]);
    let stats = script.correlator.stats();
    assert_eq!((stats.failed, stats.delivered), (2, 1));
}

#[test]
fn rejected_closed_series_spares_the_next() {
    let mut script = Script::new();
    script.note("a");
    assert_eq!(script.send_pending(), ["create web-0: a ×1"]);
    script.advance(6 * MINUTE);
    script.note("a");
    assert!(script.respond(RequestOutcome::Rejected(Rejection::default())).is_some());
    script.note("a");
    assert_eq!(script.send_all(), ["create web-0: a ×2"]);
}

#[test]
fn one_request_probes_unavailable_server() {
    let mut script = Script::new();
    for name in ["a", "b", "c"] {
        script.publish(&pod(name), EventDraft::normal("Started", "Starting"));
    }
    assert_eq!(script.send_pending().len(), 3);
    for _ in 0..3 {
        script.respond(RETRY_LATER);
    }
    for pause in [1, 2, 4, 8] {
        assert_eq!(script.send_pending(), repeated("", 0));
        assert_eq!(script.seconds_until_request(), pause);
        script.advance(pause);
        assert_eq!(script.send_pending().len(), 1);
        script.respond(RETRY_LATER);
    }
    script.advance(16);
    assert_eq!(script.send_pending(), ["create b:  ×1"], "requests take turns");
    script.respond(RequestOutcome::Accepted);
    assert_eq!(script.send_pending().len(), 2, "full concurrency again");
}

#[test]
fn requested_pause_is_kept() {
    let mut script = Script::new();
    script.note("a");
    script.send_pending();
    script.respond(RequestOutcome::RetryLater { code: Some(429), retry_after: Some(Duration::from_secs(20)) });
    assert_eq!(script.seconds_until_request(), 22, "a tenth of jitter");
    script.correlator.flush();
    assert_eq!(script.seconds_until_request(), 22, "a flush does not shorten the pause");
    script.advance(22);
    assert_eq!(script.send_all(), ["create web-0: a ×1"]);
}

#[test]
fn event_is_abandoned_after_twelve_attempts() {
    let mut script = Script::new();
    script.note("a");
    for _ in 0..11 {
        assert_eq!(script.send_pending().len(), 1);
        assert_eq!(script.respond(RETRY_LATER), None);
        script.advance(60);
    }
    assert_eq!(script.send_pending().len(), 1);
    let abandoned = script.respond(RETRY_LATER).expect("the last attempt");
    assert_eq!((abandoned.count, abandoned.rejection), (1, None));
    assert_eq!(script.correlator.stats().failed, 1);
    script.advance(60);
    script.note("a");
    assert_eq!(script.send_all(), ["create web-0: a ×1"], "the next event has all attempts");
}

#[test]
fn success_resets_attempts() {
    let mut script = Script::new();
    let mut requests = 0;
    for _ in 0..1 << 13 {
        script.note("a");
        requests += script.send_all().len();
    }
    assert_eq!(requests, 14, "more than the maximum of attempts");
    for _ in 0..1 << 13 {
        script.note("a");
    }
    script.send_pending();
    assert_eq!(script.respond(RETRY_LATER), None, "the first of twelve attempts");
}

#[test]
fn recreated_event_precedes_queue() {
    let mut script = Script::with(EventSettings { concurrency: 1, ..EventSettings::default() });
    script.note("a");
    script.send_all();
    script.note("a");
    script.note("b");
    assert_eq!(script.send_pending(), ["patch web-0 ×2"]);
    script.respond(RequestOutcome::Missing);
    assert_eq!(script.send_pending(), ["create web-0: a ×2"]);
}
