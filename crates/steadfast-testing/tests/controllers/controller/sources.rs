//! Sources of reconciles.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Secret, Service};
use kube::ResourceExt;
use kube::api::{ApiResource, DynamicObject};
use serde_json::json;
use steadfast::{ObjectKey, Scope};
use steadfast_apiserver::{InjectedResponse, RequestRule};
use steadfast_controller::{Action, ChangeFilter, Controller, RunningController, Source, back_off};
use steadfast_testing::{TestError, config_map, config_map_in, widget_definition};

use super::{ControllerFixture, EventLog, Failure, SECOND, advance, key};

/// Starts a controller that logs the name of each reconciled object.
fn start_logging_controller(controller: Controller<ConfigMap>, log: &EventLog) -> Result<RunningController, TestError> {
    let calls = log.clone();
    let reconcile = move |map: Arc<ConfigMap>, _: Arc<()>| {
        calls.record(map.name_any());
        async { Ok::<_, Failure>(Action::await_change()) }
    };
    Ok(controller.on_diagnostic(log.diagnostic_callback()).run(reconcile, back_off, Arc::new(()))?)
}

fn pod_of(name: &str, owners: &[(&str, &str, &str)]) -> serde_json::Value {
    let owners: Vec<_> = owners
        .iter()
        .map(|(version, kind, name)| json!({ "apiVersion": version, "kind": kind, "name": name, "uid": "u" }))
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "default", "ownerReferences": owners },
        "spec": { "containers": [{ "name": "main", "image": "none" }] },
    })
}

