//! Handlers that receive each event separately.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use steadfast::{AsyncHandler, Call, Event, Registration};
use steadfast_testing::{TestError, config_map};

use super::{CapturedLog, EventLog, InformerFixture, follow, settle};

/// Handler that logs each event with its value and the number of missed events. Each call lasts for `call_duration`.
struct LoggingHandler {
    log: EventLog,
    missed: Arc<AtomicU64>,
    call_duration: Duration,
}

impl AsyncHandler<ConfigMap> for LoggingHandler {
    async fn handle(&self, event: Event<ConfigMap>, call: Call) {
        self.missed.fetch_add(call.missed, Ordering::Relaxed);
        let object = event.object();
        let value = object.data.as_ref().map_or("none", |data| data["value"].as_str());
        let missed = if call.missed > 0 { format!(", {} missed", call.missed) } else { String::new() };
        self.log.record(format!("{} {} {value}{missed}", event.name(), object.name_any()));
        tokio::time::sleep(self.call_duration).await;
    }
}

struct EachHandler {
    log: EventLog,
    missed: Arc<AtomicU64>,
    registration: Registration<ConfigMap>,
}

async fn add_each_handler(
    fixture: &InformerFixture,
    bound: usize,
    call_duration: Duration,
) -> Result<EachHandler, TestError> {
    let (log, missed) = (EventLog::default(), Arc::<AtomicU64>::default());
    let handler = LoggingHandler { log: log.clone(), missed: missed.clone(), call_duration };
    let registration = fixture.synced_informer().await?.handler().deliver_each(bound).add_async_handler(handler)?;
    settle().await;
    Ok(EachHandler { log, missed, registration })
}

#[tokio::test(start_paused = true)]
async fn slow_handler_receives_events_in_order() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.server.create(&config_map("a", "0"))?;
    let slow_handler = add_each_handler(&fixture, 100, Duration::from_secs(1)).await?;
    let (merged_log, _registration) = follow(&fixture.synced_informer().await?);
    let mut expected = vec!["Added a 0".to_owned()];
    fixture.server.create(&config_map("b", "0"))?;
    expected.push("Added b 0".to_owned());
    for value in 1..20 {
        let name = if value % 3 == 0 { "b" } else { "a" };
        fixture.write(name, &value.to_string())?;
        expected.push(format!("Updated {name} {value}"));
    }
    fixture.server.delete_named("configmaps", "default", "a")?;
    expected.push("Deleted a 19".to_owned());
    settle().await;
    assert_eq!(
        merged_log.all().last().map(String::as_str),
        Some("Deleted a"),
        "a slow handler must not delay another one"
    );
    assert!(slow_handler.registration.stats().entries >= 20, "{:?}", slow_handler.registration.stats());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(slow_handler.log.all(), expected);
    assert_eq!(slow_handler.registration.stats().missed, 0);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn overflowing_events_are_merged_and_reported() -> Result<(), TestError> {
    let captured_log = CapturedLog::capture();
    let fixture = InformerFixture::new().await?;
    fixture.server.create(&config_map("a", "0"))?;
    let slow_handler = add_each_handler(&fixture, 3, Duration::from_secs(10)).await?;
    for value in 1..=10 {
        fixture.write("a", &value.to_string())?;
    }
    fixture.server.create(&config_map("b", "0"))?;
    settle().await;
    let counts = slow_handler.registration.stats();
    assert_eq!(counts.entries, 2 + 3, "three separate events, and one merged entry per object: {counts:?}");
    assert_eq!(counts.missed, 6);
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(
        slow_handler.log.all(),
        ["Added a 0", "Updated a 1, 6 missed", "Updated a 2", "Updated a 3", "Added b 0", "Updated a 10",]
    );
    assert_eq!((slow_handler.missed.load(Ordering::Relaxed), slow_handler.registration.stats().missed), (6, 6));
    let lines = captured_log.lines("has fallen behind its bound");
    assert_eq!(lines.len(), 1, "one warning until the handler catches up: {lines:#?}");
    assert!(lines[0].contains("WARN") && lines[0].contains("configmaps in all namespaces"), "{lines:#?}");

    // The handler has caught up, so events are delivered separately again.
    for value in 11..=13 {
        fixture.write("a", &value.to_string())?;
    }
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(slow_handler.log.all()[6..], ["Updated a 11", "Updated a 12", "Updated a 13"]);
    assert_eq!(captured_log.lines("has fallen behind its bound").len(), 1);
    Ok(())
}

/// A handler that never returns. Its queue must stay within its bound plus one entry per object.
#[tokio::test(start_paused = true)]
async fn bounded_queue_delays_no_other_handler() -> Result<(), TestError> {
    const BOUND: usize = 10;
    let fixture = InformerFixture::new().await?;
    for name in ["a", "b", "c"] {
        fixture.server.create(&config_map(name, "0"))?;
    }
    let stuck_handler = add_each_handler(&fixture, BOUND, Duration::from_secs(1_000_000)).await?;
    let (log, _registration) = follow(&fixture.synced_informer().await?);
    for value in 0..1_000 {
        fixture.write(["a", "b", "c"][value % 3], &value.to_string())?;
        if value % 100 == 0 {
            settle().await;
            assert!(
                stuck_handler.registration.stats().entries <= 1 + BOUND + 3,
                "{:?}",
                stuck_handler.registration.stats()
            );
        }
    }
    settle().await;
    assert!(log.all().len() >= 10, "other handlers must receive their events");
    assert!(stuck_handler.registration.stats().missed >= 900);
    assert_eq!(fixture.factory.shutdown().running, 1);
    Ok(())
}
