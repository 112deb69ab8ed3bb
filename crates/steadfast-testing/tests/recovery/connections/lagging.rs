//! Cost and duration of a move to a replica with a lagging watch cache.

use std::time::Duration;

use steadfast::Informer;
use steadfast_apiserver::{ApiServer, InjectedResponse, RequestRule, Verb};
use steadfast_testing::{CachedConfigMap, ConfigMapInForm, TestError};
use tokio::time::{Instant, sleep};

use super::fixture::{ConnectionFixture, ensure};

/// Returns a client of two replicas. Its informer is ahead of the watch cache of the second replica, which lags from
/// now on.
async fn ahead_of_the_second_replica() -> Result<(ConnectionFixture, Informer<ConfigMapInForm>), TestError> {
    let fixture = ConnectionFixture::of(ApiServer::builder().replicas(2), None).await?;
    let informer = fixture.informer(0)?;
    informer.wait_for_sync(Duration::from_secs(10)).await?;
    fixture.server.faults().replica(1).lag(true);
    fixture.update(0, "1")?;
    sleep(Duration::from_secs(1)).await;
    ensure(value(&informer) == "1", || "the first replica shows the change".to_owned())?;
    fixture.memory.network.send_to(1);
    Ok((fixture, informer))
}

fn value(informer: &Informer<ConfigMapInForm>) -> String {
    let snapshot = informer.snapshot();
    let entry = snapshot.entry(Some("team-0"), "a");
    entry.and_then(|entry| entry.object()).and_then(|object| object.value("value")).unwrap_or_default()
}

/// Regression test: a replica that never caught up cost 71 s and 17 lists.
#[tokio::test(start_paused = true)]
async fn permanently_lagging_replica_costs_one_consistent_list() -> Result<(), TestError> {
    let (fixture, informer) = ahead_of_the_second_replica().await?;
    let lists_before = fixture.lists();
    // The 410 for the resumed watch makes a list necessary.
    fixture
        .server
        .faults()
        .replica(1)
        .respond(RequestRule::any().verb(Verb::Watch).times(1), InjectedResponse::code(410));
    fixture.server.faults().replica(0).stop();
    fixture.update(0, "2")?;
    let moved = Instant::now();
    while value(&informer) != "2" {
        sleep(Duration::from_millis(50)).await;
        ensure(moved.elapsed() < Duration::from_secs(60), || informer.freshness().to_string())?;
    }
    let lists = fixture.lists() - lists_before;
    ensure(moved.elapsed() < Duration::from_secs(15), || format!("{:?}", moved.elapsed()))?;
    ensure(lists == 3, || format!("{lists} lists: the relist, its retry and a consistent list were expected"))
}

/// Regression test: a resumed watch on a lagging replica cost a probe and a short list per retry, ten requests in 30
/// s.
#[tokio::test(start_paused = true)]
async fn resumed_watch_waits_for_lagging_replica() -> Result<(), TestError> {
    for (lag, most_probes, most_requests) in [(5, 1, 4), (30, 1, 8), (100, 3, 16)] {
        let (fixture, informer) = ahead_of_the_second_replica().await?;
        let requests_before = fixture.server.requests().len();
        let lists = fixture.lists();
        fixture.server.faults().replica(0).stop();
        fixture.update(0, "2")?;
        sleep(Duration::from_secs(lag)).await;
        fixture.server.faults().replica(1).lag(false);
        let caught_up = Instant::now();
        while value(&informer) != "2" || !informer.freshness().is_fresh() {
            sleep(Duration::from_millis(50)).await;
            ensure(caught_up.elapsed() < Duration::from_secs(60), || informer.freshness().to_string())?;
        }
        let requests = fixture.server.requests();
        let asked: Vec<_> = requests[requests_before..].iter().filter(|request| request.verb != Verb::Other).collect();
        let probes = asked.iter().filter(|request| request.verb == Verb::Probe).count();
        let log =
            || format!("{lag} s: {:#?}", asked.iter().map(|asked| (&asked.verb, &asked.query)).collect::<Vec<_>>());
        ensure(fixture.lists() == lists, log)?;
        ensure(probes <= most_probes && asked.len() <= most_requests, log)?;
    }
    Ok(())
}