#[tokio::test(start_paused = true)]
async fn added_and_updated_objects_are_reconciled() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    fixture.server.create(&config_map("b", "1"))?;
    let log = EventLog::default();
    let _controller = start_logging_controller(Controller::new(&fixture.factory, Scope::all()), &log)?;
    advance(SECOND).await;
    assert_eq!(log.take(), ["a", "b"]);
    fixture.write("b", "2")?;
    advance(SECOND).await;
    assert_eq!(log.take(), ["b"]);
    fixture.server.delete_named("configmaps", "default", "a")?;
    fixture.server.create(&config_map("c", "1"))?;
    advance(SECOND).await;
    assert_eq!(log.take(), ["c"], "deleted objects are not reconciled by object");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn keyed_controller_reconciles_deleted_objects() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let log = EventLog::default();
    let calls = log.clone();
    let reconcile = move |key: ObjectKey, _: Arc<()>| {
        calls.record(key.to_string());
        async { Ok::<_, Failure>(Action::await_change()) }
    };
    let _controller =
        Controller::<ConfigMap>::new(&fixture.factory, Scope::all()).run_by_key(reconcile, back_off, Arc::new(()))?;
    advance(SECOND).await;
    fixture.server.delete_named("configmaps", "default", "a")?;
    advance(SECOND).await;
    assert_eq!(log.take(), ["default/a", "default/a"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn owned_objects_enqueue_owners_of_any_version() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    fixture.server.create(&config_map("b", "1"))?;
    let log = EventLog::default();
    let controller = Controller::new(&fixture.factory, Scope::all()).owns::<Pod>(Scope::all());
    let _controller = start_logging_controller(controller, &log)?;
    advance(SECOND).await;
    log.take();
    fixture
        .server
        .create(&pod_of("one", &[("v1", "ConfigMap", "a"), ("v1", "Secret", "b"), ("apps/v1", "ConfigMap", "b")]))?;
    advance(SECOND).await;
    assert_eq!(log.take(), ["a"]);
    let changed_owner = json!({ "metadata": { "ownerReferences": [{ "apiVersion": "v9", "kind": "ConfigMap", "name": "b", "uid": "u" }] } });
    fixture.server.merge_patch("pods", "default", "one", changed_owner)?;
    advance(SECOND).await;
    let mut keys = log.take();
    keys.sort_unstable();
    assert_eq!(keys, ["a", "b"], "the old owner and the new one");
    fixture.server.delete_named("pods", "default", "one")?;
    advance(SECOND).await;
    assert_eq!(log.take(), ["b"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn watched_objects_enqueue_old_and_new_keys() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    for name in ["a", "b"] {
        fixture.server.create(&config_map(name, "1"))?;
    }
    let log = EventLog::default();
    let keys_of = |secret: &steadfast::Object<Secret>| secret.annotations().get("for").map(|name| key(name));
    let controller = Controller::new(&fixture.factory, Scope::all()).watches::<Secret, _>(Scope::all(), keys_of);
    let _controller = start_logging_controller(controller, &log)?;
    advance(SECOND).await;
    log.take();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": "s", "namespace": "default", "annotations": { "for": "a" } },
    });
    fixture.server.create(&secret)?;
    advance(SECOND).await;
    assert_eq!(log.take(), ["a"]);
    fixture.server.merge_patch("secrets", "default", "s", json!({ "metadata": { "annotations": { "for": "b" } } }))?;
    advance(SECOND).await;
    let mut keys = log.take();
    keys.sort_unstable();
    assert_eq!(keys, ["a", "b"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn stream_and_queue_trigger_reconciles() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let log = EventLog::default();
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    let keys = futures::stream::unfold(receiver, |mut receiver| async move {
        let key = receiver.recv().await?;
        Some((key, receiver))
    });
    let controller =
        start_logging_controller(Controller::new(&fixture.factory, Scope::all()).triggered_by(keys), &log)?;
    advance(SECOND).await;
    log.take();
    sender.send(key("a"))?;
    advance(SECOND).await;
    controller.queue().add(key("a"));
    controller.queue().add(key("nobody"));
    advance(SECOND).await;
    assert_eq!(log.take(), ["a", "a"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn predicates_filter_changes_but_not_deletions() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let log = EventLog::default();
    let source = Source::from(Scope::all()).filter_changes(ChangeFilter::of_labels());
    let _controller = start_logging_controller(Controller::new(&fixture.factory, source), &log)?;
    advance(SECOND).await;
    log.take();
    fixture.write("a", "2")?;
    advance(SECOND).await;
    assert_eq!(log.take(), [""; 0]);
    fixture.server.merge_patch("configmaps", "default", "a", json!({ "metadata": { "labels": { "x": "y" } } }))?;
    advance(SECOND).await;
    assert_eq!(log.take(), ["a"]);
    fixture.server.merge_patch("configmaps", "default", "a", json!({ "metadata": { "finalizers": ["x.io/y"] } }))?;
    advance(SECOND).await;
    assert_eq!(log.take(), [""; 0]);
    fixture.server.delete_named("configmaps", "default", "a")?;
    advance(SECOND).await;
    assert_eq!(log.take(), ["a"], "the object has a deletion timestamp");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn resync_enqueues_objects_after_changes() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let log = EventLog::default();
    let source = Source::from(Scope::all()).filter_changes(ChangeFilter::of_labels()).resync(10 * SECOND);
    let _controller = start_logging_controller(Controller::new(&fixture.factory, source), &log)?;
    advance(65 * SECOND).await;
    let calls = log.take().len();
    assert!((6..=8).contains(&calls), "{calls}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn relist_enqueues_all_objects() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    for name in ["a", "b"] {
        fixture.server.create(&config_map(name, "1"))?;
    }
    let log = EventLog::default();
    let _controller = start_logging_controller(Controller::new(&fixture.factory, Scope::all()), &log)?;
    advance(SECOND).await;
    log.take();
    fixture.network.cut();
    fixture.write("b", "2")?;
    fixture.server.faults().expire_events();
    fixture.network.heal();
    advance(20 * SECOND).await;
    let calls = log.take();
    assert!(calls.contains(&"a".to_owned()) && calls.contains(&"b".to_owned()) && calls.len() <= 3, "{calls:?}");
    advance(60 * SECOND).await;
    assert_eq!(log.take(), [""; 0]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn panicking_mapping_loses_no_key() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let log = EventLog::default();
    let keys_of = |secret: &steadfast::Object<Secret>| {
        assert!(secret.name_any() != "bad", "by design");
        None
    };
    let controller = Controller::new(&fixture.factory, Scope::all()).watches::<Secret, _>(Scope::all(), keys_of);
    let _controller = start_logging_controller(controller, &log)?;
    advance(SECOND).await;
    log.take();
    for name in ["good", "bad"] {
        let secret =
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": "default" } });
        fixture.server.create(&secret)?;
        advance(SECOND).await;
    }
    assert_eq!(log.take(), ["the mapping of objects to keys panicked: by design", "a"]);
    Ok(())
}

/// Reproduces stackabletech/trino-operator#936: one rejected watch delayed all other watches of the operator.
#[tokio::test(start_paused = true)]
async fn rejected_source_delays_no_other() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    fixture.server.faults().respond(RequestRule::any().resource("services"), InjectedResponse::code(403));
    fixture.server.faults().respond(RequestRule::any().resource("secrets"), InjectedResponse::code(404));
    fixture.server.create(&config_map("a", "1"))?;
    let log = EventLog::default();
    let keys_of = |_: &steadfast::Object<Service>| [key("a")];
    let controller = Controller::new(&fixture.factory, Scope::all())
        .owns::<Secret>(Scope::all())
        .watches::<Service, _>(Scope::all(), keys_of)
        .watches::<Node, _>(Scope::all(), |_| [key("a")]);
    let controller = start_logging_controller(controller, &log)?;
    advance(5 * SECOND).await;
    let events = log.take();
    assert_eq!(events.iter().filter(|text| *text == "a").count(), 1, "{events:?}");
    let unavailable_events: Vec<_> = events.iter().filter(|text| text.starts_with("a source is unavailable")).collect();
    assert!(
        unavailable_events.len() == 2
            && unavailable_events[0].contains("secrets in all")
            && unavailable_events[1].contains("services in all"),
        "{events:?}"
    );

    // For an hour, changes of the two other sources lead to reconciles immediately.
    for round in 0..60 {
        advance(60 * SECOND).await;
        log.take();
        fixture.write("a", &round.to_string())?;
        advance(Duration::from_millis(500)).await;
        assert_eq!(log.take(), ["a"], "round {round}");
        fixture
            .server
            .create(&json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": format!("n{round}") } }))?;
        advance(Duration::from_millis(500)).await;
        assert_eq!(log.take(), ["a"], "round {round}");
    }
    assert_eq!(controller.stats().pauses, 0);

    // Once allowed, the rejected sources lead to reconciles too.
    fixture.server.create(&json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "s", "namespace": "default" }, "spec": { "ports": [{ "port": 80 }] },
    }))?;
    fixture.server.faults().clear_rules();
    advance(120 * SECOND).await;
    assert_eq!(log.take(), ["a"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn controllers_share_factory_and_informers() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let (first_log, second_log) = (EventLog::default(), EventLog::default());
    let first = start_logging_controller(Controller::new(&fixture.factory, Scope::all()), &first_log)?;
    let _second = start_logging_controller(Controller::new(&fixture.factory, Scope::all()), &second_log)?;
    advance(SECOND).await;
    assert_eq!((first_log.take(), second_log.take()), (vec!["a".to_owned()], vec!["a".to_owned()]));
    assert_eq!(fixture.server.open_watches(0), 1);
    first.stop(SECOND).await;
    fixture.write("a", "2")?;
    advance(SECOND).await;
    assert_eq!(
        (first_log.take(), second_log.take()),
        (vec![], vec!["a".to_owned()]),
        "only the controller that still runs"
    );
    Ok(())
}

fn deployment_of(owner: &str) -> serde_json::Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "child", "namespace": "default",
            "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": "u" }],
        },
        "spec": {
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "main", "image": "none" }] },
            },
        },
    })
}

