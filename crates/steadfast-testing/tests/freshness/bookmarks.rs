//! Streams with bookmarks: their own period, and what a quiet hour costs.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_hour_with_bookmarks_that_rise_needs_next_to_no_proof_beside_them() -> Result<(), WorldError> {
    let world = World::new().await?;
    world.noise(5 * SOON);
    let informer = world.synced().await?;
    let begin = world.server.elapsed() + SOON;
    let told = told(&informer, HOUR).await;
    assert_eq!(told.states, ["fresh"], "{:?}", told.causes);
    assert!(told.oldest <= PERIOD + PERIOD / 8, "{:?}", told.oldest);
    let cost = world.cost_since(begin);
    assert_eq!(cost.lists, 0);
    // Where a watch ends and another begins, two bookmarks may be further apart than a period.
    assert!(cost.probes <= cost.watches && cost.short_watches <= cost.probes, "{cost:?}");
    assert!((5..=12).contains(&cost.watches), "none but what the server ended after 5 to 10 min: {cost:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_hour_with_bookmarks_that_do_not_rise_costs_a_probe_and_a_short_watch_a_period() -> Result<(), WorldError> {
    let world = World::new().await?;
    world.server.faults().rare_progress(true);
    world.noise(5 * SOON);
    let informer = world.synced().await?;
    let begin = world.server.elapsed() + SOON;
    let told = told(&informer, HOUR).await;
    assert_eq!(told.states, ["fresh"], "{:?}", told.causes);
    assert!(told.oldest <= 2 * PERIOD, "{:?}", told.oldest);
    let cost = world.cost_since(begin);
    assert_eq!(cost.lists, 0);
    assert!((10..=60).contains(&cost.probes) && cost.short_watches <= cost.probes, "{cost:?}");
    assert!((5..=12).contains(&cost.watches), "none for silence: {cost:?}");
    Ok(())
}

/// An etcd that stands still behind a live server, with bookmarks every 10 s; tells whether that was noticed within two
/// of these, and what a probe takes.
async fn frozen_etcd(breach: Option<Breach>) -> Result<bool, WorldError> {
    let (world, informer) = in_rhythm(breach).await?;
    assert_eq!(told(&informer, PERIOD).await.states, ["fresh"]);
    world.server.faults().freeze_etcd(true);
    Ok(until(PERIOD / 6 * 2, || !informer.freshness().is_fresh()).await.is_ok())
}

#[tokio::test(start_paused = true)]
async fn a_frozen_etcd_is_noticed_within_two_periods_of_the_streams_own() -> Result<(), WorldError> {
    assert!(frozen_etcd(None).await?);
    assert!(!frozen_etcd(Some(Breach::EqualBookmarks)).await?, "bookmarks that do not rise are no proof");
    assert!(!frozen_etcd(Some(Breach::AlwaysFresh)).await?, "the bound on the age holds, whatever else does not");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_frozen_server_is_noticed_within_two_periods_of_the_streams_own() -> Result<(), WorldError> {
    let (world, informer) = in_rhythm(None).await?;
    world.server.faults().freeze(true);
    let noticed = until(PERIOD / 6 * 2, || !informer.freshness().is_fresh()).await?;
    assert!(noticed > Duration::from_secs(3), "not before an answer is late: {noticed:?}");
    until(PERIOD / 6 * 2, || matches!(informer.freshness(), Freshness::Stale(_))).await?;
    world.server.faults().freeze(false);
    until(PERIOD, || informer.freshness().is_fresh()).await?;
    assert_eq!(world.server.request_counts().full_transfers(), 1);
    Ok(())
}

/// A stream that stalls, on a stream with bookmarks every 10 s; tells whether another watch has brought what it holds
/// back within three of these.
async fn stalled(breach: Option<Breach>) -> Result<bool, WorldError> {
    let (world, informer) = in_rhythm(breach).await?;
    world.server.faults().stall_streams(true);
    world.server.create(&config_map("b", "1"))?;
    Ok(until(PERIOD / 2, || held(&informer, "b")).await.is_ok())
}

#[tokio::test(start_paused = true)]
async fn what_a_stalled_stream_holds_back_is_here_within_three_periods_of_its_own() -> Result<(), WorldError> {
    assert!(stalled(None).await?);
    assert!(!stalled(Some(Breach::NoSearch)).await?, "without a search nothing ends the silence");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_turns_quiet_is_taken_for_a_quiet_one() -> Result<(), WorldError> {
    let world = World::of(ApiServer::builder().bookmark_period(PERIOD / 6)).await?;
    let informer = world.synced().await?;
    for number in 0..30 {
        world.server.create(&config_map(&format!("c-{number}"), "1"))?;
        tokio::time::sleep(SOON).await;
    }
    let begin = world.server.elapsed();
    assert_eq!(told(&informer, HOUR).await.states, ["fresh"]);
    let cost = world.cost_since(begin);
    assert!(cost.probes <= 64, "a probe a minute, and a few until its rhythm was forgotten: {cost:?}");
    assert_eq!((cost.lists, cost.short_watches), (0, 0));
    Ok(())
}
