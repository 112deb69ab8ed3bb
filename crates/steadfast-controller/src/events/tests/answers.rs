//! What servers answer, and what is sent then.

use super::*;

#[test]
fn what_the_server_has_forgotten_is_made_anew_with_its_count() {
    let mut script = Script::new();
    script.note("a");
    script.all();
    script.note("a");
    assert_eq!(script.sent(), ["patch web-0 ×2"]);
    script.answer(Answer::Missing);
    assert_eq!(script.sent(), ["create web-0: a ×2"], "at once");
    let Order::Create(event) = &script.under_way[0].1 else { panic!("it is made") };
    assert_eq!(event.series.as_ref().map(|series| series.last_observed_time.0), Some(script.moment().wall));
    script.answer(Answer::Accepted);
    let figures = script.correlator.figures();
    assert_eq!((figures.delivered, figures.retries, figures.waiting), (2, 1, 0));
}

#[test]
fn an_event_in_no_namespace_that_there_is_is_given_up() {
    let mut script = Script::new();
    script.note("a");
    script.sent();
    let given_up = script.answer(Answer::Missing).expect("it is given up");
    assert_eq!((given_up.about.as_str(), given_up.count), ("Pod team/web-0", 1));
    assert_eq!(script.correlator.figures().failed, 1);
    assert_eq!(script.rest(), repeated("", 0));
}

#[test]
fn what_was_made_by_a_request_whose_answer_was_lost_is_not_made_twice() {
    let mut script = Script::new();
    script.note("a");
    script.sent();
    script.answer(LATER);
    script.note("a");
    script.pass(1);
    assert_eq!(script.sent(), ["create web-0: a ×2"]);
    script.answer(Answer::Exists);
    assert_eq!(script.sent(), ["patch web-0 ×2"], "it is there as it was recorded first");
    script.answer(Answer::Accepted);
    assert_eq!(script.correlator.figures().delivered, 2);

    script.note("b");
    script.sent();
    script.answer(LATER);
    script.pass(1);
    assert_eq!(script.sent(), ["create web-0: b ×1"]);
    script.answer(Answer::Exists);
    assert_eq!(script.sent(), repeated("", 0), "it is there as it is to be");
    assert_eq!(script.correlator.figures().delivered, 3);
}

#[test]
fn a_name_that_somebody_else_has_taken_is_changed() {
    let mut script = Script::new();
    script.note("a");
    script.sent();
    let name = |script: &Script| match &script.under_way[0].1 {
        Order::Create(event) => event.metadata.name.clone(),
        Order::Patch { .. } => None,
    };
    let first = name(&script);
    script.answer(Answer::Exists);
    assert_eq!(script.sent(), ["create web-0: a ×1"]);
    assert!(name(&script).is_some_and(|second| Some(second) != first));
    script.answer(Answer::Later { code: Some(429), asked: None });
    script.pass(1);
    script.sent();
    let second = name(&script);
    script.answer(Answer::Exists);
    script.sent();
    assert_ne!(name(&script), second, "a server that turns away has made nothing");
}

#[test]
fn what_the_server_refuses_is_given_up_and_the_next_is_another_event() {
    let mut script = Script::new();
    script.note("a");
    script.sent();
    script.note("a");
    let refusal = Refusal { code: 403, reason: "Forbidden".to_owned(), ..Refusal::default() };
    let given_up = script.answer(Answer::Refused(refusal.clone())).expect("it is given up");
    assert_eq!((given_up.count, given_up.refusal), (2, Some(refusal)));
    script.note("a");
    assert_eq!(script.all(), ["create web-0: a ×1"]);
    let figures = script.correlator.figures();
    assert_eq!((figures.failed, figures.delivered), (2, 1));
}

#[test]
fn a_series_that_is_over_and_refused_takes_nothing_from_the_next_one() {
    let mut script = Script::new();
    script.note("a");
    assert_eq!(script.sent(), ["create web-0: a ×1"]);
    script.pass(6 * MINUTE);
    script.note("a");
    assert!(script.answer(Answer::Refused(Refusal::default())).is_some());
    script.note("a");
    assert_eq!(script.all(), ["create web-0: a ×2"]);
}

#[test]
fn all_wait_while_the_server_is_away_and_one_asks_whether_it_is_back() {
    let mut script = Script::new();
    for name in ["a", "b", "c"] {
        script.publish(&pod(name), EventDraft::normal("Started", "Starting"));
    }
    assert_eq!(script.sent().len(), 3);
    for _ in 0..3 {
        script.answer(LATER);
    }
    for pause in [1, 2, 4, 8] {
        assert_eq!(script.sent(), repeated("", 0));
        assert_eq!(script.pause(), pause);
        script.pass(pause);
        assert_eq!(script.sent().len(), 1);
        script.answer(LATER);
    }
    script.pass(16);
    assert_eq!(script.sent(), ["create b:  ×1"], "they take turns");
    script.answer(Answer::Accepted);
    assert_eq!(script.sent().len(), 2, "together again");
}

#[test]
fn a_pause_that_the_server_asks_for_is_kept() {
    let mut script = Script::new();
    script.note("a");
    script.sent();
    script.answer(Answer::Later { code: Some(429), asked: Some(Duration::from_secs(20)) });
    assert_eq!(script.pause(), 22, "a tenth more, so that not all come at once");
    script.correlator.flush();
    assert_eq!(script.pause(), 22, "also by who is in a hurry");
    script.pass(22);
    assert_eq!(script.all(), ["create web-0: a ×1"]);
}

#[test]
fn after_twelve_tries_an_event_is_given_up() {
    let mut script = Script::new();
    script.note("a");
    for _ in 0..11 {
        assert_eq!(script.sent().len(), 1);
        assert_eq!(script.answer(LATER), None);
        script.pass(60);
    }
    assert_eq!(script.sent().len(), 1);
    let given_up = script.answer(LATER).expect("that was the last");
    assert_eq!((given_up.count, given_up.refusal), (1, None));
    assert_eq!(script.correlator.figures().failed, 1);
    script.pass(60);
    script.note("a");
    assert_eq!(script.all(), ["create web-0: a ×1"], "the next one has all of its tries");
}

#[test]
fn what_was_taken_before_is_no_try_of_what_comes_next() {
    let mut script = Script::new();
    let mut requests = 0;
    for _ in 0..1 << 13 {
        script.note("a");
        requests += script.all().len();
    }
    assert_eq!(requests, 14, "more than there are tries");
    for _ in 0..1 << 13 {
        script.note("a");
    }
    script.sent();
    assert_eq!(script.answer(LATER), None, "it was the first of twelve");
}

#[test]
fn what_is_made_anew_goes_before_what_waits() {
    let mut script = Script::with(EventSettings { concurrency: 1, ..EventSettings::default() });
    script.note("a");
    script.all();
    script.note("a");
    script.note("b");
    assert_eq!(script.sent(), ["patch web-0 ×2"]);
    script.answer(Answer::Missing);
    assert_eq!(script.sent(), ["create web-0: a ×2"]);
}