/// Returns the names of the objects that were reconciled since the last call, in alphabetical order.
fn reconciled(log: &EventLog) -> Vec<String> {
    let mut names = log.take();
    names.sort_unstable();
    names
}

/// Regression test: the predicate ran before the mapping. It dropped changes of an object's owner.
#[tokio::test(start_paused = true)]
async fn owner_change_passes_any_filter_of_changes() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    for name in ["a", "b"] {
        fixture.server.create(&config_map(name, "1"))?;
    }
    fixture.server.create(&deployment_of("a"))?;
    let log = EventLog::default();
    let source = Source::from(Scope::all()).filter_changes(ChangeFilter::of_generation());
    let controller = Controller::new(&fixture.factory, Scope::all()).owns::<Deployment>(source);
    let _controller = start_logging_controller(controller, &log)?;
    advance(SECOND).await;
    log.take();
    let patch = |owners: serde_json::Value| {
        let patch = json!({ "metadata": { "ownerReferences": owners } });
        fixture.server.merge_patch("deployments", "default", "child", patch)
    };
    patch(json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "b", "uid": "u" }]))?;
    advance(SECOND).await;
    assert_eq!(reconciled(&log), ["a", "b"], "the old owner and the new one");
    patch(json!(null))?;
    advance(SECOND).await;
    assert_eq!(reconciled(&log), ["b"], "the owner that lost its child");
    let annotated = json!({ "metadata": { "annotations": { "note": "1" } } });
    fixture.server.merge_patch("deployments", "default", "child", annotated)?;
    advance(SECOND).await;
    assert_eq!(reconciled(&log), [""; 0], "a change that the filter excludes");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn mapped_key_change_passes_any_predicate() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    for name in ["a", "b"] {
        fixture.server.create(&config_map(name, "1"))?;
    }
    let log = EventLog::default();
    let keys_of = |secret: &steadfast::Object<Secret>| {
        let names = secret.annotations().get("for").map(|names| names.split(',').map(key).collect::<Vec<_>>());
        names.unwrap_or_default()
    };
    let source = Source::from(Scope::all()).filter_changes(ChangeFilter::of_labels());
    let controller = Controller::new(&fixture.factory, Scope::all()).watches::<Secret, _>(source, keys_of);
    let _controller = start_logging_controller(controller, &log)?;
    fixture.server.create(&json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": "s", "namespace": "default", "annotations": { "for": "a" } },
    }))?;
    advance(SECOND).await;
    log.take();
    let annotate = |annotations: serde_json::Value| {
        fixture.server.merge_patch("secrets", "default", "s", json!({ "metadata": { "annotations": annotations } }))
    };
    annotate(json!({ "for": "b,a" }))?;
    advance(SECOND).await;
    assert_eq!(reconciled(&log), ["a", "b"]);
    annotate(json!({ "for": "a,b", "other": "1" }))?;
    advance(SECOND).await;
    assert_eq!(reconciled(&log), [""; 0], "the same keys in another order");
    annotate(json!({ "for": null }))?;
    advance(SECOND).await;
    assert_eq!(reconciled(&log), ["a", "b"]);
    Ok(())
}

