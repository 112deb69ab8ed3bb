//! Waits that a receiver requests, pauses of a whole sink, and fairness between namespaces.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;
use steadfast_notify::delivery_outcome::DeliveryOutcome;
use steadfast_notify::message::Message;
use steadfast_notify::sink_queue::{DeliverySettings, MAX_REQUESTED_DELAY, SinkQueue};

use crate::delivery::{DRAIN_TIMEOUT, Fixture, NO_DELAY, ScriptedSink};
use crate::folder::Folder;

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn message(namespace: &str, name: &str) -> Arc<Message> {
    let value = json!({
        "id": format!("{namespace}/{name}"), "time": "2026-01-02T03:04:05Z", "type": "Updated", "rule": "r",
        "cluster": "default", "resource": "pods", "namespace": namespace, "name": name, "uid": name, "data": 1,
    });
    Arc::new(serde_json::from_value(value).expect("a message"))
}

fn delivery() -> DeliverySettings {
    DeliverySettings {
        debounce: Duration::ZERO,
        rate: None,
        initial_delay: seconds(1),
        max_delay: seconds(60),
        give_up_after: seconds(3600),
        concurrency: 4,
        batch: 1,
    }
}

fn busy_outcome(after: Option<Duration>) -> DeliveryOutcome {
    DeliveryOutcome::Busy { retry_after: after, reason: "429".to_owned() }
}

/// Takes the batches that are due at `now`. Returns the number of each batch, and the ID of its first message.
fn take_batches(queue: &mut SinkQueue<()>, now: Duration) -> Vec<(u64, String)> {
    queue.take(now).into_iter().map(|batch| (batch.number, batch.messages[0].id.clone())).collect()
}

#[test]
fn rejected_request_pauses_the_whole_sink() {
    let mut queue = SinkQueue::new(delivery());
    for number in 0..40 {
        queue.push(NO_DELAY, message("shop", &number.to_string()), ());
    }
    let first = take_batches(&mut queue, NO_DELAY);
    assert_eq!(first.len(), 4);
    for (number, _) in first {
        queue.settle(NO_DELAY, number, &busy_outcome(Some(seconds(30))), || 0.5, |_, _, _| true);
    }
    assert_eq!(take_batches(&mut queue, seconds(29)), []);
    assert_eq!(queue.next_due(seconds(1)), Some(seconds(30)));
    // One request shows whether the receiver accepts more; then each success adds a slot.
    let probe = take_batches(&mut queue, seconds(30));
    assert_eq!(probe.len(), 1);
    assert_eq!(queue.next_due(seconds(30)), None);
    queue.settle(seconds(30), probe[0].0, &DeliveryOutcome::Delivered, || 0.5, |_, _, _| true);
    let second = take_batches(&mut queue, seconds(30));
    assert_eq!(second.len(), 2);
    for (number, _) in second {
        queue.settle(seconds(31), number, &DeliveryOutcome::Delivered, || 0.5, |_, _, _| true);
    }
    assert_eq!(take_batches(&mut queue, seconds(31)).len(), 4);
}

#[test]
fn failed_probe_keeps_single_slot() {
    let mut queue = SinkQueue::new(delivery());
    for number in 0..40 {
        queue.push(NO_DELAY, message("shop", &number.to_string()), ());
    }
    for (number, _) in take_batches(&mut queue, NO_DELAY) {
        queue.settle(NO_DELAY, number, &busy_outcome(Some(seconds(30))), || 0.5, |_, _, _| true);
    }
    // The overloaded receiver lets requests time out instead of rejecting them.
    let timed_out = DeliveryOutcome::Retry { retry_after: None, reason: "no response".to_owned() };
    for start in [30, 60, 90] {
        let probe = take_batches(&mut queue, seconds(start));
        assert_eq!(probe.len(), 1, "at {start} s");
        queue.settle(seconds(start + 30), probe[0].0, &timed_out, || 0.5, |_, _, _| true);
    }
    assert_eq!(take_batches(&mut queue, seconds(120)).len(), 1);
}

