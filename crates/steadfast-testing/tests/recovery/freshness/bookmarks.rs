//! Streams with bookmarks: their own period, and the cost of a quiet hour.

use super::*;

#[tokio::test(start_paused = true)]
async fn rising_bookmarks_need_few_other_proofs() -> Result<(), TestError> {
    let fixture = FreshnessFixture::new().await?;
    fixture.write_periodically(5 * REACTION_TIME);
    let informer = fixture.synced_informer().await?;
    let begin = fixture.server.elapsed() + REACTION_TIME;
    let observed = observe_freshness(&informer, HOUR).await;
    assert_eq!(observed.states, ["fresh"], "{:?}", observed.causes);
    assert!(observed.max_age <= PERIOD + PERIOD / 8, "{:?}", observed.max_age);
    let counts = fixture.requests_since(begin);
    assert_eq!(counts.lists, 0);
    // Between the end of a watch and the start of the next, two bookmarks may be further apart than a period.
    assert!(counts.probes <= counts.watches && counts.short_watches <= counts.probes, "{counts:?}");
    assert!((5..=12).contains(&counts.watches), "only watches that the server ended after 5 to 10 min: {counts:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn equal_bookmarks_cost_one_probe_per_period() -> Result<(), TestError> {
    let fixture = FreshnessFixture::new().await?;
    fixture.server.faults().rare_progress(true);
    fixture.write_periodically(5 * REACTION_TIME);
    let informer = fixture.synced_informer().await?;
    let start = fixture.server.elapsed() + REACTION_TIME;
    let observed = observe_freshness(&informer, HOUR).await;
    assert_eq!(observed.states, ["fresh"], "{:?}", observed.causes);
    assert!(observed.max_age <= 2 * PERIOD, "{:?}", observed.max_age);
    let counts = fixture.requests_since(start);
    assert_eq!(counts.lists, 0);
    assert!((10..=60).contains(&counts.probes) && counts.short_watches <= counts.probes, "{counts:?}");
    assert!((5..=12).contains(&counts.watches), "no watch because of silence: {counts:?}");
    Ok(())
}

/// Freezes the etcd behind a live server, with bookmarks every 10 s. Returns `true` if this was noticed within two
/// bookmark periods plus the time of a probe.
async fn notices_frozen_etcd(fault: Option<InjectedFault>) -> Result<bool, TestError> {
    let (fixture, informer) = start_with_regular_bookmarks(fault).await?;
    assert_eq!(observe_freshness(&informer, PERIOD).await.states, ["fresh"]);
    fixture.server.faults().freeze_etcd(true);
    Ok(until(PERIOD / 6 * 2, || !informer.freshness().is_fresh()).await.is_ok())
}

#[tokio::test(start_paused = true)]
async fn frozen_etcd_is_noticed_within_two_periods() -> Result<(), TestError> {
    assert!(notices_frozen_etcd(None).await?);
    assert!(
        !notices_frozen_etcd(Some(InjectedFault::EqualBookmarks)).await?,
        "bookmarks with an equal version are not proofs"
    );
    assert!(
        !notices_frozen_etcd(Some(InjectedFault::AlwaysFresh)).await?,
        "the age limit holds independently of other checks"
    );
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn frozen_server_is_noticed_within_two_periods() -> Result<(), TestError> {
    let (fixture, informer) = start_with_regular_bookmarks(None).await?;
    fixture.server.faults().freeze(true);
    let elapsed = until(PERIOD / 6 * 2, || !informer.freshness().is_fresh()).await?;
    assert!(elapsed > Duration::from_secs(3), "not before a response is late: {elapsed:?}");
    until(PERIOD / 6 * 2, || matches!(informer.freshness(), Freshness::Stale(_))).await?;
    fixture.server.faults().freeze(false);
    until(PERIOD, || informer.freshness().is_fresh()).await?;
    assert_eq!(fixture.server.request_counts().full_transfers(), 1);
    Ok(())
}

/// Stalls a stream with bookmarks every 10 s. Returns `true` if another watch delivered the missing events within three
/// bookmark periods.
async fn bypasses_stalled_stream(fault: Option<InjectedFault>) -> Result<bool, TestError> {
    let (fixture, informer) = start_with_regular_bookmarks(fault).await?;
    fixture.server.faults().stall_streams(true);
    fixture.server.create(&config_map("b", "1"))?;
    Ok(until(PERIOD / 2, || is_cached(&informer, "b")).await.is_ok())
}

#[tokio::test(start_paused = true)]
async fn stalled_stream_is_bypassed_within_three_periods() -> Result<(), TestError> {
    assert!(bypasses_stalled_stream(None).await?);
    assert!(
        !bypasses_stalled_stream(Some(InjectedFault::NoSilenceProbe)).await?,
        "without the silence probe, no other check ends the silence"
    );
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn newly_quiet_stream_is_probed_periodically() -> Result<(), TestError> {
    let fixture = FreshnessFixture::with_builder(ApiServer::builder().bookmark_period(PERIOD / 6)).await?;
    let informer = fixture.synced_informer().await?;
    for number in 0..30 {
        fixture.server.create(&config_map(&format!("c-{number}"), "1"))?;
        tokio::time::sleep(REACTION_TIME).await;
    }
    let start = fixture.server.elapsed();
    assert_eq!(observe_freshness(&informer, HOUR).await.states, ["fresh"]);
    let counts = fixture.requests_since(start);
    assert!(counts.probes <= 64, "one probe per minute, and a few until the interval was reset: {counts:?}");
    assert_eq!((counts.lists, counts.short_watches), (0, 0));
    Ok(())
}
