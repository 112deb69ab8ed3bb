//! Server-side apply, and a Controller that writes its children and its status with apply only.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, future::ready};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::finalizer::{self, finalizer};
use kube::runtime::wait::{await_condition, conditions, delete::delete_and_finalize};
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{Value, json};

use crate::{FINALIZER, NAMESPACE, Outcome, Widget, WidgetSpec, check, expect_rejection, finish_in_time};

/// Returns the managers of an object, with their operations.
pub fn managers(object: &impl ResourceExt) -> Vec<String> {
    let mut all: Vec<String> = object
        .managed_fields()
        .iter()
        .map(|entry| {
            let part = entry.subresource.as_deref().map(|name| format!(" {name}")).unwrap_or_default();
            let (manager, operation) = (entry.manager.as_deref(), entry.operation.as_deref());
            format!("{} {}{part}", manager.unwrap_or_default(), operation.unwrap_or_default())
        })
        .collect();
    all.sort();
    all
}

fn map(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": data})
}

pub async fn check_apply(client: &Client) -> Outcome {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let data = |object: &ConfigMap| json!(object.data);
    let first = PatchParams::apply("first");
    maps.patch("applied", &first.clone().dry_run(), &Patch::Apply(map(&json!({"a": "1"})))).await?;
    check("an apply in a dry run stores nothing", maps.get_opt("applied").await?.is_none(), &())?;
    let made = maps.patch("applied", &first, &Patch::Apply(map(&json!({"a": "1", "b": "1"})))).await?;
    check("Patch::Apply creates", managers(&made) == ["first Apply"], &made)?;
    let same = maps.patch("applied", &first, &Patch::Apply(map(&json!({"a": "1", "b": "1"})))).await?;
    check("the same again changes nothing", same.resource_version() == made.resource_version(), &same)?;
    let second = PatchParams::apply("second");
    let taken = map(&json!({"a": "2"}));
    expect_rejection(
        "a field of another manager is a conflict",
        409,
        maps.patch("applied", &second, &Patch::Apply(&taken)).await,
    )?;
    let forced = maps.patch("applied", &second.force(), &Patch::Apply(&taken)).await?;
    check("force takes it over", data(&forced) == json!({"a": "2", "b": "1"}), &forced)?;
    check("both manage it", managers(&forced) == ["first Apply", "second Apply"], &forced.metadata.managed_fields)?;
    let less = maps.patch("applied", &first, &Patch::Apply(map(&json!({"c": "3"})))).await?;
    check("a field that is no longer applied is removed", data(&less) == json!({"a": "2", "c": "3"}), &less)?;
    let strict = PatchParams::apply("first").validation_strict();
    let misspelt = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "dat": {}});
    expect_rejection(
        "an unknown field is rejected",
        500,
        maps.patch("applied", &strict, &Patch::Apply(misspelt)).await,
    )?;
    let metadata = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"labels": {"app": "half"}}});
    let half = maps.patch_metadata("applied", &PatchParams::apply("third"), &Patch::Apply(metadata)).await?;
    check("metadata is applied alone", half.labels().get("app").is_some_and(|app| app == "half"), &half)?;
    maps.delete("applied", &DeleteParams::default()).await?;
    Ok(())
}

async fn reconcile(widget: Arc<Widget>, client: Arc<Client>) -> Result<Action, finalizer::Error<kube::Error>> {
    let widgets: Api<Widget> = Api::namespaced((*client).clone(), NAMESPACE);
    finalizer(&widgets, FINALIZER, widget, async |event| {
        let maps: Api<ConfigMap> = Api::namespaced((*client).clone(), NAMESPACE);
        let applier = PatchParams::apply("applier").force();
        let widget = match event {
            finalizer::Event::Apply(widget) => widget,
            finalizer::Event::Cleanup(widget) => {
                let data = json!({"cleaned": widget.name_any()});
                let metadata = json!({"name": "trace"});
                let trace = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
                maps.patch("trace", &applier, &Patch::Apply(trace)).await?;
                return Ok(Action::await_change());
            }
        };
        let name = widget.name_any();
        let child = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "ownerReferences": [widget.controller_owner_ref(&())]},
            "data": {"value": widget.spec.size.to_string()},
        });
        maps.patch(&name, &applier, &Patch::Apply(child)).await?;
        let status = json!({
            "apiVersion": Widget::api_version(&()), "kind": Widget::kind(&()), "status": {"ready": true},
        });
        widgets.patch_status(&name, &applier, &Patch::Apply(status)).await?;
        Ok(Action::await_change())
    })
    .await
}

pub async fn check_applying_controller(client: &Client) -> Outcome {
    let widgets: Api<Widget> = Api::namespaced(client.clone(), NAMESPACE);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let run = Controller::new(widgets.clone(), watcher::Config::default().streaming_lists())
        .owns(maps.clone(), watcher::Config::default())
        .graceful_shutdown_on(async { stopped.await.unwrap_or_default() })
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_millis(200)), Arc::new(client.clone()))
        .for_each(|_| ready(()));
    let task = tokio::spawn(run);

    widgets.create(&PostParams::default(), &Widget::new("applying", WidgetSpec { size: 1 })).await?;
    let has = |wanted: Value| {
        move |map: Option<&ConfigMap>| {
            map.is_some_and(|map| {
                wanted.as_object().is_some_and(|all| all.iter().all(|(k, v)| json!(map.data)[k] == *v))
            })
        }
    };
    let wait = |wanted: Value| await_condition(maps.clone(), "applying", has(wanted));
    let made =
        finish_in_time("a Controller applies its object", async { Ok(wait(json!({"value": "1"})).await?) }).await?;
    let made = made.ok_or("the object was deleted again")?;
    check("it manages it by apply", managers(&made) == ["applier Apply"], &made.metadata.managed_fields)?;
    let is_ready = |widget: Option<&Widget>| widget.is_some_and(|w| w.status.as_ref().is_some_and(|s| s.ready));
    let widget = finish_in_time("it applies the status", async {
        Ok(await_condition(widgets.clone(), "applying", is_ready).await?)
    })
    .await?
    .ok_or("the object was deleted again")?;
    check("the status has its manager", managers(&widget).contains(&"applier Apply status".to_owned()), &widget)?;
    check("the finalizer is set", widget.finalizers() == [FINALIZER], &widget)?;
    let other = json!({"data": {"value": "99", "extra": "mine"}});
    maps.patch("applying", &PatchParams::default(), &Patch::Merge(other)).await?;
    finish_in_time("it restores its field, and keeps that of another manager", async {
        Ok(wait(json!({"value": "1", "extra": "mine"})).await?)
    })
    .await?;
    widgets.patch("applying", &PatchParams::default(), &Patch::Merge(json!({"spec": {"size": 2}}))).await?;
    finish_in_time("it follows the spec", async { Ok(wait(json!({"value": "2"})).await?) }).await?;
    finish_in_time("a deletion waits for the finalizer", async {
        Ok(delete_and_finalize(widgets.clone(), "applying", &DeleteParams::default()).await?)
    })
    .await?;
    let trace = maps.get("trace").await?;
    check("the finalizer's cleanup ran", has(json!({"cleaned": "applying"}))(Some(&trace)), &trace)?;
    let _ = stop.send(());
    finish_in_time("it ends", async { Ok(task.await?) }).await?;
    for name in ["applying", "trace"] {
        if let Some(uid) = maps.delete(name, &DeleteParams::default()).await?.left().and_then(|map| map.uid()) {
            await_condition(maps.clone(), name, conditions::is_deleted(&uid)).await?;
        }
    }
    Ok(())
}
