//! Controllers continue when a stopped informer is requested again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Patch, PatchParams};
use kube::core::{ObjectMeta, PartialObjectMeta};
use serde_json::json;
use steadfast::{ObjectKey, Scope};
use steadfast_controller::{Action, Controller, RunningController, StalePolicy, back_off};
use steadfast_testing::{TestError, config_map};

use super::{ControllerFixture, EventLog, Failure, SECOND, advance, key};

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

/// Runs a controller and logs the values of the reconciled objects.
fn run_by_value(
    log: &EventLog,
    controller: Controller<ConfigMap>,
) -> Result<RunningController, steadfast_controller::RunError> {
    let reconciled = log.clone();
    controller.run(
        move |map: Arc<ConfigMap>, _: Arc<()>| {
            reconciled.record(map.data.as_ref().and_then(|data| data.get("value")).cloned().unwrap_or_default());
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
    let _controller = run_by_value(&log, Controller::new(&fixture.factory, Scope::all()))?;
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

/// Regression test: the stop of an informer ended the wait for a reconcile's own writes. Each further reconcile then
/// repeated the write, until the staleness gate closed.
#[tokio::test(start_paused = true)]
async fn stopped_cache_causes_no_repeated_write() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let (log, is_armed) = (EventLog::default(), Arc::new(AtomicBool::new(false)));
    let (calls, maps, writes) = (log.clone(), fixture.config_maps(), is_armed.clone());
    let controller = Controller::<ConfigMap>::new(&fixture.factory, Scope::all()).run(
        move |map: Arc<ConfigMap>, _: Arc<()>| {
            let (calls, maps, writes) = (calls.clone(), maps.clone(), writes.clone());
            async move {
                let is_original = map.data.as_ref().is_some_and(|data| data["value"] == "1");
                if is_original && writes.load(Ordering::SeqCst) {
                    calls.record("write");
                    let patch = Patch::Merge(json!({ "data": { "value": "own" } }));
                    maps.patch("a", &PatchParams::default(), &patch).await?;
                } else {
                    calls.record("no write");
                }
                Ok::<_, kube::Error>(Action::await_change())
            }
        },
        back_off,
        Arc::new(()),
    )?;
    advance(SECOND).await;
    assert_eq!(log.take(), ["no write"]);
    fixture.factory.informer::<ConfigMap>(Scope::all())?.stop();
    is_armed.store(true, Ordering::SeqCst);
    for _ in 0..6 {
        controller.queue().add(key("a"));
        advance(2 * SECOND).await;
    }
    assert_eq!(log.take(), ["write"]);
    let stats = controller.stats();
    assert!(!stats.paused && stats.waiting_for_writes == 1, "{stats:?}");

    let _again = fixture.factory.informer::<ConfigMap>(Scope::all())?;
    advance(5 * SECOND).await;
    let events = log.take();
    assert!(!events.is_empty() && events.iter().all(|event| event == "no write"), "{events:?}");
    assert_eq!(controller.stats().waiting_for_writes, 0);
    Ok(())
}

/// Regression test: the stop of an informer ended the wait for the writes of another process.
#[tokio::test(start_paused = true)]
async fn stopped_cache_delays_first_reconcile() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let log = EventLog::default();
    let (release_start, start_released) = tokio::sync::oneshot::channel::<()>();
    let controller = Controller::new(&fixture.factory, Scope::all());
    let controller = run_by_value(&log, controller.start_after(async { drop(start_released.await) }))?;
    advance(SECOND).await;
    fixture.factory.informer::<ConfigMap>(Scope::all())?.stop();
    fixture.write("a", "2")?;
    drop(release_start);
    advance(10 * SECOND).await;
    assert_eq!(log.take(), [""; 0]);
    assert!(controller.stats().catching_up);

    let _again = fixture.factory.informer::<ConfigMap>(Scope::all())?;
    advance(10 * SECOND).await;
    let values = log.take();
    assert!(!values.is_empty() && values.iter().all(|value| value == "2"), "{values:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn stop_ends_wait_on_stopped_cache() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let maps = fixture.config_maps();
    let controller = Controller::<ConfigMap>::new(&fixture.factory, Scope::all()).run(
        move |_: Arc<ConfigMap>, _: Arc<()>| {
            let maps = maps.clone();
            async move {
                let patch = Patch::Merge(json!({ "data": { "value": "own" } }));
                maps.patch("a", &PatchParams::default(), &patch).await?;
                Ok::<_, kube::Error>(Action::await_change())
            }
        },
        back_off,
        Arc::new(()),
    )?;
    advance(SECOND).await;
    fixture.factory.informer::<ConfigMap>(Scope::all())?.stop();
    fixture.write("a", "2")?;
    for _ in 0..2 {
        controller.queue().add(key("a"));
        advance(2 * SECOND).await;
    }
    assert_eq!(controller.stats().waiting_for_writes, 1);
    fixture.assert_stop_closes_connections(controller).await;
    Ok(())
}
