//! Faults of servers: kills, compactions, replacements, freezes.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ApiResource, DynamicObject};
use steadfast::{InformerFactory, InjectedFault, ReflectorSettings, Scope};
use steadfast_contract::{Bounds, Clause};
use steadfast_testing::CachedConfigMap;
use steadfast_testing::TestError;
use steadfast_testing::cluster::TestCluster;
use tokio::time::sleep;

use super::{
    DiagnosticLog, EVENT_TIMEOUT, Watched, assert_fresh, build, check_contract, check_contract_with, until_delivered,
    until_fresh, watch, watch_with, watched,
};

super::scenarios! {
    killed_server_is_followed_after_restart<K>: needs [Kill], covers [ServerRestarts];
    changes_behind_killed_server_need_one_relist<K>:
        needs [Kill, Compact], covers [HistoryCompacted, RecreatedWhileCut, DeletedWhileCut];
    informers_of_killed_server_list_once_each<K>: needs [Kill, Compact], covers [ServerRestarts];
    gracefully_stopped_server_is_followed<K>: needs [Shutdown], covers [WatchEnded, GoAway];
    second_server_resumes_without_list<K>:
        needs [Kill, Compact, Second], covers [ServerRestarts];
    lagging_server_reverts_no_state<K>: needs [Lag], covers [LaggingReplica, VersionTooLarge];
    frozen_server_is_noticed_within_two_periods<K>: needs [Freeze], covers [FrozenServer];
    frozen_store_is_noticed_within_two_periods<K>: needs [FreezeStore], covers [FrozenEtcd];
    restored_store_starts_new_epoch<K>: needs [Restore], covers [HistoryRestored];
    server_without_streamed_lists_is_paged<K>: needs [NoStreamedLists], covers [StreamedListBroken];
    expired_paged_list_is_restarted<K>: needs [Compact, UncachedPages], covers [ContinueTokenExpired];
}

/// Period of R2, shortened because the tests run in real time.
const PERIOD: Duration = Duration::from_secs(3);
/// Additional time that a busy machine may need.
const SLACK: Duration = Duration::from_secs(2);

async fn killed_server_is_followed_after_restart<K: CachedConfigMap>(
    cluster: &mut TestCluster,
) -> Result<(), TestError> {
    cluster.writer().create("a", "1").await?;
    let recorder = cluster.recorder();
    let Watched { informer, diagnostics, recording, .. } = &watch::<K>(cluster, &recorder).await?;

    recorder.fault("killed", true);
    cluster.kill(0)?;
    cluster.start_again(0).await?;
    recorder.fault("killed", false);
    let changed_object = cluster.writer().set("a", "2").await?;
    recorder.wait_for(informer, informer.name(), &changed_object).await?;

    check_contract(cluster, &recorder).await?;
    assert_eq!(recording.descriptions(&cluster.key("a")), ["Added", "Updated"], "no event is repeated");
    // The server writes some objects during its start. Its window of events starts only after these writes, so one list
    // may be needed.
    assert!(diagnostics.times("relisted") <= 1, "{} relists", diagnostics.times("relisted"));
    assert_fresh(recording);
    Ok(())
}

