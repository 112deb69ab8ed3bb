//! Other features of kube: entries, metadata, discovery, scale, events, schedules, subresources.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event as Recorded;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{GroupVersionKind, PartialObjectMeta};
use kube::discovery::{self, Discovery, Scope};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::scheduler::{ScheduleRequest, scheduler};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::json;
use tokio::time::Instant;

use crate::{NAMESPACE, Outcome, Widget, WidgetSpec, check, config_map, expect_rejection, finish_in_time};

/// Checks an entry for an object: created, changed, unchanged, and rejected after a concurrent change.
pub async fn check_entries(client: &Client) -> Outcome {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let insert = |map: &mut ConfigMap, value: &str| {
        map.data.get_or_insert_default().insert("value".to_owned(), value.to_owned());
    };
    let mut vacant = maps.entry("entered").await?.or_insert(ConfigMap::default);
    insert(vacant.get_mut(), "1");
    vacant.commit(&PostParams::default()).await?;
    let made = vacant.into_object();
    check("an entry that was vacant is created", made.resource_version().is_some(), &made)?;
    let mut late = maps.entry("entered").await?.and_modify(|map| insert(map, "2")).or_insert(ConfigMap::default);
    let mut soon = maps.entry("entered").await?.and_modify(|map| insert(map, "3")).or_insert(ConfigMap::default);
    soon.commit(&PostParams::default()).await?;
    let error = late.commit(&PostParams::default()).await.err().map(|error| format!("{error:?}"));
    check("an entry is rejected after a concurrent change", error.as_ref().is_some_and(|e| e.contains("409")), &error)?;
    let left = maps.entry("entered").await?.or_insert(ConfigMap::default).into_object();
    check("the first change is kept", left.data.is_some_and(|data| data["value"] == "3"), &"other data")?;
    maps.delete("entered", &DeleteParams::default()).await?;
    Ok(())
}

pub async fn check_metadata_only(client: &Client) -> Outcome {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    for name in ["half-a", "half-b"] {
        maps.create(&PostParams::default(), &config_map(name, "1")).await?;
    }
    let list = maps.list_metadata(&ListParams::default().labels("app=seen").limit(1)).await?;
    let names: Vec<String> = list.items.iter().map(ResourceExt::name_any).collect();
    check("list_metadata in pages", names == ["half-a"] && list.metadata.continue_.is_some(), &list.metadata)?;
    let (reader, writer) = reflector::store();
    let halves: Api<PartialObjectMeta<ConfigMap>> = Api::namespaced(client.clone(), NAMESPACE);
    let stream = watcher(halves, watcher::Config::default().labels("app=seen").streaming_lists());
    let mut stream = Box::pin(reflector::reflector(writer, stream).applied_objects());
    let task = tokio::spawn(async move { while let Ok(Some(_)) = stream.try_next().await {} });
    finish_in_time("a reflector of metadata, streamed, is ready", async { Ok(reader.wait_until_ready().await?) })
        .await?;
    let changed = json!({"metadata": {"annotations": {"note": "text"}}});
    maps.patch("half-b", &PatchParams::default(), &Patch::Merge(changed)).await?;
    finish_in_time("it follows", async {
        let key = ObjectRef::new("half-b").within(NAMESPACE);
        while !reader.get(&key).is_some_and(|half| half.annotations().contains_key("note")) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    })
    .await?;
    check("it contains both", reader.len() == 2, &reader.state())?;
    task.abort();
    maps.delete_collection(&DeleteParams::default(), &ListParams::default().labels("app=seen")).await?;
    Ok(())
}

pub async fn check_discovery(client: &Client) -> Outcome {
    let kind = GroupVersionKind::gvk(&Widget::group(&()), "v1", "Widget");
    let all = Discovery::new(client.clone()).run_aggregated().await?;
    let (_, core) = all.resolve_gvk(&GroupVersionKind::gvk("", "v1", "Pod")).ok_or("no pods are discovered")?;
    check("aggregated discovery has pods", core.scope == Scope::Namespaced && core.supports_operation("watch"), &core)?;
    let (resource, _) = all.resolve_gvk(&kind).ok_or("a definition is not discovered")?;
    check("and definitions", resource.plural == "widgets", &resource)?;
    let plain = Discovery::new(client.clone()).filter(&["apps"]).run().await?;
    let apps = plain.get("apps").ok_or("the group apps is not discovered")?;
    let (deployments, capabilities) = apps.recommended_kind("Deployment").ok_or("no deployments")?;
    let subresources: Vec<&str> = capabilities.subresources.iter().map(|(sub, _)| sub.plural.as_str()).collect();
    check("discovery by groups has subresources", subresources == ["scale", "status"], &subresources)?;
    check("and names", deployments.plural == "deployments", &deployments)?;
    let (pinned, _) = discovery::pinned_kind(client, &kind).await?;
    let dynamic: Api<DynamicObject> = Api::namespaced_with(client.clone(), NAMESPACE, &pinned);
    let object = DynamicObject::new("found", &ApiResource::erase::<Widget>(&())).data(json!({"spec": {"size": 7}}));
    let made = dynamic.create(&PostParams::default(), &object).await?;
    check("a discovered resource is writable", made.data["spec"]["size"] == 7, &made)?;
    let widgets: Api<Widget> = Api::namespaced(client.clone(), NAMESPACE);
    let read = widgets.get("found").await?;
    check("and readable by a typed client", read.spec.size == WidgetSpec { size: 7 }.size, &read)?;
    widgets.delete("found", &DeleteParams::default()).await?;
    Ok(())
}

