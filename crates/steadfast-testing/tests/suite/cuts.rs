//! Faults of the network: disconnects, resets in the middle of an object, dropped packets, closed connections, low
//! bandwidth.

use std::time::Duration;

use steadfast::transport::Settings;
use steadfast::{InformerFactory, InjectedFault};
use steadfast_contract::Clause;
use steadfast_testing::CachedConfigMap;
use steadfast_testing::TestError;
use steadfast_testing::cluster::TestCluster;
use steadfast_testing::proxy::Direction;
use tokio::time::sleep;

use super::{
    EVENT_TIMEOUT, Watched, assert_fresh, build, check_contract, until_delivered, until_fresh, watch, watch_with,
};

super::scenarios! {
    events_during_cut_are_delivered_in_order<K>: needs [], covers [RecreatedWhileCut, DeletedWhileCut];
    reentry_during_cut_is_two_stays<K>: needs [], covers [SelectorChurn];
    resets_within_objects_cost_no_list<K>: needs [], covers [ConnectionReset];
    dropped_packets_are_noticed_within_15_seconds<K>: needs [], covers [BlackHole];
    packets_dropped_one_way_are_noticed<K>: needs [], covers [BlackHole];
    absent_server_is_reported_until_it_appears<K>: needs [], covers [ServerAbsent];
    closed_connections_are_retried_with_backoff<K>: needs [], covers [AcceptAndClose];
    pings_keep_idle_flow_alive<K>: needs [], covers [IdleFlowDropped];
    slow_list_completes<K>: needs [], covers [];
    false_freshness_while_cut_is_detected<K>: needs [], covers [];
}

/// Maximum time until a client notices that its peer is dead (R1).
const DEAD_PEER_TIMEOUT: Duration = Duration::from_secs(15);

async fn events_during_cut_are_delivered_in_order<K: CachedConfigMap>(
    cluster: &mut TestCluster,
) -> Result<(), TestError> {
    let (writer, recorder) = (cluster.writer(), cluster.recorder());
    for name in ["recreated", "deleted", "changed", "kept"] {
        writer.create(name, "1").await?;
    }
    let Watched { diagnostics, recording, .. } = &watch::<K>(cluster, &recorder).await?;
    recorder.follow(cluster.network());

    cluster.network().cut();
    writer.recreate("recreated", "2").await?;
    writer.delete("deleted").await?;
    writer.set("changed", "2").await?;
    writer.create("new", "1").await?;
    cluster.network().heal();

    check_contract(cluster, &recorder).await?;
    for (name, expected) in [
        ("recreated", &["Added", "Deleted Observed Deleted", "Added"][..]),
        ("deleted", &["Added", "Deleted Observed Deleted"]),
        ("changed", &["Added", "Updated"]),
        ("kept", &["Added"]),
        ("new", &["Added"]),
    ] {
        assert_eq!(recording.descriptions(&cluster.key(name)), expected, "{name}");
    }
    assert_eq!(diagnostics.times("relisted"), 0, "the watch was resumed");
    assert_fresh(recording);
    Ok(())
}

async fn reentry_during_cut_is_two_stays<K: CachedConfigMap>(cluster: &mut TestCluster) -> Result<(), TestError> {
    let (writer, recorder) = (cluster.writer(), cluster.recorder());
    writer.create_labelled("a", "web").await?;
    let factory = InformerFactory::new(&cluster.connection().await?);
    let recording = recorder.record(&build::<K>(&factory, cluster.scope().labels("app=web")).start()?);
    recording.until_synced().await;

    cluster.network().cut();
    writer.label("a", "db").await?;
    writer.label("a", "web").await?;
    cluster.network().heal();

    check_contract(cluster, &recorder).await?;
    // A watch with a selector sends DELETED also for an object that leaves the selector, so the reason is ambiguous.
    assert_eq!(recording.descriptions(&cluster.key("a")), ["Added", "Deleted Observed DeletedOrLeft", "Added"]);
    assert_fresh(&recording);
    Ok(())
}

