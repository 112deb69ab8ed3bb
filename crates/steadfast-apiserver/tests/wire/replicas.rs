//! Replicas: lag, windows of events, restarts and restores.

use std::time::Duration;

use crate::support::{CONFIG_MAPS, Client, config_map, in_memory_server, names, seconds_since, version_of};
use serde_json::json;
use steadfast_apiserver::ApiServer;

fn watch_from(version: u64) -> String {
    format!("{CONFIG_MAPS}?watch=1&resourceVersion={version}&allowWatchBookmarks=true")
}

#[tokio::test(start_paused = true)]
async fn restarted_replica_forgets_old_events() {
    let server = ApiServer::builder().in_memory().replicas(2).start().await.unwrap();
    let version = version_of(&server.create(&config_map("a")).unwrap());
    let mut first = Client::in_memory(&server, 0).await.unwrap();
    let mut watch = first.watch(&watch_from(version)).await;
    server.faults().replica(0).restart();
    watch.assert_breaks().await;

    // No write has happened since, so the version is the start of the new window.
    let mut first = Client::in_memory(&server, 0).await.unwrap();
    first.watch(&watch_from(version)).await.assert_silent_for(Duration::from_secs(1)).await;

    server.create(&config_map("b")).unwrap();
    server.faults().replica(0).restart();
    let mut first = Client::in_memory(&server, 0).await.unwrap();
    let mut expired = first.watch(&watch_from(version)).await;
    assert_eq!(expired.code, 200);
    let event = expired.event().await;
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(event["object"]["reason"], "Expired");
    expired.assert_ends().await;

    // The other replica was never restarted and still has the events.
    let mut second = Client::in_memory(&server, 1).await.unwrap();
    assert_eq!(second.watch(&watch_from(version)).await.summary().await.1, "b");
}

#[tokio::test(start_paused = true)]
async fn compaction_keeps_watches_and_windows() {
    let server = in_memory_server().await;
    let version = version_of(&server.create(&config_map("a")).unwrap());
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let mut open = client.watch(&watch_from(version)).await;
    server.create(&config_map("b")).unwrap();
    server.compact();
    assert_eq!(open.summary().await.1, "b");
    assert_eq!(client.watch(&watch_from(version)).await.summary().await.1, "b", "each replica has its own window");
    server.faults().expire_events();
    let expired = client.watch(&watch_from(version)).await.event().await;
    assert_eq!(expired["object"]["code"], 410);
    assert_eq!(server.history().changes_of("", "configmaps").count(), 2);
}

