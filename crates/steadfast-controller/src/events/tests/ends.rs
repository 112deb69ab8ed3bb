//! Tests of flush and stop.

use super::*;

#[test]
fn flush_sends_all_and_ends_nothing() {
    let mut script = Script::new();
    for _ in 0..5 {
        script.note("a");
    }
    script.send_all();
    script.note("a");
    assert_eq!(script.send_all(), repeated("", 0));
    let last = script.correlator.flush();
    assert!(!script.correlator.is_flushed(last));
    assert_eq!(script.send_pending(), ["patch web-0 ×6"]);
    script.note("a");
    script.respond(RequestOutcome::Accepted);
    assert!(script.correlator.is_flushed(last), "later recordings do not delay the flush");
    assert_eq!(script.send_pending(), repeated("", 0));
    assert_eq!(script.correlator.stats().series, 1);
}

#[test]
fn flush_covers_recordings_during_requests() {
    let mut script = Script::new();
    for _ in 0..5 {
        script.note("a");
    }
    script.send_pending();
    script.note("a");
    let last = script.correlator.flush();
    script.respond(RequestOutcome::Accepted);
    assert!(!script.correlator.is_flushed(last));
    assert_eq!(script.send_all(), ["patch web-0 ×6"]);
    assert!(script.correlator.is_flushed(last));
}

#[test]
fn flush_skips_pause_after_outage() {
    let mut script = Script::new();
    script.note("a");
    for _ in 0..6 {
        script.send_pending();
        script.respond(RETRY_LATER);
        script.advance(60);
    }
    script.send_pending();
    script.respond(RETRY_LATER);
    assert_eq!(script.seconds_until_request(), 60);
    script.correlator.flush();
    assert_eq!(script.send_all(), ["create web-0: a ×1"]);
}

#[test]
fn stop_sends_queue_and_drops_new() {
    let mut script = Script::new();
    for _ in 0..3 {
        script.note("a");
        script.send_all();
    }
    script.note("b");
    script.correlator.close_by(script.now() + Duration::from_secs(5));
    assert_eq!(script.note("c"), RecordResult::Dropped);
    assert_eq!(script.send_all(), ["create web-0: b ×1", "patch web-0 ×3"]);
    assert_eq!(script.correlator.next(script.now()), SenderAction::Done);
    let stats = script.correlator.stats();
    assert_eq!((stats.delivered, stats.dropped, stats.waiting), (4, 1, 0));
    assert_eq!(script.correlator.abandoned(), 0);
}

#[test]
fn stop_abandons_rest_at_deadline() {
    let mut script = Script::new();
    script.note("a");
    script.note("b");
    script.send_pending();
    script.respond(RequestOutcome::Accepted);
    script.correlator.close_by(script.now() + Duration::from_secs(5));
    assert_eq!(script.seconds_until_request(), 5);
    script.advance(5);
    assert_eq!(script.correlator.next(script.now()), SenderAction::Done);
    let stats = script.correlator.stats();
    assert_eq!((stats.delivered, stats.dropped, stats.waiting), (1, 1, 0));
    assert_eq!(script.correlator.abandoned(), 1);
    assert_eq!(script.respond(RequestOutcome::Accepted), None, "a late response changes nothing");
    assert_eq!(script.correlator.stats().delivered, 1);
}

#[test]
fn earlier_stop_deadline_wins() {
    let mut script = Script::new();
    script.note("a");
    script.send_pending();
    for seconds in [20, 5, 60] {
        script.correlator.close_by(script.now() + Duration::from_secs(seconds));
    }
    assert_eq!(script.seconds_until_request(), 5);
}
