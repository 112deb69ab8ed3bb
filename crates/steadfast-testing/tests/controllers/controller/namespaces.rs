//! Controllers of several namespaces, with permissions for those namespaces only.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::ResourceExt;
use serde_json::json;
use steadfast::{ObjectKey, Scope};
use steadfast_apiserver::{InjectedResponse, RequestRule, Verb};
use steadfast_controller::{Action, Controller, RunningController, Source, back_off};
use steadfast_testing::{TestError, config_map_in};

use super::{ControllerFixture, EventLog, Failure, SECOND, advance};

const TEAMS: [&str; 2] = ["team-a", "team-b"];

async fn fixture() -> Result<ControllerFixture, TestError> {
    let fixture = ControllerFixture::new().await?;
    for namespace in ["team-a", "team-b", "team-c"] {
        fixture
            .server
            .create(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }))?;
        fixture.server.create(&config_map_in(namespace, "x", "1"))?;
    }
    Ok(fixture)
}

/// Starts a controller that logs the key of each reconcile.
fn start_logging_controller(controller: Controller<ConfigMap>, log: &EventLog) -> Result<RunningController, TestError> {
    let calls = log.clone();
    let reconcile = move |map: Arc<ConfigMap>, _: Arc<()>| {
        calls.record(format!("{}/{}", map.namespace().unwrap_or_default(), map.name_any()));
        async { Ok::<_, Failure>(Action::await_change()) }
    };
    Ok(controller.on_diagnostic(log.diagnostic_callback()).run(reconcile, back_off, Arc::new(()))?)
}

fn take_sorted(log: &EventLog) -> Vec<String> {
    let mut entries = log.take();
    entries.sort_unstable();
    entries
}

fn pod_in(namespace: &str) -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "child", "namespace": namespace,
            "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u" }],
        },
        "spec": { "containers": [{ "name": "main", "image": "none" }] },
    })
}