#[tokio::test(start_paused = true)]
async fn forgotten_changes_expire_and_current_objects_stay() {
    let server = in_memory_server().await;
    let version = version_of(&server.create(&config_map("a")).unwrap());
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let mut open = client.watch(&watch_from(version)).await;
    let mut stalled = client.watch(&watch_from(version)).await;
    for name in ["b", "c"] {
        server.create(&config_map(name)).unwrap();
        assert_eq!(open.summary().await.1, name);
    }
    server.delete_named("configmaps", "", "b").unwrap();
    assert_eq!(open.summary().await.1, "b");
    for name in ["b", "c", "b"] {
        assert_eq!(stalled.summary().await.1, name);
    }
    server.faults().stall_streams(true);
    for name in ["d", "e"] {
        server.create(&config_map(name)).unwrap();
    }
    server.forget_history(1);
    assert_eq!(server.history().changes_of("", "configmaps").count(), 1);
    assert_eq!(names(&client.get(CONFIG_MAPS).await.1), ["a", "c", "d", "e"]);
    let exact = format!("{CONFIG_MAPS}?resourceVersion={version}&resourceVersionMatch=Exact");
    assert_eq!(client.get(&exact).await.0, 410);
    let expired = client.watch(&watch_from(version)).await.event().await;
    assert_eq!(expired["object"]["code"], 410);

    // A watch that has missed removed changes ends, instead of continuing with a gap.
    server.faults().stall_streams(false);
    stalled.assert_ends().await;
    let newest = server.revision();
    let mut resumed = client.watch(&watch_from(newest - 1)).await;
    assert_eq!(resumed.summary().await.1, "e");
    server.forget_history(0);
    server.create(&config_map("f")).unwrap();
    assert_eq!(resumed.summary().await.1, "f");
    assert_eq!(server.history().changes_of("", "configmaps").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn lagging_replica_serves_old_reads() {
    let server = ApiServer::builder().in_memory().replicas(2).start().await.unwrap();
    let old = version_of(&server.create(&config_map("a")).unwrap());
    server.faults().replica(1).lag(true);
    server.create(&config_map("b")).unwrap();
    let mut current_client = Client::in_memory(&server, 0).await.unwrap();
    let mut lagging_client = Client::in_memory(&server, 1).await.unwrap();
    let cached = format!("{CONFIG_MAPS}?resourceVersion=0");
    assert_eq!(names(&current_client.get(&cached).await.1), ["a", "b"]);
    let (_, list) = lagging_client.get(&cached).await;
    assert_eq!((names(&list), version_of(&list)), (vec!["a"], old));
    assert_eq!(server.applied_revision(1), old);

    let before = server.elapsed();
    let (code, list) = lagging_client.get(CONFIG_MAPS).await;
    assert_eq!((code, names(&list), seconds_since(&server, before)), (200, vec!["a", "b"], 3));
    let newer = format!("{CONFIG_MAPS}?resourceVersion={}&resourceVersionMatch=NotOlderThan", server.revision());
    assert_eq!(lagging_client.get(&newer).await.0, 504);

    // A watch from a future version is accepted and waits; a streamed list from a future version is rejected.
    let mut watch = lagging_client.watch(&watch_from(server.revision())).await;
    watch.assert_silent_for(Duration::from_secs(200)).await;
    let streamed =
        format!("{CONFIG_MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=999");
    let refused = lagging_client.watch(&streamed).await.event().await;
    assert_eq!((&refused["type"], &refused["object"]["code"]), (&json!("ERROR"), &json!(504)));

    server.faults().replica(1).lag(false);
    server.create(&config_map("c")).unwrap();
    assert_eq!(watch.summary().await.1, "c");
}

#[tokio::test(start_paused = true)]
async fn replica_stops_at_a_revision() {
    let server = in_memory_server().await;
    let lag_revision = server.revision() + 1;
    server.faults().lag_at(lag_revision);
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let mut watch = client.watch(&watch_from(server.revision())).await;
    server.create(&config_map("a")).unwrap();
    server.create(&config_map("b")).unwrap();
    assert_eq!(watch.summary().await.1, "a");
    assert_eq!(server.applied_revision(0), lag_revision);
    assert_eq!(watch.summary().await, ("BOOKMARK".into(), String::new(), lag_revision));
    server.faults().lag(false);
    assert_eq!(watch.summary().await.1, "b");
}

#[tokio::test(start_paused = true)]
async fn frozen_store_only_sends_bookmarks() {
    let server = in_memory_server().await;
    let start = server.revision();
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let mut watch = client.watch(&watch_from(start)).await;
    server.create(&config_map("a")).unwrap();
    assert_eq!(watch.summary().await.1, "a");
    server.faults().freeze_etcd(true);
    server.create(&config_map("b")).unwrap();
    for _ in 0..3 {
        assert_eq!(watch.summary().await, ("BOOKMARK".into(), String::new(), start + 1));
    }
    assert_eq!(names(&client.get(&format!("{CONFIG_MAPS}?resourceVersion=0")).await.1), ["a"]);
    let before = server.elapsed();
    assert_eq!(client.get(&format!("{CONFIG_MAPS}?limit=1")).await.0, 504);
    assert_eq!(seconds_since(&server, before), 60);
    let (code, _) = client.call(http::Method::POST, CONFIG_MAPS, &config_map("c")).await.unwrap();
    assert_eq!(code, 504);
    server.faults().freeze_etcd(false);
    let next = watch.summary().await;
    assert!(next.0 == "BOOKMARK" || next.1 == "b", "{next:?}");
}

#[tokio::test(start_paused = true)]
async fn restored_history_continues_in_a_new_epoch() {
    let server = in_memory_server().await;
    let restored_revision = version_of(&server.create(&config_map("a")).unwrap());
    server.create(&config_map("b")).unwrap();
    let newest = server.revision();
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let mut watch = client.watch(&watch_from(newest)).await;
    server.faults().restore(restored_revision);
    watch.assert_breaks().await;

    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let (_, list) = client.get(CONFIG_MAPS).await;
    assert_eq!((names(&list), version_of(&list)), (vec!["a"], restored_revision));
    // The versions seen before are now in the future.
    let mut silent = client.watch(&watch_from(newest)).await;
    silent.assert_silent_for(Duration::from_secs(5)).await;
    let new_revision = version_of(&server.create(&config_map("c")).unwrap());
    assert_eq!(new_revision, restored_revision + 1);

    let history = server.history();
    assert_eq!(history.epochs, [0, restored_revision]);
    let recorded: Vec<(u32, u64, &str)> = history
        .changes_of("", "configmaps")
        .map(|change| (change.epoch, change.revision, change.name.as_str()))
        .collect();
    assert_eq!(recorded, [(0, restored_revision, "a"), (0, newest, "b"), (1, new_revision, "c")]);
}
