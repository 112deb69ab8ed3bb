//! Resources that are defined while somebody waits for them, and objects of them that are not what a program expects.

use std::time::Duration;

use kube::CustomResource;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde::{Deserialize, Serialize};
use serde_json::json;
use steadfast::{Freshness, InformerFactory};
use steadfast_contract::check;
use steadfast_testing::cluster::Cluster;
use steadfast_testing::{WorldError, widget_definition};

use super::{SOON, assert_fresh, until_told};

super::stories! {
    a_custom_resource_is_followed_from_the_moment_it_is_defined: needs [], tells [ResourceRefused];
    an_object_that_does_not_decode_is_unknown_and_nothing_else_is: needs [], tells [UndecodableObject];
}

fn widget(name: &str, size: u32, kind: &ApiResource) -> DynamicObject {
    DynamicObject::new(name, kind).data(json!({ "spec": { "size": size } }))
}

async fn a_custom_resource_is_followed_from_the_moment_it_is_defined(cluster: &mut Cluster) -> Result<(), WorldError> {
    let group = format!("{}.steadfast.test", cluster.namespace());
    let client = cluster.writer().client();
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(&group, "v1", "Widget"));
    let recorder = cluster.recorder();
    let factory = InformerFactory::new(&cluster.connection().await?);
    let informer = factory.informer_with::<DynamicObject>(&kind, cluster.scope())?;
    let seen = recorder.record_as(&informer, "widgets");
    let not_there = informer.wait_for_sync(Duration::from_secs(1)).await.expect_err("there is no such resource");
    assert!(matches!(not_there.state, Freshness::Failed(_)), "{not_there}");
    assert!(not_there.to_string().contains("404"), "{not_there}");

    cluster.define(widget_definition(&group)).await?;
    informer.wait_for_sync(SOON).await?;
    cluster.follow(&kind).await?;

    let widgets: Api<DynamicObject> = Api::namespaced_with(client, cluster.namespace(), &kind);
    widgets.create(&PostParams::default(), &widget("a", 1, &kind)).await?;
    let b = widgets.create(&PostParams::default(), &widget("b", 1, &kind)).await?;
    recorder.wait_for(&informer, "widgets", &b).await?;
    until_told(cluster, &seen, "a", 1).await?;
    until_told(cluster, &seen, "b", 1).await?;
    let larger = Patch::Merge(json!({ "spec": { "size": 2 } }));
    let larger = widgets.patch("a", &PatchParams::default(), &larger).await?;
    recorder.wait_for(&informer, "widgets", &larger).await?;
    widgets.delete("b", &DeleteParams::default()).await?;

    cluster.settle(&recorder).await?;
    check(&cluster.history_of(&kind).await?, &recorder.trace())?;
    assert_eq!(seen.story(&cluster.key("a")), ["Added", "Updated"]);
    assert_eq!(seen.story(&cluster.key("b")), ["Added", "Deleted Observed Deleted"]);
    assert_fresh(&seen);
    Ok(())
}

/// What a program believes widgets to be.
#[derive(Clone, Debug, CustomResource, Deserialize, Serialize)]
#[kube(group = "decoded.steadfast.test", version = "v1", kind = "Widget", namespaced, schema = "disabled")]
struct WidgetSpec {
    size: u32,
}

async fn an_object_that_does_not_decode_is_unknown_and_nothing_else_is(
    cluster: &mut Cluster,
) -> Result<(), WorldError> {
    let client = cluster.writer().client();
    let kind = ApiResource::erase::<Widget>(&());
    cluster.define(widget_definition("decoded.steadfast.test")).await?;
    let recorder = cluster.recorder();
    let factory = InformerFactory::new(&cluster.connection().await?);
    let informer = factory.informer::<Widget>(cluster.scope())?;
    informer.wait_for_sync(SOON).await?;
    let seen = recorder.record_as(&informer, "widgets");
    cluster.follow(&kind).await?;
    let widgets: Api<DynamicObject> = Api::namespaced_with(client, cluster.namespace(), &kind);
    for name in ["good", "spoiled"] {
        widgets.create(&PostParams::default(), &widget(name, 1, &kind)).await?;
        until_told(cluster, &seen, name, 1).await?;
    }

    let spoil = Patch::Merge(json!({ "spec": { "size": "large" } }));
    widgets.patch("spoiled", &PatchParams::default(), &spoil).await?;
    let grow = Patch::Merge(json!({ "spec": { "size": 2 } }));
    let grown = widgets.patch("good", &PatchParams::default(), &grow).await?;
    recorder.wait_for(&informer, "widgets", &grown).await?;
    assert!(informer.lister()?.get(cluster.namespace(), "spoiled").is_err(), "what it is now nobody here can say");
    let good = informer.lister()?.get(cluster.namespace(), "good")?.ok_or("it is there")?;
    assert_eq!(good.spec.size, 2);
    let Freshness::Fresh { tainted, .. } = informer.freshness() else { return Err("it is fresh".into()) };
    assert_eq!(tainted.len(), 1, "{tainted:?}");

    widgets.patch("spoiled", &PatchParams::default(), &grow).await?;
    until_told(cluster, &seen, "spoiled", 2).await?;
    cluster.settle(&recorder).await?;
    check(&cluster.history_of(&kind).await?, &recorder.trace())?;
    assert_eq!(seen.story(&cluster.key("spoiled")), ["Added", "Updated"]);
    assert_eq!(seen.story(&cluster.key("good")), ["Added", "Updated"]);
    assert_fresh(&seen);
    Ok(())
}
