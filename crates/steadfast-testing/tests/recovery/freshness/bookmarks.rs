//! Streams with bookmarks: their own period, and the cost of a quiet hour.

use super::*;

#[tokio::test(start_paused = true)]
async fn rising_bookmarks_need_few_other_proofs() -> Result<(), TestError> {
    let fixture = FreshnessFixture::new().await?;
    fixture.write_periodically(5 * REACTION_TIME);
    let informer = fixture.synced().await?;
    let begin = fixture.server.elapsed() + REACTION_TIME;
    let observed = observe_freshness(&informer, HOUR).await;
    assert_eq!(observed.states, ["fresh"], "{:?}", observed.causes);
    assert!(observed.oldest <= PERIOD + PERIOD / 8, "{:?}", observed.oldest);
    let cost = fixture.requests_since(begin);
    assert_eq!(cost.lists, 0);
    // Between the end of a watch and the start of the next, two bookmarks may be further apart than a period.
    assert!(cost.probes <= cost.watches && cost.short_watches <= cost.probes, "{cost:?}");
    assert!((5..=12).contains(&cost.watches), "only watches that the server ended after 5 to 10 min: {cost:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn equal_bookmarks_cost_one_probe_per_period() -> Result<(), TestError> {
    let fixture = FreshnessFixture::new().await?;
    fixture.server.faults().rare_progress(true);
    fixture.write_periodically(5 * REACTION_TIME);
    let informer = fixture.synced().await?;
    let start = fixture.server.elapsed() + REACTION_TIME;
    let observed = observe_freshness(&informer, HOUR).await;
    assert_eq!(observed.states, ["fresh"], "{:?}", observed.causes);
    assert!(observed.oldest <= 2 * PERIOD, "{:?}", observed.oldest);
    let cost = fixture.requests_since(start);
    assert_eq!(cost.lists, 0);
    assert!((10..=60).contains(&cost.probes) && cost.short_watches <= cost.probes, "{cost:?}");
    assert!((5..=12).contains(&cost.watches), "no watch because of silence: {cost:?}");
    Ok(())
}

/// Freezes the etcd behind a live server, with bookmarks every 10 s. Returns `true` if this was noticed within two
/// bookmark periods plus the time of a probe.
async fn frozen_etcd(fault: Option<InjectedFault>) -> Result<bool, TestError> {
    let (fixture, informer) = with_regular_bookmarks(fault).await?;
    assert_eq!(observe_freshness(&informer, PERIOD).await.states, ["fresh"]);
    fixture.server.faults().freeze_etcd(true);
    Ok(until(PERIOD / 6 * 2, || !informer.freshness().is_fresh()).await.is_ok())
}

#[tokio::test(start_paused = true)]
async fn frozen_etcd_is_noticed_within_two_periods() -> Result<(), TestError> {
    assert!(frozen_etcd(None).await?);
    assert!(!frozen_etcd(Some(InjectedFault::EqualBookmarks)).await?, "bookmarks with an equal version are not proofs");
    assert!(!frozen_etcd(Some(InjectedFault::AlwaysFresh)).await?, "the age limit holds independently of other checks");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn frozen_server_is_noticed_within_two_periods() -> Result<(), TestError> {
    let (fixture, informer) = with_regular_bookmarks(None).await?;
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
async fn stalled(fault: Option<InjectedFault>) -> Result<bool, TestError> {
    let (fixture, informer) = with_regular_bookmarks(fault).await?;
    fixture.server.faults().stall_streams(true);
    fixture.server.create(&config_map("b", "1"))?;
    Ok(until(PERIOD / 2, || is_cached(&informer, "b")).await.is_ok())
}

#[tokio::test(start_paused = true)]
async fn stalled_stream_is_bypassed_within_three_periods() -> Result<(), TestError> {
    assert!(stalled(None).await?);
    assert!(
        !stalled(Some(InjectedFault::NoSilenceProbe)).await?,
        "without the silence probe, no other check ends the silence"
    );
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn newly_quiet_stream_is_probed_periodically() -> Result<(), TestError> {
    let fixture = FreshnessFixture::of(ApiServer::builder().bookmark_period(PERIOD / 6)).await?;
    let informer = fixture.synced().await?;
    for number in 0..30 {
        fixture.server.create(&config_map(&format!("c-{number}"), "1"))?;
        tokio::time::sleep(REACTION_TIME).await;
    }
    let start = fixture.server.elapsed();
    assert_eq!(observe_freshness(&informer, HOUR).await.states, ["fresh"]);
    let cost = fixture.requests_since(start);
    assert!(cost.probes <= 64, "one probe per minute, and a few until the interval was reset: {cost:?}");
    assert_eq!((cost.lists, cost.short_watches), (0, 0));
    Ok(())
}
