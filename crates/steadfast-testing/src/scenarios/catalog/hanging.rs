//! Lists that hang must not delay other lists.

use std::time::Duration;

use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use steadfast::Scope;
use steadfast_apiserver::{InjectedResponse, RequestRule};
use tokio::time::{Instant, sleep};

use crate::CachedConfigMap;
use crate::TestkitError;
use crate::scenarios::catalog_fault::CatalogFault;
use crate::scenarios::findings::ScenarioFindings;
use crate::scenarios::scenario::{Scenario, ScenarioBounds, ScenarioSource, for_form};
use crate::scenarios::scenario_run::{REACTION_TIMEOUT, ScenarioRun, until};
use crate::scenarios::target::ScenarioTarget;

/// Resources with hanging lists, more than the limit of concurrent full transfers.
const HANGING_RESOURCES: [(&str, &str); 8] = [
    ("Deployment", "deployments"),
    ("DaemonSet", "daemonsets"),
    ("StatefulSet", "statefulsets"),
    ("ReplicaSet", "replicasets"),
    ("ControllerRevision", "controllerrevisions"),
    ("Job", "jobs"),
    ("CronJob", "cronjobs"),
    ("Lease", "leases"),
];

/// Scenarios of this family.
pub(super) const SCENARIOS: &[Scenario] = &[Scenario {
    name: "hanging-lists",
    faults: &[CatalogFault::ResourceRefused],
    source: ScenarioSource::FaultCatalog,
    summary: "Lists of eight resources hang and end with 500 after 29 s, as with a dead conversion webhook. Config \
            maps sync, relist after an expiry and stay fresh without a delay. The eight resources sync when the \
            webhook recovers.",
    clauses: "C9, R5, R7",
    bounds: ScenarioBounds::NONE.recovery(10),
    seconds: 80,
    run: for_form!(hanging_lists),
}];

fn group(kind: &str) -> &'static str {
    match kind {
        "Job" | "CronJob" => "batch",
        "Lease" => "coordination.k8s.io",
        _ => "apps",
    }
}

async fn hanging_lists<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let mut run = ScenarioRun::start_with_defaults(&target).await?;
    run.create("a", "1")?;
    run.mark_fault();
    let mut hanging_informers = Vec::new();
    for (kind, plural) in HANGING_RESOURCES {
        let rule = RequestRule::any().resource(&format!("{plural}.{}", group(kind)));
        run.faults().respond_after(rule, Duration::from_secs(29), InjectedResponse::code(500));
        let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group(kind), "v1", kind), plural);
        hanging_informers.push(run.factory.informer_with::<DynamicObject>(&kind, Scope::all())?);
    }
    let started = Instant::now();
    let config_maps = run.watch::<K>(Scope::all())?;
    config_maps.informer.wait_for_sync(Duration::from_secs(60)).await?;
    run.checks.expect_within("the sync of config maps", Some(started.elapsed()), REACTION_TIMEOUT);
    run.wait_until_ready(&[&config_maps]).await?;
    for round in 0..3 {
        // The rounds run while the eight lists hang, and shortly before the lists are retried.
        sleep(Duration::from_secs(11)).await;
        run.faults().cut();
        run.change("a", &format!("round {round}"))?;
        run.faults().expire_events();
        run.faults().heal();
        let recovered_after = run.wait_for_recovery(&[&config_maps], Instant::now(), Duration::from_secs(60)).await;
        run.checks.expect_within(&format!("the relist of round {round}"), recovered_after, Duration::from_secs(3));
    }
    run.checks.expect(!hanging_informers.iter().any(steadfast::Informer::has_synced), "a hanging informer has synced");
    run.faults().clear_rules();
    // Requests that were sent before the recovery still hang until they end.
    sleep(Duration::from_secs(29)).await;
    let fault_end = Instant::now();
    let sync_delay =
        until(Duration::from_secs(60), || hanging_informers.iter().all(steadfast::Informer::has_synced)).await;
    let recovery = sync_delay.map(|_| fault_end.elapsed());
    hanging_informers.iter().for_each(steadfast::Informer::stop);
    run.settle(&[&config_maps]).await;
    Ok(run.findings(None, recovery))
}
