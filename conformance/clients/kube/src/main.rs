//! Runs kube's own client, watcher, reflector and Controller against any server.
//!
//! `kube-conformance KUBECONFIG` exits with 1 and prints one line at the first difference from a real API server. The
//! program contains no code of Steadfast: its transport is kube's too.

mod apply;
mod tools;

use std::collections::BTreeMap;
use std::error::Error;
use std::future::ready;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, VersionMatch};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::ObjectMeta;
use kube::runtime::controller::{Action, Controller};
use kube::runtime::finalizer::{self, finalizer};
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client, Config, CustomResource, CustomResourceExt, Resource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

const NAMESPACE: &str = "kube-conformance";
const FINALIZER: &str = "kube.conformance.example.com/cleanup";
/// Timeout for asynchronous effects. A real server needs milliseconds.
const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "kube.conformance.example.com", version = "v1", kind = "Widget", namespaced, status = "WidgetStatus")]
struct WidgetSpec {
    size: i64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct WidgetStatus {
    ready: bool,
}

fn check(name: &str, is_true: bool, value: &dyn std::fmt::Debug) -> Outcome {
    if !is_true {
        return Err(format!("{name}: failed with {value:?}").into());
    }
    println!("ok      {name}");
    Ok(())
}

/// Checks that the server rejects the request with this code.
fn expect_rejection<T: std::fmt::Debug>(name: &str, code: u16, outcome: kube::Result<T>) -> Outcome {
    match outcome {
        Err(kube::Error::Api(status)) => check(name, status.code == code, &status),
        other => check(name, false, &other),
    }
}

/// Waits for a condition. If the condition is not met in time, returns an error that names it.
async fn finish_in_time<T>(name: &str, event: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    let value =
        tokio::time::timeout(TIMEOUT, event).await.map_err(|_| format!("{name}: not met within {TIMEOUT:?}"))?;
    let value = value.map_err(|error| format!("{name}: {error}"))?;
    println!("ok      {name}");
    Ok(value)
}

fn config_map(name: &str, value: &str) -> ConfigMap {
    let labels = BTreeMap::from([("app".to_owned(), "seen".to_owned())]);
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([("value".to_owned(), value.to_owned())])),
        ..ConfigMap::default()
    }
}

async fn next<S>(events: &mut S) -> Outcome<String>
where
    S: Stream<Item = watcher::Result<Event<ConfigMap>>> + Unpin,
{
    Ok(match events.try_next().await?.ok_or("the stream ended")? {
        Event::Init => "init".to_owned(),
        Event::InitApply(object) => format!("listed {}", object.name_any()),
        Event::InitDone => "listed all".to_owned(),
        Event::Apply(object) => format!("applied {}", object.name_any()),
        Event::Delete(object) => format!("deleted {}", object.name_any()),
    })
}

/// Checks the events of a watcher, with a paged list or with a streamed one.
async fn check_watcher(client: &Client, config: watcher::Config, list_form: &str) -> Outcome {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    for name in ["a", "b"] {
        let created = maps.create(&PostParams::default(), &config_map(name, "1")).await?;
        // A streamed list may be older than the last write (kube requests version 0), so the server's cache must have it.
        let version = created.resource_version().ok_or("a created object without a version")?;
        maps.list(&ListParams::default().at(&version).matching(VersionMatch::NotOlderThan)).await?;
    }
    let mut events = pin!(watch(maps.clone(), config.labels("app=seen")));
    let received = async {
        let mut received = Vec::new();
        while received.last().is_none_or(|last| last != "listed all") {
            received.push(next(&mut events).await?);
        }
        maps.patch("b", &PatchParams::default(), &Patch::Merge(json!({"data": {"value": "2"}}))).await?;
        maps.create(&PostParams::default(), &config_map("c", "1")).await?;
        // The object leaves the selector, which this watcher reports as a deletion.
        maps.patch("a", &PatchParams::default(), &Patch::Merge(json!({"metadata": {"labels": null}}))).await?;
        maps.delete("c", &DeleteParams::default()).await?;
        for _ in 0..4 {
            received.push(next(&mut events).await?);
        }
        Ok(received)
    };
    let received = finish_in_time(&format!("a watcher receives all events, {list_form}"), received).await?;
    let wanted = ["init", "listed a", "listed b", "listed all", "applied b", "applied c", "deleted a", "deleted c"];
    check(&format!("in that order, {list_form}"), received == wanted, &received)?;
    maps.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    Ok(())
}

async fn check_reflector(client: &Client) -> Outcome {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    maps.create(&PostParams::default(), &config_map("early", "1")).await?;
    let (reader, writer) = reflector::store();
    let stream = watch(maps.clone(), watcher::Config::default().labels("app=seen"));
    let stream = reflector::reflector(writer, stream).default_backoff().applied_objects();
    let task = tokio::spawn(stream.for_each(|_| ready(())));
    finish_in_time("a reflector's store is ready", async { Ok(reader.wait_until_ready().await?) }).await?;
    check("it contains the existing object", reader.len() == 1, &reader.state())?;
    maps.create(&PostParams::default(), &config_map("late", "2")).await?;
    maps.delete("early", &DeleteParams::default()).await?;
    finish_in_time("it follows", async {
        let late = ObjectRef::new("late").within(NAMESPACE);
        while reader.len() != 1 || reader.get(&late).is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    })
    .await?;
    task.abort();
    maps.delete("late", &DeleteParams::default()).await?;
    Ok(())
}

