//! Tests of combining, filtering, dropping, eviction and cutting.

use super::*;

#[test]
fn tenth_similar_event_is_combined() {
    let mut script = Script::new();
    let mut sent = Vec::new();
    for note in 1..=13 {
        script.note(&format!("n{note}"));
        sent.extend(script.send_all());
    }
    assert_eq!(sent[8], "create web-0: n9 ×1");
    let combined = ["create web-0: (combined from similar events): n10 ×1", "patch web-0 ×2", "patch web-0 ×4"];
    assert_eq!(sent[9..], combined);
    assert_eq!(script.correlator.stats().combined, 4);
    script.note("n3");
    assert_eq!(script.send_all(), ["patch web-0 ×2"], "a separate event stays separate");
    script.publish(&pod("web-0"), EventDraft::warning("Started", "Starting").note("n14"));
    assert_eq!(script.send_all(), ["create web-0: n14 ×1"], "another type");
}

#[test]
fn similar_count_restarts_after_ten_minutes() {
    let mut script = Script::new();
    for note in 1..=10 {
        script.note(&format!("n{note}"));
    }
    script.send_all();
    script.advance(10 * MINUTE + 1);
    script.note("n11");
    assert_eq!(script.send_all(), ["create web-0: n11 ×1"]);
}

#[test]
fn object_limit_is_25_then_slow() {
    let mut script = Script::new();
    let about = pod("web-0");
    let draft = |number: u64| EventDraft::normal(format!("Reason{number}"), "Starting");
    let mut recorded = Vec::new();
    for number in 0..30 {
        recorded.push(script.publish(&about, draft(number)));
    }
    assert_eq!(recorded.iter().filter(|recorded| **recorded == RecordResult::Queued).count(), 25);
    assert_eq!(recorded[25..], [RecordResult::Filtered; 5]);
    assert_eq!(script.publish(&about, draft(0)), RecordResult::Counted, "a repeated event");
    let warning = EventDraft::warning("Reason99", "Starting");
    assert_eq!(script.publish(&about, warning), RecordResult::Queued, "another type");
    assert_eq!(script.publish(&pod("web-1"), draft(99)), RecordResult::Queued, "another object");
    script.send_all();
    script.advance(5 * MINUTE);
    assert_eq!(script.publish(&about, draft(40)), RecordResult::Queued);
    assert_eq!(script.publish(&about, draft(41)), RecordResult::Filtered);
    let stats = script.correlator.stats();
    assert_eq!((stats.filtered, stats.recorded), (6, 35));
}

#[test]
fn limits_never_reduce_series() {
    let mut script = Script::new();
    for _ in 0..10_000 {
        script.note("a");
        script.send_all();
    }
    script.send_until_idle();
    let stats = script.correlator.stats();
    assert_eq!((stats.delivered, stats.filtered), (10_000, 0), "client-go would filter most of them");
}

#[test]
fn full_queue_drops_new_events_only() {
    let mut script = Script::with(EventSettings { queue: 3, ..EventSettings::default() });
    for name in ["a", "b", "c", "d", "e"] {
        script.publish(&pod(name), EventDraft::normal("Started", "Starting"));
    }
    script.publish(&pod("a"), EventDraft::normal("Started", "Starting"));
    assert_eq!(script.correlator.stats().dropped, 2);
    assert_eq!(script.send_all(), ["create a:  ×2", "create b:  ×1", "create c:  ×1"]);
    script.publish(&pod("d"), EventDraft::normal("Started", "Starting"));
    assert_eq!(script.send_all(), ["create d:  ×1"], "the queue has capacity again");
}

#[test]
fn evicted_series_keeps_its_count() {
    let mut script = Script::with(EventSettings { series: 2, ..EventSettings::default() });
    let draft = || EventDraft::normal("Started", "Starting");
    for _ in 0..3 {
        script.publish(&pod("a"), draft());
    }
    script.publish(&pod("b"), draft());
    script.send_all();
    script.publish(&pod("a"), draft());
    script.publish(&pod("b"), draft());
    assert_eq!(script.send_all(), ["patch b ×2"]);
    script.publish(&pod("c"), draft());
    assert_eq!(script.send_all(), ["patch a ×4", "create c:  ×1"]);
    assert_eq!(script.correlator.entry_counts(), (2, 2, 2));
    script.publish(&pod("a"), draft());
    assert_eq!(script.send_all(), ["create a:  ×1"]);
}

#[test]
fn invalid_event_is_not_sent() {
    let mut script = Script::new();
    let about = pod("web-0");
    assert!(matches!(script.publish(&about, EventDraft::normal("", "Starting")), RecordResult::Invalid(_)));
    assert!(matches!(script.publish(&about, EventDraft::normal("Started", "")), RecordResult::Invalid(_)));
    let elsewhere = ObjectReference { namespace: Some("../kube-system".to_owned()), ..about };
    assert!(matches!(script.publish(&elsewhere, EventDraft::normal("Started", "Starting")), RecordResult::Invalid(_)));
    let endless = ObjectReference { field_path: Some("a".repeat(1025)), ..pod("web-0") };
    assert!(matches!(script.publish(&endless, EventDraft::normal("Started", "Starting")), RecordResult::Invalid(_)));
    let related = EventDraft::normal("Started", "Starting").related(&endless);
    assert!(matches!(script.publish(&pod("web-0"), related), RecordResult::Invalid(_)));
    assert_eq!((script.send_all(), script.correlator.stats().failed), (Vec::new(), 5));
}

#[test]
fn long_texts_are_cut() {
    let mut script = Script::new();
    let draft = || EventDraft::normal("é".repeat(100), "a".repeat(200)).note("é".repeat(600));
    script.publish(&pod("web-0"), draft());
    let event = script.accept_create();
    assert_eq!(event.reason, Some("é".repeat(64)));
    assert_eq!(event.action, Some("a".repeat(128)));
    assert_eq!(event.note, Some("é".repeat(512)));
    for number in 0..9 {
        script.publish(&pod("web-0"), draft().note(format!("{number}{}", "é".repeat(600))));
    }
    let notes: Vec<_> = (0..9).filter_map(|_| script.accept_create().note).collect();
    assert!(notes[8].starts_with("(combined from similar events): 8é"), "{}", notes[8]);
    assert!(notes.iter().all(|note| (1023..=1024).contains(&note.len())));
}
