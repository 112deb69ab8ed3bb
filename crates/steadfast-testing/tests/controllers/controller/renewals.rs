//! Controllers continue when a stopped informer is requested again.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::{ObjectMeta, PartialObjectMeta};
use steadfast::{ObjectKey, Scope};
use steadfast_controller::{Action, Controller, RunningController, StalePolicy, back_off};
use steadfast_testing::{TestError, config_map};

use super::{ControllerFixture, EventLog, Failure, SECOND, advance};

/// Runs a controller by key and logs the reconciled keys.
fn run_by_key(
    log: &EventLog,
    controller: Controller<ConfigMap>,
) -> Result<RunningController, steadfast_controller::RunError> {
    let reconciled = log.clone();
    controller.stale_policy(StalePolicy::pause_after(10 * SECOND)).run_by_key(
        move |key: ObjectKey, _: Arc<()>| {
            reconciled.record(key.name());
            async { Ok::<_, Failure>(Action::await_change()) }
        },
        back_off,
        Arc::new(()),
    )
}

#[tokio::test(start_paused = true)]
async fn controller_resumes_with_requested_informer() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    for name in ["changed", "deleted", "kept"] {
        fixture.server.create(&config_map(name, "1"))?;
    }
    let log = EventLog::default();
    let controller = run_by_key(&log, Controller::new(&fixture.factory, Scope::all()))?;
    advance(SECOND).await;
    log.take();
    fixture.factory.informer::<ConfigMap>(Scope::all())?.stop();
    advance(20 * SECOND).await;
    assert!(controller.stats().paused, "a stopped cache is not reliable");
    fixture.write("changed", "2")?;
    fixture.server.delete(&config_map("deleted", "1"))?;
    advance(20 * SECOND).await;
    assert_eq!(log.take(), [""; 0]);

    let next_informer = fixture.factory.informer::<ConfigMap>(Scope::all())?;
    advance(5 * SECOND).await;
    let mut reconciled = log.take();
    reconciled.sort();
    reconciled.dedup();
    assert_eq!(reconciled, ["changed", "deleted", "kept"]);
    assert!(!controller.stats().paused);
    drop(next_informer);
    fixture.write("kept", "2")?;
    advance(5 * SECOND).await;
    assert_eq!(log.take(), ["kept"]);

    controller.stop(SECOND).await;
    advance(SECOND).await;
    assert_eq!(fixture.server.open_watches(0), 0, "the controller held the last handle");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn run_reads_cache_of_requested_informer() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let log = EventLog::default();
    let reconciled = log.clone();
    let _controller = Controller::<ConfigMap>::new(&fixture.factory, Scope::all()).run(
        move |map: Arc<ConfigMap>, _: Arc<()>| {
            reconciled.record(map.data.as_ref().and_then(|data| data.get("value")).cloned().unwrap_or_default());
            async { Ok::<_, Failure>(Action::await_change()) }
        },
        back_off,
        Arc::new(()),
    )?;
    advance(SECOND).await;
    fixture.factory.informer::<ConfigMap>(Scope::all())?.stop();
    fixture.write("a", "2")?;
    let _again = fixture.factory.informer::<ConfigMap>(Scope::all())?;
    advance(5 * SECOND).await;
    assert_eq!(log.take(), ["1", "2"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn child_deleted_after_stop_reconciles_owner() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    let owner = fixture.server.create(&config_map("owner", "1"))?;
    let reference = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        name: "owner".to_owned(),
        uid: owner["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
        ..OwnerReference::default()
    };
    let metadata = ObjectMeta {
        name: Some("child".to_owned()),
        namespace: Some("default".to_owned()),
        owner_references: Some(vec![reference]),
        ..ObjectMeta::default()
    };
    let child = Secret { metadata, ..Secret::default() };
    fixture.server.create(&child)?;
    let log = EventLog::default();
    let controller = Controller::new(&fixture.factory, Scope::all()).owns::<Secret>(Scope::all());
    let _controller = run_by_key(&log, controller)?;
    advance(SECOND).await;
    log.take();
    let children = fixture.factory.informer::<PartialObjectMeta<Secret>>(Scope::all())?;
    children.stop();
    fixture.server.delete(&child)?;
    let _again = fixture.factory.informer::<PartialObjectMeta<Secret>>(Scope::all())?;
    advance(5 * SECOND).await;
    assert_eq!(log.take(), ["owner"]);
    Ok(())
}