#[test]
fn timeouts_of_all_attempts_reduce_concurrency() {
    let mut queue = SinkQueue::new(DeliverySettings { concurrency: 8, ..delivery() });
    for number in 0..40 {
        queue.push(NO_DELAY, message("shop", &number.to_string()), ());
    }
    let timed_out = DeliveryOutcome::Retry { retry_after: None, reason: "no response".to_owned() };
    let mut counts = Vec::new();
    for start in [0, 30, 60, 90] {
        let batches = take_batches(&mut queue, seconds(start));
        counts.push(batches.len());
        for (number, _) in batches {
            queue.settle(seconds(start + 30), number, &timed_out, || 0.5, |_, _, _| true);
        }
    }
    assert_eq!(counts, [8, 4, 2, 2]);
}

/// A program that fails for some objects within a second, and needs ten seconds for all others.
#[test]
fn fast_failures_keep_concurrency_of_slow_receiver() {
    let mut queue = SinkQueue::new(DeliverySettings { concurrency: 8, ..delivery() });
    for number in 0..7 {
        queue.push(NO_DELAY, message("shop", &format!("slow-{number}")), ());
    }
    assert_eq!(take_batches(&mut queue, NO_DELAY).len(), 7);
    let failure = DeliveryOutcome::Retry { retry_after: None, reason: "exit code 1".to_owned() };
    for second in 1..5 {
        queue.push(seconds(second), message("shop", &format!("bad-{second}")), ());
        let failing = take_batches(&mut queue, seconds(second));
        assert_eq!(failing.len(), 1, "the eighth slot at {second} s");
        let end = seconds(second) + Duration::from_millis(500);
        queue.settle(end, failing[0].0, &failure, || 0.5, |_, _, _| true);
    }
}

#[test]
fn merged_messages_of_paused_sink_are_bounded() {
    let mut queue = SinkQueue::new(DeliverySettings { debounce: seconds(1), ..delivery() });
    queue.push(NO_DELAY, message("shop", "other"), ());
    let first = take_batches(&mut queue, seconds(1));
    queue.settle(seconds(1), first[0].0, &busy_outcome(Some(seconds(3000))), || 0.5, |_, _, _| true);
    for _ in 0..1_000 {
        queue.push(seconds(2), message("shop", "hot"), ());
    }
    // Without a bound, one object could fill the memory without using the share of its namespace.
    assert_eq!(queue.len(), 1 + 10);
    assert!(!queue.has_space(&("default".to_owned(), "shop".to_owned()), 20));
}

#[test]
fn rejections_without_a_wait_back_off() {
    let mut queue = SinkQueue::new(delivery());
    queue.push(NO_DELAY, message("shop", "a"), ());
    let (mut now, mut delays) = (NO_DELAY, Vec::new());
    for _ in 0..8 {
        let batch = take_batches(&mut queue, now);
        queue.settle(now, batch[0].0, &busy_outcome(None), || 1.0, |_, _, _| true);
        let next = queue.next_due(now).expect("a retry");
        delays.push(next.saturating_sub(now).as_secs());
        now = next;
    }
    assert_eq!(delays, [1, 2, 4, 8, 16, 32, 60, 60]);
}