/// Returns the definition of a cluster-scoped custom resource `tenants`.
pub(super) fn tenant_definition() -> serde_json::Value {
    let mut definition = widget_definition("x.example");
    definition["metadata"]["name"] = json!("tenants.x.example");
    definition["spec"]["scope"] = json!("Cluster");
    definition["spec"]["names"] = json!({ "plural": "tenants", "singular": "tenant", "kind": "Tenant" });
    definition
}

pub(super) fn kind_of(kind: &str) -> ApiResource {
    ApiResource {
        group: "x.example".to_owned(),
        version: "v1".to_owned(),
        api_version: "x.example/v1".to_owned(),
        kind: kind.to_owned(),
        plural: format!("{}s", kind.to_lowercase()),
    }
}

/// Regression test: the scope of a `DynamicObject` is unknown. The controller assumed a namespaced kind.
#[tokio::test(start_paused = true)]
async fn dynamic_owner_is_reconciled_in_either_scope() -> Result<(), TestError> {
    for (definition, kind, namespace) in
        [(tenant_definition(), "Tenant", None), (widget_definition("x.example"), "Widget", Some("default"))]
    {
        let fixture = ControllerFixture::new().await?;
        fixture.server.create(&definition)?;
        let kind = kind_of(kind);
        fixture.server.create(&json!({
            "apiVersion": kind.api_version, "kind": kind.kind, "metadata": { "name": "acme", "namespace": namespace },
        }))?;
        let log = EventLog::default();
        let calls = log.clone();
        let owners = fixture.factory.informer_with::<DynamicObject>(&kind, Scope::all())?;
        let _controller = Controller::new_with(&fixture.factory, kind.clone(), owners)
            .owns::<Pod>(Scope::all())
            .on_diagnostic(log.diagnostic_callback())
            .run(
                move |object: Arc<DynamicObject>, _: Arc<()>| {
                    calls.record(object.name_any());
                    async { Ok::<_, Failure>(Action::await_change()) }
                },
                back_off,
                Arc::new(()),
            )?;
        advance(SECOND).await;
        assert_eq!(log.take(), ["acme"], "{}", kind.kind);
        fixture.server.create(&pod_of("child", &[("x.example/v1", &kind.kind, "acme")]))?;
        advance(SECOND).await;
        assert_eq!(log.take(), ["acme"], "{}", kind.kind);
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn unseen_dynamic_owner_has_both_keys() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    fixture.server.create(&tenant_definition())?;
    let kind = kind_of("Tenant");
    let log = EventLog::default();
    let calls = log.clone();
    let owners = fixture.factory.informer_with::<DynamicObject>(&kind, Scope::all())?;
    let _controller = Controller::new_with(&fixture.factory, kind, owners).owns::<Pod>(Scope::all()).run_by_key(
        move |key: ObjectKey, _: Arc<()>| {
            calls.record(key.to_string());
            async { Ok::<_, Failure>(Action::await_change()) }
        },
        back_off,
        Arc::new(()),
    )?;
    advance(SECOND).await;
    fixture.server.create(&pod_of("first", &[("x.example/v1", "Tenant", "acme")]))?;
    advance(SECOND).await;
    assert_eq!(reconciled(&log), ["acme", "default/acme"]);
    fixture
        .server
        .create(&json!({ "apiVersion": "x.example/v1", "kind": "Tenant", "metadata": { "name": "other" } }))?;
    advance(SECOND).await;
    assert_eq!(reconciled(&log), ["other"]);
    fixture.server.create(&pod_of("second", &[("x.example/v1", "Tenant", "acme")]))?;
    advance(SECOND).await;
    assert_eq!(reconciled(&log), ["acme"]);
    Ok(())
}

/// Regression test: keys outside the scope were never reconciled, and no diagnostic reported them.
#[tokio::test(start_paused = true)]
async fn keys_outside_the_scope_are_reported_once() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    for namespace in ["team-a", "team-b"] {
        fixture
            .server
            .create(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }))?;
        for name in ["x", "y"] {
            fixture.server.create(&config_map_in(namespace, name, "1"))?;
        }
    }
    let log = EventLog::default();
    let controller = Controller::new(&fixture.factory, Scope::namespace("team-a"))
        .watches::<ConfigMap, _>(Scope::namespace("team-b"), |map| [map.key().clone()])
        .triggered_by(futures::stream::iter([ObjectKey::cluster("x"), ObjectKey::namespaced("team-a", "x")]));
    let controller = start_logging_controller(controller, &log)?;
    advance(SECOND).await;
    let prefix = |source: &str, key: &str| {
        format!("{source} maps to {key}, which is outside configmaps in namespace team-a and never reconciled; ")
    };
    let notes = log.take();
    for (source, key) in [("configmaps in namespace team-b", "team-b/x"), ("a stream of keys", "x")] {
        let count = notes.iter().filter(|note| note.starts_with(&prefix(source, key))).count();
        assert_eq!(count, 1, "{source}: {notes:?}");
    }
    assert_eq!(notes.len(), 2 + 2, "two reports, and the objects of team-a: {notes:?}");
    assert_eq!(controller.stats().outside_scope, 3);

    // `run_by_key` also reconciles keys outside the scope.
    let calls = log.clone();
    let by_key = Controller::<ConfigMap>::new(&fixture.factory, Scope::namespace("team-a"))
        .watches::<ConfigMap, _>(Scope::namespace("team-b"), |map| [map.key().clone()])
        .on_diagnostic(log.diagnostic_callback())
        .run_by_key(
            move |key: ObjectKey, _: Arc<()>| {
                calls.record(key.to_string());
                async { Ok::<_, Failure>(Action::await_change()) }
            },
            back_off,
            Arc::new(()),
        )?;
    advance(SECOND).await;
    assert_eq!(reconciled(&log), ["team-a/x", "team-a/y", "team-b/x", "team-b/y"]);
    assert_eq!(by_key.stats().outside_scope, 0);
    Ok(())
}
