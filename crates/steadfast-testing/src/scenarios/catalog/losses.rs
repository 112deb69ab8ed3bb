//! Losses on the server: missing events, and missing bookmarks. A bookmark proves that no event is missing.

use std::time::Duration;

use steadfast::{ReflectorSettings, Scope};
use tokio::time::{Instant, sleep};

use crate::CachedConfigMap;
use crate::TestkitError;
use crate::scenarios::catalog_fault::CatalogFault;
use crate::scenarios::findings::ScenarioFindings;
use crate::scenarios::scenario::{Scenario, ScenarioBounds, ScenarioSource, for_form};
use crate::scenarios::scenario_run::{REACTION_TIMEOUT, ScenarioRun, until};
use crate::scenarios::settings::ScenarioSettings;
use crate::scenarios::target::ScenarioTarget;

/// Period of the audit, shorter than in a real program.
const AUDIT_PERIOD: Duration = Duration::from_secs(60);

/// Scenarios of this family.
pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "no-bookmarks",
        faults: &[CatalogFault::NoBookmarks],
        source: ScenarioSource::FaultCatalog,
        summary: "The server sends no bookmarks, as some aggregated servers do, and nothing changes for two and a half \
                periods. Probes replace bookmarks as proofs of freshness. No watch is reopened, and the first change \
                arrives immediately.",
        clauses: "C10, R2",
        bounds: ScenarioBounds::NONE.recovery(2).lists(0),
        seconds: 150,
        run: for_form!(no_bookmarks),
    },
    Scenario {
        name: "events-lost",
        faults: &[CatalogFault::EventsLost],
        source: ScenarioSource::FaultCatalog,
        summary: "The server sends a change, a deletion and a creation to no watch, and its bookmarks hide the loss. \
                An audit runs every minute in this scenario. It detects and reports each lost event within one \
                minute.",
        clauses: "C2, C11, R12",
        bounds: ScenarioBounds::NONE.recovery(AUDIT_PERIOD.as_secs() + 10),
        seconds: 65,
        run: for_form!(events_lost),
    },
];

async fn no_bookmarks<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let mut run = ScenarioRun::start_with_defaults(&target).await?;
    run.faults().no_bookmarks(true);
    run.create("a", "1")?;
    let config_maps = run.watch::<K>(Scope::all())?;
    run.wait_until_ready(&[&config_maps]).await?;
    run.wait_for_watches(1).await;
    let started = run.mark_fault();
    let watches = run.server.request_counts().watches;
    sleep(Duration::from_secs(150)).await;
    run.expect_no_doubt(&config_maps, started);
    run.checks.expect_equal("watches", &run.server.request_counts().watches, &watches);
    run.change("a", "2")?;
    let change_recovery = run.wait_for_recovery(&[&config_maps], Instant::now(), REACTION_TIMEOUT).await;
    run.settle(&[&config_maps]).await;
    Ok(run.findings(None, change_recovery))
}

async fn events_lost<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let reflector = ReflectorSettings { audit_every: Some(AUDIT_PERIOD), ..ReflectorSettings::default() };
    let mut run = ScenarioRun::start(&target, ScenarioSettings { reflector, ..ScenarioSettings::default() }).await?;
    ["changed", "deleted", "same"].into_iter().try_for_each(|name| run.create(name, "1"))?;
    let config_maps = run.watch::<K>(Scope::all())?;
    run.wait_until_ready(&[&config_maps]).await?;
    let fault = run.mark_fault();
    run.faults().drop_events(3, |change| change.resource.resource() == "configmaps");
    run.change("changed", "2")?;
    run.delete("deleted")?;
    run.create("created", "1")?;
    let has_events =
        |name: &str, times: usize| config_maps.recording.descriptions(&format!("default/{name}")).len() == times;
    let has_all_events = || has_events("changed", 2) && has_events("deleted", 2) && has_events("created", 1);
    let recovery = until(2 * AUDIT_PERIOD, has_all_events).await.map(|_| fault.elapsed());
    let deleted_events = config_maps.recording.descriptions("default/deleted");
    let expected = ["Added", "Deleted Inferred Deleted"].map(str::to_owned).to_vec();
    run.checks.expect_equal("events of the object with a lost deletion", &deleted_events, &expected);
    run.checks.expect_equal("events of the unchanged object", &has_events("same", 1), &true);
    run.settle(&[&config_maps]).await;
    Ok(run.findings(None, recovery))
}