async fn changes_behind_killed_server_need_one_relist<K: CachedConfigMap>(
    cluster: &mut TestCluster,
) -> Result<(), TestError> {
    let writer = cluster.writer().clone();
    for name in ["recreated", "deleted", "changed", "kept"] {
        writer.create(name, "1").await?;
    }
    let recorder = cluster.recorder();
    let factory = InformerFactory::new(&cluster.connection().await?);
    let all_config_maps = build::<K>(&factory, Scope::all()).start()?;
    let kind = ApiResource::erase::<ConfigMap>(&());
    let dynamic = factory.builder_with::<DynamicObject>(&kind, cluster.scope());
    // A second informer lists in pages, also on the relist.
    let dynamic = dynamic.streamed_lists(false).page_size(Some(2)).start()?;
    let diagnostics = [DiagnosticLog::record(&all_config_maps), DiagnosticLog::record(&dynamic)];
    let all_config_maps = recorder.record_as(&all_config_maps, "everything");
    let dynamic = recorder.record_as(&dynamic, "dynamic");
    all_config_maps.until_synced().await;
    dynamic.until_synced().await;
    // Two more informers have injected faults. The checker must detect these faults in this history.
    let mut faulty_informers = Vec::new();
    for (fault, clause) in [(InjectedFault::MergedIdentities, Clause::C1), (InjectedFault::LostDeletes, Clause::C2)] {
        let factory = InformerFactory::new(factory.connection());
        let informer = build::<K>(&factory, cluster.scope()).inject_fault(fault).start()?;
        let recorder = cluster.recorder();
        recorder.record(&informer).until_synced().await;
        faulty_informers.push((factory, recorder, clause));
    }

    recorder.fault("killed", true);
    cluster.network().refuse(true);
    writer.write_unrelated().await?;
    cluster.kill(0)?;
    cluster.start_again(0).await?;
    // This write happens after the restart, so the informers do not have its version.
    writer.write_unrelated().await?;
    writer.recreate("recreated", "2").await?;
    writer.delete("deleted").await?;
    writer.set("changed", "2").await?;
    cluster.compact().await?;
    cluster.network().refuse(false);
    recorder.fault("killed", false);

    check_contract(cluster, &recorder).await?;
    for (_factory, faulty_recorder, clause) in faulty_informers {
        cluster.settle(&faulty_recorder).await?;
        let report = steadfast_contract::report(&cluster.history().await?, &faulty_recorder.trace());
        assert!(report.violations_of(clause).next().is_some(), "{report:?}");
    }
    for (name, expected) in [
        // A relist shows only the final state: a changed UID implies a deletion that was not observed.
        ("recreated", &["Added", "Deleted Inferred Replaced", "Added"][..]),
        ("deleted", &["Added", "Deleted Inferred Deleted"]),
        ("changed", &["Added", "Updated"]),
        ("kept", &["Added"]),
    ] {
        assert_eq!(all_config_maps.descriptions(&cluster.key(name)), expected, "{name}");
        assert_eq!(dynamic.descriptions(&cluster.key(name)), expected, "{name}");
    }
    for diagnostics in diagnostics {
        assert_eq!(diagnostics.times("relisted"), 1, "one 410, one relist");
    }
    assert_fresh(&all_config_maps);
    assert_fresh(&dynamic);
    Ok(())
}

async fn informers_of_killed_server_list_once_each<K: CachedConfigMap>(
    cluster: &mut TestCluster,
) -> Result<(), TestError> {
    const INFORMERS: usize = 50;
    let (writer, recorder) = (cluster.writer().clone(), cluster.recorder());
    let factory = InformerFactory::new(&cluster.connection().await?);
    let (mut recordings, mut diagnostics) = (Vec::new(), Vec::new());
    for number in 0..INFORMERS {
        writer.create_labelled(&format!("c-{number}"), &format!("g{number}")).await?;
        let informer = build::<K>(&factory, cluster.scope().labels(format!("app=g{number}"))).start()?;
        diagnostics.push(DiagnosticLog::record(&informer));
        recordings.push(recorder.record(&informer));
    }
    factory.wait_for_sync(EVENT_TIMEOUT).await?;
    for recording in &recordings {
        recording.until_synced().await;
    }

    recorder.fault("killed", true);
    cluster.network().refuse(true);
    writer.write_unrelated().await?;
    cluster.kill(0)?;
    cluster.start_again(0).await?;
    for number in 0..INFORMERS {
        let name = format!("c-{number}");
        if number % 5 == 0 {
            writer.delete(&name).await?;
            writer.create_labelled(&name, &format!("g{number}")).await?;
        } else {
            writer.set(&name, "2").await?;
        }
    }
    cluster.compact().await?;
    cluster.network().refuse(false);
    recorder.fault("killed", false);

    check_contract(cluster, &recorder).await?;
    for (number, (recording, diagnostics)) in recordings.iter().zip(&diagnostics).enumerate() {
        let recreated = number % 5 == 0;
        let expected =
            if recreated { &["Added", "Deleted Inferred Replaced", "Added"][..] } else { &["Added", "Updated"] };
        assert_eq!(recording.descriptions(&cluster.key(&format!("c-{number}"))), expected, "{number}");
        assert_eq!(diagnostics.times("relisted"), 1, "{number}: no version to resume from, and one list");
        assert_fresh(recording);
    }
    Ok(())
}