async fn resets_within_objects_cost_no_list<K: CachedConfigMap>(cluster: &mut TestCluster) -> Result<(), TestError> {
    let (writer, recorder) = (cluster.writer(), cluster.recorder());
    writer.create("large", "0").await?;
    let Watched { informer, diagnostics, recording, .. } = &watch::<K>(cluster, &recorder).await?;

    for (round, bytes) in [0, 1, 1000, 30_000, 100_000].into_iter().enumerate() {
        until_fresh(informer, true, EVENT_TIMEOUT).await?;
        cluster.network().reset_after(bytes, Direction::ToClient);
        // The object is larger than the number of bytes that pass before the reset.
        writer.set("large", &round.to_string().repeat(200_000)).await?;
        until_delivered(cluster, recording, "large", round + 2).await?;
    }

    check_contract(cluster, &recorder).await?;
    let resets = cluster.network().connections().len() - 1;
    assert!(resets >= 5, "only {resets} connections were replaced");
    assert_eq!(diagnostics.times("relisted"), 0, "the watch was resumed after every disconnect");
    assert_eq!(
        recording.descriptions(&cluster.key("large")),
        ["Added", "Updated", "Updated", "Updated", "Updated", "Updated"]
    );
    assert_fresh(recording);
    Ok(())
}

async fn dropped_packets_are_noticed_within_15_seconds<K: CachedConfigMap>(
    cluster: &mut TestCluster,
) -> Result<(), TestError> {
    check_black_hole::<K>(cluster, Direction::Both, Settings::default()).await
}

async fn packets_dropped_one_way_are_noticed<K: CachedConfigMap>(cluster: &mut TestCluster) -> Result<(), TestError> {
    // The test runs in real time, so the timeouts are shorter than the defaults.
    let second = Duration::from_secs(1);
    check_black_hole::<K>(
        cluster,
        Direction::ToClient,
        Settings { ping_after: second, ping_timeout: second, ..Settings::default() },
    )
    .await
}

async fn check_black_hole<K: CachedConfigMap>(
    cluster: &TestCluster,
    direction: Direction,
    settings: Settings,
) -> Result<(), TestError> {
    let (writer, recorder, network) = (cluster.writer(), cluster.recorder(), cluster.network());
    writer.create("a", "0").await?;
    let factory = InformerFactory::new(&cluster.connection_with_settings(settings).await?);
    let Watched { informer, diagnostics, recording, .. } = &watch_with::<K>(factory, cluster, &recorder).await?;
    recorder.follow(network);
    until_fresh(informer, true, EVENT_TIMEOUT).await?;

    network.black_hole(direction, true);
    // A black hole sends neither FIN nor RST, so only a missing ping response shows the loss.
    let elapsed = until_fresh(informer, false, DEAD_PEER_TIMEOUT).await?;
    writer.set("a", "1").await?;
    network.black_hole(direction, false);
    until_delivered(cluster, recording, "a", 2).await?;
    let recovery_time = until_fresh(informer, true, EVENT_TIMEOUT).await?;
    println!("{direction:?} vanish: noticed after {elapsed:.1?}, recovered after {recovery_time:.1?}");

    check_contract(cluster, &recorder).await?;
    assert_eq!(diagnostics.times("relisted"), 0, "the watch was resumed");
    assert_eq!(recording.descriptions(&cluster.key("a")), ["Added", "Updated"]);
    assert_fresh(recording);
    Ok(())
}

async fn absent_server_is_reported_until_it_appears<K: CachedConfigMap>(
    cluster: &mut TestCluster,
) -> Result<(), TestError> {
    let (writer, recorder) = (cluster.writer(), cluster.recorder());
    writer.create("a", "1").await?;
    cluster.network().refuse(true);
    let connection = cluster.connection().await?;
    let factory = InformerFactory::new(&connection);
    let informer = build::<K>(&factory, cluster.scope()).start()?;
    let recording = recorder.record(&informer);
    let error =
        informer.wait_for_sync(Duration::from_secs(1)).await.expect_err("the server is unreachable").to_string();
    for part in ["configmaps", "127.0.0.1", "refused"] {
        assert!(error.contains(part), "{error}");
    }

    cluster.network().refuse(false);
    informer.wait_for_sync(EVENT_TIMEOUT).await?;

    check_contract(cluster, &recorder).await?;
    assert_eq!(recording.descriptions(&cluster.key("a")), ["Added"]);
    assert_fresh(&recording);
    Ok(())
}

