//! Sink queue with random results of a sink.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;
use steadfast_notify::delivery_outcome::DeliveryOutcome;
use steadfast_notify::message::Message;
use steadfast_notify::sink_queue::{DeliverySettings, SinkQueue};

/// Random result of an attempt.
#[derive(Clone, Debug)]
enum AttemptResult {
    Accepted,
    /// Accepted, but the response is lost.
    AcceptedResponseLost,
    Retry,
    Rejected,
}

fn attempt_result() -> impl Strategy<Value = AttemptResult> {
    prop_oneof![
        4 => Just(AttemptResult::Accepted),
        2 => Just(AttemptResult::AcceptedResponseLost),
        3 => Just(AttemptResult::Retry),
        1 => Just(AttemptResult::Rejected),
    ]
}

/// Returns a message for the queue.
fn message(object_number: usize, number: u64) -> Arc<Message> {
    let value = json!({
        "id": number.to_string(), "time": "2026-01-02T03:04:05Z", "type": "Updated", "rule": "r", "cluster": "default",
        "resource": "pods", "namespace": "", "name": format!("pod-{object_number}"), "uid": format!("{object_number}"),
        "data": number,
    });
    Arc::new(serde_json::from_value(value).expect("a message"))
}

/// End of an attempt, batch number, messages, result and random number.
type RunningAttempt = (Duration, u64, Vec<Arc<Message>>, AttemptResult, f64);

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// For any behaviour of a sink, all messages of an object are delivered or become dead letters. First attempts keep
    /// their order, no message follows an acknowledged newer message, and the concurrency limit holds.
    #[test]
    fn queue_keeps_order_and_loses_nothing(
        puts in prop::collection::vec((0_usize..4, 0_u64..2_000), 1..40),
        results in prop::collection::vec((attempt_result(), 0_u64..3_000, 0.0_f64..1.0), 1..60),
        concurrency in 1_usize..4,
        batch in 1_usize..5,
        rate in prop::option::of((0.5_f64..20.0, 1_u32..4)),
    ) {
        let delivery = DeliverySettings {
            debounce: Duration::ZERO,
            rate,
            initial_delay: Duration::from_millis(100),
            max_delay: Duration::from_secs(2),
            give_up_after: Duration::from_secs(20),
            concurrency,
            batch,
        };
        let mut queue: SinkQueue<u64> = SinkQueue::new(delivery);
        let mut puts: Vec<(usize, u64)> = puts;
        puts.sort_by_key(|(_, at)| *at);
        let mut puts = puts.into_iter().enumerate().peekable();
        let mut results = results.into_iter();
        let (mut now, mut total) = (Duration::ZERO, 0_u64);
        let mut running_attempts: Vec<RunningAttempt> = Vec::new();
        let mut received: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        let mut settled: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        let mut dead_letters: Vec<u64> = Vec::new();
        for _ in 0..10_000 {
            while let Some((number, (object_number, _))) =
                puts.next_if(|(_, (_, at))| Duration::from_millis(*at) <= now)
            {
                queue.push(now, message(object_number, number as u64), number as u64);
                total += 1;
            }
            for sent_batch in queue.take(now) {
                prop_assert!(!sent_batch.messages.is_empty() && sent_batch.messages.len() <= batch);
                // Attempts succeed after the last random result.
                let (attempt_result, takes, chance) = results.next().unwrap_or((AttemptResult::Accepted, 10, 0.5));
                let attempt_end = now + Duration::from_millis(takes);
                running_attempts.push((attempt_end, sent_batch.number, sent_batch.messages, attempt_result, chance));
            }
            prop_assert!(running_attempts.len() <= concurrency);
            let mut keys_in_flight: Vec<&str> = Vec::new();
            for (_, _, messages, ..) in &running_attempts {
                let mut keys: Vec<&str> = messages.iter().map(|message| message.name.as_str()).collect();
                keys.dedup();
                let is_free = |key: &&str| !keys_in_flight.contains(key);
                prop_assert!(keys.iter().all(is_free), "one ordering key is in flight twice");
                keys_in_flight.extend(keys);
            }
            running_attempts.sort_by_key(|(at, ..)| *at);
            let next_attempt_end = running_attempts.first().map(|(at, ..)| *at);
            let next_put = puts.peek().map(|(_, (_, at))| Duration::from_millis(*at));
            let next = [next_attempt_end, next_put, queue.next_due(now)].into_iter().flatten().min();
            let Some(next) = next else { break };
            prop_assert!(
                next > now || next_attempt_end == Some(next) || next_put == Some(next),
                "the next deadline has already passed"
            );
            now = now.max(next);
            if next_attempt_end == Some(next) {
                let (_, number, messages, attempt_result, chance) = running_attempts.remove(0);
                if matches!(attempt_result, AttemptResult::Accepted | AttemptResult::AcceptedResponseLost) {
                    for message in &messages {
                        received.entry(message.name.clone()).or_default().push(message.data.as_u64().expect("a number"));
                    }
                }
                for message in &messages {
                    let number = message.data.as_u64().expect("a number");
                    let newest = settled.get(&message.name).and_then(|settled| settled.last());
                    prop_assert!(newest.is_none_or(|newest| *newest < number), "{} after {:?}", number, newest);
                }
                let reason = String::new();
                let outcome = match attempt_result {
                    AttemptResult::Accepted => DeliveryOutcome::Delivered,
                    AttemptResult::AcceptedResponseLost | AttemptResult::Retry => {
                        DeliveryOutcome::Retry { retry_after: None, reason }
                    }
                    AttemptResult::Rejected => DeliveryOutcome::Rejected { reason },
                };
                let undeliverable = queue.undeliverable(number, &outcome);
                let (known, attempts) = (dead_letters.len(), undeliverable.iter().map(|(_, attempts)| *attempts));
                let (attempts, mut recorded_attempts) = (attempts.collect::<Vec<u32>>(), Vec::new());
                let record_dead_letter = |message: &Message, _: &str, attempts: u32| {
                    recorded_attempts.push(attempts);
                    dead_letters.push(message.data.as_u64().expect("a number"));
                    true
                };
                for settled_message in queue.settle(now, number, &outcome, || chance, record_dead_letter) {
                    settled.entry(settled_message.message.name.clone()).or_default().extend(settled_message.tokens);
                }
                let undeliverable = undeliverable.iter().filter_map(|(message, _)| message.data.as_u64());
                prop_assert_eq!(dead_letters[known..].to_vec(), undeliverable.collect::<Vec<_>>());
                prop_assert_eq!(recorded_attempts, attempts);
            }
        }
        prop_assert!(queue.is_empty() && running_attempts.is_empty(), "something waits for ever");
        let settled_count: usize = settled.values().map(Vec::len).sum();
        prop_assert_eq!(settled_count as u64, total, "each is settled once");
        for (object_number, settled) in &settled {
            prop_assert!(settled.is_sorted_by(|one, other| one < other), "acknowledged out of order: {:?}", settled);
            let received = received.get(object_number).cloned().unwrap_or_default();
            for number in settled {
                prop_assert!(received.contains(number) || dead_letters.contains(number), "{} is lost", number);
            }
            // First deliveries are in order. A repeated delivery precedes the acknowledgement of newer messages.
            let mut first_deliveries: Vec<u64> = Vec::new();
            for number in &received {
                if !first_deliveries.contains(number) {
                    prop_assert!(first_deliveries.iter().all(|before| before < number), "out of order: {:?}", received);
                    first_deliveries.push(*number);
                }
            }
        }
    }
}
