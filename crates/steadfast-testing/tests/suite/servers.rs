//! What servers do: they are killed, compacted, replaced, stand still.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ApiResource, DynamicObject};
use steadfast::{Breach, InformerFactory, Scope};
use steadfast_contract::Clause;
use steadfast_testing::WorldError;
use steadfast_testing::cluster::Cluster;

use super::{Said, assert_fresh, judge};

super::stories! {
    a_killed_server_that_comes_back_is_followed_on: needs [Kill], tells [ServerRestarts];
    recreated_and_deleted_behind_a_killed_server_is_told_after_one_relist:
        needs [Kill, Compact], tells [HistoryCompacted, RecreatedWhileCut, DeletedWhileCut];
}

async fn a_killed_server_that_comes_back_is_followed_on(cluster: &mut Cluster) -> Result<(), WorldError> {
    cluster.writer().create("a", "1").await?;
    let recorder = cluster.recorder();
    let factory = InformerFactory::new(&cluster.connection().await?);
    let informer = factory.informer::<ConfigMap>(cluster.scope())?;
    let said = Said::by(&informer);
    let seen = recorder.record_as(&informer, "config maps");
    seen.until_synced().await;

    recorder.fault("killed", true);
    cluster.kill(0)?;
    cluster.start_again(0).await?;
    recorder.fault("killed", false);
    let changed = cluster.writer().set("a", "2").await?;
    recorder.wait_for(&informer, "config maps", &changed).await?;

    judge(cluster, &recorder).await?;
    assert_eq!(seen.story(&cluster.key("a")), ["Added", "Updated"], "nothing is told twice");
    // Its window begins with its start, when it has written some things of its own: one list may be needed.
    assert!(said.times("relisted") <= 1, "{} relists", said.times("relisted"));
    assert_fresh(&seen);
    Ok(())
}

async fn recreated_and_deleted_behind_a_killed_server_is_told_after_one_relist(
    cluster: &mut Cluster,
) -> Result<(), WorldError> {
    let writer = cluster.writer().clone();
    for name in ["recreated", "deleted", "changed", "kept"] {
        writer.create(name, "1").await?;
    }
    let recorder = cluster.recorder();
    let factory = InformerFactory::new(&cluster.connection().await?);
    let everything = factory.informer::<ConfigMap>(Scope::all())?;
    let kind = ApiResource::erase::<ConfigMap>(&());
    let dynamic = factory.informer_with::<DynamicObject>(&kind, cluster.scope())?;
    let said = [Said::by(&everything), Said::by(&dynamic)];
    let everything = recorder.record_as(&everything, "everything");
    let dynamic = recorder.record_as(&dynamic, "dynamic");
    everything.until_synced().await;
    dynamic.until_synced().await;
    // One more, which breaks the contract on purpose: this history has to show it.
    let other = InformerFactory::new(factory.connection());
    let broken = other.build::<ConfigMap>(Scope::all()).breach(Breach::MergedIdentities).start()?;
    let of_broken = cluster.recorder();
    of_broken.record_as(&broken, "broken").until_synced().await;

    recorder.fault("killed", true);
    cluster.network().refuse(true);
    writer.write_something_else().await?;
    cluster.kill(0)?;
    cluster.start_again(0).await?;
    // On the restarted server, of which the informers know nothing yet.
    writer.write_something_else().await?;
    writer.recreate("recreated", "2").await?;
    writer.delete("deleted").await?;
    writer.set("changed", "2").await?;
    cluster.compact().await?;
    cluster.network().refuse(false);
    recorder.fault("killed", false);

    cluster.settle(&of_broken).await?;
    judge(cluster, &recorder).await?;
    let report = steadfast_contract::judge(&cluster.history().await?, &of_broken.trace());
    assert!(report.of(Clause::C1).next().is_some(), "{report:?}");
    for (name, story) in [
        ("recreated", &["Added", "Deleted Inferred Replaced", "Added"][..]),
        ("deleted", &["Added", "Deleted Inferred Deleted"]),
        ("changed", &["Added", "Updated"]),
        ("kept", &["Added"]),
    ] {
        assert_eq!(everything.story(&cluster.key(name)), story, "{name}");
        assert_eq!(dynamic.story(&cluster.key(name)), story, "{name}");
    }
    for said in said {
        assert_eq!(said.times("relisted"), 1, "one 410, one relist");
    }
    assert_fresh(&everything);
    assert_fresh(&dynamic);
    Ok(())
}