/// Creates a `ConfigMap` for each `Widget`, with a finalizer, an owner and a status.
async fn reconcile(widget: Arc<Widget>, client: Arc<Client>) -> Result<Action, finalizer::Error<kube::Error>> {
    let widgets: Api<Widget> = Api::namespaced((*client).clone(), NAMESPACE);
    finalizer(&widgets, FINALIZER, widget, async |event| {
        let finalizer::Event::Apply(widget) = event else { return Ok(Action::await_change()) };
        let maps: Api<ConfigMap> = Api::namespaced((*client).clone(), NAMESPACE);
        let name = widget.name_any();
        let mut wanted = config_map(&name, &widget.spec.size.to_string());
        wanted.metadata.owner_references = Some(widget.controller_owner_ref(&()).into_iter().collect());
        match maps.create(&PostParams::default(), &wanted).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                maps.patch(&name, &PatchParams::default(), &Patch::Merge(&wanted)).await?
            }
            other => other?,
        };
        let status = json!({"status": {"ready": true}});
        widgets.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(Action::await_change())
    })
    .await
}

async fn check_controller(client: &Client) -> Outcome {
    let widgets: Api<Widget> = Api::namespaced(client.clone(), NAMESPACE);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let run = Controller::new(widgets.clone(), watcher::Config::default())
        .owns(maps.clone(), watcher::Config::default())
        .graceful_shutdown_on(async { stopped.await.unwrap_or_default() })
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_millis(200)), Arc::new(client.clone()))
        .for_each(|_| ready(()));
    let task = tokio::spawn(run);

    let made = widgets.create(&PostParams::default(), &Widget::new("w", WidgetSpec { size: 1 })).await?;
    let has = |value: &'static str| {
        move |map: Option<&ConfigMap>| {
            map.is_some_and(|map| map.data.as_ref().is_some_and(|data| data.get("value").is_some_and(|v| v == value)))
        }
    };
    let found = finish_in_time("a Controller makes its object", async {
        Ok(await_condition(maps.clone(), "w", has("1")).await?.ok_or("the object was deleted again")?)
    })
    .await?;
    check("it is owned", found.owner_references().iter().any(|owner| Some(&owner.uid) == made.uid().as_ref()), &found)?;
    let is_ready = |widget: Option<&Widget>| widget.is_some_and(|w| w.status.as_ref().is_some_and(|s| s.ready));
    finish_in_time("it writes the status", async { Ok(await_condition(widgets.clone(), "w", is_ready).await?) })
        .await?;
    widgets.patch("w", &PatchParams::default(), &Patch::Merge(json!({"spec": {"size": 2}}))).await?;
    finish_in_time("it follows the spec", async { Ok(await_condition(maps.clone(), "w", has("2")).await?) }).await?;
    let uid = found.uid().unwrap_or_default();
    maps.delete("w", &DeleteParams::default()).await?;
    finish_in_time("it recreates an owned object", async {
        let anew = |map: Option<&ConfigMap>| map.is_some_and(|map| map.uid().is_some_and(|new| new != uid));
        Ok(await_condition(maps.clone(), "w", anew).await?)
    })
    .await?;
    let uid = made.uid().unwrap_or_default();
    widgets.delete("w", &DeleteParams::default()).await?;
    finish_in_time("it releases a deleted object", async {
        Ok(await_condition(widgets.clone(), "w", conditions::is_deleted(&uid)).await?)
    })
    .await?;
    let _ = stop.send(());
    finish_in_time("it ends", async { Ok(task.await?) }).await?;
    maps.delete("w", &DeleteParams::default()).await?;
    Ok(())
}

async fn remove_definition(client: &Client) -> Outcome {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = Widget::crd_name();
    let Some(left) = definitions.get_opt(name).await? else { return Ok(()) };
    // Objects of an earlier, killed run still have their finalizer.
    let widgets: Api<Widget> = Api::namespaced(client.clone(), NAMESPACE);
    for widget in widgets.list(&ListParams::default()).await? {
        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        widgets.patch(&widget.name_any(), &PatchParams::default(), &free).await?;
    }
    match definitions.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        other => drop(other?),
    }
    let uid = left.uid().unwrap_or_default();
    finish_in_time("the definition is deleted", async {
        Ok(await_condition(definitions.clone(), name, conditions::is_deleted(&uid)).await?)
    })
    .await?;
    Ok(())
}

async fn prepare(client: &Client) -> Outcome {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let wanted = Namespace {
        metadata: ObjectMeta { name: Some(NAMESPACE.to_owned()), ..ObjectMeta::default() },
        ..Namespace::default()
    };
    match namespaces.create(&PostParams::default(), &wanted).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        other => drop(other?),
    }
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    maps.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    remove_definition(client).await
}

async fn run(kubeconfig: &str) -> Outcome {
    let config = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    println!("kube 5.0.0, server {}", client.apiserver_version().await?.git_version);
    prepare(&client).await?;
    check_watcher(&client, watcher::Config::default().page_size(1), "in pages").await?;
    check_watcher(&client, watcher::Config::default().streaming_lists(), "streamed").await?;
    check_reflector(&client).await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &Widget::crd()).await?;
    finish_in_time("a definition is established", async {
        Ok(await_condition(definitions, Widget::crd_name(), conditions::is_crd_established()).await?)
    })
    .await?;
    check_controller(&client).await?;
    apply::check_apply(&client).await?;
    Box::pin(apply::check_applying_controller(&client)).await?;
    tools::check_entries(&client).await?;
    tools::check_metadata_only(&client).await?;
    tools::check_discovery(&client).await?;
    tools::check_scale(&client).await?;
    tools::check_event_series(&client).await?;
    tools::check_scheduler(&client).await?;
    prepare(&client).await
}

#[tokio::main]
async fn main() {
    let Some(kubeconfig) = std::env::args().nth(1) else {
        eprintln!("usage: kube-conformance KUBECONFIG");
        std::process::exit(2);
    };
    if let Err(error) = run(&kubeconfig).await {
        eprintln!("FAILED  {error}");
        std::process::exit(1);
    }
}
