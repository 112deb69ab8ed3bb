//! What leads to calls.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Secret, Service};
use kube::ResourceExt;
use serde_json::json;
use steadfast::{ObjectKey, Scope};
use steadfast_apiserver::{Answer, RequestRule};
use steadfast_controller::{Action, Changes, Controller, RunningController, Source, back_off};
use steadfast_testing::{WorldError, config_map};

use super::{Failure, SECOND, Told, World, key, pass};

/// Says for what it is called.
fn telling(controller: Controller<ConfigMap>, told: &Told) -> Result<RunningController, WorldError> {
    let calls = told.clone();
    let reconcile = move |map: Arc<ConfigMap>, _: Arc<()>| {
        calls.say(map.name_any());
        async { Ok::<_, Failure>(Action::await_change()) }
    };
    Ok(controller.on_note(told.notes()).run(reconcile, back_off, Arc::new(()))?)
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
async fn an_object_is_called_for_when_it_is_there_and_when_it_changes() -> Result<(), WorldError> {
    let world = World::new().await?;
    world.server.create(&config_map("a", "1"))?;
    world.server.create(&config_map("b", "1"))?;
    let told = Told::default();
    let _controller = telling(Controller::new(&world.factory, Scope::all()), &told)?;
    pass(SECOND).await;
    assert_eq!(told.take(), ["a", "b"]);
    world.write("b", "2")?;
    pass(SECOND).await;
    assert_eq!(told.take(), ["b"]);
    world.server.delete_named("configmaps", "default", "a")?;
    world.server.create(&config_map("c", "1"))?;
    pass(SECOND).await;
    assert_eq!(told.take(), ["c"], "what is gone is not called for by its object");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn by_key_it_is_called_for_what_is_gone_too() -> Result<(), WorldError> {
    let world = World::new().await?;
    world.server.create(&config_map("a", "1"))?;
    let told = Told::default();
    let calls = told.clone();
    let reconcile = move |key: ObjectKey, _: Arc<()>| {
        calls.say(key.to_string());
        async { Ok::<_, Failure>(Action::await_change()) }
    };
    let _controller =
        Controller::<ConfigMap>::new(&world.factory, Scope::all()).run_by_key(reconcile, back_off, Arc::new(()))?;
    pass(SECOND).await;
    world.server.delete_named("configmaps", "default", "a")?;
    pass(SECOND).await;
    assert_eq!(told.take(), ["default/a", "default/a"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_is_owned_leads_to_its_owners_of_this_kind_whatever_their_version() -> Result<(), WorldError> {
    let world = World::new().await?;
    world.server.create(&config_map("a", "1"))?;
    world.server.create(&config_map("b", "1"))?;
    let told = Told::default();
    let controller = Controller::new(&world.factory, Scope::all()).owns::<Pod>(Scope::all());
    let _controller = telling(controller, &told)?;
    pass(SECOND).await;
    told.take();
    world
        .server
        .create(&pod_of("one", &[("v1", "ConfigMap", "a"), ("v1", "Secret", "b"), ("apps/v1", "ConfigMap", "b")]))?;
    pass(SECOND).await;
    assert_eq!(told.take(), ["a"]);
    let moved = json!({ "metadata": { "ownerReferences": [{ "apiVersion": "v9", "kind": "ConfigMap", "name": "b", "uid": "u" }] } });
    world.server.merge_patch("pods", "default", "one", moved)?;
    pass(SECOND).await;
    let mut both = told.take();
    both.sort_unstable();
    assert_eq!(both, ["a", "b"], "whose it was, and whose it is");
    world.server.delete_named("pods", "default", "one")?;
    pass(SECOND).await;
    assert_eq!(told.take(), ["b"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_is_watched_leads_where_the_user_says_before_and_after() -> Result<(), WorldError> {
    let world = World::new().await?;
    for name in ["a", "b"] {
        world.server.create(&config_map(name, "1"))?;
    }
    let told = Told::default();
    let of = |secret: &steadfast::Object<Secret>| secret.annotations().get("for").map(|name| key(name));
    let controller = Controller::new(&world.factory, Scope::all()).watches::<Secret, _>(Scope::all(), of);
    let _controller = telling(controller, &told)?;
    pass(SECOND).await;
    told.take();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": "s", "namespace": "default", "annotations": { "for": "a" } },
    });
    world.server.create(&secret)?;
    pass(SECOND).await;
    assert_eq!(told.take(), ["a"]);
    world.server.merge_patch("secrets", "default", "s", json!({ "metadata": { "annotations": { "for": "b" } } }))?;
    pass(SECOND).await;
    let mut both = told.take();
    both.sort_unstable();
    assert_eq!(both, ["a", "b"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn keys_may_come_from_anywhere() -> Result<(), WorldError> {
    let world = World::new().await?;
    world.server.create(&config_map("a", "1"))?;
    let told = Told::default();
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    let keys = futures::stream::unfold(receiver, |mut receiver| async move {
        let key = receiver.recv().await?;
        Some((key, receiver))
    });
    let controller = telling(Controller::new(&world.factory, Scope::all()).triggered_by(keys), &told)?;
    pass(SECOND).await;
    told.take();
    sender.send(key("a"))?;
    pass(SECOND).await;
    controller.queue().add(key("a"));
    controller.queue().add(key("nobody"));
    pass(SECOND).await;
    assert_eq!(told.take(), ["a", "a"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn only_the_changes_that_were_chosen_lead_to_calls_and_deletions_always() -> Result<(), WorldError> {
    let world = World::new().await?;
    world.server.create(&config_map("a", "1"))?;
    let told = Told::default();
    let source = Source::from(Scope::all()).on(Changes::of_labels());
    let _controller = telling(Controller::new(&world.factory, source), &told)?;
    pass(SECOND).await;
    told.take();
    world.write("a", "2")?;
    pass(SECOND).await;
    assert_eq!(told.take(), [""; 0]);
    world.server.merge_patch("configmaps", "default", "a", json!({ "metadata": { "labels": { "x": "y" } } }))?;
    pass(SECOND).await;
    assert_eq!(told.take(), ["a"]);
    world.server.merge_patch("configmaps", "default", "a", json!({ "metadata": { "finalizers": ["x.io/y"] } }))?;
    pass(SECOND).await;
    assert_eq!(told.take(), [""; 0]);
    world.server.delete_named("configmaps", "default", "a")?;
    pass(SECOND).await;
    assert_eq!(told.take(), ["a"], "it is being deleted");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_resync_calls_for_each_object_after_what_has_changed() -> Result<(), WorldError> {
    let world = World::new().await?;
    world.server.create(&config_map("a", "1"))?;
    let told = Told::default();
    let source = Source::from(Scope::all()).on(Changes::of_labels()).resync(10 * SECOND);
    let _controller = telling(Controller::new(&world.factory, source), &told)?;
    pass(65 * SECOND).await;
    let calls = told.take().len();
    assert!((6..=8).contains(&calls), "{calls}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn after_a_relist_all_are_called_for_it_may_have_skipped_what_a_call_has_seen_elsewhere() -> Result<(), WorldError>
{
    let world = World::new().await?;
    for name in ["a", "b"] {
        world.server.create(&config_map(name, "1"))?;
    }
    let told = Told::default();
    let _controller = telling(Controller::new(&world.factory, Scope::all()), &told)?;
    pass(SECOND).await;
    told.take();
    world.network.cut();
    world.write("b", "2")?;
    world.server.faults().expire_events();
    world.network.heal();
    pass(20 * SECOND).await;
    let calls = told.take();
    assert!(calls.contains(&"a".to_owned()) && calls.contains(&"b".to_owned()) && calls.len() <= 3, "{calls:?}");
    pass(60 * SECOND).await;
    assert_eq!(told.take(), [""; 0]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_mapping_that_panics_loses_no_key() -> Result<(), WorldError> {
    let world = World::new().await?;
    world.server.create(&config_map("a", "1"))?;
    let told = Told::default();
    let of = |secret: &steadfast::Object<Secret>| {
        assert!(secret.name_any() != "bad", "by design");
        None
    };
    let controller = Controller::new(&world.factory, Scope::all()).watches::<Secret, _>(Scope::all(), of);
    let _controller = telling(controller, &told)?;
    pass(SECOND).await;
    told.take();
    for name in ["good", "bad"] {
        let secret =
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": "default" } });
        world.server.create(&secret)?;
        pass(SECOND).await;
    }
    assert_eq!(told.take(), ["what maps objects to keys panicked: by design", "a"]);
    Ok(())
}

/// What is behind stackabletech/trino-operator#936: one watch that fails had all of an operator's watches wait.
#[tokio::test(start_paused = true)]
async fn a_source_that_is_refused_for_ever_delays_no_other() -> Result<(), WorldError> {
    let world = World::new().await?;
    world.server.faults().answer_with(RequestRule::any().resource("services"), Answer::code(403));
    world.server.faults().answer_with(RequestRule::any().resource("secrets"), Answer::code(404));
    world.server.create(&config_map("a", "1"))?;
    let told = Told::default();
    let of = |_: &steadfast::Object<Service>| [key("a")];
    let controller = Controller::new(&world.factory, Scope::all())
        .owns::<Secret>(Scope::all())
        .watches::<Service, _>(Scope::all(), of)
        .watches::<Node, _>(Scope::all(), |_| [key("a")]);
    let controller = telling(controller, &told)?;
    pass(5 * SECOND).await;
    let begun = told.take();
    assert_eq!(begun.iter().filter(|text| *text == "a").count(), 1, "{begun:?}");
    let missing: Vec<_> = begun.iter().filter(|text| text.starts_with("a source is not there")).collect();
    assert!(
        missing.len() == 2 && missing[0].contains("secrets in all") && missing[1].contains("services in all"),
        "{begun:?}"
    );

    // For an hour, each of the two others leads to a call at once.
    for round in 0..60 {
        pass(60 * SECOND).await;
        told.take();
        world.write("a", &round.to_string())?;
        pass(Duration::from_millis(500)).await;
        assert_eq!(told.take(), ["a"], "round {round}");
        world
            .server
            .create(&json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": format!("n{round}") } }))?;
        pass(Duration::from_millis(500)).await;
        assert_eq!(told.take(), ["a"], "round {round}");
    }
    assert_eq!(controller.figures().pauses, 0);

    // When it is allowed, it leads to calls too.
    world.server.create(&json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "s", "namespace": "default" }, "spec": { "ports": [{ "port": 80 }] },
    }))?;
    world.server.faults().answer_truly();
    pass(120 * SECOND).await;
    assert_eq!(told.take(), ["a"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn several_controllers_share_a_factory_and_its_informers() -> Result<(), WorldError> {
    let world = World::new().await?;
    world.server.create(&config_map("a", "1"))?;
    let (one, other) = (Told::default(), Told::default());
    let first = telling(Controller::new(&world.factory, Scope::all()), &one)?;
    let _second = telling(Controller::new(&world.factory, Scope::all()), &other)?;
    pass(SECOND).await;
    assert_eq!((one.take(), other.take()), (vec!["a".to_owned()], vec!["a".to_owned()]));
    assert_eq!(world.server.open_watches(0), 1);
    first.stop(SECOND).await;
    world.write("a", "2")?;
    pass(SECOND).await;
    assert_eq!((one.take(), other.take()), (vec![], vec!["a".to_owned()]), "the one that goes on");
    Ok(())
}