pub async fn check_scale(client: &Client) -> Outcome {
    let all: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    let _ = all.delete("scaled", &DeleteParams::default()).await;
    let wanted = serde_json::from_value(json!({
        "metadata": {"name": "scaled"},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "scaled"}},
            "template": {
                "metadata": {"labels": {"app": "scaled"}}, "spec": {"containers": [{"name": "c", "image": "nothing"}]},
            },
        },
    }))?;
    all.create(&PostParams::default(), &wanted).await?;
    let read = all.get_scale("scaled").await?;
    let replicas =
        |scale: &k8s_openapi::api::autoscaling::v1::Scale| scale.spec.as_ref().and_then(|spec| spec.replicas);
    check("get_scale", replicas(&read) == Some(1), &read)?;
    let three = Patch::Merge(json!({"spec": {"replicas": 3}}));
    let patched = all.patch_scale("scaled", &PatchParams::default(), &three).await?;
    check("patch_scale", replicas(&patched) == Some(3), &patched)?;
    expect_rejection(
        "replace_scale of an old version",
        409,
        all.replace_scale("scaled", &PostParams::default(), &read).await,
    )?;
    let deployment = all.get("scaled").await?;
    check("the deployment is scaled", deployment.spec.replicas == Some(3), &deployment)?;
    all.delete("scaled", &DeleteParams::default()).await?;
    Ok(())
}

/// Checks that two equal events are merged into one event with a count.
pub async fn check_event_series(client: &Client) -> Outcome {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let about = maps.create(&PostParams::default(), &config_map("told-of", "1")).await?;
    let recorder = Recorder::new(client.clone(), Reporter::from("kube-conformance"));
    let event = Event {
        type_: EventType::Normal,
        reason: "Tested".to_owned(),
        note: Some("told".to_owned()),
        action: "Testing".to_owned(),
        secondary: None,
    };
    let reference = about.object_ref(&());
    recorder.publish(&event, &reference).await?;
    recorder.publish(&event, &reference).await?;
    let events: Api<Recorded> = Api::namespaced(client.clone(), NAMESPACE);
    let list = events.list(&ListParams::default().fields("regarding.name=told-of,reason=Tested")).await?;
    let counts: Vec<Option<i32>> = list.items.iter().map(|e| e.series.as_ref().map(|series| series.count)).collect();
    check("a Recorder makes a series of equal events", counts == [Some(2)], &list.items)?;
    events.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    maps.delete("told-of", &DeleteParams::default()).await?;
    Ok(())
}

/// Sends a watcher's objects through a scheduler: each key is returned once, however many times it was scheduled before
/// its time.
pub async fn check_scheduler(client: &Client) -> Outcome {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    for name in ["early", "late"] {
        maps.create(&PostParams::default(), &config_map(name, "1")).await?;
    }
    let objects: Vec<ConfigMap> = watcher(maps.clone(), watcher::Config::default().labels("app=seen"))
        .applied_objects()
        .take(2)
        .try_collect()
        .await?;
    let now = Instant::now();
    let requests = objects.iter().chain(&objects).map(|object| {
        let delay = if object.name_any() == "early" { 0 } else { 50 };
        ScheduleRequest { message: object.name_any(), run_at: now + Duration::from_millis(delay) }
    });
    let requests: Vec<ScheduleRequest<String>> = requests.collect();
    let scheduled = scheduler(stream::iter(requests).chain(stream::pending())).take(2).collect::<Vec<String>>();
    let returned_keys =
        finish_in_time("a scheduler returns keys in the order of their times", async { Ok(scheduled.await) }).await?;
    check("each once", returned_keys == ["early", "late"], &returned_keys)?;
    maps.delete_collection(&DeleteParams::default(), &ListParams::default().labels("app=seen")).await?;
    Ok(())
}