async fn closed_connections_are_retried_with_backoff<K: CachedConfigMap>(
    cluster: &mut TestCluster,
) -> Result<(), TestError> {
    let (writer, recorder, network) = (cluster.writer(), cluster.recorder(), cluster.network());
    writer.create("a", "1").await?;
    let Watched { diagnostics, recording, .. } = &watch::<K>(cluster, &recorder).await?;

    let connections_before = network.connections().len();
    network.accept_and_close(true);
    network.reset();
    writer.set("a", "2").await?;
    sleep(Duration::from_secs(4)).await;
    let attempts = network.connections().len() - connections_before;
    network.heal();
    // Twelve is the bound of the catalog. A busy machine makes fewer attempts.
    assert!((1..=12).contains(&attempts), "{attempts} attempts in four seconds");

    check_contract(cluster, &recorder).await?;
    assert_eq!(diagnostics.times("relisted"), 0, "the watch was resumed");
    assert_eq!(recording.descriptions(&cluster.key("a")), ["Added", "Updated"]);
    assert_fresh(recording);
    Ok(())
}

async fn pings_keep_idle_flow_alive<K: CachedConfigMap>(cluster: &mut TestCluster) -> Result<(), TestError> {
    let (writer, recorder, network) = (cluster.writer(), cluster.recorder(), cluster.network());
    writer.create("a", "1").await?;
    // Much shorter than the defaults and than in real networks, because the test runs in real time.
    let settings = Settings { ping_after: Duration::from_secs(1), ..Settings::default() };
    let connection = cluster.connection_with_settings(settings).await?;
    let Watched { recording, .. } = &watch_with::<K>(InformerFactory::new(&connection), cluster, &recorder).await?;
    // The limit allows for a busy machine: while other servers start, a timer of one second may be late by another
    // second.
    network.drop_idle_after(Some(Duration::from_secs(5)));
    sleep(Duration::from_secs(11)).await;
    writer.set("a", "2").await?;
    until_delivered(cluster, recording, "a", 2).await?;
    let dropped = network.changes().iter().filter(|change| change.fault == "idle flow dropped").count();
    assert_eq!(dropped, 0, "the connection was kept");

    check_contract(cluster, &recorder).await?;
    assert_eq!(recording.descriptions(&cluster.key("a")), ["Added", "Updated"]);
    assert_fresh(recording);
    Ok(())
}

async fn slow_list_completes<K: CachedConfigMap>(cluster: &mut TestCluster) -> Result<(), TestError> {
    let (writer, recorder, network) = (cluster.writer(), cluster.recorder(), cluster.network());
    for number in 0..20 {
        writer.create(&format!("c-{number:02}"), &"x".repeat(1500)).await?;
    }
    network.throttle(Some(20_000));
    network.jitter(Duration::from_millis(20));
    let factory = InformerFactory::new(&cluster.connection().await?);
    let informer = build::<K>(&factory, cluster.scope()).start()?;
    let recording = recorder.record(&informer);
    informer.wait_for_sync(EVENT_TIMEOUT).await?;
    network.heal();

    check_contract(cluster, &recorder).await?;
    assert_eq!(recording.descriptions(&cluster.key("c-19")), ["Added"]);
    assert_fresh(&recording);
    Ok(())
}

/// Runs a library with an injected fault. The checker must detect the fault in this history.
async fn false_freshness_while_cut_is_detected<K: CachedConfigMap>(cluster: &mut TestCluster) -> Result<(), TestError> {
    let (writer, recorder, faulty_recorder) = (cluster.writer(), cluster.recorder(), cluster.recorder());
    writer.create("a", "1").await?;
    let factory = InformerFactory::new(&cluster.connection().await?);
    let recording = recorder.record(&build::<K>(&factory, cluster.scope()).start()?);
    let other_factory = InformerFactory::new(&cluster.connection().await?);
    let faulty_recording =
        build::<K>(&other_factory, cluster.scope()).inject_fault(InjectedFault::AlwaysFresh).start()?;
    let faulty_recording = faulty_recorder.record(&faulty_recording);
    recording.until_synced().await;
    faulty_recording.until_synced().await;

    cluster.network().cut();
    writer.set("a", "2").await?;
    sleep(Duration::from_secs(4)).await;
    // The sample must precede the recovery. After the recovery, the claim of freshness is true again.
    faulty_recorder.sample(faulty_recording.informer(), faulty_recording.informer().name());
    cluster.network().heal();

    check_contract(cluster, &recorder).await?;
    cluster.settle(&faulty_recorder).await?;
    let report = steadfast_contract::report(&cluster.history().await?, &faulty_recorder.trace());
    assert!(report.violations_of(Clause::C10).next().is_some(), "{report:?}");
    Ok(())
}