async fn gracefully_stopped_server_is_followed<K: CachedConfigMap>(cluster: &mut TestCluster) -> Result<(), TestError> {
    let (writer, recorder) = (cluster.writer().clone(), cluster.recorder());
    writer.create("a", "1").await?;
    cluster.network().send_to(1);
    let Watched { informer, diagnostics, recording, .. } = &watch::<K>(cluster, &recorder).await?;

    recorder.fault("shut down", true);
    cluster.shut_down(1).await?;
    until_fresh(informer, false, EVENT_TIMEOUT).await?;
    cluster.start_again(1).await?;
    recorder.fault("shut down", false);
    writer.recreate("a", "2").await?;
    let changed_object = writer.set("a", "3").await?;
    recorder.wait_for(informer, informer.name(), &changed_object).await?;

    check_contract(cluster, &recorder).await?;
    assert!(diagnostics.times("relisted") <= 1, "{} relists", diagnostics.times("relisted"));
    assert_fresh(recording);
    Ok(())
}

async fn second_server_resumes_without_list<K: CachedConfigMap>(cluster: &mut TestCluster) -> Result<(), TestError> {
    let (writer, recorder) = (cluster.writer().clone(), cluster.recorder());
    writer.create("a", "1").await?;
    cluster.network().send_to(1);
    let Watched { diagnostics, recording, .. } = &watch::<K>(cluster, &recorder).await?;

    recorder.fault("killed", true);
    cluster.network().refuse(true);
    cluster.network().send_to(0);
    cluster.kill(1)?;
    writer.recreate("a", "2").await?;
    cluster.compact().await?;
    cluster.network().refuse(false);
    recorder.fault("killed", false);

    check_contract(cluster, &recorder).await?;
    assert_eq!(
        recording.descriptions(&cluster.key("a")),
        ["Added", "Deleted Observed Deleted", "Added"],
        "in the order of the changes"
    );
    assert_eq!(diagnostics.times("relisted"), 0, "the watch was resumed");
    assert!(diagnostics.times("resumed") >= 1);
    assert_fresh(recording);
    Ok(())
}

async fn lagging_server_reverts_no_state<K: CachedConfigMap>(cluster: &mut TestCluster) -> Result<(), TestError> {
    let (writer, recorder) = (cluster.writer().clone(), cluster.recorder());
    writer.create("changed", "1").await?;
    writer.create("recreated", "1").await?;
    let Watched { diagnostics, recording, .. } = &watch::<K>(cluster, &recorder).await?;
    recorder.follow(cluster.network());

    // The second server does not receive the changes of the first one.
    cluster.lag(true)?;
    writer.set("changed", "2").await?;
    writer.recreate("recreated", "2").await?;
    until_delivered(cluster, recording, "changed", 2).await?;
    until_delivered(cluster, recording, "recreated", 3).await?;
    cluster.network().send_to(1);
    cluster.network().reset();
    // A new informer has no reliable state on the lagging server.
    let factory = InformerFactory::new(&cluster.connection().await?);
    let informer = build::<K>(&factory, cluster.scope()).streamed_lists(true).start()?;
    let late_recording = recorder.record_as(&informer, "late");
    sleep(Duration::from_secs(5)).await;
    assert_eq!(
        cluster.network().connections().last().map(|last| last.target),
        Some(1),
        "the connection moved to the second server"
    );
    let delivered = |name: &str| recording.of(&cluster.key(name)).len();
    assert_eq!((delivered("changed"), delivered("recreated")), (2, 3));
    // A consistent list waits for the newest version of etcd, which the lagging cache does not reach.
    assert!(!late_recording.informer().has_synced(), "{}", late_recording.informer().freshness());

    cluster.lag(false)?;
    writer.set("changed", "3").await?;
    until_delivered(cluster, recording, "changed", 3).await?;
    late_recording.informer().wait_for_sync(EVENT_TIMEOUT).await?;
    check_contract(cluster, &recorder).await?;
    assert_eq!(recording.descriptions(&cluster.key("changed")), ["Added", "Updated", "Updated"]);
    assert_eq!(recording.descriptions(&cluster.key("recreated")), ["Added", "Deleted Observed Deleted", "Added"]);
    assert_eq!(diagnostics.times("relisted"), 0, "the watch was resumed on the second server");
    assert_fresh(recording);
    assert_fresh(&late_recording);
    Ok(())
}

