//! Cost and duration of a move to a replica with a lagging watch cache.

use std::time::Duration;

use steadfast::Informer;
use steadfast_apiserver::{ApiServer, InjectedResponse, RequestRule, Verb};
use steadfast_testing::{CachedConfigMap, ConfigMapInForm, TestError};
use tokio::time::{Instant, sleep};

use super::fixture::{ConnectionFixture, ensure};

/// Returns a client of two replicas. Its informer is ahead of the watch cache of the second replica, which lags from
/// now on.
async fn fixture_ahead_of_second_replica() -> Result<(ConnectionFixture, Informer<ConfigMapInForm>), TestError> {
    let fixture = ConnectionFixture::with_builder(ApiServer::builder().replicas(2), None).await?;
    let informer = fixture.informer(0)?;
    informer.wait_for_sync(Duration::from_secs(10)).await?;
    fixture.server.faults().replica(1).lag(true);
    fixture.update(0, "1")?;
    sleep(Duration::from_secs(1)).await;
    ensure(cached_value(&informer) == "1", || "the first replica shows the change".to_owned())?;
    fixture.memory.network.send_to(1);
    Ok((fixture, informer))
}

fn cached_value(informer: &Informer<ConfigMapInForm>) -> String {
    let snapshot = informer.snapshot();
    let entry = snapshot.entry(Some("team-0"), "a");
    entry.and_then(|entry| entry.object()).and_then(|object| object.value("value")).unwrap_or_default()
}

/// Regression test: a replica that never caught up cost 71 s and 17 lists.
#[tokio::test(start_paused = true)]
async fn permanently_lagging_replica_costs_one_consistent_list() -> Result<(), TestError> {
    let (fixture, informer) = fixture_ahead_of_second_replica().await?;
    let lists_before = fixture.lists();
    // The 410 for the resumed watch makes a list necessary.
    fixture
        .server
        .faults()
        .replica(1)
        .respond(RequestRule::any().verb(Verb::Watch).times(1), InjectedResponse::code(410));
    fixture.server.faults().replica(0).stop();
    fixture.update(0, "2")?;
    let move_start = Instant::now();
    while cached_value(&informer) != "2" {
        sleep(Duration::from_millis(50)).await;
        ensure(move_start.elapsed() < Duration::from_secs(60), || informer.freshness().to_string())?;
    }
    let lists = fixture.lists() - lists_before;
    ensure(move_start.elapsed() < Duration::from_secs(15), || format!("{:?}", move_start.elapsed()))?;
    ensure(lists == 3, || format!("{lists} lists: the relist, its retry and a consistent list were expected"))
}

/// Regression test: a resumed watch on a lagging replica cost a probe and a short list per retry, ten requests in 30
/// s.
#[tokio::test(start_paused = true)]
async fn resumed_watch_waits_for_lagging_replica() -> Result<(), TestError> {
    for (lag, max_probes, max_requests) in [(5, 1, 4), (30, 1, 8), (100, 3, 16)] {
        let (fixture, informer) = fixture_ahead_of_second_replica().await?;
        let requests_before = fixture.server.requests().len();
        let lists_before = fixture.lists();
        fixture.server.faults().replica(0).stop();
        fixture.update(0, "2")?;
        sleep(Duration::from_secs(lag)).await;
        fixture.server.faults().replica(1).lag(false);
        let catch_up_start = Instant::now();
        while cached_value(&informer) != "2" || !informer.freshness().is_fresh() {
            sleep(Duration::from_millis(50)).await;
            ensure(catch_up_start.elapsed() < Duration::from_secs(60), || informer.freshness().to_string())?;
        }
        let requests = fixture.server.requests();
        let new_requests: Vec<_> =
            requests[requests_before..].iter().filter(|request| request.verb != Verb::Other).collect();
        let probes = new_requests.iter().filter(|request| request.verb == Verb::Probe).count();
        let describe_requests = || {
            format!(
                "{lag} s: {:#?}",
                new_requests.iter().map(|request| (&request.verb, &request.query)).collect::<Vec<_>>()
            )
        };
        ensure(fixture.lists() == lists_before, describe_requests)?;
        ensure(probes <= max_probes && new_requests.len() <= max_requests, describe_requests)?;
    }
    Ok(())
}
