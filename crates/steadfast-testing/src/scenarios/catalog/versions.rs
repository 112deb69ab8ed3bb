//! Versions that are no longer available, not reached yet, repeated, lost or restarted.

use std::time::Duration;

use steadfast::Scope;
use steadfast_apiserver::{InjectedResponse, RequestRule, Status, TooLargeVersionForm, Verb};
use tokio::time::{Instant, sleep};

use crate::CachedConfigMap;
use crate::TestkitError;
use crate::scenarios::catalog_fault::CatalogFault;
use crate::scenarios::findings::ScenarioFindings;
use crate::scenarios::scenario::{Scenario, ScenarioBounds, ScenarioSource, for_form};
use crate::scenarios::scenario_run::{REACTION_TIMEOUT, ScenarioRun, WatchedInformer, wait_for_doubt};
use crate::scenarios::settings::ScenarioSettings;
use crate::scenarios::target::ScenarioTarget;

/// Timeout that is longer than any recovery in these scenarios.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(60);

/// Scenarios of this family.
pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "version-expired",
        faults: &[CatalogFault::HistoryCompacted],
        source: ScenarioSource::FaultCatalog,
        summary: "The server no longer has the version that a watch resumes from. The error arrives as an HTTP \
                status and within the stream, with the reason Expired and with Gone. In one more case, a real \
                compaction causes the error. Each case causes exactly one list, and every deletion is delivered.",
        clauses: "C2, C3, R5",
        bounds: ScenarioBounds::NONE.recovery(3).lists(5),
        seconds: 10,
        run: for_form!(version_expired),
    },
    Scenario {
        name: "version-too-large",
        faults: &[CatalogFault::VersionTooLarge],
        source: ScenarioSource::FaultCatalog,
        summary: "The responding replica has not reached the requested version. It reports this in three response \
                formats, to the resuming watch and to the following list. The informer waits and lists once more. \
                Neither the cache nor a handler returns to an older state.",
        clauses: "C4, R5",
        bounds: ScenarioBounds::NONE.recovery(15).lists(12),
        seconds: 15,
        run: for_form!(version_too_large),
    },
    Scenario {
        name: "events-repeated",
        faults: &[CatalogFault::EventsRepeated],
        source: ScenarioSource::FaultCatalog,
        summary: "After each resume the server sends the last three events again, including deletions. No handler \
                receives them twice, and the cache never returns to an older state.",
        clauses: "C3, C4, R4",
        bounds: ScenarioBounds::NONE.recovery(2).lists(0),
        seconds: 1,
        run: for_form!(events_repeated),
    },
    Scenario {
        name: "history-restored",
        faults: &[CatalogFault::HistoryRestored],
        source: ScenarioSource::FaultCatalog,
        summary: "The server is restored from a backup, so its versions restart at a lower value. It accepts a watch \
                from a version that it has not reached. A probe returns a lower version, so the informer detects the \
                restore and lists once. Surviving objects are not reported as deleted.",
        clauses: "C1, C4, R5",
        bounds: ScenarioBounds::NONE.detection(2).recovery(8).lists(1),
        seconds: 8,
        run: for_form!(history_restored),
    },
];

async fn version_expired<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let mut run = ScenarioRun::start_with_defaults(&target).await?;
    for object in 0..5 {
        run.create(&format!("old-{object}"), "1")?;
    }
    let config_maps = run.watch::<K>(Scope::all())?;
    run.wait_until_ready(&[&config_maps]).await?;
    run.mark_fault();
    let gone = Status::of_code(410).with_reason("Gone");
    let expired = Status::of_code(410);
    let responses = [
        InjectedResponse::Status(expired.clone()),
        InjectedResponse::Status(gone.clone()),
        InjectedResponse::InStream(expired),
        InjectedResponse::InStream(gone),
    ];
    let mut slowest = Duration::ZERO;
    for (round, response) in responses.into_iter().map(Some).chain([None]).enumerate() {
        run.faults().cut();
        run.delete(&format!("old-{round}"))?;
        if let Some(response) = response {
            run.faults().respond(RequestRule::any().verb(Verb::Watch).times(1), response);
        } else {
            run.server.compact();
            run.faults().expire_events();
        }
        let fault_end = Instant::now();
        run.faults().heal();
        let recovered_after = run.wait_for_recovery(&[&config_maps], fault_end, RECOVERY_TIMEOUT).await;
        run.checks.expect_within(&format!("the recovery from response {round}"), recovered_after, RECOVERY_TIMEOUT);
        slowest = slowest.max(recovered_after.unwrap_or(RECOVERY_TIMEOUT));
        // The wait is long enough for a loop of lists to become visible.
        sleep(Duration::from_secs(1)).await;
    }
    run.settle(&[&config_maps]).await;
    for object in 0..5 {
        let events = config_maps.recording.descriptions(&format!("default/old-{object}"));
        run.checks.expect_equal("events of a deletion", &events.len(), &2);
    }
    Ok(run.findings(None, Some(slowest)))
}

