//! Silent connections: a liveness probe asks the server itself, because a proxy may respond to pings instead (R2a).

use std::time::Duration;

use steadfast::{Freshness, Informer, Scope};
use steadfast_apiserver::{
    ApiServer, InjectedResponse, InterceptAction, RequestRecord, RequestRule, RequestStage, Verb,
};
use steadfast_testing::{ConfigMapInForm, TestError, builder_with_form};
use tokio::time::{Instant, sleep};

use crate::connections::world::{World, ensure, until};

impl World {
    /// Returns the liveness probes on silent connections so far.
    fn liveness_probes(&self) -> Vec<RequestRecord> {
        self.server.requests().into_iter().filter(|request| request.path == "/livez/ping").collect()
    }

    /// Starts an informer with paged lists, so that its watch is a separate request.
    fn paging(&self) -> Result<Informer<ConfigMapInForm>, TestError> {
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

/// Freezes the server `after` the last sign of life. Returns the time until all informers are in doubt.
async fn doubt(world: &World, informers: &[Informer<ConfigMapInForm>], after: Duration) -> Result<Duration, TestError> {
    for informer in informers {
        informer.wait_for_sync(Duration::from_secs(10)).await?;
    }
    sleep(after).await;
    world.server.faults().freeze(true);
    let suspect = || informers.iter().all(|informer| matches!(informer.freshness(), Freshness::Suspect(_)));
    let took = until(Duration::from_secs(100), "both are suspect", suspect).await?;
    let text = informers[0].freshness().to_string();
    ensure(text.contains("the API server does not respond on this connection"), || text)?;
    Ok(took)
}

#[tokio::test(start_paused = true)]
async fn frozen_server_behind_proxy_is_detected() -> Result<(), TestError> {
    for tenths in [0, 30, 99, 101, 105, 160, 299] {
        let after = Duration::from_millis(tenths * 100);
        let (http2, http1) = (World::new(None).await?, World::over_http1().await?);
        for world in [http2, http1] {
            let informers = [world.informer(0)?, world.informer(1)?];
            let took = doubt(&world, &informers, after).await?;
            ensure(took <= Duration::from_secs(15), || format!("frozen after {after:?}, reported after {took:?}"))?;
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn thawed_server_is_fresh_without_list() -> Result<(), TestError> {
    // Over HTTP/1.1, the proof before the first bookmark may be a list of versions (R2).
    for (world, of_versions) in [(World::new(None).await?, 0), (World::over_http1().await?, 2)] {
        let informers = [world.informer(0)?, world.informer(1)?];
        doubt(&world, &informers, Duration::ZERO).await?;
        sleep(Duration::from_secs(20)).await;
        let lists = world.lists();
        world.server.faults().freeze(false);
        world.update(0, "1")?;
        let fresh = || informers.iter().all(|informer| informer.freshness().is_fresh());
        let took = until(Duration::from_secs(60), "both are fresh", fresh).await?;
        // A probe starts within two seconds. Its short watch takes four more seconds if no event arrives (R2).
        ensure(took < Duration::from_secs(7), || format!("fresh again after {took:?}"))?;
        ensure(world.lists() - lists <= of_versions, || format!("{} lists", world.lists() - lists))?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn silent_connection_is_probed_every_ten_seconds() -> Result<(), TestError> {
    for (world, connections) in [(World::new(None).await?, 1), (World::over_http1().await?, 1)] {
        let _seen = world.start_informers(40).await?;
        sleep(Duration::from_secs(30)).await;
        let before = world.liveness_probes().len();
        sleep(Duration::from_secs(55)).await;
        let asked = world.liveness_probes().len() - before;
        ensure((4 * connections..=6 * connections).contains(&asked), || format!("{asked} questions in 55 s"))?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn probe_uses_connection_of_watches() -> Result<(), TestError> {
    let world = World::of(ApiServer::builder().max_streams(10), None).await?;
    let _seen = world.start_informers(18).await?;
    sleep(Duration::from_secs(50)).await;
    let open = world.open_connections();
    ensure(open == 2, || format!("{open} connections for 18 watches, where ten streams fit on one"))?;
    let asked = world.liveness_probes().len();
    ensure(asked >= 6, || format!("{asked} questions on two connections"))
}

#[tokio::test(start_paused = true)]
async fn any_response_suffices_and_events_replace_probes() -> Result<(), TestError> {
    let world = World::new(None).await?;
    let informer = world.informer(0)?;
    informer.wait_for_sync(Duration::from_secs(10)).await?;
    for round in 0..20 {
        sleep(Duration::from_secs(4)).await;
        world.update(0, &round.to_string())?;
    }
    ensure(world.liveness_probes().is_empty(), || "asked, though events came".to_owned())?;
    for code in [401, 403, 404, 500, 503] {
        world.server.faults().respond(RequestRule::any().verb(Verb::Other), InjectedResponse::code(code));
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(40) {
            sleep(Duration::from_millis(100)).await;
            ensure(informer.freshness().is_fresh(), || format!("{code}: {}", informer.freshness()))?;
        }
        world.server.faults().clear_rules();
    }
    ensure(world.liveness_probes().len() > 10, || "nothing was asked".to_owned())
}

/// Waits until an informer with a pending watch head is in doubt. Checks the time and the reason.
async fn doubt_of_a_head(informer: &Informer<ConfigMapInForm>) -> Result<(), TestError> {
    let suspect = || matches!(informer.freshness(), Freshness::Suspect(_));
    let took = until(Duration::from_secs(100), "it is suspect", suspect).await?;
    let text = informer.freshness().to_string();
    ensure(text.contains("does not respond on this connection, not even to the watch request"), || text)?;
    ensure(took <= Duration::from_secs(15), || format!("reported after {took:?}"))
}

#[tokio::test(start_paused = true)]
async fn freeze_before_watch_head_is_detected() -> Result<(), TestError> {
    for world in [World::new(None).await?, World::over_http1().await?] {
        world.freeze_at_a_watch();
        let informer = world.paging()?;
        informer.wait_for_sync(Duration::from_secs(10)).await?;
        doubt_of_a_head(&informer).await?;
        let lists = world.lists();
        for _ in 0..40 {
            sleep(Duration::from_secs(1)).await;
            ensure(!informer.freshness().is_fresh(), || "called fresh by a server that is frozen".to_owned())?;
        }
        world.thaw();
        let took = until(Duration::from_secs(60), "it is fresh", || informer.freshness().is_fresh()).await?;
        ensure(took < Duration::from_secs(20), || format!("fresh again after {took:?}"))?;
        ensure(world.lists() == lists, || format!("{} lists", world.lists() - lists))?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn freeze_before_resumed_watch_head_is_detected() -> Result<(), TestError> {
    // After 5 s, the connection of the list is still open. Over HTTP/1.1, the watch reuses it. After 70 s, it is
    // closed.
    for after in [5, 70] {
        for world in [World::new(None).await?, World::over_http1().await?] {
            let informer = world.paging()?;
            informer.wait_for_sync(Duration::from_secs(10)).await?;
            sleep(Duration::from_secs(after)).await;
            world.freeze_at_a_watch();
            world.server.faults().end_watches();
            doubt_of_a_head(&informer).await?;
            world.thaw();
            let took = until(Duration::from_secs(60), "it is fresh", || informer.freshness().is_fresh()).await?;
            ensure(took < Duration::from_secs(10), || format!("fresh again after {took:?}"))?;
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn freeze_while_watch_moves_is_detected() -> Result<(), TestError> {
    let world = World::new(None).await?;
    let informer = world.paging()?;
    informer.wait_for_sync(Duration::from_secs(10)).await?;
    sleep(Duration::from_secs(5)).await;
    world.freeze_at_a_watch();
    world.server.faults().goaway();
    doubt_of_a_head(&informer).await?;
    world.thaw();
    let took = until(Duration::from_secs(60), "it is fresh", || informer.freshness().is_fresh()).await?;
    ensure(took < Duration::from_secs(10), || format!("fresh again after {took:?}"))?;
    ensure(world.lists() == 1, || format!("{} lists", world.lists()))
}

#[tokio::test(start_paused = true)]
async fn http1_watch_on_list_connection_is_probed() -> Result<(), TestError> {
    let world = World::over_http1().await?;
    let informer = world.paging()?;
    informer.wait_for_sync(Duration::from_secs(10)).await?;
    sleep(Duration::from_secs(1)).await;
    ensure(world.open_connections() == 1, || format!("{} connections", world.open_connections()))?;
    let took = doubt(&world, &[informer], Duration::from_secs(30)).await?;
    ensure(took <= Duration::from_secs(15), || format!("reported after {took:?}"))
}

#[tokio::test(start_paused = true)]
async fn watch_without_head_moves_to_another_replica() -> Result<(), TestError> {
    let world = World::of(ApiServer::builder().replicas(2), None).await?;
    world.freeze_at_a_watch();
    let informer = world.paging()?;
    informer.wait_for_sync(Duration::from_secs(10)).await?;
    world.memory.network.send_to(1);
    doubt_of_a_head(&informer).await?;
    let took = until(Duration::from_secs(60), "it is fresh", || informer.freshness().is_fresh()).await?;
    ensure(took < Duration::from_secs(10), || format!("fresh again after {took:?}, at the other replica"))?;
    ensure(world.lists() == 1, || format!("{} lists", world.lists()))
}

#[tokio::test(start_paused = true)]
async fn slow_head_of_live_server_is_fresh() -> Result<(), TestError> {
    for world in [World::new(None).await?, World::over_http1().await?] {
        world.server.faults().delay_matching(RequestRule::any().verb(Verb::Watch), Duration::from_secs(25));
        let informer = world.paging()?;
        informer.wait_for_sync(Duration::from_secs(10)).await?;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(40) {
            sleep(Duration::from_millis(100)).await;
            ensure(informer.freshness().is_fresh(), || informer.freshness().to_string())?;
        }
        let asked = world.liveness_probes().len();
        ensure((1..=4).contains(&asked), || format!("{asked} questions in 40 s"))?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn watch_on_unused_connection_has_ten_seconds() -> Result<(), TestError> {
    let world = World::new(None).await?;
    let first = world.paging()?;
    first.wait_for_sync(Duration::from_secs(10)).await?;
    sleep(Duration::from_secs(1)).await;
    first.stop();
    sleep(Duration::from_secs(30)).await;
    world.server.faults().delay_matching(RequestRule::any().verb(Verb::Watch), Duration::from_secs(20));
    let second = builder_with_form(&world.factory, Scope::namespace("default")).streamed_lists(false).start()?;
    second.wait_for_sync(Duration::from_secs(10)).await?;
    sleep(Duration::from_secs(9)).await;
    ensure(world.open_connections() == 2, || format!("{} connections", world.open_connections()))?;
    ensure(world.liveness_probes().is_empty(), || "asked, though nothing was silent for long".to_owned())?;
    sleep(Duration::from_secs(3)).await;
    ensure(world.liveness_probes().len() == 1, || format!("{} questions", world.liveness_probes().len()))
}
