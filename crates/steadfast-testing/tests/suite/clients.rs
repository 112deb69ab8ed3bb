//! Faults of programs: handlers that are slow, blocked or panic, shutdowns and writes while disconnected, and rejected
//! credentials.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use kube::config::AuthInfo;
use steadfast::connection::ConnectError;
use steadfast::transport::Settings;
use steadfast::{Connection, Freshness, InformerFactory, InjectedFault};
use steadfast_contract::Clause;
use steadfast_testing::CachedConfigMap;
use steadfast_testing::cluster::TestCluster;
use steadfast_testing::{TestError, config_map_in};
use tokio::time::sleep;

use super::{
    EVENT_TIMEOUT, Watched, assert_fresh, build, check_contract, until_delivered, until_fresh, watch, watch_with,
};

super::scenarios! {
    blocked_handler_delays_no_other<K>: needs [], covers [SlowReader, BadHandler];
    panicking_handler_is_retried<K>: needs [], covers [BadHandler];
    late_handler_receives_existing_objects<K>: needs [], covers [];
    shutdown_while_cut_is_prompt<K>: needs [], covers [ShutdownWhileCut];
    write_while_cut_happens_at_most_once<K>: needs [], covers [WriteWhileCut];
    rejected_credentials_are_reported_until_replaced<K>: needs [], covers [CredentialsRotated];
    premature_delivery_is_detected<K>: needs [], covers [];
}

async fn blocked_handler_delays_no_other<K: CachedConfigMap>(cluster: &mut TestCluster) -> Result<(), TestError> {
    const CHANGES: usize = 200;
    let (writer, recorder) = (cluster.writer(), cluster.recorder());
    writer.create("a", "0").await?;
    let Watched { informer, diagnostics, recording, .. } = &watch::<K>(cluster, &recorder).await?;
    let is_stuck = Arc::new(AtomicBool::new(true));
    let captured_is_stuck = is_stuck.clone();
    let slow_handler = recorder.handle(informer, informer.name(), move |_| {
        while captured_is_stuck.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(10));
        }
    });
    // More events than sockets and stream windows can buffer.
    for change in 1..=CHANGES {
        let value = change.to_string().repeat(10_000);
        let changed_object = writer.set("a", &value).await?;
        if change % 20 == 0 {
            recorder.wait_for(informer, informer.name(), &changed_object).await?;
        }
    }
    until_delivered(cluster, recording, "a", 2).await?;
    // At most two entries are pending: one in the running call, and one merged entry.
    let pending_entries = slow_handler.registration().stats().entries;
    assert!(pending_entries <= 2, "{pending_entries} pending entries for a handler of one object");
    is_stuck.store(false, Ordering::Relaxed);

    check_contract(cluster, &recorder).await?;
    let delivered = slow_handler.of(&cluster.key("a")).len();
    assert!((2..=3).contains(&delivered), "pending events are merged into the newest: {delivered}");
    assert_eq!(diagnostics.times("relisted"), 0);
    assert_fresh(recording);
    Ok(())
}

async fn panicking_handler_is_retried<K: CachedConfigMap>(cluster: &mut TestCluster) -> Result<(), TestError> {
    let (writer, recorder) = (cluster.writer(), cluster.recorder());
    let factory = InformerFactory::new(&cluster.connection().await?);
    let informer = build::<K>(&factory, cluster.scope().labels("app")).start()?;
    let recording = recorder.record(&informer);
    let calls = Arc::new(AtomicUsize::new(0));
    let captured_calls = calls.clone();
    let panicking_handler = recorder.handle(&informer, informer.name(), move |_| {
        assert!(captured_calls.fetch_add(1, Ordering::Relaxed) > 0, "injected panic");
    });
    recording.until_synced().await;
    writer.create_labelled("a", "web").await?;
    until_delivered(cluster, &panicking_handler, "a", 2).await?;
    writer.delete("a").await?;

    check_contract(cluster, &recorder).await?;
    let deletion = "Deleted Observed DeletedOrLeft";
    // The panicked delivery is repeated.
    assert_eq!(panicking_handler.descriptions(&cluster.key("a")), ["Added", "Added", deletion]);
    assert_eq!(recording.descriptions(&cluster.key("a")), ["Added", deletion], "no other handler is affected");
    assert_fresh(&recording);
    Ok(())
}

