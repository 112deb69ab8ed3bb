//! Lists and changes, kills and restarts, a compaction, a second server, a resource defined at run time.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::json;
use steadfast::{Breach, Freshness, InformerFactory, Scope};
use steadfast_contract::{Clause, check};
use steadfast_testing::proxy::FaultProxy;
use steadfast_testing::reference::Reference;
use steadfast_testing::{WorldError, config_map, labelled_config_map, widget_definition};

use super::{SOON, Said, Writer, assert_fresh, judge, streamed_lists, until_told};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streamed_paged_and_selected_informers_agree_with_the_history() -> Result<(), WorldError> {
    let Some(mut reference) = Reference::start().await? else { return Ok(()) };
    let writer = Writer::at(&reference).await?;
    for name in ["a", "b", "c", "d", "e"] {
        writer.create(&config_map(name, "1")).await?;
    }
    let streams = streamed_lists(&writer, "configmaps").await?;
    let (recorder, connection) = (reference.recorder(), reference.connection().await?);
    let factories = [InformerFactory::new(&connection), InformerFactory::new(&connection)];
    let streamed = factories[0].informer::<ConfigMap>(Scope::all())?;
    let paged = factories[1].build::<ConfigMap>(Scope::all()).streamed_lists(false).page_size(Some(2)).start()?;
    let kind = ApiResource::erase::<ConfigMap>(&());
    let selected = factories[0].informer_with::<DynamicObject>(&kind, Scope::namespace("default").labels("app=web"))?;
    let said = [Said::by(&streamed), Said::by(&paged), Said::by(&selected)];
    let streamed = recorder.record_as(&streamed, "streamed");
    let paged = recorder.record_as(&paged, "paged");
    let selected = recorder.record_as(&selected, "selected");
    for all in [&streamed, &paged] {
        all.until_synced().await;
    }
    selected.until_synced().await;
    let streams = streamed_lists(&writer, "configmaps").await? - streams;
    assert_eq!(streams, 2, "the server streamed its lists to two of them");

    writer.create(&labelled_config_map("web", "1", ("app", "web"))).await?;
    for round in 0..3 {
        until_told(&selected, "default/web", 2 * round + 1).await?;
        let left = writer.label("web", "db").await?;
        recorder.wait_for(selected.informer(), "selected", &left).await?;
        until_told(&selected, "default/web", 2 * round + 2).await?;
        let entered = writer.label("web", "web").await?;
        recorder.wait_for(selected.informer(), "selected", &entered).await?;
        let changed = writer.set("a", &format!("again {round}")).await?;
        recorder.wait_for(streamed.informer(), "streamed", &changed).await?;
        recorder.wait_for(paged.informer(), "paged", &changed).await?;
    }
    until_told(&selected, "default/web", 7).await?;
    writer.delete("b").await?;
    let recreated = writer.create(&config_map("b", "2")).await?;
    writer.delete("web").await?;
    recorder.wait_for(streamed.informer(), "streamed", &recreated).await?;

    let verdict = judge(&mut reference, &recorder).await?;
    assert_eq!((verdict.total().lost, verdict.total().repeated), (0, 0), "{verdict:?}");
    for all in [&streamed, &paged] {
        assert_eq!(all.story("default/b"), ["Added", "Deleted Observed Deleted", "Added"]);
        assert_eq!(all.story("default/web").last().map(String::as_str), Some("Deleted Observed Deleted"));
        assert_fresh(all);
    }
    let web = selected.story("default/web");
    assert_eq!(web, ["Added", "Deleted Observed DeletedOrLeft"].repeat(4), "three times left, once deleted");
    assert_eq!(selected.events().len(), web.len(), "nothing else is in its scope");
    assert_fresh(&selected);
    for said in said {
        assert_eq!((said.times("relisted"), said.times("fell back to pages")), (0, 0));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_that_comes_back_is_followed_on() -> Result<(), WorldError> {
    let Some(mut reference) = Reference::start().await? else { return Ok(()) };
    let writer = Writer::at(&reference).await?;
    writer.create(&config_map("a", "1")).await?;
    let recorder = reference.recorder();
    let factory = InformerFactory::new(&reference.connection().await?);
    let informer = factory.informer::<ConfigMap>(Scope::all())?;
    let said = Said::by(&informer);
    let seen = recorder.record_as(&informer, "config maps");
    seen.until_synced().await;

    recorder.fault("killed", true);
    reference.kill(0);
    reference.start_again(0).await?;
    recorder.fault("killed", false);
    let changed = writer.set("a", "2").await?;
    recorder.wait_for(&informer, "config maps", &changed).await?;

    judge(&mut reference, &recorder).await?;
    assert_eq!(seen.story("default/a"), ["Added", "Updated"], "nothing is told twice");
    // Its window begins with its start, when it has written some things of its own: one list may be needed.
    assert!(said.times("relisted") <= 1, "{} relists", said.times("relisted"));
    assert_fresh(&seen);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recreated_and_deleted_behind_a_killed_server_is_told_after_one_relist() -> Result<(), WorldError> {
    let Some(mut reference) = Reference::start().await? else { return Ok(()) };
    let proxy = FaultProxy::start([reference.address(0)])?;
    let writer = Writer::at(&reference).await?;
    for name in ["recreated", "deleted", "changed", "kept"] {
        writer.create(&config_map(name, "1")).await?;
    }
    let recorder = reference.recorder();
    let factory = InformerFactory::new(&reference.connection_by(proxy.address()).await?);
    let everything = factory.informer::<ConfigMap>(Scope::all())?;
    let kind = ApiResource::erase::<ConfigMap>(&());
    let dynamic = factory.informer_with::<DynamicObject>(&kind, Scope::namespace("default"))?;
    let said = [Said::by(&everything), Said::by(&dynamic)];
    let everything = recorder.record_as(&everything, "everything");
    let dynamic = recorder.record_as(&dynamic, "dynamic");
    everything.until_synced().await;
    dynamic.until_synced().await;
    // One more, which breaks the contract on purpose: this history has to show it.
    let other = InformerFactory::new(factory.connection());
    let broken = other.build::<ConfigMap>(Scope::all()).breach(Breach::MergedIdentities).start()?;
    let of_broken = reference.recorder();
    of_broken.record_as(&broken, "broken").until_synced().await;

    recorder.fault("killed", true);
    proxy.faults().refuse(true);
    writer.write_something_else("before").await?;
    reference.kill(0);
    reference.start_again(0).await?;
    // On the restarted server, of which the informers know nothing yet.
    writer.write_something_else("after").await?;
    writer.delete("recreated").await?;
    writer.create(&config_map("recreated", "2")).await?;
    writer.delete("deleted").await?;
    writer.set("changed", "2").await?;
    reference.compact().await?;
    proxy.faults().refuse(false);
    recorder.fault("killed", false);

    reference.settle(&of_broken).await?;
    let verdict = judge(&mut reference, &recorder).await?;
    assert_eq!((verdict.total().lost, verdict.total().repeated), (0, 0), "{verdict:?}");
    let report = steadfast_contract::judge(&reference.history("", "configmaps").await?, &of_broken.trace());
    assert!(report.of(Clause::C1).next().is_some(), "{report:?}");
    let stories =
        |name: &str| [everything.story(&format!("default/{name}")), dynamic.story(&format!("default/{name}"))];
    for (name, expected) in [
        ("recreated", &["Added", "Deleted Inferred Replaced", "Added"][..]),
        ("deleted", &["Added", "Deleted Inferred Deleted"]),
        ("changed", &["Added", "Updated"]),
        ("kept", &["Added"]),
    ] {
        for story in stories(name) {
            assert_eq!(story, expected, "{name}");
        }
    }
    for said in said {
        assert_eq!(said.times("relisted"), 1, "one 410, one relist");
    }
    assert_fresh(&everything);
    assert_fresh(&dynamic);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_server_that_holds_the_version_goes_on_without_a_list_though_etcd_is_compacted()
-> Result<(), WorldError> {
    let Some(mut reference) = Reference::start().await? else { return Ok(()) };
    let second = reference.start_another().await?;
    let proxy = FaultProxy::start([reference.address(second), reference.address(0)])?;
    let writer = Writer::at(&reference).await?;
    writer.create(&config_map("a", "1")).await?;
    let recorder = reference.recorder();
    let factory = InformerFactory::new(&reference.connection_by(proxy.address()).await?);
    let informer = factory.informer::<ConfigMap>(Scope::all())?;
    let said = Said::by(&informer);
    let seen = recorder.record_as(&informer, "config maps");
    seen.until_synced().await;

    recorder.fault("killed", true);
    proxy.faults().refuse(true);
    proxy.faults().send_to(1);
    reference.kill(second);
    writer.delete("a").await?;
    writer.create(&config_map("a", "2")).await?;
    reference.compact().await?;
    proxy.faults().refuse(false);
    recorder.fault("killed", false);

    judge(&mut reference, &recorder).await?;
    assert_eq!(seen.story("default/a"), ["Added", "Deleted Observed Deleted", "Added"], "as it happened");
    assert_eq!(said.times("relisted"), 0, "it was resumed");
    assert!(said.times("resumed") >= 1);
    assert_fresh(&seen);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_custom_resource_is_followed_from_the_moment_it_is_defined() -> Result<(), WorldError> {
    let Some(mut reference) = Reference::start().await? else { return Ok(()) };
    let client = reference.connection().await?.client();
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("steadfast.test", "v1", "Widget"));
    let recorder = reference.recorder();
    let factory = InformerFactory::new(&reference.connection().await?);
    let informer = factory.informer_with::<DynamicObject>(&kind, Scope::all())?;
    let seen = recorder.record_as(&informer, "widgets");
    let not_there = informer.wait_for_sync(Duration::from_secs(1)).await.expect_err("there is no such resource");
    assert!(matches!(not_there.state, Freshness::Failed(_)), "{not_there}");
    assert!(not_there.to_string().contains("404"), "{not_there}");

    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &serde_json::from_value(widget_definition("steadfast.test"))?).await?;
    informer.wait_for_sync(SOON).await?;

    let widgets: Api<DynamicObject> = Api::namespaced_with(client, "default", &kind);
    let widget = |name: &str| DynamicObject::new(name, &kind).data(json!({ "spec": { "size": 1 } }));
    widgets.create(&PostParams::default(), &widget("a")).await?;
    let b = widgets.create(&PostParams::default(), &widget("b")).await?;
    recorder.wait_for(&informer, "widgets", &b).await?;
    until_told(&seen, "default/a", 1).await?;
    until_told(&seen, "default/b", 1).await?;
    let larger = Patch::Merge(json!({ "spec": { "size": 2 } }));
    let larger = widgets.patch("a", &PatchParams::default(), &larger).await?;
    recorder.wait_for(&informer, "widgets", &larger).await?;
    widgets.delete("b", &DeleteParams::default()).await?;

    reference.settle(&recorder).await?;
    check(&reference.history("steadfast.test", "widgets").await?, &recorder.trace())?;
    assert_eq!(seen.story("default/a"), ["Added", "Updated"]);
    assert_eq!(seen.story("default/b"), ["Added", "Deleted Observed Deleted"]);
    assert_fresh(&seen);
    Ok(())
}
