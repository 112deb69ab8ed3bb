//! Proofs and their times, checked by the contract checker: the library passes, and the library with an injected fault
//! fails.

use steadfast_contract::{Bounds, Clause, Report};
use steadfast_testing::{Recorder, history};

use super::*;

const NAME: &str = "config maps";

fn check_contract(fixture: &FreshnessFixture, recorder: &Recorder) -> Report {
    let bounds = Bounds { slack: Duration::ZERO, ..Bounds::default() };
    bounds.report(&history(&fixture.server, "", "configmaps").expect("config maps are served"), &recorder.trace())
}

fn has_freshness_violation(report: &Report) -> bool {
    report.violations.iter().any(|violation| violation.clause == Clause::C10)
}

/// Runs a list of six pages that take 20 s each, at the version of the first page. Later writes are not in the list.
async fn run_slow_list(fault: Option<InjectedFault>) -> Result<Report, TestError> {
    let fixture = FreshnessFixture::new().await?;
    for name in ["a", "b", "c", "d", "e", "f"] {
        fixture.server.create(&config_map(name, "1"))?;
    }
    let recorder = Recorder::of(&fixture.server);
    fixture.server.faults().delay(PERIOD / 3);
    let informer = fixture.build().streamed_lists(false).page_size(Some(1)).inject_fault(fault).start()?;
    recorder.record_as(&informer, NAME);
    tokio::time::sleep(PERIOD / 2).await;
    fixture.server.create(&config_map("new", "1"))?;
    informer.wait_for_sync(10 * PERIOD).await?;
    for _ in 0..20 {
        recorder.sample(&informer, NAME);
        tokio::time::sleep(REACTION_TIME / 2).await;
    }
    fixture.server.faults().delay(Duration::ZERO);
    recorder.settle(&fixture.server).await;
    Ok(check_contract(&fixture, &recorder))
}

#[tokio::test(start_paused = true)]
async fn list_age_counts_from_request() -> Result<(), TestError> {
    let report = run_slow_list(None).await?;
    assert!(report.passed(), "{report:#?}");
    assert!(
        has_freshness_violation(&run_slow_list(Some(InjectedFault::LateList)).await?),
        "a list that is dated at its end must be reported"
    );
    Ok(())
}

/// Runs a connection that breaks after 20 s without a proof.
async fn run_broken_connection(fault: Option<InjectedFault>) -> Result<Report, TestError> {
    let fixture = FreshnessFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let recorder = Recorder::of(&fixture.server);
    let informer = start_fresh(fixture.build(), fault).await?;
    recorder.record_as(&informer, NAME);
    tokio::time::sleep(PERIOD / 3).await;
    fixture.server.faults().reset();
    tokio::time::sleep(PERIOD / 6).await;
    recorder.settle(&fixture.server).await;
    Ok(check_contract(&fixture, &recorder))
}

#[tokio::test(start_paused = true)]
async fn resumed_watch_is_not_a_proof() -> Result<(), TestError> {
    let report = run_broken_connection(None).await?;
    assert!(report.passed(), "{report:#?}");
    assert!(
        has_freshness_violation(&run_broken_connection(Some(InjectedFault::UnprovenResume)).await?),
        "a proof from before the disconnect must be reported"
    );
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn one_probe_after_disconnect_serves_all_informers() -> Result<(), TestError> {
    let fixture = FreshnessFixture::new().await?;
    let mut informers = Vec::new();
    for number in 0..100 {
        informers.push(builder_with_form(&fixture.factory, Scope::all().labels(format!("app=a-{number}"))).start()?);
    }
    fixture.factory.wait_for_sync(PERIOD).await?;
    tokio::time::sleep(PERIOD / 3).await;
    let start = fixture.server.elapsed();
    fixture.server.faults().reset();
    until(REACTION_TIME, || informers.iter().any(|informer| !informer.freshness().is_fresh())).await?;
    let fresh_count = informers.iter().filter(|informer| informer.freshness().is_fresh()).count();
    until(3 * REACTION_TIME, || informers.iter().all(|informer| informer.freshness().is_fresh())).await?;
    let counts = fixture.requests_since(start);
    assert!((1..=3).contains(&counts.probes), "{counts:?}; {fresh_count} stayed fresh");
    assert_eq!((counts.lists, counts.short_watches), (0, 0), "no write needs a list: {counts:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn clean_end_keeps_cache_fresh() -> Result<(), TestError> {
    let fixture = FreshnessFixture::new().await?;
    let informer = fixture.synced_informer().await?;
    tokio::time::sleep(PERIOD / 6).await;
    let start = fixture.server.elapsed();
    fixture.server.faults().end_watches();
    assert_eq!(observe_freshness(&informer, 5 * REACTION_TIME).await.states, ["fresh"]);
    let counts = fixture.requests_since(start);
    assert_eq!((counts.probes, counts.watches), (0, 1), "{counts:?}");
    fixture.server.faults().goaway();
    assert_eq!(
        observe_freshness(&informer, 5 * REACTION_TIME).await.states,
        ["fresh"],
        "a draining connection must not cause a doubt"
    );
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn replaced_server_is_detected_within_five_seconds() -> Result<(), TestError> {
    let fixture = FreshnessFixture::new().await?;
    for name in ["a", "b", "c"] {
        fixture.server.create(&config_map(name, "1"))?;
    }
    let informer = fixture.synced_informer().await?;
    let notes = record_diagnostics(&informer);
    tokio::time::sleep(PERIOD / 3).await;
    fixture.server.faults().stop();
    tokio::time::sleep(REACTION_TIME).await;
    fixture.server.faults().restore(1);
    fixture.server.faults().start();
    until(5 * REACTION_TIME, || fixture.server.open_watches(0) > 0).await?;
    let observed = observe_freshness(&informer, Duration::from_secs(5)).await;
    assert_eq!(note_count(&notes, |note| matches!(note, Diagnostic::NewEpoch { .. })), 1, "{:?}", observed.states);
    assert_eq!(observed.states.last(), Some(&"fresh"), "{:?}", observed.causes);
    assert!(
        observed.states.iter().filter(|state| **state == "fresh").count() == 1,
        "fresh only once: {:?}",
        observed.states
    );
    assert!(!is_cached(&informer, "a"), "the deleted object must not be cached");
    Ok(())
}