async fn late_handler_receives_existing_objects<K: CachedConfigMap>(
    cluster: &mut TestCluster,
) -> Result<(), TestError> {
    let (writer, recorder) = (cluster.writer(), cluster.recorder());
    writer.create("a", "1").await?;
    writer.create("gone", "1").await?;
    let Watched { informer, recording: first_recording, .. } = &watch::<K>(cluster, &recorder).await?;
    writer.set("a", "2").await?;
    writer.delete("gone").await?;
    until_delivered(cluster, first_recording, "a", 2).await?;
    until_delivered(cluster, first_recording, "gone", 2).await?;
    let late_recording = recorder.record(informer);
    late_recording.until_synced().await;
    writer.set("a", "3").await?;

    check_contract(cluster, &recorder).await?;
    assert_eq!(first_recording.descriptions(&cluster.key("a")), ["Added", "Updated", "Updated"]);
    // A late handler receives the current state as `Added`, and no past changes.
    assert_eq!(late_recording.descriptions(&cluster.key("a")), ["Added", "Updated"]);
    assert_eq!(late_recording.descriptions(&cluster.key("gone")), [""; 0]);
    assert_fresh(&late_recording);
    Ok(())
}

async fn shutdown_while_cut_is_prompt<K: CachedConfigMap>(cluster: &mut TestCluster) -> Result<(), TestError> {
    let (writer, recorder, network) = (cluster.writer(), cluster.recorder(), cluster.network());
    writer.create("a", "1").await?;
    let connection = cluster.connection().await?;
    let Watched { factory, informer, recording, .. } =
        &watch_with::<K>(InformerFactory::new(&connection), cluster, &recorder).await?;
    cluster.settle(&recorder).await?;

    network.cut();
    until_fresh(informer, false, EVENT_TIMEOUT).await?;
    // After some attempts, the informer waits for the next one.
    sleep(Duration::from_millis(700)).await;
    let start = Instant::now();
    let undelivered = factory.shutdown();
    while !matches!(informer.freshness(), Freshness::Stopped(_)) {
        assert!(start.elapsed() < EVENT_TIMEOUT, "still {}", informer.freshness());
        sleep(Duration::from_millis(2)).await;
    }
    println!("stopped after {:.1?}", start.elapsed());
    assert_eq!(undelivered.events, 0);
    let attempts = steadfast::unstable::dial_count(&connection);
    network.heal();
    sleep(Duration::from_secs(2)).await;
    assert_eq!(steadfast::unstable::dial_count(&connection), attempts, "attempts after the shutdown");

    // Code that used the informers' client before the shutdown can continue to use it.
    let config_maps: Api<ConfigMap> = Api::namespaced(connection.client(), cluster.namespace());
    config_maps.create(&PostParams::default(), &config_map_in(cluster.namespace(), "after", "1")).await?;
    // After the shutdown, no task of the informer runs, so there is nothing to wait for.
    let report = steadfast_contract::report(&cluster.history().await?, &recorder.trace());
    assert!(report.has_no_violation(), "{report:#?}");
    assert_eq!(recording.descriptions(&cluster.key("after")), [""; 0]);
    Ok(())
}