async fn frozen_server_is_noticed_within_two_periods<K: CachedConfigMap>(
    cluster: &mut TestCluster,
) -> Result<(), TestError> {
    check_freeze::<K>(cluster, TestCluster::freeze).await
}

async fn frozen_store_is_noticed_within_two_periods<K: CachedConfigMap>(
    cluster: &mut TestCluster,
) -> Result<(), TestError> {
    check_freeze::<K>(cluster, TestCluster::freeze_store).await
}

/// Freezes the target behind the connection once.
async fn check_freeze<K: CachedConfigMap>(
    cluster: &mut TestCluster,
    freeze: fn(&mut TestCluster, bool) -> Result<(), steadfast_testing::TestkitError>,
) -> Result<(), TestError> {
    let (writer, recorder) = (cluster.writer().clone(), cluster.recorder());
    writer.create("a", "1").await?;
    let settings = ReflectorSettings { period: PERIOD, ..ReflectorSettings::default() };
    let factory = InformerFactory::with_settings(&cluster.connection().await?, settings);
    let Watched { informer, diagnostics, recording, .. } = &watch_with::<K>(factory, cluster, &recorder).await?;
    until_fresh(informer, true, EVENT_TIMEOUT).await?;

    freeze(cluster, true)?;
    let notice_time = until_fresh(informer, false, 2 * PERIOD + SLACK).await;
    freeze(cluster, false)?;
    let notice_time = notice_time?;
    writer.set("a", "2").await?;
    until_delivered(cluster, recording, "a", 2).await?;
    let recovery_time = until_fresh(informer, true, EVENT_TIMEOUT).await?;
    println!("noticed after {notice_time:.1?} (period {PERIOD:?}), recovered after {recovery_time:.1?}");

    check_contract_with(Bounds { period: PERIOD, ..Bounds::default() }, cluster, &recorder).await?;
    assert_eq!(diagnostics.times("relisted"), 0, "the watch was resumed");
    assert_eq!(recording.descriptions(&cluster.key("a")), ["Added", "Updated"]);
    assert_fresh(recording);
    Ok(())
}

