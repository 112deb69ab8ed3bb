//! Lists that never end, cannot continue or are huge.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use steadfast::{Diagnostic, Scope};
use steadfast_apiserver::ApiServer;
use tokio::time::{Instant, sleep};

use crate::CachedConfigMap;
use crate::TestkitError;
use crate::scenarios::catalog_fault::CatalogFault;
use crate::scenarios::findings::ScenarioFindings;
use crate::scenarios::scenario::{Scenario, ScenarioBounds, ScenarioSource, for_form};
use crate::scenarios::scenario_run::{REACTION_TIMEOUT, ScenarioRun, WatchedInformer, until};
use crate::scenarios::target::ScenarioTarget;

/// Scenarios of this family.
pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "streamed-list-broken",
        faults: &[CatalogFault::StreamedListBroken],
        source: ScenarioSource::FaultCatalog,
        summary: "On four servers the initial events never end, end without their annotation, are rejected, or are \
                treated as a plain watch. Paged lists replace the initial events within 30 s of the last progress. The \
                next informer requests pages immediately.",
        clauses: "C9, R3",
        bounds: ScenarioBounds::NONE.recovery(33).lists(12),
        seconds: 65,
        run: for_form!(streamed_list_broken),
    },
    Scenario {
        name: "continue-token-expired",
        faults: &[CatalogFault::ContinueTokenExpired],
        source: ScenarioSource::FaultCatalog,
        summary: "The continue token of a paged list has expired when the second page is requested. The list \
                completes, without a mix of old and new state.",
        clauses: "C2, C9, C11, R3, R5",
        bounds: ScenarioBounds::NONE.recovery(20).lists(4),
        seconds: 15,
        run: for_form!(continue_token_expired),
    },
    Scenario {
        name: "huge-list",
        faults: &[CatalogFault::HugeList],
        source: ScenarioSource::FaultCatalog,
        summary: "Thousands of objects are listed, and listed again after the version expired, with concurrent \
                readers. Readers see all objects at any time, and the second list is one transfer.",
        clauses: "C2, C11, R5, R9",
        bounds: ScenarioBounds::NONE.recovery(30).lists(1),
        seconds: 20,
        run: for_form!(huge_list),
    },
];

async fn streamed_list_broken<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    type FaultFn = fn(&ApiServer);
    let faults: [(&str, FaultFn); 4] = [
        ("no end", |server| server.faults().no_initial_events_end(true)),
        ("no annotation", |server| server.faults().unannotated_initial_events_end(true)),
        ("rejected", |server| server.faults().refuse_streamed_lists(true)),
        ("unsupported", |server| server.faults().ignore_streamed_lists(true)),
    ];
    let runs = faults.map(|(name, fault)| without_streamed_lists::<K>(&target, name, fault));
    let mut findings = futures::future::try_join_all(runs).await?.into_iter();
    let first = findings.next().ok_or("four servers have findings")?;
    Ok(findings.fold(first, ScenarioFindings::and))
}

/// Starts an informer that requests streamed lists in both encodings.
fn watch_streamed<K: CachedConfigMap>(run: &ScenarioRun, scope: Scope) -> Result<WatchedInformer<K>, TestkitError> {
    Ok(run.record(run.builder(&run.factory, scope).streamed_lists(true).start()?))
}

async fn without_streamed_lists<K: CachedConfigMap>(
    target: &ScenarioTarget,
    name: &str,
    fault: fn(&ApiServer),
) -> Result<ScenarioFindings, TestkitError> {
    let mut run = ScenarioRun::start_with_defaults(target).await?;
    run.create("a", "1")?;
    let started = run.mark_fault();
    fault(&run.server);
    let config_maps = watch_streamed::<K>(&run, Scope::all())?;
    let fell_back = Arc::new(AtomicBool::new(false));
    let fell_back_to_pages = fell_back.clone();
    config_maps.informer.on_diagnostic(move |note| {
        fell_back_to_pages.fetch_or(matches!(note, Diagnostic::FellBackToPages { .. }), Ordering::Relaxed);
    });
    let recovery = run.wait_for_recovery(&[&config_maps], started, Duration::from_secs(60)).await;
    run.checks
        .expect(fell_back.load(Ordering::Relaxed), format_args!("{name}: no diagnostic reports the use of pages"));

    let next_start = Instant::now();
    let next_informer = watch_streamed::<K>(&run, Scope::namespace("default"))?;
    let next_recovery = run.wait_for_recovery(&[&next_informer], next_start, Duration::from_secs(60)).await;
    run.checks.expect_within(&format!("{name}: the next informer's sync"), next_recovery, REACTION_TIMEOUT);
    let counts = run.server.request_counts();
    run.checks.expect_equal(
        &format!("{name}: streamed lists and lists"),
        &(counts.streamed_lists, counts.lists),
        &(1, 2),
    );
    run.settle(&[&config_maps, &next_informer]).await;
    Ok(run.findings(None, recovery))
}

async fn continue_token_expired<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let mut run = ScenarioRun::start_with_defaults(&target).await?;
    for object in 0..1200 {
        run.create(&format!("object-{object:04}"), "1")?;
    }
    let started = run.mark_fault();
    run.faults().refuse_streamed_lists(true);
    run.faults().expire_continue_tokens(3);
    let config_maps = run.watch::<K>(Scope::all())?;
    run.delete("object-0000")?;
    let recovery = run.wait_for_recovery(&[&config_maps], started, Duration::from_secs(60)).await;
    run.checks.expect_equal("objects", &config_maps.informer.snapshot().iter().count(), &1199);
    let rejected = run.server.requests().iter().filter(|request| request.code == Some(410)).count();
    run.checks.expect((1..=3).contains(&rejected), format_args!("{rejected} continue tokens were rejected"));
    run.settle(&[&config_maps]).await;
    Ok(run.findings(None, recovery))
}

async fn huge_list<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let (objects, bytes) = if target.is_real() { (20_000, 2_000) } else { (3_000, 500) };
    let mut run = ScenarioRun::start_with_defaults(&target).await?;
    for object in 0..objects {
        run.create(&format!("object-{object:06}"), &format!("1 {}", "x".repeat(bytes)))?;
    }
    let config_maps = run.watch::<K>(Scope::all())?;
    config_maps.informer.wait_for_sync(Duration::from_secs(60)).await?;
    until(REACTION_TIMEOUT, || config_maps.informer.freshness().is_fresh()).await;
    run.mark_fault();
    run.faults().cut();
    for object in 0..10 {
        run.change(&format!("object-{object:06}"), "2")?;
    }
    run.delete("object-000100")?;
    run.server.compact();
    run.faults().expire_events();
    let is_reading = Arc::new(AtomicBool::new(true));
    let (informer, reader_flag) = (config_maps.informer.clone(), is_reading.clone());
    let reader = tokio::spawn(async move {
        let mut fewest = usize::MAX;
        while reader_flag.load(Ordering::Relaxed) {
            fewest = fewest.min(informer.snapshot().iter().count());
            sleep(Duration::from_millis(1)).await;
        }
        fewest
    });
    let fault_end = Instant::now();
    run.faults().heal();
    let recovery = run.wait_for_recovery(&[&config_maps], fault_end, Duration::from_secs(60)).await;
    is_reading.store(false, Ordering::Relaxed);
    let fewest = reader.await?;
    run.checks.expect(fewest >= objects - 1, format_args!("a reader found only {fewest} objects"));
    run.settle(&[&config_maps]).await;
    Ok(run.findings(None, recovery))
}
