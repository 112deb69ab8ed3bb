//! Silent connections: the server is asked on them whether it is there, where something on the way may answer pings in its
//! place (R2a).

use std::time::Duration;

use steadfast::{Freshness, Informer};
use steadfast_apiserver::{Answer, ApiServer, RequestRecord, RequestRule, Verb};
use steadfast_testing::{InForm, WorldError};
use tokio::time::{Instant, sleep};

use crate::world::{World, demand, until};

impl World {
    /// What was asked of silent connections so far.
    fn questions(&self) -> Vec<RequestRecord> {
        self.server.requests().into_iter().filter(|request| request.path == "/livez/ping").collect()
    }
}

/// How long after the server froze, `after` the last sign of life, each of some informers doubts, at the latest.
async fn doubt(world: &World, informers: &[Informer<InForm>], after: Duration) -> Result<Duration, WorldError> {
    for informer in informers {
        informer.wait_for_sync(Duration::from_secs(10)).await?;
    }
    sleep(after).await;
    world.server.faults().freeze(true);
    let suspect = || informers.iter().all(|informer| matches!(informer.freshness(), Freshness::Suspect(_)));
    let took = until(Duration::from_secs(100), "both are suspect", suspect).await?;
    let told = informers[0].freshness().to_string();
    demand(told.contains("the server answers nothing"), || told)?;
    Ok(took)
}

#[tokio::test(start_paused = true)]
async fn a_frozen_server_whose_proxy_answers_pings_is_told_within_15_seconds() -> Result<(), WorldError> {
    for tenths in [0, 30, 99, 101, 105, 160, 299] {
        let after = Duration::from_millis(tenths * 100);
        let (http2, http1) = (World::new(None).await?, World::over_http1().await?);
        for world in [http2, http1] {
            let informers = [world.informer(0)?, world.informer(1)?];
            let took = doubt(&world, &informers, after).await?;
            demand(took <= Duration::from_secs(15), || format!("frozen after {after:?}, told after {took:?}"))?;
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_server_that_thaws_is_trusted_again_without_a_list() -> Result<(), WorldError> {
    // Over HTTP/1.1, before the first bookmark, the proof may be a list of versions (R2).
    for (world, of_versions) in [(World::new(None).await?, 0), (World::over_http1().await?, 2)] {
        let informers = [world.informer(0)?, world.informer(1)?];
        doubt(&world, &informers, Duration::ZERO).await?;
        sleep(Duration::from_secs(20)).await;
        let lists = world.lists();
        world.server.faults().freeze(false);
        world.update(0, "1")?;
        let fresh = || informers.iter().all(|informer| informer.freshness().is_fresh());
        let took = until(Duration::from_secs(60), "both are fresh", fresh).await?;
        // A search begins within two seconds, and where no event comes its short watch takes four (R2).
        demand(took < Duration::from_secs(7), || format!("fresh again after {took:?}"))?;
        demand(world.lists() - lists <= of_versions, || format!("{} lists", world.lists() - lists))?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_is_asked_once_in_ten_seconds_however_many_watches_it_has() -> Result<(), WorldError> {
    for (world, connections) in [(World::new(None).await?, 1), (World::over_http1().await?, 1)] {
        let _seen = world.fleet(40).await?;
        sleep(Duration::from_secs(30)).await;
        let before = world.questions().len();
        sleep(Duration::from_secs(55)).await;
        let asked = world.questions().len() - before;
        demand((4 * connections..=6 * connections).contains(&asked), || format!("{asked} questions in 55 s"))?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn the_question_rides_the_connection_of_the_watches() -> Result<(), WorldError> {
    let world = World::of(ApiServer::builder().max_streams(10), None).await?;
    let _seen = world.fleet(18).await?;
    sleep(Duration::from_secs(50)).await;
    let open = world.open_connections();
    demand(open == 2, || format!("{open} connections for 18 watches, where ten streams fit on one"))?;
    let asked = world.questions().len();
    demand(asked >= 6, || format!("{asked} questions on two connections"))
}

#[tokio::test(start_paused = true)]
async fn any_answer_will_do_and_who_hears_of_events_asks_nothing() -> Result<(), WorldError> {
    let world = World::new(None).await?;
    let informer = world.informer(0)?;
    informer.wait_for_sync(Duration::from_secs(10)).await?;
    for round in 0..20 {
        sleep(Duration::from_secs(4)).await;
        world.update(0, &round.to_string())?;
    }
    demand(world.questions().is_empty(), || "asked, though events came".to_owned())?;
    for code in [401, 403, 404, 500, 503] {
        world.server.faults().answer_with(RequestRule::any().verb(Verb::Other), Answer::code(code));
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(40) {
            sleep(Duration::from_millis(100)).await;
            demand(informer.freshness().is_fresh(), || format!("{code}: {}", informer.freshness()))?;
        }
        world.server.faults().answer_truly();
    }
    demand(world.questions().len() > 10, || "nothing was asked".to_owned())
}
