//! Finalizers: cleanup precedes the removal of an object, even if a step between them fails.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::Api;
use serde_json::{Value, json};
use steadfast::Scope;
use steadfast_apiserver::{InjectedResponse, RequestRule, Verb};
use steadfast_controller::{
    Action, ChangeFilter, Controller, FinalizerError, Finalizing, RunningController, Source, back_off, finalizer,
};
use steadfast_testing::{TestError, config_map};

use super::{ControllerFixture, EventLog, Failure, SECOND, advance};

const FINALIZER: &str = "example.com/own";

/// Starts a controller that logs each apply and cleanup. The cleanup of `stubborn` fails twice.
fn start_finalizing_controller(fixture: &ControllerFixture, log: &EventLog) -> Result<RunningController, TestError> {
    let (calls, maps) = (log.clone(), fixture.config_maps());
    let reconcile = move |map: Arc<ConfigMap>, maps: Arc<Api<ConfigMap>>| {
        let calls = calls.clone();
        async move {
            finalizer(&maps, FINALIZER, map, |event| async {
                match event {
                    Finalizing::Apply(map) => calls.record(format!("apply {}", map.name_any())),
                    Finalizing::Cleanup(map) => {
                        calls.record(format!("clean up {}", map.name_any()));
                        if map.name_any() == "stubborn" && calls.times("clean up stubborn").len() < 3 {
                            return Err(Failure("not yet".into()));
                        }
                    }
                }
                Ok(Action::await_change())
            })
            .await
        }
    };
    let controller = Controller::<ConfigMap>::new(&fixture.factory, Scope::all());
    Ok(controller.on_diagnostic(log.diagnostic_callback()).run(reconcile, back_off, Arc::new(maps))?)
}

/// Returns the new log entries without duplicates, because the write of the finalizer may lead to two reconciles.
fn take_deduplicated(log: &EventLog) -> Vec<String> {
    let mut events = log.take();
    events.dedup();
    events
}

fn finalizers(fixture: &ControllerFixture, name: &str) -> Result<Value, TestError> {
    Ok(fixture.server.get("configmaps", "default", name)?["metadata"]["finalizers"].clone())
}

#[tokio::test(start_paused = true)]
async fn finalizer_exists_from_apply_until_cleanup() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    let log = EventLog::default();
    let _controller = start_finalizing_controller(&fixture, &log)?;
    fixture.server.create(&config_map("a", "1"))?;
    advance(SECOND).await;
    assert_eq!(take_deduplicated(&log), ["apply a"]);
    assert_eq!(finalizers(&fixture, "a")?, json!([FINALIZER]));
    fixture.server.delete_named("configmaps", "default", "a")?;
    advance(SECOND).await;
    assert_eq!(log.take(), ["clean up a"]);
    assert!(fixture.server.get("configmaps", "default", "a").is_err(), "the object is removed");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn failed_cleanup_keeps_object() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    let log = EventLog::default();
    let _controller = start_finalizing_controller(&fixture, &log)?;
    fixture.server.create(&config_map("stubborn", "1"))?;
    advance(SECOND).await;
    fixture.server.delete_named("configmaps", "default", "stubborn")?;
    advance(10 * SECOND).await;
    assert_eq!(log.times("clean up stubborn").len(), 3);
    let failed = "reconcile of default/stubborn failed: cleanup failed, and the object stays: not yet;";
    assert_eq!(log.times(failed).len(), 2, "{:?}", log.all());
    assert!(fixture.server.get("configmaps", "default", "stubborn").is_err());
    Ok(())
}

