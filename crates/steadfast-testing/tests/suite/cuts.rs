//! What the network between does: it is cut, breaks in the middle of an object, swallows, turns away.

use k8s_openapi::api::core::v1::ConfigMap;
use steadfast::InformerFactory;
use steadfast_testing::WorldError;
use steadfast_testing::cluster::Cluster;

use super::{Said, assert_fresh, judge};

super::stories! {
    recreated_and_deleted_while_cut_off_is_told_as_it_happened: needs [], tells [RecreatedWhileCut, DeletedWhileCut];
}

async fn recreated_and_deleted_while_cut_off_is_told_as_it_happened(cluster: &mut Cluster) -> Result<(), WorldError> {
    let (writer, recorder) = (cluster.writer(), cluster.recorder());
    for name in ["recreated", "deleted", "changed", "kept"] {
        writer.create(name, "1").await?;
    }
    let factory = InformerFactory::new(&cluster.connection().await?);
    let informer = factory.informer::<ConfigMap>(cluster.scope())?;
    let said = Said::by(&informer);
    let seen = recorder.record(&informer);
    recorder.follow(cluster.network());
    seen.until_synced().await;

    cluster.network().cut();
    writer.recreate("recreated", "2").await?;
    writer.delete("deleted").await?;
    writer.set("changed", "2").await?;
    writer.create("new", "1").await?;
    cluster.network().heal();

    judge(cluster, &recorder).await?;
    for (name, story) in [
        ("recreated", &["Added", "Deleted Observed Deleted", "Added"][..]),
        ("deleted", &["Added", "Deleted Observed Deleted"]),
        ("changed", &["Added", "Updated"]),
        ("kept", &["Added"]),
        ("new", &["Added"]),
    ] {
        assert_eq!(seen.story(&cluster.key(name)), story, "{name}");
    }
    assert_eq!(said.times("relisted"), 0, "the watch was resumed");
    assert_fresh(&seen);
    Ok(())
}
