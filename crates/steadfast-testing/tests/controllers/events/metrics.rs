//! Metrics of a recorder in a scrape.

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use steadfast_controller::EventMetrics;

use super::*;

#[tokio::test(start_paused = true)]
async fn scrape_counts_each_event_result() -> Result<(), TestError> {
    let fixture = EventsFixture::with_settings(EventSettings { queue: 3, ..EventSettings::default() }).await?;
    let dropped_recorder = EventRecorder::new(&fixture.connection, "gone")?;
    let metrics = EventMetrics::default().with("web", &fixture.events).with("gone", &dropped_recorder);
    let mut registry = Registry::default();
    registry.register_collector(Box::new(metrics));
    drop(dropped_recorder);
    for name in ["a", "b", "c", "d"] {
        fixture.note(name, "it was changed");
    }
    fixture.flush().await?;
    fixture.note("a", "it was changed");
    fixture.flush().await?;
    for _ in 0..3 {
        fixture.note("b", "it was changed");
    }
    fixture.events.publish(&subject("a"), EventDraft::normal("", "Changing"));

    let mut text = String::new();
    encode(&mut text, &registry)?;
    for line in [
        "steadfast_events_recorded_total{recorder=\"web\"} 9",
        "steadfast_events_settled_total{recorder=\"web\",result=\"delivered\"} 4",
        "steadfast_events_settled_total{recorder=\"web\",result=\"filtered\"} 0",
        "steadfast_events_settled_total{recorder=\"web\",result=\"dropped\"} 1",
        "steadfast_events_settled_total{recorder=\"web\",result=\"failed\"} 1",
        "steadfast_events_combined_total{recorder=\"web\"} 0",
        "steadfast_events_requests_total{recorder=\"web\",result=\"created\"} 3",
        "steadfast_events_requests_total{recorder=\"web\",result=\"patched\"} 1",
        "steadfast_events_requests_total{recorder=\"web\",result=\"retried\"} 0",
        "steadfast_events_waiting{recorder=\"web\"} 3.0",
        "steadfast_events_queue_length{recorder=\"web\"} 1.0",
        "steadfast_events_series{recorder=\"web\"} 3.0",
    ] {
        assert!(text.lines().any(|other| other == line), "{line} is missing in\n{text}");
    }
    assert!(!text.contains("gone"), "{text}");
    Ok(())
}
