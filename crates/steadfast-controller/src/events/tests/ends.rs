//! Flushes and stops.

use super::*;

#[test]
fn a_flush_has_everything_sent_and_nothing_ended() {
    let mut script = Script::new();
    for _ in 0..5 {
        script.note("a");
    }
    script.all();
    script.note("a");
    assert_eq!(script.all(), repeated("", 0));
    let last = script.correlator.flush();
    assert!(!script.correlator.is_flushed(last));
    assert_eq!(script.sent(), ["patch web-0 ×6"]);
    script.note("a");
    script.answer(Answer::Accepted);
    assert!(script.correlator.is_flushed(last), "what came later is not waited for");
    assert_eq!(script.sent(), repeated("", 0));
    assert_eq!(script.correlator.figures().series, 1);
}

#[test]
fn a_flush_waits_also_for_what_came_while_a_request_was_under_way() {
    let mut script = Script::new();
    for _ in 0..5 {
        script.note("a");
    }
    script.sent();
    script.note("a");
    let last = script.correlator.flush();
    script.answer(Answer::Accepted);
    assert!(!script.correlator.is_flushed(last));
    assert_eq!(script.all(), ["patch web-0 ×6"]);
    assert!(script.correlator.is_flushed(last));
}

#[test]
fn a_flush_goes_at_once_to_a_server_that_was_away() {
    let mut script = Script::new();
    script.note("a");
    for _ in 0..6 {
        script.sent();
        script.answer(LATER);
        script.pass(60);
    }
    script.sent();
    script.answer(LATER);
    assert_eq!(script.pause(), 60);
    script.correlator.flush();
    assert_eq!(script.all(), ["create web-0: a ×1"]);
}

#[test]
fn a_stop_sends_what_is_there_and_takes_nothing_more() {
    let mut script = Script::new();
    for _ in 0..3 {
        script.note("a");
        script.all();
    }
    script.note("b");
    script.correlator.close_by(script.now() + Duration::from_secs(5));
    assert_eq!(script.note("c"), Recorded::Dropped);
    assert_eq!(script.all(), ["create web-0: b ×1", "patch web-0 ×3"]);
    assert_eq!(script.correlator.next(script.now()), Next::Over);
    let figures = script.correlator.figures();
    assert_eq!((figures.delivered, figures.dropped, figures.waiting), (4, 1, 0));
    assert_eq!(script.correlator.abandoned(), 0);
}

#[test]
fn a_stop_lets_go_of_what_is_left_when_its_time_is_over() {
    let mut script = Script::new();
    script.note("a");
    script.note("b");
    script.sent();
    script.answer(Answer::Accepted);
    script.correlator.close_by(script.now() + Duration::from_secs(5));
    assert_eq!(script.pause(), 5);
    script.pass(5);
    assert_eq!(script.correlator.next(script.now()), Next::Over);
    let figures = script.correlator.figures();
    assert_eq!((figures.delivered, figures.dropped, figures.waiting), (1, 1, 0));
    assert_eq!(script.correlator.abandoned(), 1);
    assert_eq!(script.answer(Answer::Accepted), None, "an answer that comes after all changes nothing");
    assert_eq!(script.correlator.figures().delivered, 1);
}

#[test]
fn of_two_stops_the_earlier_deadline_counts() {
    let mut script = Script::new();
    script.note("a");
    script.sent();
    for seconds in [20, 5, 60] {
        script.correlator.close_by(script.now() + Duration::from_secs(seconds));
    }
    assert_eq!(script.pause(), 5);
}