async fn restored_store_starts_new_epoch<K: CachedConfigMap>(cluster: &mut TestCluster) -> Result<(), TestError> {
    let (writer, recorder) = (cluster.writer().clone(), cluster.recorder());
    writer.create("kept", "1").await?;
    writer.create("deleted", "1").await?;
    let settings = ReflectorSettings { period: PERIOD, ..ReflectorSettings::default() };
    let factory = InformerFactory::with_settings(&cluster.connection().await?, settings);
    let Watched { informer, diagnostics, recording, .. } = &watch_with::<K>(factory, cluster, &recorder).await?;

    cluster.back_up().await?;
    writer.create("lost", "1").await?;
    writer.delete("deleted").await?;
    // A server makes fewer writes at its start, so the restored versions stay lower for a long time.
    for _ in 0..200 {
        writer.write_unrelated().await?;
    }
    let changed_object = writer.set("kept", "2").await?;
    recorder.wait_for(informer, informer.name(), &changed_object).await?;
    recorder.fault("restored", true);
    cluster.restore().await?;
    recorder.fault("restored", false);
    let start = Instant::now();
    while informer.snapshot().epoch() == 0 {
        assert!(start.elapsed() < EVENT_TIMEOUT, "no new epoch, but {}", informer.freshness());
        sleep(Duration::from_millis(5)).await;
    }
    println!("a new epoch after {:.1?} (period {PERIOD:?})", start.elapsed());
    until_fresh(informer, true, EVENT_TIMEOUT).await?;
    writer.set("kept", "3").await?;

    check_contract_with(Bounds { period: PERIOD, ..Bounds::default() }, cluster, &recorder).await?;
    assert_eq!(diagnostics.times("relisted"), 1, "one list of the other history");
    assert_eq!(
        recording.descriptions(&cluster.key("kept")),
        ["Added", "Updated", "Updated", "Updated"],
        "the object survives"
    );
    assert_eq!(
        recording.descriptions(&cluster.key("lost")),
        ["Added", "Deleted Inferred Deleted"],
        "the backup does not contain the object"
    );
    assert_eq!(
        recording.descriptions(&cluster.key("deleted")),
        ["Added", "Deleted Observed Deleted", "Added"],
        "the object is restored"
    );
    assert_fresh(recording);
    Ok(())
}

async fn server_without_streamed_lists_is_paged<K: CachedConfigMap>(
    cluster: &mut TestCluster,
) -> Result<(), TestError> {
    let (writer, recorder) = (cluster.writer(), cluster.recorder());
    for name in ["a", "b", "c"] {
        writer.create(name, "1").await?;
    }
    cluster.network().send_to(1);
    let factory = InformerFactory::new(&cluster.connection().await?);
    let informer = build::<K>(&factory, cluster.scope()).streamed_lists(true).start()?;
    let Watched { diagnostics, recording, .. } = &watched(factory, informer, &recorder).await;
    assert_eq!(diagnostics.times("fell back to pages"), 1);
    writer.recreate("a", "2").await?;

    check_contract(cluster, &recorder).await?;
    assert_eq!(recording.descriptions(&cluster.key("a")), ["Added", "Deleted Observed Deleted", "Added"]);
    assert_eq!(recording.descriptions(&cluster.key("c")), ["Added"]);
    assert_eq!(diagnostics.times("relisted"), 0);
    assert_fresh(recording);
    Ok(())
}

async fn expired_paged_list_is_restarted<K: CachedConfigMap>(cluster: &mut TestCluster) -> Result<(), TestError> {
    let (writer, recorder) = (cluster.writer().clone(), cluster.recorder());
    for number in 0..40 {
        writer.create(&format!("c-{number:02}"), "1").await?;
    }
    cluster.network().send_to(1);
    // The list takes 8 s: twenty pages with a round trip of 0.4 s each.
    cluster.network().delay(Duration::from_millis(200));
    let factory = InformerFactory::new(&cluster.connection().await?);
    let informer = build::<K>(&factory, cluster.scope()).streamed_lists(false).page_size(Some(2)).start()?;
    let recording = recorder.record(&informer);
    sleep(Duration::from_secs(3)).await;
    assert!(!informer.has_synced(), "the list must still be in progress");
    writer.delete("c-39").await?;
    cluster.compact().await?;
    cluster.network().heal();
    informer.wait_for_sync(EVENT_TIMEOUT).await?;

    check_contract(cluster, &recorder).await?;
    assert_eq!(recording.descriptions(&cluster.key("c-38")), ["Added"]);
    // If the first list had completed, the object would have been added and deleted.
    assert_eq!(recording.descriptions(&cluster.key("c-39")), [""; 0], "the list is a newer one");
    assert_fresh(&recording);
    Ok(())
}
