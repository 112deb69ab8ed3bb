//! Resources that are defined while informers wait for them, and objects that do not match the program's type.

use std::time::{Duration, Instant};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResource;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde::{Deserialize, Serialize};
use serde_json::json;
use steadfast::{Freshness, InformerFactory};
use steadfast_contract::check;
use steadfast_testing::cluster::TestCluster;
use steadfast_testing::{TestError, widget_definition};
use tokio::time::sleep;

use super::{EVENT_TIMEOUT, assert_fresh, until_delivered, until_fresh};

super::scenarios! {
    custom_resource_is_followed_after_definition: needs [], covers [ResourceRefused];
    only_undecodable_object_is_unknown: needs [], covers [UndecodableObject];
    unserved_version_implies_no_deletion: needs [Redefine], covers [PermissionRemoved];
}

fn widget(name: &str, size: u32, kind: &ApiResource) -> DynamicObject {
    DynamicObject::new(name, kind).data(json!({ "spec": { "size": size } }))
}

async fn custom_resource_is_followed_after_definition(cluster: &mut TestCluster) -> Result<(), TestError> {
    let group = format!("{}.steadfast.test", cluster.namespace());
    let client = cluster.writer().client();
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(&group, "v1", "Widget"));
    let recorder = cluster.recorder();
    let factory = InformerFactory::new(&cluster.connection().await?);
    let informer = factory.informer_with::<DynamicObject>(&kind, cluster.scope())?;
    let recording = recorder.record_as(&informer, "widgets");
    let error = informer.wait_for_sync(Duration::from_secs(1)).await.expect_err("the resource is not defined");
    assert!(matches!(error.state, Freshness::Failed(_)), "{error}");
    assert!(error.to_string().contains("404"), "{error}");

    cluster.define(widget_definition(&group)).await?;
    informer.wait_for_sync(EVENT_TIMEOUT).await?;
    cluster.follow(&kind).await?;

    let widgets: Api<DynamicObject> = Api::namespaced_with(client, cluster.namespace(), &kind);
    widgets.create(&PostParams::default(), &widget("a", 1, &kind)).await?;
    let b = widgets.create(&PostParams::default(), &widget("b", 1, &kind)).await?;
    recorder.wait_for(&informer, "widgets", &b).await?;
    until_delivered(cluster, &recording, "a", 1).await?;
    until_delivered(cluster, &recording, "b", 1).await?;
    let updated = Patch::Merge(json!({ "spec": { "size": 2 } }));
    let updated = widgets.patch("a", &PatchParams::default(), &updated).await?;
    recorder.wait_for(&informer, "widgets", &updated).await?;
    widgets.delete("b", &DeleteParams::default()).await?;

    cluster.settle(&recorder).await?;
    check(&cluster.history_of(&kind).await?, &recorder.trace())?;
    assert_eq!(recording.descriptions(&cluster.key("a")), ["Added", "Updated"]);
    assert_eq!(recording.descriptions(&cluster.key("b")), ["Added", "Deleted Observed Deleted"]);
    assert_fresh(&recording);
    Ok(())
}

/// Type of the program for widgets.
#[derive(Clone, Debug, CustomResource, Deserialize, Serialize)]
#[kube(group = "decoded.steadfast.test", version = "v1", kind = "Widget", namespaced, schema = "disabled")]
struct WidgetSpec {
    size: u32,
}