async fn write_while_cut_happens_at_most_once<K: CachedConfigMap>(cluster: &mut TestCluster) -> Result<(), TestError> {
    let (recorder, network) = (cluster.recorder(), cluster.network());
    let deadline = Duration::from_secs(2);
    let connection =
        cluster.connection_with_settings(Settings { headers_timeout: deadline, ..Settings::default() }).await?;
    let Watched { informer, recording, .. } =
        &watch_with::<K>(InformerFactory::new(&connection), cluster, &recorder).await?;

    let config_maps: Api<ConfigMap> = Api::namespaced(connection.client(), cluster.namespace());
    network.cut();
    until_fresh(informer, false, EVENT_TIMEOUT).await?;
    let rejected = config_map_in(cluster.namespace(), "refused", "1");
    let start = Instant::now();
    let error = config_maps.create(&PostParams::default(), &rejected).await.expect_err("the server is unreachable");
    assert!(start.elapsed() < deadline + EVENT_TIMEOUT, "the request ended after {:?}", start.elapsed());
    let mut message = String::new();
    let mut cause: Option<&dyn std::error::Error> = Some(&error);
    while let Some(error) = cause {
        message.push_str(&error.to_string());
        cause = error.source();
    }
    for part in ["127.0.0.1", "refused"] {
        assert!(message.contains(part), "{message}");
    }
    network.heal();
    until_fresh(informer, true, EVENT_TIMEOUT).await?;
    config_maps.create(&PostParams::default(), &config_map_in(cluster.namespace(), "there", "1")).await?;

    check_contract(cluster, &recorder).await?;
    assert_eq!(recording.descriptions(&cluster.key("refused")), [""; 0], "the rejected write must not happen");
    assert_eq!(recording.descriptions(&cluster.key("there")), ["Added"], "the accepted write must happen once");
    assert_fresh(recording);
    Ok(())
}

async fn rejected_credentials_are_reported_until_replaced<K: CachedConfigMap>(
    cluster: &mut TestCluster,
) -> Result<(), TestError> {
    let (writer, recorder) = (cluster.writer(), cluster.recorder());
    writer.create("a", "1").await?;
    let valid_config = cluster.proxied()?;
    let mut wrong_config = valid_config.clone();
    wrong_config.auth_info = AuthInfo { token: Some("nobody's".to_owned().into()), ..AuthInfo::default() };
    let is_replaced = Arc::new(AtomicBool::new(false));
    let (captured_is_replaced, captured_wrong_config) = (is_replaced.clone(), wrong_config.clone());
    let load = move || {
        let config = if captured_is_replaced.load(Ordering::Relaxed) {
            valid_config.clone()
        } else {
            captured_wrong_config.clone()
        };
        async move { Ok::<_, ConnectError>(config) }
    };
    let connection = Connection::builder(wrong_config).loader(load).build()?;
    let factory = InformerFactory::new(&connection);
    let informer = build::<K>(&factory, cluster.scope()).start()?;
    let recording = recorder.record(&informer);
    let sync_error = informer.wait_for_sync(Duration::from_secs(2)).await.expect_err("the token is invalid");
    assert!(matches!(sync_error.state, Freshness::Failed(_)), "{sync_error}");
    assert!(sync_error.to_string().contains("401"), "{sync_error}");
    assert!(!sync_error.to_string().contains("nobody's"), "a token in an error");

    is_replaced.store(true, Ordering::Relaxed);
    informer.wait_for_sync(EVENT_TIMEOUT).await?;
    writer.set("a", "2").await?;

    check_contract(cluster, &recorder).await?;
    assert_eq!(recording.descriptions(&cluster.key("a")).first().map(String::as_str), Some("Added"));
    assert_fresh(&recording);
    Ok(())
}

/// Runs a library with an injected fault. The checker must detect the fault in this history.
async fn premature_delivery_is_detected<K: CachedConfigMap>(cluster: &mut TestCluster) -> Result<(), TestError> {
    let writer = cluster.writer();
    let connection = cluster.connection().await?;
    let mut informers = Vec::new();
    for (fault, clause) in [(InjectedFault::HandlerFirst, Clause::C6), (InjectedFault::SyncedTooEarly, Clause::C9)] {
        let factory = InformerFactory::new(&connection);
        let recorder = cluster.recorder();
        // A premature sync occurs before the list arrives.
        cluster.network().delay(Duration::from_millis(200));
        let informer = build::<K>(&factory, cluster.scope()).inject_fault(fault).start()?;
        let recording = recorder.record(&informer);
        sleep(Duration::from_secs(1)).await;
        cluster.network().heal();
        informers.push((factory, recording, recorder, clause));
    }
    for number in 0..10 {
        writer.create(&format!("c-{number}"), "1").await?;
    }
    for (_factory, _recording, recorder, clause) in informers {
        cluster.settle(&recorder).await?;
        let report = steadfast_contract::report(&cluster.history().await?, &recorder.trace());
        assert!(report.violations_of(clause).next().is_some(), "{clause:?}: {report:?}");
    }
    Ok(())
}