#[test]
fn pause_ends_with_a_last_attempt() {
    let mut queue = SinkQueue::new(DeliverySettings { give_up_after: seconds(20), ..delivery() });
    for name in ["a", "b"] {
        queue.push(NO_DELAY, message("shop", name), ());
    }
    for (number, _) in take_batches(&mut queue, NO_DELAY) {
        queue.settle(NO_DELAY, number, &busy_outcome(Some(Duration::MAX)), || 0.5, |_, _, _| true);
    }
    assert_eq!(queue.next_due(seconds(1)), Some(seconds(20)));
    let mut dead_letters = Vec::new();
    for _ in 0..2 {
        let last = take_batches(&mut queue, seconds(20));
        assert_eq!(last.len(), 1, "one at a time while the receiver rejects requests");
        let record_dead_letter = |message: &Message, reason: &str, attempts: u32| {
            dead_letters.push((message.name.clone(), reason.to_owned(), attempts));
            true
        };
        queue.settle(seconds(20), last[0].0, &busy_outcome(Some(Duration::MAX)), || 0.5, record_dead_letter);
    }
    assert_eq!(dead_letters, [("a".to_owned(), "429".to_owned(), 2), ("b".to_owned(), "429".to_owned(), 2)]);
    assert!(queue.is_empty());
}

#[test]
fn freeze_during_attempt_causes_no_dead_letter() {
    let mut queue = SinkQueue::new(delivery());
    queue.push(NO_DELAY, message("shop", "a"), ());
    let retry = DeliveryOutcome::Retry { retry_after: None, reason: "timeout".to_owned() };
    // The process was frozen during the first attempt, for longer than `give_up_after`.
    let resumed = seconds(7200);
    let first = take_batches(&mut queue, NO_DELAY);
    let settled = queue.settle(resumed, first[0].0, &retry, || 1.0, |_, _, _| panic!("no retry since the freeze"));
    assert!(settled.is_empty());
    let retry_at = queue.next_due(resumed).expect("a retry");
    assert_eq!(retry_at, resumed + seconds(1));
    let last = take_batches(&mut queue, retry_at);
    let mut dead_letters = Vec::new();
    let record_dead_letter = |message: &Message, _: &str, attempts: u32| {
        dead_letters.push((message.name.clone(), attempts));
        true
    };
    queue.settle(retry_at + seconds(10), last[0].0, &retry, || 1.0, record_dead_letter);
    assert_eq!(dead_letters, [("a".to_owned(), 2)]);
    assert!(queue.is_empty());
}

#[test]
fn slow_namespace_leaves_slots_to_others() {
    // Each of 40 messages of one namespace takes 10 s. Without the limit for one namespace, a message of another
    // namespace would wait 99 s.
    let mut queue = SinkQueue::new(delivery());
    for number in 0..40 {
        queue.push(NO_DELAY, message("slow", &number.to_string()), ());
    }
    let first: Vec<u64> = take_batches(&mut queue, NO_DELAY).into_iter().map(|(number, _)| number).collect();
    assert_eq!(first.len(), 4, "a single namespace has all slots");
    queue.push(seconds(1), message("other", "x"), ());
    for number in first {
        queue.settle(seconds(10), number, &DeliveryOutcome::Delivered, || 0.5, |_, _, _| true);
    }
    let second = take_batches(&mut queue, seconds(10));
    assert_eq!(second[0].1, "other/x");
    // From now on one slot is reserved for other namespaces, whose messages are sent without a wait.
    assert_eq!(second.len(), 4);
    queue.settle(seconds(11), second[0].0, &DeliveryOutcome::Delivered, || 0.5, |_, _, _| true);
    assert_eq!(take_batches(&mut queue, seconds(11)), []);
    queue.push(seconds(12), message("third", "y"), ());
    assert_eq!(take_batches(&mut queue, seconds(12))[0].1, "third/y");
}

#[test]
fn namespaces_take_turns_in_batches() {
    let mut queue = SinkQueue::new(DeliverySettings { concurrency: 1, batch: 4, ..delivery() });
    for number in 0..6 {
        queue.push(NO_DELAY, message("a", &number.to_string()), ());
    }
    for number in 0..2 {
        queue.push(NO_DELAY, message("b", &number.to_string()), ());
    }
    let batch = queue.take(NO_DELAY).remove(0);
    let ids: Vec<&str> = batch.messages.iter().map(|message| message.id.as_str()).collect();
    assert_eq!(ids, ["a/0", "b/0", "a/1", "b/1"]);
}

