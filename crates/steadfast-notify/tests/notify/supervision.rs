//! Sink workers that panic are restarted with their messages. At the end of a term, they drop the messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::json;
use steadfast_notify::delivery_outcome::DeliveryOutcome;
use steadfast_notify::engine_event::{EngineEvent, EventCallback};
use steadfast_notify::sink::MessageSink;
use steadfast_notify::{Engine, MessageSinks, Replication, Supervisor, TermKeeper, UnlimitedTerm};
use tokio::time::sleep;

use crate::delivery::{DRAIN_TIMEOUT, NO_DELAY, ScriptedSink, change, plan, retry_outcome};
use crate::folder::Folder;

/// Returns an engine with a callback that panics inside the worker's task, in the first `panics` reports about
/// failures.
fn engine(folder: &Folder, panics: u32, sink: Arc<ScriptedSink>) -> (Engine, Supervisor, Arc<AtomicU32>) {
    let ended_tasks = Arc::new(AtomicU32::new(0));
    let (remaining_panics, end_counter) = (AtomicU32::new(panics), ended_tasks.clone());
    let report = move |event: EngineEvent| match event {
        EngineEvent::SinkFailing { .. } | EngineEvent::DeadLettered { .. } => {
            let must_panic = remaining_panics
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |remaining_panics| remaining_panics.checked_sub(1))
                .is_ok();
            assert!(!must_panic, "a callback that panics");
        }
        EngineEvent::TaskEnded { .. } => drop(end_counter.fetch_add(1, Ordering::Relaxed)),
        _ => {}
    };
    let streams = MessageSinks::from([("s".to_owned(), sink as Arc<dyn MessageSink>)]);
    let report: Arc<EventCallback> = Arc::new(report);
    let supervisor = Supervisor::new(report.clone());
    (Engine::start_supervised(&plan(folder, ""), streams, 7, supervisor.clone(), report), supervisor, ended_tasks)
}

#[tokio::test(start_paused = true)]
async fn panicked_worker_restarts_and_delivers_everything() {
    let folder = Folder::new("panicked");
    // `stuck` is in flight at the panic of the worker: the attempt never returns a result.
    let sink = ScriptedSink::new(|message, tries| match (&*message.name, tries) {
        ("fails", 1) => (Duration::from_secs(1), retry_outcome()),
        ("stuck", 1) => (Duration::from_secs(10), DeliveryOutcome::Delivered),
        _ => (NO_DELAY, DeliveryOutcome::Delivered),
    });
    let (engine, _supervisor, ended_tasks) = engine(&folder, 1, sink.clone());
    for name in ["fails", "stuck"] {
        engine.accept("r", "s", change(name, 1, &json!(1)), || {}).await;
    }
    assert_eq!(engine.drain(DRAIN_TIMEOUT).await, 0);
    let mut delivered: Vec<String> = sink.accepted().into_iter().map(|(name, _)| name).collect();
    delivered.sort();
    assert_eq!(delivered, ["fails", "stuck"]);
    let stats = engine.stats().sinks["s"].clone();
    assert_eq!((stats.restarts, ended_tasks.load(Ordering::Relaxed)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn worker_that_keeps_panicking_counts_restarts() {
    let folder = Folder::new("panicking");
    let sink = ScriptedSink::new(|_, _| (NO_DELAY, DeliveryOutcome::Rejected { reason: "never".to_owned() }));
    let (engine, supervisor, ended_tasks) = engine(&folder, u32::MAX, sink);
    // Each dead letter is reported, and each report panics.
    for number in 0..5 {
        engine.accept("r", "s", change(&format!("pod-{number}"), 1, &json!(1)), || {}).await;
        sleep(Duration::from_secs(30)).await;
        // The file has space for only two dead letters.
        std::fs::remove_file(folder.join("dead-letters.ndjson")).expect("a file with a dead letter");
    }
    let stats = engine.stats().sinks["s"].clone();
    assert_eq!((stats.restarts, ended_tasks.load(Ordering::Relaxed)), (5, 5), "{stats:?}");
    assert_eq!(supervisor.unhealthy().len(), 1, "the program is not healthy");
}

#[tokio::test(start_paused = true)]
async fn immediate_next_term_drops_messages_in_flight() {
    let folder = Folder::new("next-term");
    let sink = ScriptedSink::new(|_, _| (Duration::from_secs(30), DeliveryOutcome::Delivered));
    let streams = MessageSinks::from([("s".to_owned(), sink.clone() as Arc<dyn MessageSink>)]);
    let (keeper, gate) = TermKeeper::new();
    keeper.open(Arc::new(UnlimitedTerm(1)));
    let report: Arc<EventCallback> = Arc::new(|_| {});
    let (supervisor, replication) = (Supervisor::new(report.clone()), Replication::new(gate));
    let engine = Engine::start_replicated(&plan(&folder, ""), streams, 7, supervisor, report, replication);
    engine.accept("r", "s", change("a", 1, &json!(1)), || {}).await;
    sleep(Duration::from_secs(1)).await;
    // The task of the sink runs only after both.
    keeper.close();
    keeper.open(Arc::new(UnlimitedTerm(2)));
    sleep(Duration::from_secs(1)).await;
    engine.accept("r", "s", change("a", 2, &json!(2)), || {}).await;
    assert_eq!(engine.drain(DRAIN_TIMEOUT).await, 0);
    assert_eq!(sink.accepted(), [("a".to_owned(), json!(2))]);
}
