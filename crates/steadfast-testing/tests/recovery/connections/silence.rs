//! Silent connections: a liveness probe requires a response of the server itself, because a proxy may respond to pings
//! (R2a).

use std::time::Duration;

use steadfast::{Freshness, Informer, Scope};
use steadfast_apiserver::{
    ApiServer, InjectedResponse, InterceptAction, RequestRecord, RequestRule, RequestStage, Verb,
};
use steadfast_testing::{ConfigMapInForm, TestError, builder_with_form};
use tokio::time::{Instant, sleep};

use crate::connections::fixture::{ConnectionFixture, ensure, until};

impl ConnectionFixture {
    /// Returns the liveness probes on silent connections so far.
    fn liveness_probes(&self) -> Vec<RequestRecord> {
        self.server.requests().into_iter().filter(|request| request.path == "/livez/ping").collect()
    }

    /// Starts an informer with paged lists, so that its watch is a separate request.
    fn paged_informer(&self) -> Result<Informer<ConfigMapInForm>, TestError> {
        Ok(builder_with_form(&self.factory, Scope::all()).streamed_lists(false).start()?)
    }

    /// Freezes the first replica after a watch request and before its response head.
    fn freeze_at_a_watch(&self) {
        let first = self.server.faults().replica(0);
        self.server.faults().intercept(move |request, stage| {
            if (request.verb, stage) == (Verb::Watch, RequestStage::Arrived) {
                first.freeze(true);
            }
            InterceptAction::Continue
        });
    }

    /// Reverts [`freeze_at_a_watch`](Self::freeze_at_a_watch).
    fn thaw(&self) {
        self.server.faults().clear_interceptor();
        self.server.faults().freeze(false);
    }
}

/// Waits until all informers are synced and then for `silence`, and freezes the server. Returns the time from the
/// freeze until all informers are in doubt.
async fn freeze_until_doubt(
    fixture: &ConnectionFixture,
    informers: &[Informer<ConfigMapInForm>],
    silence: Duration,
) -> Result<Duration, TestError> {
    for informer in informers {
        informer.wait_for_sync(Duration::from_secs(10)).await?;
    }
    sleep(silence).await;
    fixture.server.faults().freeze(true);
    let are_suspect = || informers.iter().all(|informer| matches!(informer.freshness(), Freshness::Suspect(_)));
    let elapsed = until(Duration::from_secs(100), "both are suspect", are_suspect).await?;
    let freshness = informers[0].freshness().to_string();
    ensure(freshness.contains("the API server does not respond on this connection"), || freshness)?;
    Ok(elapsed)
}

