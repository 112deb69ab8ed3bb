//! Proofs and their dates, judged by the checker: the library as it is passes, the library broken on purpose does not.

use steadfast_contract::{Clause, Report, Terms};
use steadfast_testing::{Recorder, history};

use super::*;

const NAME: &str = "config maps";

fn judged(world: &World, recorder: &Recorder) -> Report {
    let terms = Terms { slack: Duration::ZERO, ..Terms::default() };
    terms.judge(&history(&world.server, "", "configmaps").expect("they are served"), &recorder.trace())
}

fn caught(report: &Report) -> bool {
    report.breaches.iter().any(|breach| breach.clause == Clause::C10)
}

/// A list in six pages of 20 s each, of the moment of the first; what is written meanwhile is not in it.
async fn slow_list(breach: Option<Breach>) -> Result<Report, WorldError> {
    let world = World::new().await?;
    for name in ["a", "b", "c", "d", "e", "f"] {
        world.server.create(&config_map(name, "1"))?;
    }
    let recorder = Recorder::of(&world.server);
    world.server.faults().delay(PERIOD / 3);
    let informer = world.build().streamed_lists(false).page_size(Some(1)).breach(breach).start()?;
    recorder.record_as(&informer, NAME);
    tokio::time::sleep(PERIOD / 2).await;
    world.server.create(&config_map("new", "1"))?;
    informer.wait_for_sync(10 * PERIOD).await?;
    for _ in 0..20 {
        recorder.sample(&informer, NAME);
        tokio::time::sleep(SOON / 2).await;
    }
    world.server.faults().delay(Duration::ZERO);
    recorder.settle(&world.server).await;
    Ok(judged(&world, &recorder))
}

#[tokio::test(start_paused = true)]
async fn a_list_is_as_old_as_its_request() -> Result<(), WorldError> {
    let honest = slow_list(None).await?;
    assert!(honest.passed(), "{honest:#?}");
    assert!(caught(&slow_list(Some(Breach::LateList)).await?), "dated when it was complete, it is a lie");
    Ok(())
}

/// A connection that breaks after 20 s without a proof.
async fn broken_connection(breach: Option<Breach>) -> Result<Report, WorldError> {
    let world = World::new().await?;
    world.server.create(&config_map("a", "1"))?;
    let recorder = Recorder::of(&world.server);
    let informer = started(world.build(), breach).await?;
    recorder.record_as(&informer, NAME);
    tokio::time::sleep(PERIOD / 3).await;
    world.server.faults().reset();
    tokio::time::sleep(PERIOD / 6).await;
    recorder.settle(&world.server).await;
    Ok(judged(&world, &recorder))
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_open_again_is_no_proof() -> Result<(), WorldError> {
    let honest = broken_connection(None).await?;
    assert!(honest.passed(), "{honest:#?}");
    assert!(caught(&broken_connection(Some(Breach::UnprovenResume)).await?), "fresh by a proof from before the break");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn after_a_break_one_probe_within_two_seconds_serves_all_informers_of_a_resource() -> Result<(), WorldError> {
    let world = World::new().await?;
    let mut informers = Vec::new();
    for number in 0..100 {
        informers.push(build_in_form(&world.factory, Scope::all().labels(format!("app=a-{number}"))).start()?);
    }
    world.factory.wait_for_sync(PERIOD).await?;
    tokio::time::sleep(PERIOD / 3).await;
    let begin = world.server.elapsed();
    world.server.faults().reset();
    until(SOON, || informers.iter().any(|informer| !informer.freshness().is_fresh())).await?;
    let doubted = informers.iter().filter(|informer| informer.freshness().is_fresh()).count();
    until(3 * SOON, || informers.iter().all(|informer| informer.freshness().is_fresh())).await?;
    let cost = world.cost_since(begin);
    assert!((1..=3).contains(&cost.probes), "{cost:?}; {doubted} were fresh all the time");
    assert_eq!((cost.lists, cost.short_watches), (0, 0), "nothing was written: {cost:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_clean_end_keeps_the_cache_fresh_and_costs_no_proof() -> Result<(), WorldError> {
    let world = World::new().await?;
    let informer = world.synced().await?;
    tokio::time::sleep(PERIOD / 6).await;
    let begin = world.server.elapsed();
    world.server.faults().end_watches();
    assert_eq!(told(&informer, 5 * SOON).await.states, ["fresh"]);
    let cost = world.cost_since(begin);
    assert_eq!((cost.probes, cost.watches), (0, 1), "{cost:?}");
    world.server.faults().goaway();
    assert_eq!(told(&informer, 5 * SOON).await.states, ["fresh"], "nor does a connection that is to end say anything");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_server_that_began_anew_behind_its_address_is_known_within_five_seconds() -> Result<(), WorldError> {
    let world = World::new().await?;
    for name in ["a", "b", "c"] {
        world.server.create(&config_map(name, "1"))?;
    }
    let informer = world.synced().await?;
    let notes = notes(&informer);
    tokio::time::sleep(PERIOD / 3).await;
    world.server.faults().stop();
    tokio::time::sleep(SOON).await;
    world.server.faults().restore(1);
    world.server.faults().start();
    until(5 * SOON, || world.server.open_watches(0) > 0).await?;
    let told = told(&informer, Duration::from_secs(5)).await;
    assert_eq!(noted(&notes, |note| matches!(note, Note::NewEpoch { .. })), 1, "{:?}", told.states);
    assert_eq!(told.states.last(), Some(&"fresh"), "{:?}", told.causes);
    assert!(told.states.iter().filter(|state| **state == "fresh").count() == 1, "not fresh before: {:?}", told.states);
    assert!(!held(&informer, "a"), "what is not there is not held");
    Ok(())
}
