//! Storage of dead letters during deliveries.

use std::fs::File;
use std::sync::mpsc::channel;
use std::time::Duration;

use serde_json::json;
use steadfast_notify::delivery_outcome::DeliveryOutcome;
use tokio::task::yield_now;

use crate::delivery::{DRAIN_TIMEOUT, Fixture, NO_DELAY, ScriptedSink};
use crate::folder::Folder;

/// The disk does not respond, or another process holds the lock of the file.
#[tokio::test]
async fn blocked_dead_letter_file_blocks_no_runtime_thread() {
    let folder = Folder::new("blocked-file");
    let lock_file = folder.join("dead-letters.ndjson.lock");
    let lock = File::options().append(true).create(true).open(lock_file).expect("a lock file");
    lock.lock().expect("no other lock");
    let (sender, receiver) = channel::<()>();
    let holder = std::thread::spawn(move || {
        let is_runtime_running = receiver.recv_timeout(Duration::from_secs(10)).is_ok();
        drop(lock);
        is_runtime_running
    });
    let sink = ScriptedSink::new(|_, _| (NO_DELAY, DeliveryOutcome::Rejected { reason: "no".to_owned() }));
    let fixture = Fixture::new(folder, "", sink);
    fixture.accept_change("a", 1, json!(1)).await;
    while fixture.sink.attempts().is_empty() {
        yield_now().await;
    }
    // The task of the sink handles the rejection.
    for _ in 0..100 {
        yield_now().await;
    }
    let stats = fixture.engine.stats().sinks["s"].clone();
    assert_eq!((stats.waiting, stats.dead_letters), (1, 0));
    // Without a receiver, the runtime was blocked for too long.
    let _ = sender.send(());
    assert!(holder.join().expect("the thread ends"), "the file blocks the only thread of the runtime");
    assert_eq!(fixture.engine.drain(DRAIN_TIMEOUT).await, 0);
    assert_eq!(fixture.engine.stats().sinks["s"].dead_letters, 1);
}
