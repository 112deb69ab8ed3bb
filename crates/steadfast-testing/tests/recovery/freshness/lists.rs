//! Streams without bookmarks (F18): proofs by probes if possible, and otherwise by a list of versions once in five
//! periods.

use super::*;

const MAX_LISTS_PER_HOUR: usize = 12;

#[tokio::test(start_paused = true)]
async fn probes_keep_stream_without_bookmarks_fresh() -> Result<(), TestError> {
    let fixture = FreshnessFixture::without_bookmarks().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let informer = fixture.synced_informer().await?;
    let start = fixture.server.elapsed() + REACTION_TIME;
    let observed = observe_freshness(&informer, HOUR).await;
    assert_eq!(observed.states, ["fresh"], "{:?}", observed.causes);
    let counts = fixture.requests_since(start);
    assert_eq!((counts.lists, counts.short_watches), (0, 0));
    assert!(counts.probes <= 60 && (5..=12).contains(&counts.watches), "{counts:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn freshness_without_bookmarks_ends_after_two_periods() -> Result<(), TestError> {
    let fixture = FreshnessFixture::without_bookmarks().await?;
    fixture.server.create(&config_map("a", "1"))?;
    fixture.write_periodically(5 * REACTION_TIME);
    let informer = fixture.synced_informer().await?;
    let start = fixture.server.elapsed() + REACTION_TIME;
    let observed = observe_freshness(&informer, HOUR).await;
    assert!(observed.max_age <= 2 * PERIOD, "{:?}", observed.max_age);
    assert!(observed.fresh_for >= HOUR / 3, "{:?}", observed.fresh_for);
    assert!(!observed.states.contains(&"suspect"), "missing bookmarks alone cause no doubt: {:?}", observed.causes);
    let causes: Vec<&str> = observed.causes.iter().map(|cause| &**cause).collect();
    assert!(causes.iter().all(|cause| cause.contains("the server sends no bookmarks")), "{causes:?}");
    let counts = fixture.requests_since(start);
    assert!((10..=MAX_LISTS_PER_HOUR).contains(&counts.lists), "{counts:?}");
    // Each list leads to two short watches: one when the list's proof is one period old, and one when the next list
    // is due.
    assert!(counts.short_watches <= 2 * MAX_LISTS_PER_HOUR + 4 && (5..=12).contains(&counts.watches), "{counts:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn longer_period_keeps_informer_fresh() -> Result<(), TestError> {
    let fixture = FreshnessFixture::without_bookmarks().await?;
    fixture.server.create(&config_map("a", "1"))?;
    fixture.write_periodically(5 * REACTION_TIME);
    let informer = start_fresh(fixture.build().max_period(5 * PERIOD), None).await?;
    let start = fixture.server.elapsed() + REACTION_TIME;
    let observed = observe_freshness(&informer, HOUR).await;
    assert_eq!(observed.states, ["fresh"], "{:?}", observed.causes);
    assert!(observed.max_age <= 10 * PERIOD, "{:?}", observed.max_age);
    let counts = fixture.requests_since(start);
    assert!(counts.lists <= MAX_LISTS_PER_HOUR && counts.short_watches <= 2 * MAX_LISTS_PER_HOUR + 4, "{counts:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn list_detects_stalled_stream_without_bookmarks() -> Result<(), TestError> {
    let fixture = FreshnessFixture::without_bookmarks().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let informer = fixture.synced_informer().await?;
    let notes = record_diagnostics(&informer);
    fixture.server.faults().stall_streams(true);
    fixture.server.create(&config_map("b", "1"))?;
    until(2 * PERIOD, || is_cached(&informer, "b")).await?;
    until(PERIOD, || informer.freshness().is_fresh()).await?;
    assert_eq!(
        note_count(&notes, |note| matches!(note, Diagnostic::Relisting { .. })),
        0,
        "another watch delivered the events"
    );
    Ok(())
}