/// Regression test: a program with permissions in two namespaces needed two controllers.
#[tokio::test(start_paused = true)]
async fn controller_of_two_namespaces_reconciles_both() -> Result<(), TestError> {
    let fixture = fixture().await?;
    let log = EventLog::default();
    let controller =
        Controller::new(&fixture.factory, Source::namespaces(TEAMS)).owns::<Pod>(Source::namespaces(TEAMS));
    let controller = start_logging_controller(controller, &log)?;
    advance(SECOND).await;
    assert_eq!(take_sorted(&log), ["team-a/x", "team-b/x"]);
    for namespace in ["team-a", "team-b", "team-c"] {
        fixture.server.create(&pod_in(namespace))?;
    }
    advance(SECOND).await;
    assert_eq!(take_sorted(&log), ["team-a/x", "team-b/x"]);
    fixture.server.merge_patch("configmaps", "team-b", "x", json!({ "data": { "value": "2" } }))?;
    fixture.server.merge_patch("configmaps", "team-c", "x", json!({ "data": { "value": "2" } }))?;
    advance(SECOND).await;
    assert_eq!(take_sorted(&log), ["team-b/x"]);
    let is_list = |verb| matches!(verb, Verb::List | Verb::Watch | Verb::StreamedList);
    let requests = fixture.server.requests();
    let mut lists = requests.iter().filter(|request| is_list(request.verb) && request.resource.is_some());
    assert!(lists.all(|request| request.path.contains("/namespaces/team-")), "no list covers all namespaces");

    let stop_report = controller.stop(SECOND).await;
    assert_eq!((stop_report.queued, stop_report.cancelled), (0, 0));
    fixture.server.merge_patch("configmaps", "team-a", "x", json!({ "data": { "value": "3" } }))?;
    advance(SECOND).await;
    assert_eq!(log.take(), [""; 0]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn relist_of_one_namespace_reconciles_all_objects() -> Result<(), TestError> {
    let fixture = fixture().await?;
    let log = EventLog::default();
    let _controller = start_logging_controller(Controller::new(&fixture.factory, Source::namespaces(TEAMS)), &log)?;
    advance(SECOND).await;
    log.take();
    fixture.network.cut();
    fixture.server.merge_patch("configmaps", "team-b", "x", json!({ "data": { "value": "2" } }))?;
    fixture.server.faults().expire_events();
    fixture.network.heal();
    advance(20 * SECOND).await;
    let calls = take_sorted(&log);
    assert!(calls.contains(&"team-a/x".to_owned()) && calls.contains(&"team-b/x".to_owned()), "{calls:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn keys_outside_of_all_namespaces_are_reported() -> Result<(), TestError> {
    let fixture = fixture().await?;
    let log = EventLog::default();
    for namespace in ["team-b", "team-c"] {
        fixture.server.create(&json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s", "namespace": namespace },
        }))?;
    }
    let keys_of = |secret: &steadfast::Object<Secret>| {
        secret.key().namespace().map(|namespace| ObjectKey::namespaced(namespace, "x"))
    };
    let controller =
        Controller::new(&fixture.factory, Source::namespaces(TEAMS)).watches::<Secret, _>(Scope::all(), keys_of);
    let controller = start_logging_controller(controller, &log)?;
    advance(SECOND).await;
    let calls = take_sorted(&log);
    let report = "secrets in all namespaces maps to team-c/x, which is outside configmaps in namespace team-a, configmaps in \
                  namespace team-b and never reconciled; ";
    assert_eq!(calls.len(), 3, "{calls:?}");
    assert!(calls[0].starts_with(report), "{calls:?}");
    assert_eq!(controller.stats().outside_scope, 1);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn sources_without_scopes_are_errors() -> Result<(), TestError> {
    let fixture = fixture().await?;
    let log = EventLog::default();
    let error = |controller| start_logging_controller(controller, &log).map(drop).map_err(|error| error.to_string());
    let no_namespaces: [&str; 0] = [];
    let empty = error(Controller::new(&fixture.factory, Source::namespaces(no_namespaces)));
    assert!(empty.is_err_and(|error| error.contains("a source has no scope; pass at least one namespace")));
    let controller = || Controller::new(&fixture.factory, Source::namespaces(TEAMS));
    let foreign_namespace_error = error(controller().owns::<Pod>(Source::namespaces(["team-a", "team-c"])));
    assert!(
        foreign_namespace_error
            .is_err_and(|error| error.contains("pods in namespace team-c cannot be owned by configmaps in"))
    );
    assert_eq!(error(controller().owns::<Pod>(Scope::all())), Ok(()));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn forbidden_namespace_delays_no_other_keys() -> Result<(), TestError> {
    let fixture = fixture().await?;
    let log = EventLog::default();
    fixture.server.faults().respond(RequestRule::any().namespace("team-a"), InjectedResponse::code(403));
    let maps = fixture.factory.multi_namespace_informer::<ConfigMap>(Scope::all().in_each(TEAMS))?;
    let controller = start_logging_controller(
        Controller::new(&fixture.factory, maps.clone()).owns::<Pod>(Source::namespaces(TEAMS)),
        &log,
    )?;
    advance(3 * SECOND).await;
    assert!(log.take().contains(&"team-b/x".to_owned()));
    advance(120 * SECOND).await;
    fixture.server.merge_patch("configmaps", "team-b", "x", json!({ "data": { "value": "2" } }))?;
    advance(SECOND).await;
    assert_eq!(log.take(), ["team-b/x"]);
    assert!(!controller.stats().paused);
    fixture.server.faults().clear_rules();
    advance(20 * SECOND).await;
    assert!(log.take().contains(&"team-a/x".to_owned()));
    assert_eq!(maps.lister()?.len(), 2);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn hanging_namespace_delays_no_other_start() -> Result<(), TestError> {
    let fixture = fixture().await?;
    let log = EventLog::default();
    fixture.server.faults().respond_after(
        RequestRule::any().namespace("team-a"),
        600 * SECOND,
        InjectedResponse::code(503),
    );
    let controller =
        Controller::new(&fixture.factory, Source::namespaces(TEAMS)).owns::<Pod>(Source::namespaces(TEAMS));
    let controller = start_logging_controller(controller, &log)?;
    advance(5 * SECOND).await;
    assert!(log.take().contains(&"team-b/x".to_owned()));
    // A key in a namespace whose cache has never synced must wait.
    controller.queue().add(ObjectKey::namespaced("team-a", "x"));
    advance(SECOND).await;
    assert!(controller.stats().paused);
    fixture.server.faults().clear_rules();
    advance(120 * SECOND).await;
    let calls = log.take();
    assert!(calls.contains(&"team-a/x".to_owned()), "{calls:?}");
    assert!(!controller.stats().paused);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn doubtful_namespace_pauses_only_its_keys() -> Result<(), TestError> {
    let fixture = fixture().await?;
    let log = EventLog::default();
    let controller = start_logging_controller(Controller::new(&fixture.factory, Source::namespaces(TEAMS)), &log)?;
    advance(SECOND).await;
    log.take();
    fixture.server.faults().respond(RequestRule::any().namespace("team-a"), InjectedResponse::code(403));
    fixture.server.faults().end_watches();
    advance(120 * SECOND).await;
    let report =
        "reconciles of the namespace team-a are paused, except for safe keys, because a cache is in doubt: configmaps";
    assert!(log.take().iter().any(|line| line.starts_with(report)));
    controller.queue().add(ObjectKey::namespaced("team-a", "x"));
    fixture.server.merge_patch("configmaps", "team-b", "x", json!({ "data": { "value": "2" } }))?;
    advance(SECOND).await;
    assert_eq!(log.take(), ["team-b/x"]);

    // The cache of the other namespace is in doubt as well, and later fresh again.
    fixture.server.faults().respond(RequestRule::any().namespace("team-b"), InjectedResponse::code(403));
    fixture.server.faults().end_watches();
    advance(120 * SECOND).await;
    controller.queue().add(ObjectKey::namespaced("team-b", "x"));
    advance(SECOND).await;
    assert_eq!(log.take(), [""; 0]);
    fixture.server.faults().clear_rules();
    advance(60 * SECOND).await;
    let mut calls = log.take();
    calls.retain(|call| !call.starts_with("reconciles resume"));
    calls.sort_unstable();
    assert_eq!(calls, ["team-a/x", "team-b/x"]);
    assert!(!controller.stats().paused);
    Ok(())
}
