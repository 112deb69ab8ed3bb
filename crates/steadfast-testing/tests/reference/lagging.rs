//! Two API servers on one etcd, of which the second lags.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use steadfast::{InformerFactory, Scope};
use steadfast_testing::proxy::{Direction, FaultProxy};
use steadfast_testing::reference::Reference;
use steadfast_testing::{WorldError, config_map};

use super::{SOON, Said, Writer, assert_fresh, judge, until_told};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_moves_to_a_lagging_server_goes_back_in_nothing() -> Result<(), WorldError> {
    let Some(mut reference) = Reference::start().await? else { return Ok(()) };
    let to_etcd = FaultProxy::start([reference.etcd_address()?])?;
    let second = reference.start_another_with(&[], Some(to_etcd.address())).await?;
    let proxy = FaultProxy::start([reference.address(0), reference.address(second)])?;
    let writer = Writer::at(&reference).await?;
    writer.create(&config_map("changed", "1")).await?;
    writer.create(&config_map("recreated", "1")).await?;
    let recorder = reference.recorder();
    let factory = InformerFactory::new(&reference.connection_by(proxy.address()).await?);
    let informer = factory.informer::<ConfigMap>(Scope::namespace("default"))?;
    let said = Said::by(&informer);
    let seen = recorder.record_as(&informer, "moved");
    seen.until_synced().await;
    for all in [to_etcd.faults(), proxy.faults()] {
        recorder.follow(all);
    }

    // The second server hears nothing of what the first one does.
    to_etcd.faults().black_hole(Direction::ToClient, true);
    writer.set("changed", "2").await?;
    writer.delete("recreated").await?;
    writer.create(&config_map("recreated", "2")).await?;
    until_told(&seen, "default/changed", 2).await?;
    until_told(&seen, "default/recreated", 3).await?;
    proxy.faults().send_to(1);
    proxy.faults().reset();
    // One that begins there has nothing to begin with that it could rely on.
    let late = InformerFactory::new(&reference.connection_by(reference.address(second)).await?);
    let late = late.informer::<ConfigMap>(Scope::namespace("default"))?;
    let late = recorder.record_as(&late, "late");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(proxy.faults().connections().last().map(|last| last.target), Some(1), "it has moved");
    assert_eq!((seen.of("default/changed").len(), seen.of("default/recreated").len()), (2, 3));
    assert!(!late.informer().has_synced(), "{}", late.informer().freshness());

    to_etcd.faults().black_hole(Direction::ToClient, false);
    writer.set("changed", "3").await?;
    until_told(&seen, "default/changed", 3).await?;
    late.informer().wait_for_sync(SOON).await?;
    let verdict = judge(&mut reference, &recorder).await?;
    assert_eq!((verdict.total().lost, verdict.total().repeated), (0, 0), "{verdict:?}");
    assert_eq!(seen.story("default/changed"), ["Added", "Updated", "Updated"]);
    assert_eq!(seen.story("default/recreated"), ["Added", "Deleted Observed Deleted", "Added"]);
    assert_eq!(said.times("relisted"), 0, "the second server took up where the first left off");
    assert_fresh(&seen);
    assert_fresh(&late);
    Ok(())
}