/// The removal of the finalizer fails after the cleanup. For the object, this is equivalent to a program that ends
/// between the two, and a successor that repeats the cleanup.
#[tokio::test(start_paused = true)]
async fn unrecorded_cleanup_is_repeated() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    let log = EventLog::default();
    let _controller = start_finalizing_controller(&fixture, &log)?;
    fixture.server.create(&config_map("a", "1"))?;
    advance(SECOND).await;
    let patches = RequestRule::any().resource("configmaps").verb(Verb::Patch);
    fixture.server.faults().respond(patches.times(2), InjectedResponse::code(500));
    fixture.server.delete_named("configmaps", "default", "a")?;
    advance(60 * SECOND).await;
    assert_eq!(log.times("clean up a").len(), 3);
    let failed = "reconcile of default/a failed: cleanup succeeded, but cannot remove the finalizer example.com/own:";
    assert_eq!(log.times(failed).len(), 2, "{:?}", log.all());
    assert!(fixture.server.get("configmaps", "default", "a").is_err());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn apply_waits_for_finalizer_write() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    let log = EventLog::default();
    let _controller = start_finalizing_controller(&fixture, &log)?;
    let patches = RequestRule::any().resource("configmaps").verb(Verb::Patch);
    fixture.server.faults().respond(patches, InjectedResponse::code(500));
    fixture.server.create(&config_map("a", "1"))?;
    advance(60 * SECOND).await;
    assert_eq!(log.times("apply").len(), 0);
    fixture.server.faults().clear_rules();
    advance(300 * SECOND).await;
    assert!(!log.times("apply a").is_empty());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn foreign_finalizers_and_objects_are_preserved() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    let log = EventLog::default();
    let foreign_finalizers = json!({ "metadata": { "finalizers": ["example.com/first", "example.com/second"] } });
    fixture.server.create(&config_map("a", "1"))?;
    fixture.server.merge_patch("configmaps", "default", "a", foreign_finalizers)?;
    let _controller = start_finalizing_controller(&fixture, &log)?;
    advance(SECOND).await;
    assert_eq!(finalizers(&fixture, "a")?, json!(["example.com/first", "example.com/second", FINALIZER]));
    fixture.server.delete_named("configmaps", "default", "a")?;
    advance(SECOND).await;
    assert_eq!(finalizers(&fixture, "a")?, json!(["example.com/first", "example.com/second"]));
    assert_eq!(take_deduplicated(&log), ["apply a", "clean up a"]);

    // A stale object with the UID of a deleted one must not lead to a write to the new object.
    let deleted_object: ConfigMap = serde_json::from_value(fixture.server.create(&config_map("b", "1"))?)?;
    fixture.server.delete_named("configmaps", "default", "b")?;
    advance(SECOND).await;
    let recreated_object: ConfigMap = serde_json::from_value(fixture.server.create(&config_map("c", "1"))?)?;
    let kube::core::ObjectMeta { uid, resource_version, .. } = deleted_object.metadata;
    let stale_metadata = kube::core::ObjectMeta { uid, resource_version, ..recreated_object.metadata };
    let stale_object = ConfigMap { metadata: stale_metadata, ..recreated_object };
    let apply = |_| async { Ok::<_, Failure>(Action::await_change()) };
    finalizer(&fixture.config_maps(), "example.com/late", Arc::new(stale_object), apply).await?;
    assert!(!finalizers(&fixture, "c")?.to_string().contains("late"));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn concurrent_change_does_not_fail_finalizer() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    let created: ConfigMap = serde_json::from_value(fixture.server.create(&config_map("a", "1"))?)?;
    let foreign_finalizers = json!({ "metadata": { "finalizers": ["example.com/other"] } });
    fixture.server.merge_patch("configmaps", "default", "a", foreign_finalizers)?;
    let apply = |_| async { Ok::<_, Failure>(Action::await_change()) };
    finalizer(&fixture.config_maps(), FINALIZER, Arc::new(created), apply).await?;
    assert_eq!(finalizers(&fixture, "a")?, json!(["example.com/other", FINALIZER]));
    let result: Result<_, FinalizerError<Failure>> =
        finalizer(&fixture.config_maps(), "cleanup", Arc::new(config_map("a", "1")), apply).await;
    let message = result.map_err(|error| error.to_string());
    assert!(message.is_err_and(|error| error.contains("example.com/cleanup")), "the error proposes a valid name");
    Ok(())
}

/// An object was deleted after the cache's state and before its finalizer is added.
#[tokio::test(start_paused = true)]
async fn finalizer_of_deleted_object_is_skipped() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    let created: ConfigMap = serde_json::from_value(fixture.server.create(&config_map("a", "1"))?)?;
    fixture.server.delete_named("configmaps", "default", "a")?;
    let apply = |_| async { Ok::<_, Failure>(Action::await_change()) };
    let created = Arc::new(created);
    let action = finalizer(&fixture.config_maps(), FINALIZER, created.clone(), apply).await?;
    assert_eq!(action, Action::await_change(), "a requeue would repeat the request until the cache has the deletion");
    let everywhere = Api::<ConfigMap>::all(fixture.connection.client());
    let result: Result<_, FinalizerError<Failure>> = finalizer(&everywhere, FINALIZER, created, apply).await;
    assert!(matches!(result, Err(FinalizerError::Add { .. })), "the client is that of another path");

    // An object that another finalizer keeps is deleted too.
    let kept: ConfigMap = serde_json::from_value(fixture.server.create(&config_map("b", "1"))?)?;
    let foreign_finalizers = json!({ "metadata": { "finalizers": ["example.com/other"] } });
    fixture.server.merge_patch("configmaps", "default", "b", foreign_finalizers)?;
    fixture.server.delete_named("configmaps", "default", "b")?;
    let action = finalizer(&fixture.config_maps(), FINALIZER, Arc::new(kept), apply).await?;
    assert_eq!(action, Action::await_change());
    Ok(())
}

/// A finalizer does not change the generation, so its addition causes no reconcile behind a generation filter.
#[tokio::test(start_paused = true)]
async fn object_with_finalizer_is_applied_despite_filter() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    let log = EventLog::default();
    let calls = log.clone();
    let reconcile = move |deployment: Arc<Deployment>, all: Arc<Api<Deployment>>| {
        let calls = calls.clone();
        async move {
            finalizer(&all, FINALIZER, deployment, |event| {
                calls.record(match event {
                    Finalizing::Apply(_) => "apply",
                    Finalizing::Cleanup(_) => "clean up",
                });
                async { Ok::<_, Failure>(Action::await_change()) }
            })
            .await
        }
    };
    let deployments = Api::<Deployment>::namespaced(fixture.connection.client(), "default");
    let source = Source::from(Scope::all()).filter_changes(ChangeFilter::of_generation());
    let _controller =
        Controller::<Deployment>::new(&fixture.factory, source).run(reconcile, back_off, Arc::new(deployments))?;
    fixture.server.create(&json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "a", "namespace": "default" },
        "spec": {
            "selector": { "matchLabels": { "app": "a" } },
            "template": { "metadata": { "labels": { "app": "a" } }, "spec": { "containers": [{ "name": "a", "image": "a" }] } },
        },
    }))?;
    advance(10 * SECOND).await;
    assert_eq!(take_deduplicated(&log), ["apply"]);
    fixture.server.delete_named("deployments", "default", "a")?;
    advance(10 * SECOND).await;
    assert_eq!(log.take(), ["clean up"]);
    Ok(())
}