async fn version_too_large<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let mut run = ScenarioRun::start_with_defaults(&target).await?;
    run.create("a", "0")?;
    let config_maps = run.watch::<K>(Scope::all())?;
    run.wait_until_ready(&[&config_maps]).await?;
    run.mark_fault();
    let mut slowest = Duration::ZERO;
    for (round, spelling) in
        [TooLargeVersionForm::Cause, TooLargeVersionForm::CauseMessage, TooLargeVersionForm::Message]
            .into_iter()
            .enumerate()
    {
        for in_stream in [false, true] {
            let InjectedResponse::Status(status) = InjectedResponse::too_large(spelling) else { continue };
            let response = if in_stream { InjectedResponse::InStream(status.clone()) } else { status.clone().into() };
            // The first rule applies to the resumed watch. The second applies to the list that may follow.
            run.faults().respond(RequestRule::any().verb(Verb::Watch).times(1), response.clone());
            run.faults().respond(RequestRule::any().verb(Verb::List).verb(Verb::StreamedList).times(1), response);
            run.faults().end_watches();
            let watch_end = Instant::now();
            run.change("a", &format!("{round} {in_stream}"))?;
            let recovered_after = run.wait_for_recovery(&[&config_maps], watch_end, RECOVERY_TIMEOUT).await;
            run.checks.expect_within(&format!("the recovery from {spelling:?}"), recovered_after, RECOVERY_TIMEOUT);
            slowest = slowest.max(recovered_after.unwrap_or(RECOVERY_TIMEOUT));
            run.faults().clear_rules();
        }
    }
    run.settle(&[&config_maps]).await;
    Ok(run.findings(None, Some(slowest)))
}

async fn events_repeated<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let mut run = ScenarioRun::start_with_defaults(&target).await?;
    ["a", "b"].into_iter().try_for_each(|name| run.create(name, "0"))?;
    let config_maps = run.watch::<K>(Scope::all())?;
    run.wait_until_ready(&[&config_maps]).await?;
    run.mark_fault();
    run.faults().repeat_events(3);
    let mut slowest = Duration::ZERO;
    for round in 0..6 {
        run.change("a", &round.to_string())?;
        run.recreate("b", &round.to_string())?;
        let change_recovery = run.wait_for_recovery(&[&config_maps], Instant::now(), REACTION_TIMEOUT).await;
        run.checks.expect_within("the changes", change_recovery, REACTION_TIMEOUT);
        run.faults().end_watches();
        let watch_end = Instant::now();
        run.create(&format!("new-{round}"), "1")?;
        let recovered_after = run.wait_for_recovery(&[&config_maps], watch_end, RECOVERY_TIMEOUT).await;
        slowest = slowest.max(recovered_after.unwrap_or(RECOVERY_TIMEOUT));
    }
    run.settle(&[&config_maps]).await;
    Ok(run.findings(None, Some(slowest)))
}

async fn history_restored<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    // Before a probe, no client can detect that versions restart at a lower value. The probe follows soon after the
    // disconnect.
    let mut run =
        ScenarioRun::start(&target, ScenarioSettings { lag: Duration::from_secs(8), ..ScenarioSettings::default() })
            .await?;
    run.create("kept", "1")?;
    let backup = run.server.revision();
    run.create("lost", "1")?;
    let config_maps = run.watch::<K>(Scope::all())?;
    run.wait_until_ready(&[&config_maps]).await?;
    let fault = run.mark_fault();
    run.faults().restore(backup);
    let detection = wait_for_doubt(&[&config_maps], fault, Duration::from_secs(90)).await;
    let recovery = wait_for_new_epoch::<K>(&mut run, &config_maps, fault).await;
    run.change("kept", "2")?;
    let change_recovery = run.wait_for_recovery(&[&config_maps], Instant::now(), REACTION_TIMEOUT).await;
    run.checks.expect_within("the first change of the new epoch", change_recovery, REACTION_TIMEOUT);
    run.settle(&[&config_maps]).await;
    let lost_events = config_maps.recording.descriptions("default/lost");
    let expected = ["Added", "Deleted Inferred Deleted"].map(str::to_owned).to_vec();
    run.checks.expect_equal("events of the object that is missing in the backup", &lost_events, &expected);
    let kept_events = config_maps.recording.descriptions("default/kept");
    let has_no_deletion = !kept_events.iter().any(|event| event.starts_with("Deleted"));
    run.checks.expect(has_no_deletion, format_args!("events of the surviving object: {kept_events:?}"));
    Ok(run.findings(detection, recovery))
}

/// Waits for a new epoch and its objects, and returns the time since `fault`.
async fn wait_for_new_epoch<K: CachedConfigMap>(
    run: &mut ScenarioRun,
    config_maps: &WatchedInformer<K>,
    fault: Instant,
) -> Option<Duration> {
    let limit = Duration::from_secs(120);
    while config_maps.informer.snapshot().epoch() == 0 && fault.elapsed() < limit {
        sleep(Duration::from_millis(5)).await;
    }
    let epoch = config_maps.informer.snapshot().epoch();
    run.checks.expect_equal("the epoch", &epoch, &1);
    let freshness_delay =
        crate::scenarios::scenario_run::until(RECOVERY_TIMEOUT, || config_maps.informer.freshness().is_fresh()).await;
    freshness_delay.map(|_| fault.elapsed())
}
