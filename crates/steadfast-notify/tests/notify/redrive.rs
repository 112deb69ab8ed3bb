//! Redelivery of dead letters of several sinks.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use steadfast_notify::dead_letter::DeadLetter;
use steadfast_notify::delivery_outcome::DeliveryOutcome;
use steadfast_notify::sink::MessageSink;
use steadfast_notify::{MessageSinks, redrive};

use crate::delivery::{NO_DELAY, ScriptedSink, open_dead_letters, retry_outcome};
use crate::folder::Folder;

#[tokio::test(start_paused = true)]
async fn slow_sink_delays_no_other_redrive() {
    let folder = Folder::new("redrive-slow");
    let dead_letters = open_dead_letters(&folder, 100);
    let letters: Vec<(&str, String)> =
        (0..10).flat_map(|number| ["slow", "fast"].map(|sink| (sink, format!("{sink}-{number}")))).collect();
    for (sink, name) in &letters {
        let letter = json!({
            "sink": sink, "why": "w", "attempts": 1, "message": {
                "id": name, "time": "2026-01-02T03:04:05Z", "type": "Added", "rule": "r", "cluster": "default",
                "resource": "pods", "namespace": "shop", "name": name, "uid": "u", "data": 1,
            }
        });
        let letter: DeadLetter = serde_json::from_value(letter).expect("a letter");
        dead_letters.add(&letter).expect("enough space");
    }
    let slow = ScriptedSink::new(|_, _| (Duration::from_secs(30), retry_outcome()));
    let fast = ScriptedSink::new(|_, _| (NO_DELAY, DeliveryOutcome::Delivered));
    let streams = MessageSinks::from([
        ("slow".to_owned(), slow as Arc<dyn MessageSink>),
        ("fast".to_owned(), fast.clone() as Arc<dyn MessageSink>),
    ]);
    let report = redrive(&dead_letters, &streams, None).await.expect("the file can be read");
    let names = |sink: &str| -> Vec<String> {
        letters.iter().filter(|(of, _)| *of == sink).map(|(_, name)| name.clone()).collect()
    };
    assert_eq!(report.delivered, names("fast"));
    let failed: Vec<String> = report.failed.into_iter().map(|(id, _)| id).collect();
    assert_eq!(failed, names("slow"));
    let last = fast.attempts().last().map(|attempt| attempt.0).expect("attempts");
    assert!(last < Duration::from_secs(1), "delayed by the other sink: {last:?}");
}