#[tokio::test(start_paused = true)]
async fn frozen_server_behind_proxy_is_detected() -> Result<(), TestError> {
    for tenths_of_seconds in [0, 30, 99, 101, 105, 160, 299] {
        let silence = Duration::from_millis(tenths_of_seconds * 100);
        let (http2, http1) = (ConnectionFixture::new(None).await?, ConnectionFixture::over_http1().await?);
        for fixture in [http2, http1] {
            let informers = [fixture.informer(0)?, fixture.informer(1)?];
            let elapsed = freeze_until_doubt(&fixture, &informers, silence).await?;
            ensure(elapsed <= Duration::from_secs(15), || {
                format!("frozen after {silence:?}, reported after {elapsed:?}")
            })?;
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn thawed_server_is_fresh_without_list() -> Result<(), TestError> {
    // Over HTTP/1.1, an informer may list the metadata of all objects as a proof before the first bookmark (R2).
    for (fixture, max_version_lists) in
        [(ConnectionFixture::new(None).await?, 0), (ConnectionFixture::over_http1().await?, 2)]
    {
        let informers = [fixture.informer(0)?, fixture.informer(1)?];
        freeze_until_doubt(&fixture, &informers, Duration::ZERO).await?;
        sleep(Duration::from_secs(20)).await;
        let lists_before = fixture.lists();
        fixture.server.faults().freeze(false);
        fixture.update(0, "1")?;
        let are_fresh = || informers.iter().all(|informer| informer.freshness().is_fresh());
        let elapsed = until(Duration::from_secs(60), "both are fresh", are_fresh).await?;
        // A probe starts within two seconds. Its short watch takes four more seconds if no event arrives (R2).
        ensure(elapsed < Duration::from_secs(7), || format!("fresh again after {elapsed:?}"))?;
        ensure(fixture.lists() - lists_before <= max_version_lists, || {
            format!("{} lists", fixture.lists() - lists_before)
        })?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn silent_connection_is_probed_every_ten_seconds() -> Result<(), TestError> {
    for (fixture, connections) in
        [(ConnectionFixture::new(None).await?, 1), (ConnectionFixture::over_http1().await?, 1)]
    {
        let _recordings = fixture.start_informers(40).await?;
        sleep(Duration::from_secs(30)).await;
        let probes_before = fixture.liveness_probes().len();
        sleep(Duration::from_secs(55)).await;
        let probes = fixture.liveness_probes().len() - probes_before;
        ensure((4 * connections..=6 * connections).contains(&probes), || format!("{probes} questions in 55 s"))?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn probe_uses_connection_of_watches() -> Result<(), TestError> {
    let fixture = ConnectionFixture::with_builder(ApiServer::builder().max_streams(10), None).await?;
    let _recordings = fixture.start_informers(18).await?;
    sleep(Duration::from_secs(50)).await;
    let open_connections = fixture.open_connections();
    ensure(open_connections == 2, || {
        format!("{open_connections} connections for 18 watches, where ten streams fit on one")
    })?;
    let probes = fixture.liveness_probes().len();
    ensure(probes >= 6, || format!("{probes} questions on two connections"))
}

#[tokio::test(start_paused = true)]
async fn any_response_suffices_and_events_replace_probes() -> Result<(), TestError> {
    let fixture = ConnectionFixture::new(None).await?;
    let informer = fixture.informer(0)?;
    informer.wait_for_sync(Duration::from_secs(10)).await?;
    for round in 0..20 {
        sleep(Duration::from_secs(4)).await;
        fixture.update(0, &round.to_string())?;
    }
    ensure(fixture.liveness_probes().is_empty(), || "a probe was sent although events arrived".to_owned())?;
    for code in [401, 403, 404, 500, 503] {
        fixture.server.faults().respond(RequestRule::any().verb(Verb::Other), InjectedResponse::code(code));
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(40) {
            sleep(Duration::from_millis(100)).await;
            ensure(informer.freshness().is_fresh(), || format!("{code}: {}", informer.freshness()))?;
        }
        fixture.server.faults().clear_rules();
    }
    ensure(fixture.liveness_probes().len() > 10, || "no probe was sent".to_owned())
}

/// Waits until an informer with a pending watch head is in doubt. Checks the time and the reason.
async fn assert_missing_head_is_doubted(informer: &Informer<ConfigMapInForm>) -> Result<(), TestError> {
    let is_suspect = || matches!(informer.freshness(), Freshness::Suspect(_));
    let elapsed = until(Duration::from_secs(100), "it is suspect", is_suspect).await?;
    let freshness = informer.freshness().to_string();
    ensure(freshness.contains("does not respond on this connection, not even to the watch request"), || freshness)?;
    ensure(elapsed <= Duration::from_secs(15), || format!("reported after {elapsed:?}"))
}

#[tokio::test(start_paused = true)]
async fn freeze_before_watch_head_is_detected() -> Result<(), TestError> {
    for fixture in [ConnectionFixture::new(None).await?, ConnectionFixture::over_http1().await?] {
        fixture.freeze_at_a_watch();
        let informer = fixture.paged_informer()?;
        informer.wait_for_sync(Duration::from_secs(10)).await?;
        assert_missing_head_is_doubted(&informer).await?;
        let lists_before = fixture.lists();
        for _ in 0..40 {
            sleep(Duration::from_secs(1)).await;
            ensure(!informer.freshness().is_fresh(), || "called fresh by a server that is frozen".to_owned())?;
        }
        fixture.thaw();
        let elapsed = until(Duration::from_secs(60), "it is fresh", || informer.freshness().is_fresh()).await?;
        ensure(elapsed < Duration::from_secs(20), || format!("fresh again after {elapsed:?}"))?;
        ensure(fixture.lists() == lists_before, || format!("{} lists", fixture.lists() - lists_before))?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn freeze_before_resumed_watch_head_is_detected() -> Result<(), TestError> {
    // After 5 s, the connection of the list is still open. Over HTTP/1.1, the watch reuses it. After 70 s, it is
    // closed.
    for silence in [5, 70] {
        for fixture in [ConnectionFixture::new(None).await?, ConnectionFixture::over_http1().await?] {
            let informer = fixture.paged_informer()?;
            informer.wait_for_sync(Duration::from_secs(10)).await?;
            sleep(Duration::from_secs(silence)).await;
            fixture.freeze_at_a_watch();
            fixture.server.faults().end_watches();
            assert_missing_head_is_doubted(&informer).await?;
            fixture.thaw();
            let elapsed = until(Duration::from_secs(60), "it is fresh", || informer.freshness().is_fresh()).await?;
            ensure(elapsed < Duration::from_secs(10), || format!("fresh again after {elapsed:?}"))?;
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn freeze_while_watch_moves_is_detected() -> Result<(), TestError> {
    let fixture = ConnectionFixture::new(None).await?;
    let informer = fixture.paged_informer()?;
    informer.wait_for_sync(Duration::from_secs(10)).await?;
    sleep(Duration::from_secs(5)).await;
    fixture.freeze_at_a_watch();
    fixture.server.faults().goaway();
    assert_missing_head_is_doubted(&informer).await?;
    fixture.thaw();
    let elapsed = until(Duration::from_secs(60), "it is fresh", || informer.freshness().is_fresh()).await?;
    ensure(elapsed < Duration::from_secs(10), || format!("fresh again after {elapsed:?}"))?;
    ensure(fixture.lists() == 1, || format!("{} lists", fixture.lists()))
}

#[tokio::test(start_paused = true)]
async fn http1_watch_on_list_connection_is_probed() -> Result<(), TestError> {
    let fixture = ConnectionFixture::over_http1().await?;
    let informer = fixture.paged_informer()?;
    informer.wait_for_sync(Duration::from_secs(10)).await?;
    sleep(Duration::from_secs(1)).await;
    ensure(fixture.open_connections() == 1, || format!("{} connections", fixture.open_connections()))?;
    let elapsed = freeze_until_doubt(&fixture, &[informer], Duration::from_secs(30)).await?;
    ensure(elapsed <= Duration::from_secs(15), || format!("reported after {elapsed:?}"))
}

#[tokio::test(start_paused = true)]
async fn watch_without_head_moves_to_another_replica() -> Result<(), TestError> {
    let fixture = ConnectionFixture::with_builder(ApiServer::builder().replicas(2), None).await?;
    fixture.freeze_at_a_watch();
    let informer = fixture.paged_informer()?;
    informer.wait_for_sync(Duration::from_secs(10)).await?;
    fixture.memory.network.send_to(1);
    assert_missing_head_is_doubted(&informer).await?;
    let elapsed = until(Duration::from_secs(60), "it is fresh", || informer.freshness().is_fresh()).await?;
    ensure(elapsed < Duration::from_secs(10), || format!("fresh again after {elapsed:?}, at the other replica"))?;
    ensure(fixture.lists() == 1, || format!("{} lists", fixture.lists()))
}

#[tokio::test(start_paused = true)]
async fn slow_head_of_live_server_is_fresh() -> Result<(), TestError> {
    for fixture in [ConnectionFixture::new(None).await?, ConnectionFixture::over_http1().await?] {
        fixture.server.faults().delay_matching(RequestRule::any().verb(Verb::Watch), Duration::from_secs(25));
        let informer = fixture.paged_informer()?;
        informer.wait_for_sync(Duration::from_secs(10)).await?;
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(40) {
            sleep(Duration::from_millis(100)).await;
            ensure(informer.freshness().is_fresh(), || informer.freshness().to_string())?;
        }
        let probes = fixture.liveness_probes().len();
        ensure((1..=4).contains(&probes), || format!("{probes} questions in 40 s"))?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn watch_on_unused_connection_has_ten_seconds() -> Result<(), TestError> {
    let fixture = ConnectionFixture::new(None).await?;
    let first = fixture.paged_informer()?;
    first.wait_for_sync(Duration::from_secs(10)).await?;
    sleep(Duration::from_secs(1)).await;
    first.stop();
    sleep(Duration::from_secs(30)).await;
    fixture.server.faults().delay_matching(RequestRule::any().verb(Verb::Watch), Duration::from_secs(20));
    let second = builder_with_form(&fixture.factory, Scope::namespace("default")).streamed_lists(false).start()?;
    second.wait_for_sync(Duration::from_secs(10)).await?;
    sleep(Duration::from_secs(9)).await;
    ensure(fixture.open_connections() == 2, || format!("{} connections", fixture.open_connections()))?;
    ensure(fixture.liveness_probes().is_empty(), || {
        "a probe was sent although no connection was silent for long".to_owned()
    })?;
    sleep(Duration::from_secs(3)).await;
    ensure(fixture.liveness_probes().len() == 1, || format!("{} questions", fixture.liveness_probes().len()))
}