proptest! {
    /// For any requested wait and any configuration, the next attempt starts within an hour and before the age limit of
    /// the message.
    #[test]
    fn requested_wait_never_exceeds_its_bounds(
        after in prop_oneof![any::<u64>(), 0_u64..10_000],
        nanos in 0_u32..1_000_000_000,
        give_up in prop_oneof![Just(u64::MAX), 1_u64..20_000],
        now in 0_u64..100_000,
        first in prop_oneof![Just(u64::MAX), 1_u64..100],
        debounce in prop_oneof![Just(u64::MAX), 0_u64..100],
        is_busy: bool,
    ) {
        let settings = DeliverySettings {
            give_up_after: seconds(give_up),
            initial_delay: seconds(first),
            max_delay: seconds(60),
            debounce: seconds(debounce),
            ..delivery()
        };
        let mut queue = SinkQueue::new(settings);
        let start = seconds(now);
        queue.push(start, message("shop", "a"), ());
        let due = queue.next_due(start).expect("a pending message");
        prop_assert_eq!(due, start.saturating_add(seconds(debounce)));
        let batch = queue.take(due).remove(0);
        let after = Some(Duration::new(after, nanos));
        let retry = DeliveryOutcome::Retry { retry_after: after, reason: String::new() };
        let outcome = if is_busy { busy_outcome(after) } else { retry };
        let settled = queue.settle(due, batch.number, &outcome, || 1.0, |_, _, _| true);
        if due >= start.saturating_add(seconds(give_up)) {
            prop_assert_eq!(settled.len(), 1);
        } else {
            let next = queue.next_due(due).expect("a retry");
            prop_assert!(next <= due.saturating_add(MAX_REQUESTED_DELAY.max(seconds(60))));
            prop_assert!(next <= start.saturating_add(seconds(give_up)));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn enormous_retry_after_ends_with_message() {
    for after in [seconds(u64::MAX), seconds(99_999_999_999), seconds(45)] {
        let retry_after_outcome = DeliveryOutcome::Retry { retry_after: Some(after), reason: "busy".to_owned() };
        let sink = ScriptedSink::new(move |_, _| (NO_DELAY, retry_after_outcome.clone()));
        let fixture = Fixture::new(Folder::new("enormous"), "", sink);
        fixture.accept_change("a", 1, json!(1)).await;
        assert_eq!(fixture.engine.drain(DRAIN_TIMEOUT).await, 0);
        // `give_up_after` is 60 s.
        let attempts: Vec<u64> = fixture.sink.attempts().into_iter().map(|(at, ..)| at.as_secs()).collect();
        assert!(attempts.first() == Some(&0) && attempts.last() == Some(&60), "{after:?}: {attempts:?}");
        let stats = &fixture.engine.stats().sinks["s"];
        assert_eq!((stats.dead_letters, stats.restarts), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn flaky_sink_writes_no_line_per_message() {
    let sink = ScriptedSink::new(|_, tries| {
        (NO_DELAY, if tries == 1 { crate::delivery::retry_outcome() } else { DeliveryOutcome::Delivered })
    });
    let fixture = Fixture::new(Folder::new("flaky"), "", sink);
    for number in 0..50 {
        fixture.accept_change(&format!("pod-{number}"), 1, json!(1)).await;
        assert_eq!(fixture.engine.drain(DRAIN_TIMEOUT).await, 0);
    }
    assert_eq!(fixture.event_texts().lines().count(), 3, "{}", fixture.event_texts());
    assert_eq!(fixture.engine.stats().sinks["s"].failing.as_deref(), Some("not now"));
    tokio::time::sleep(seconds(700)).await;
    assert_eq!(fixture.event_texts().lines().count(), 4, "{}", fixture.event_texts());
    assert!(
        fixture.event_texts().ends_with("messages are accepted again, 0 messages pending"),
        "{}",
        fixture.event_texts()
    );
    assert_eq!(fixture.engine.stats().sinks["s"].failing, None);
}
