//! What a server that is well tells: lists of every kind, changes, selectors, finalizers, definitions.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ApiResource, DynamicObject};
use steadfast::{InformerFactory, Scope};
use steadfast_testing::WorldError;
use steadfast_testing::cluster::Cluster;

use super::{Said, assert_fresh, judge, until_told};

super::stories! {
    streamed_paged_and_selected_informers_agree_with_the_history: needs [], tells [SelectorChurn];
}

async fn streamed_paged_and_selected_informers_agree_with_the_history(cluster: &mut Cluster) -> Result<(), WorldError> {
    let writer = cluster.writer();
    for name in ["a", "b", "c", "d", "e"] {
        writer.create(name, "1").await?;
    }
    let (recorder, connection) = (cluster.recorder(), cluster.connection().await?);
    let factories = [InformerFactory::new(&connection), InformerFactory::new(&connection)];
    let streamed = factories[0].informer::<ConfigMap>(cluster.scope())?;
    let paged = factories[1].build::<ConfigMap>(cluster.scope()).streamed_lists(false).page_size(Some(2)).start()?;
    let kind = ApiResource::erase::<ConfigMap>(&());
    let selected = factories[0].informer_with::<DynamicObject>(&kind, cluster.scope().labels("app=web"))?;
    let said = [Said::by(&streamed), Said::by(&paged), Said::by(&selected)];
    let streamed = recorder.record_as(&streamed, "streamed");
    let paged = recorder.record_as(&paged, "paged");
    let selected = recorder.record_as(&selected, "selected");
    for all in [&streamed, &paged] {
        all.until_synced().await;
    }
    selected.until_synced().await;

    writer.create_labelled("web", "web").await?;
    for round in 0..3 {
        until_told(cluster, &selected, "web", 2 * round + 1).await?;
        let left = writer.label("web", "db").await?;
        recorder.wait_for(selected.informer(), "selected", &left).await?;
        until_told(cluster, &selected, "web", 2 * round + 2).await?;
        let entered = writer.label("web", "web").await?;
        recorder.wait_for(selected.informer(), "selected", &entered).await?;
        let changed = writer.set("a", &format!("again {round}")).await?;
        recorder.wait_for(streamed.informer(), "streamed", &changed).await?;
        recorder.wait_for(paged.informer(), "paged", &changed).await?;
    }
    until_told(cluster, &selected, "web", 7).await?;
    let recreated = writer.recreate("b", "2").await?;
    writer.delete("web").await?;
    recorder.wait_for(streamed.informer(), "streamed", &recreated).await?;

    judge(cluster, &recorder).await?;
    for all in [&streamed, &paged] {
        assert_eq!(all.story(&cluster.key("b")), ["Added", "Deleted Observed Deleted", "Added"]);
        assert_eq!(all.story(&cluster.key("web")).last().map(String::as_str), Some("Deleted Observed Deleted"));
        assert_fresh(all);
    }
    let web = selected.story(&cluster.key("web"));
    assert_eq!(web, ["Added", "Deleted Observed DeletedOrLeft"].repeat(4), "three times left, once deleted");
    assert_eq!(selected.events().len(), web.len(), "nothing else is in its scope");
    assert_fresh(&selected);
    for said in said {
        assert_eq!((said.times("relisted"), said.times("fell back to pages")), (0, 0));
    }
    Ok(())
}
