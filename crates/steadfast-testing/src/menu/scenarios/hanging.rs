//! Lists that hang must not delay other lists.

use std::time::Duration;

use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use steadfast::Scope;
use steadfast_apiserver::{Answer, RequestRule};
use tokio::time::{Instant, sleep};

use crate::Held;
use crate::menu::fault::Fault;
use crate::menu::findings::Findings;
use crate::menu::ground::Ground;
use crate::menu::scenario::{Bounds, Scenario, Source, Trouble, in_form};
use crate::menu::stage::{PROMPT, Stage, until};

/// Resources with hanging lists, more than the limit of concurrent full transfers.
const HANGING: [(&str, &str); 8] = [
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
    faults: &[Fault::ResourceRefused],
    source: Source::Menu,
    summary: "Lists of eight resources hang and end with 500 after 29 s, as with a dead conversion webhook. Config \
            maps sync, relist after an expiry and stay fresh without a delay. The eight resources sync when the \
            webhook recovers.",
    clauses: "C9, R5, R7",
    bounds: Bounds::NONE.recover(10),
    seconds: 80,
    play: in_form!(hanging_lists),
}];

fn group(kind: &str) -> &'static str {
    match kind {
        "Job" | "CronJob" => "batch",
        "Lease" => "coordination.k8s.io",
        _ => "apps",
    }
}

async fn hanging_lists<K: Held>(ground: Ground) -> Result<Findings, Trouble> {
    let mut stage = Stage::plain(&ground).await?;
    stage.create("a", "1")?;
    stage.fault();
    let mut hanging = Vec::new();
    for (kind, plural) in HANGING {
        let rule = RequestRule::any().resource(&format!("{plural}.{}", group(kind)));
        stage.faults().hang(rule, Duration::from_secs(29), Answer::code(500));
        let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group(kind), "v1", kind), plural);
        hanging.push(stage.factory.informer_with::<DynamicObject>(&kind, Scope::all())?);
    }
    let started = Instant::now();
    let config_maps = stage.watch::<K>(Scope::all())?;
    config_maps.informer.wait_for_sync(Duration::from_secs(60)).await?;
    stage.checks.within("the sync of config maps", Some(started.elapsed()), PROMPT);
    stage.ready(&[&config_maps]).await?;
    for round in 0..3 {
        // Rounds while the eight lists hang, and shortly before they are retried.
        sleep(Duration::from_secs(11)).await;
        stage.faults().cut();
        stage.change("a", &format!("round {round}"))?;
        stage.faults().expire_events();
        stage.faults().heal();
        let back = stage.recovery(&[&config_maps], Instant::now(), Duration::from_secs(60)).await;
        stage.checks.within(&format!("the relist of round {round}"), back, Duration::from_secs(3));
    }
    stage.checks.expect(!hanging.iter().any(steadfast::Informer::has_synced), "a hanging informer has synced");
    stage.faults().answer_truly();
    // Requests from before the recovery hang to their end.
    sleep(Duration::from_secs(29)).await;
    let healed = Instant::now();
    let synced = until(Duration::from_secs(60), || hanging.iter().all(steadfast::Informer::has_synced)).await;
    let recover = synced.map(|_| healed.elapsed());
    hanging.iter().for_each(steadfast::Informer::stop);
    stage.settle(&[&config_maps]).await;
    Ok(stage.judge(None, recover))
}
