//! Bursts of events above the limits of the recorder.

use super::*;

const MANY: u64 = 100_000;

#[tokio::test(start_paused = true)]
async fn burst_about_one_object_is_combined() -> Result<(), TestError> {
    let world = World::new().await?;
    let started = Instant::now();
    for _ in 0..MANY {
        world.note("a", "it was changed");
    }
    assert_eq!((world.events.stats().queued, world.events.stats().waiting), (1, MANY));
    world.flush().await?;
    assert_eq!(world.event_texts().await?, [format!("a: it was changed ×{MANY}")]);
    assert_eq!(world.requests().len(), 1);
    assert!(started.elapsed() < SECOND, "recording must not block");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn burst_about_many_objects_fills_queue() -> Result<(), TestError> {
    let world = World::new().await?;
    world.server.faults().freeze(true);
    for number in 0..MANY {
        world.note(&format!("a-{number}"), "it was changed");
    }
    let stats = world.events.stats();
    assert_eq!((stats.queued, stats.waiting, stats.dropped), (1000, 1000, MANY - 1000));
    assert_eq!(stats.series, 1000);
    world.server.faults().freeze(false);
    world.flush().await?;
    let stats = world.events.stats();
    assert_eq!((stats.delivered, stats.failed, stats.waiting), (1000, 0, 0));
    assert_eq!(world.published_events().await?.len(), 1000);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn long_storm_uses_bounded_memory() -> Result<(), TestError> {
    let world = World::with(EventSettings { series: 256, queue: 100, ..EventSettings::default() }).await?;
    for round in 0..30 {
        for number in 0..200 {
            world.note(&format!("a-{}", round * 30 + number), &format!("change {}", number % 20));
        }
        tokio::time::sleep(SECOND).await;
    }
    let stats = world.events.stats();
    assert!(stats.series == 256 && stats.queued <= 100, "{stats:?}");
    world.flush().await?;
    let counted: i32 = world.published_events().await?.iter().map(count).sum();
    let stats = world.events.stats();
    assert_eq!((u64::from(counted.unsigned_abs()), stats.failed), (stats.delivered, 0));
    assert_eq!(stats.delivered + stats.filtered + stats.dropped, 30 * 200);
    Ok(())
}
