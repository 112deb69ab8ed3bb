//! Bursts of events above the limits of the recorder.

use super::*;

const EVENT_COUNT: u64 = 100_000;

#[tokio::test(start_paused = true)]
async fn burst_about_one_object_is_combined() -> Result<(), TestError> {
    let fixture = EventsFixture::new().await?;
    let start = Instant::now();
    for _ in 0..EVENT_COUNT {
        fixture.note("a", "it was changed");
    }
    assert_eq!((fixture.events.stats().queued, fixture.events.stats().waiting), (1, EVENT_COUNT));
    fixture.flush().await?;
    assert_eq!(fixture.event_texts().await?, [format!("a: it was changed ×{EVENT_COUNT}")]);
    assert_eq!(fixture.requests().len(), 1);
    assert!(start.elapsed() < SECOND, "recording must not block");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn burst_about_many_objects_fills_queue() -> Result<(), TestError> {
    let fixture = EventsFixture::new().await?;
    fixture.server.faults().freeze(true);
    for number in 0..EVENT_COUNT {
        fixture.note(&format!("a-{number}"), "it was changed");
    }
    let stats = fixture.events.stats();
    assert_eq!((stats.queued, stats.waiting, stats.dropped), (1000, 1000, EVENT_COUNT - 1000));
    assert_eq!(stats.series, 1000);
    fixture.server.faults().freeze(false);
    fixture.flush().await?;
    let stats = fixture.events.stats();
    assert_eq!((stats.delivered, stats.failed, stats.waiting), (1000, 0, 0));
    assert_eq!(fixture.published_events().await?.len(), 1000);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn long_storm_uses_bounded_memory() -> Result<(), TestError> {
    let fixture =
        EventsFixture::with_settings(EventSettings { series: 256, queue: 100, ..EventSettings::default() }).await?;
    for round in 0..30 {
        for number in 0..200 {
            fixture.note(&format!("a-{}", round * 30 + number), &format!("change {}", number % 20));
        }
        tokio::time::sleep(SECOND).await;
    }
    let stats = fixture.events.stats();
    assert!(stats.series == 256 && stats.queued <= 100, "{stats:?}");
    fixture.flush().await?;
    let event_count: i32 = fixture.published_events().await?.iter().map(count).sum();
    let stats = fixture.events.stats();
    assert_eq!((u64::from(event_count.unsigned_abs()), stats.failed), (stats.delivered, 0));
    assert_eq!(stats.delivered + stats.filtered + stats.dropped, 30 * 200);
    Ok(())
}
