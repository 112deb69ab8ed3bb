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
    prop_oneof![4 => Just(AttemptResult::Accepted), 2 => Just(AttemptResult::AcceptedResponseLost), 3 => Just(AttemptResult::Retry), 1 => Just(AttemptResult::Rejected)]
}

/// Returns a message for the queue.
fn message(lane: usize, number: u64) -> Arc<Message> {
    let value = json!({
        "id": number.to_string(), "time": "2026-01-02T03:04:05Z", "type": "Updated", "rule": "r", "cluster": "default",
        "resource": "pods", "namespace": "", "name": format!("pod-{lane}"), "uid": format!("{lane}"), "data": number,
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
    fn outbox_keeps_order_and_loses_nothing(
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
        let mut under_way: Vec<RunningAttempt> = Vec::new();
        let mut received: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        let mut settled: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        let mut buried: Vec<u64> = Vec::new();
        for _ in 0..10_000 {
            while let Some((number, (lane, _))) = puts.next_if(|(_, (_, at))| Duration::from_millis(*at) <= now) {
                queue.push(now, message(lane, number as u64), number as u64);
                total += 1;
            }
            for shipment in queue.take(now) {
                prop_assert!(!shipment.messages.is_empty() && shipment.messages.len() <= batch);
                // Attempts succeed after the last random result.
                let (attempt_result, takes, chance) = results.next().unwrap_or((AttemptResult::Accepted, 10, 0.5));
                under_way.push((now + Duration::from_millis(takes), shipment.number, shipment.messages, attempt_result, chance));
            }
            prop_assert!(under_way.len() <= concurrency);
            let mut lanes: Vec<&str> = Vec::new();
            for (_, _, messages, ..) in &under_way {
                let mut own: Vec<&str> = messages.iter().map(|message| message.name.as_str()).collect();
                own.dedup();
                prop_assert!(own.iter().all(|lane| !lanes.contains(lane)), "one ordering key is in flight twice");
                lanes.extend(own);
            }
            under_way.sort_by_key(|(at, ..)| *at);
            let ends = under_way.first().map(|(at, ..)| *at);
            let comes = puts.peek().map(|(_, (_, at))| Duration::from_millis(*at));
            let Some(next) = [ends, comes, queue.next_due(now)].into_iter().flatten().min() else { break };
            prop_assert!(next > now || ends == Some(next) || comes == Some(next), "the next deadline has already passed");
            now = now.max(next);
            if ends == Some(next) {
                let (_, number, messages, attempt_result, chance) = under_way.remove(0);
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
                    AttemptResult::AcceptedResponseLost | AttemptResult::Retry => DeliveryOutcome::Retry { retry_after: None, reason },
                    AttemptResult::Rejected => DeliveryOutcome::Rejected { reason },
                };
                let bury = |message: &Message, _: &str, _: u32| {
                    buried.push(message.data.as_u64().expect("a number"));
                    true
                };
                for done in queue.settle(now, number, &outcome, || chance, bury) {
                    settled.entry(done.message.name.clone()).or_default().extend(done.tokens);
                }
            }
        }
        prop_assert!(queue.is_empty() && under_way.is_empty(), "something waits for ever");
        let all: usize = settled.values().map(Vec::len).sum();
        prop_assert_eq!(all as u64, total, "each is settled once");
        for (lane, settled) in &settled {
            prop_assert!(settled.is_sorted_by(|one, other| one < other), "acknowledged out of order: {:?}", settled);
            let received = received.get(lane).cloned().unwrap_or_default();
            for number in settled {
                prop_assert!(received.contains(number) || buried.contains(number), "{} is lost", number);
            }
            // First deliveries are in order. A repeated delivery precedes the acknowledgement of newer messages.
            let mut first: Vec<u64> = Vec::new();
            for number in &received {
                if !first.contains(number) {
                    prop_assert!(first.iter().all(|before| before < number), "out of order: {:?}", received);
                    first.push(*number);
                }
            }
        }
    }
}
