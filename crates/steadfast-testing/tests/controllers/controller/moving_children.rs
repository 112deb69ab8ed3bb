//! Random histories of children that move between owners: each owner is reconciled after its last gain or loss.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::core::PartialObjectMeta;
use parking_lot::Mutex;
use serde_json::{Value, json};
use steadfast::{Informer, Scope};
use steadfast_controller::{Action, ChangeFilter, Controller, Source, back_off};
use steadfast_testing::{FaultSchedule, TestError, widget_definition};

use super::sources::{kind_of, tenant_definition};
use super::{ControllerFixture, Failure, SECOND, advance};

const OWNERS: [&str; 3] = ["a", "b", "c"];
const CHILDREN: u64 = 4;
const STEPS: u64 = 40;

/// Number of children by owner: either the actual number, or the number that the owner's last reconcile counted.
type Counts = BTreeMap<String, usize>;

/// Moves children at random. The seed decides whether the owners are cluster-scoped or namespaced.
async fn run_random_moves(seed: u64) -> Result<(), TestError> {
    let fixture = ControllerFixture::seeded(seed).await?;
    let is_cluster_scoped = seed.is_multiple_of(2);
    let definition = if is_cluster_scoped { tenant_definition() } else { widget_definition("x.example") };
    fixture.server.create(&definition)?;
    let kind = kind_of(if is_cluster_scoped { "Tenant" } else { "Widget" });
    for name in OWNERS {
        let namespace = (!is_cluster_scoped).then_some("default");
        fixture.server.create(&json!({
            "apiVersion": kind.api_version, "kind": kind.kind, "metadata": { "name": name, "namespace": namespace },
        }))?;
    }
    let owners = fixture.factory.informer_with::<DynamicObject>(&kind, Scope::all())?;
    let children: Informer<PartialObjectMeta<Deployment>> = fixture.factory.informer(Scope::all())?;
    let reconcile_counts = Arc::new(Mutex::new(Counts::new()));
    let (counts, cache) = (reconcile_counts.clone(), children.clone());
    let reconcile = move |owner: Arc<DynamicObject>, _: Arc<()>| {
        let (counts, cache) = (counts.clone(), cache.clone());
        async move {
            let lister = cache.lister().map_err(|error| Failure(error.to_string()))?;
            let is_own = |child: &PartialObjectMeta<Deployment>| {
                child.owner_references().iter().any(|reference| reference.name == owner.name_any())
            };
            let own_children = lister.all().iter().filter(|child| is_own(child)).count();
            counts.lock().insert(owner.name_any(), own_children);
            Ok::<_, Failure>(Action::await_change())
        }
    };
    let _controller = Controller::new_with(&fixture.factory, kind.clone(), owners)
        .owns::<Deployment>(Source::from(children).filter_changes(ChangeFilter::of_generation()))
        .run(reconcile, back_off, Arc::new(()))?;

    let owner_references = |owner: Option<&str>| {
        let reference =
            |owner| json!([{ "apiVersion": kind.api_version, "kind": kind.kind, "name": owner, "uid": "u" }]);
        owner.map_or(Value::Null, reference)
    };
    let mut expected_owners: BTreeMap<String, Option<&str>> = BTreeMap::new();
    let mut faults = FaultSchedule::new(seed, &fixture.server, &fixture.network);
    for step in 0..STEPS {
        faults.inject_next().await;
        let name = format!("child-{}", faults.random(CHILDREN));
        let owner = OWNERS.get(faults.random(OWNERS.len() as u64 + 1) as usize).copied();
        match (expected_owners.contains_key(&name), faults.random(6)) {
            (false, _) => {
                fixture.server.create(&deployment(&name, &owner_references(owner)))?;
                expected_owners.insert(name, owner);
            }
            (true, 0) => {
                fixture.server.delete_named("deployments", "default", &name)?;
                expected_owners.remove(&name);
            }
            (true, 1) => {
                let patch = json!({ "metadata": { "annotations": { "step": step.to_string() } } });
                fixture.server.merge_patch("deployments", "default", &name, patch)?;
            }
            (true, _) => {
                let patch = json!({ "metadata": { "ownerReferences": owner_references(owner) } });
                fixture.server.merge_patch("deployments", "default", &name, patch)?;
                expected_owners.insert(name, owner);
            }
        }
    }
    faults.end();
    advance(120 * SECOND).await;
    let count = |owner: &str| expected_owners.values().filter(|of| **of == Some(owner)).count();
    let expected: Counts = OWNERS.iter().map(|owner| ((*owner).to_owned(), count(owner))).collect();
    let reconcile_counts = reconcile_counts.lock().clone();
    if reconcile_counts != expected {
        return Err(format!(
            "seed {seed}: the last reconciles counted {reconcile_counts:?} children; the owners have {expected:?}"
        )
        .into());
    }
    Ok(())
}

fn deployment(name: &str, owners: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": name, "namespace": "default", "ownerReferences": owners },
        "spec": {
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "main", "image": "none" }] },
            },
        },
    })
}

/// `STEADFAST_SEEDS=1000` runs 1,000 seeds, starting at `STEADFAST_FIRST_SEED`.
#[test]
fn owners_are_reconciled_after_every_move() -> Result<(), TestError> {
    let number = |variable: &str, otherwise: u64| {
        std::env::var(variable).ok().and_then(|number| number.parse().ok()).unwrap_or(otherwise)
    };
    let (first, seeds) = (number("STEADFAST_FIRST_SEED", 0), number("STEADFAST_SEEDS", 30));
    for seed in first..first + seeds {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
        runtime.block_on(run_random_moves(seed))?;
    }
    Ok(())
}