async fn only_undecodable_object_is_unknown(cluster: &mut TestCluster) -> Result<(), TestError> {
    let client = cluster.writer().client();
    let kind = ApiResource::erase::<Widget>(&());
    cluster.define(widget_definition("decoded.steadfast.test")).await?;
    let recorder = cluster.recorder();
    let factory = InformerFactory::new(&cluster.connection().await?);
    let informer = factory.informer::<Widget>(cluster.scope())?;
    informer.wait_for_sync(EVENT_TIMEOUT).await?;
    let recording = recorder.record_as(&informer, "widgets");
    cluster.follow(&kind).await?;
    let widgets: Api<DynamicObject> = Api::namespaced_with(client, cluster.namespace(), &kind);
    for name in ["good", "spoiled"] {
        widgets.create(&PostParams::default(), &widget(name, 1, &kind)).await?;
        until_delivered(cluster, &recording, name, 1).await?;
    }

    let corruption = Patch::Merge(json!({ "spec": { "size": "large" } }));
    widgets.patch("spoiled", &PatchParams::default(), &corruption).await?;
    let update = Patch::Merge(json!({ "spec": { "size": 2 } }));
    let updated = widgets.patch("good", &PatchParams::default(), &update).await?;
    recorder.wait_for(&informer, "widgets", &updated).await?;
    assert!(informer.lister()?.get(cluster.namespace(), "spoiled").is_err(), "the object must be unknown");
    let good = informer.lister()?.get(cluster.namespace(), "good")?.ok_or("the object is missing")?;
    assert_eq!(good.spec.size, 2);
    let Freshness::Fresh { tainted, .. } = informer.freshness() else { return Err("the informer is not fresh".into()) };
    assert_eq!(tainted.len(), 1, "{tainted:?}");

    widgets.patch("spoiled", &PatchParams::default(), &update).await?;
    until_delivered(cluster, &recording, "spoiled", 2).await?;
    cluster.settle(&recorder).await?;
    check(&cluster.history_of(&kind).await?, &recorder.trace())?;
    assert_eq!(recording.descriptions(&cluster.key("spoiled")), ["Added", "Updated"]);
    assert_eq!(recording.descriptions(&cluster.key("good")), ["Added", "Updated"]);
    assert_fresh(&recording);
    Ok(())
}

async fn unserved_version_implies_no_deletion(cluster: &mut TestCluster) -> Result<(), TestError> {
    let group = format!("{}.steadfast.test", cluster.namespace());
    let kind_of_version = |version| ApiResource::from_gvk(&GroupVersionKind::gvk(&group, version, "Widget"));
    let (kind, older_kind) = (kind_of_version("v1"), kind_of_version("v1beta1"));
    let mut definition = widget_definition(&group);
    let mut version = definition["spec"]["versions"][0].clone();
    version["name"] = "v1beta1".into();
    version["storage"] = false.into();
    let versions = |is_served: bool| {
        let mut older_version = version.clone();
        older_version["served"] = is_served.into();
        json!([widget_definition(&group)["spec"]["versions"][0], older_version])
    };
    definition["spec"]["versions"] = versions(true);
    cluster.define(definition).await?;
    let (client, recorder) = (cluster.writer().client(), cluster.recorder());
    let factory = InformerFactory::new(&cluster.connection().await?);
    let informer = factory.informer_with::<DynamicObject>(&older_kind, cluster.scope())?;
    informer.wait_for_sync(EVENT_TIMEOUT).await?;
    let recording = recorder.record_as(&informer, "widgets");
    let widgets: Api<DynamicObject> = Api::namespaced_with(client.clone(), cluster.namespace(), &kind);
    for name in ["kept", "deleted"] {
        widgets.create(&PostParams::default(), &widget(name, 1, &kind)).await?;
        until_delivered(cluster, &recording, name, 1).await?;
    }

    let definitions: Api<CustomResourceDefinition> = Api::all(client);
    let serve = async |is_served: bool| {
        let patch = Patch::Merge(json!({ "spec": { "versions": versions(is_served) } }));
        definitions.patch(&format!("widgets.{group}"), &PatchParams::default(), &patch).await
    };
    serve(false).await?;
    let start = Instant::now();
    while !matches!(informer.freshness(), Freshness::Failed(_)) {
        assert!(start.elapsed() < EVENT_TIMEOUT, "still {}", informer.freshness());
        // A server may let a watch run to its end, and reject the next one.
        cluster.network().reset();
        sleep(Duration::from_secs(1)).await;
    }
    widgets.delete("deleted", &DeleteParams::default()).await?;
    let update = Patch::Merge(json!({ "spec": { "size": 2 } }));
    widgets.patch("kept", &PatchParams::default(), &update).await?;
    sleep(Duration::from_secs(1)).await;
    for name in ["kept", "deleted"] {
        assert!(informer.lister()?.get(cluster.namespace(), name)?.is_some(), "a deletion must not be inferred");
        assert_eq!(recording.descriptions(&cluster.key(name)), ["Added"]);
    }

    serve(true).await?;
    until_fresh(&informer, true, EVENT_TIMEOUT).await?;
    cluster.settle(&recorder).await?;
    check(&cluster.history_of(&kind).await?, &recorder.trace())?;
    assert_eq!(recording.descriptions(&cluster.key("kept")), ["Added", "Updated"]);
    let deleted = recording.descriptions(&cluster.key("deleted"));
    assert!(deleted.len() == 2 && deleted[1].starts_with("Deleted"), "{deleted:?}");
    assert_fresh(&recording);
    Ok(())
}
