//! Lists and watches as clients see them.

use std::time::Duration;

use crate::support::{
    CONFIG_MAPS, Client, Watch, config_map, in_memory_server, labelled, names, seconds_since, version_of,
};
use serde_json::json;
use steadfast_apiserver::{ApiServer, Verb};

#[tokio::test(start_paused = true)]
async fn watch_resumes_from_list_version() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    server.create(&config_map("a")).unwrap();
    let (code, list) = client.get(CONFIG_MAPS).await;
    assert_eq!((code, names(&list)), (200, vec!["a"]));
    assert_eq!(list["kind"], "ConfigMapList");

    let b = server.create(&config_map("b")).unwrap();
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", version_of(&list));
    let mut watch = client.watch(&path).await;
    assert_eq!(watch.summary().await, ("ADDED".into(), "b".into(), version_of(&b)));
    let changed = server.merge_patch("configmaps", "default", "b", json!({"data": {"k": "w"}})).unwrap();
    assert_eq!(watch.summary().await, ("MODIFIED".into(), "b".into(), version_of(&changed)));
    server.delete(&b).unwrap();
    assert_eq!(watch.summary().await, ("DELETED".into(), "b".into(), server.revision()));

    let verbs: Vec<Verb> = server.requests().iter().map(|request| request.verb).collect();
    assert_eq!(verbs, [Verb::List, Verb::Watch]);
    let counts = server.request_counts();
    assert_eq!((counts.lists, counts.watches, counts.most_concurrent_transfers), (1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn streamed_list_ends_with_annotated_bookmark() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    server.create(&config_map("a")).unwrap();
    server.create(&config_map("b")).unwrap();
    let path = format!(
        "{CONFIG_MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    let mut watch = client.watch(&path).await;
    assert_eq!(watch.summary().await.1, "a");
    assert_eq!(watch.summary().await.1, "b");
    let end = watch.event().await;
    assert_eq!(end["type"], "BOOKMARK");
    assert_eq!(end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(version_of(&end["object"]), server.revision());
    server.create(&config_map("c")).unwrap();
    assert_eq!(watch.summary().await, ("ADDED".into(), "c".into(), server.revision()));
    assert_eq!(server.request_counts().streamed_lists, 1);
}

#[tokio::test(start_paused = true)]
async fn bookmarks_report_the_cache_version() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let start = server.revision();
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={start}&allowWatchBookmarks=true");
    let mut watch = client.watch(&path).await;
    // Without a write, no bookmark exceeds the start version.
    watch.assert_silent_for(Duration::from_secs(100)).await;
    server.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})).unwrap();
    let before = server.elapsed();
    assert_eq!(watch.summary().await, ("BOOKMARK".into(), String::new(), start + 1));
    assert_eq!(seconds_since(&server, before), 20);
    assert_eq!(watch.summary().await, ("BOOKMARK".into(), String::new(), start + 1));
    assert_eq!(seconds_since(&server, before), 80);
}

#[tokio::test(start_paused = true)]
async fn last_bookmark_precedes_end_by_two_seconds() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion=2&allowWatchBookmarks=true&timeoutSeconds=4");
    server.create(&config_map("a")).unwrap();
    let start = server.revision() - 1;
    let path = path.replace("resourceVersion=2", &format!("resourceVersion={start}"));
    let before = server.elapsed();
    let mut watch = client.watch(&path).await;
    assert_eq!(watch.summary().await.0, "ADDED");
    server.create(&config_map("b")).unwrap();
    assert_eq!(watch.summary().await.0, "ADDED");
    assert_eq!(watch.summary().await, ("BOOKMARK".into(), String::new(), start + 2));
    assert_eq!(seconds_since(&server, before), 2);
    watch.assert_ends().await;
    assert_eq!(seconds_since(&server, before), 4);
}

#[tokio::test(start_paused = true)]
async fn bookmark_must_exceed_last_change_at_start() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let start = server.revision();
    // A change of an object outside of the selector suppresses the bookmark too.
    server.create(&labelled("a", &json!({"app": "api"}))).unwrap();
    let selector = "labelSelector=app%3Dweb&allowWatchBookmarks=true&timeoutSeconds=4";
    let mut watch = client.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={start}&{selector}")).await;
    watch.assert_ends().await;
    // After any later write, a bookmark is due.
    let mut watch = client.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={start}&{selector}")).await;
    server.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})).unwrap();
    assert_eq!(watch.summary().await, ("BOOKMARK".into(), String::new(), start + 2));
    watch.assert_ends().await;
}

#[tokio::test(start_paused = true)]
async fn leaving_object_is_deleted_with_old_content() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let start = server.revision();
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={start}&labelSelector=app%3Dweb");
    let mut watch = client.watch(&path).await;
    server.create(&labelled("a", &json!({"app": "web"}))).unwrap();
    assert_eq!(watch.summary().await.0, "ADDED");
    server.merge_patch("configmaps", "default", "a", json!({"metadata": {"labels": {"app": "api"}}})).unwrap();
    let left = watch.event().await;
    assert_eq!(left["type"], "DELETED");
    assert_eq!(left["object"]["metadata"]["labels"]["app"], "web");
    assert_eq!(version_of(&left["object"]), server.revision());
    server.merge_patch("configmaps", "default", "a", json!({"metadata": {"labels": {"app": "web"}}})).unwrap();
    let entered = watch.event().await;
    assert_eq!(entered["type"], "ADDED");
    assert_eq!(entered["object"]["metadata"]["uid"], left["object"]["metadata"]["uid"]);
}

#[tokio::test]
async fn sockets_serve_both_protocols() {
    let server = ApiServer::start().await.unwrap();
    server.create(&config_map("a")).unwrap();
    let mut http1 = Client::over_tcp(&server, 0).await.unwrap();
    assert_eq!(http1.get(CONFIG_MAPS).await.0, 200);
    let stream = tokio::net::TcpStream::connect(server.address(0).unwrap()).await.unwrap();
    let mut http2 = Client::http2(stream).await.unwrap();
    let (code, list) = http2.get(CONFIG_MAPS).await;
    assert_eq!((code, names(&list)), (200, vec!["a"]));
    let connections: Vec<u64> = server.requests().iter().map(|request| request.connection).collect();
    assert_eq!(connections, [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn watch_from_first_version_receives_everything() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let mut watch = client.watch("/api/v1/namespaces?watch=1&resourceVersion=1").await;
    assert_eq!(watch.summary().await, ("ADDED".into(), "default".into(), 2));
    server.faults().restart();
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let mut watch = client.watch("/api/v1/namespaces?watch=1&resourceVersion=1").await;
    assert_eq!(watch.event().await["object"]["code"], 410, "the window of a restarted replica starts later");
}

/// Creates more objects at once than a watch may have pending, and asserts that the watch delivers all of them after
/// `unblock`.
async fn assert_burst_arrives(server: &ApiServer, watch: &mut Watch, prefix: &str, unblock: impl FnOnce()) {
    for number in 0..1300 {
        server.create(&config_map(&format!("{prefix}-{number}"))).unwrap();
    }
    unblock();
    for number in 0..1300 {
        assert_eq!(watch.summary().await.1, format!("{prefix}-{number}"));
    }
}

#[tokio::test(start_paused = true)]
async fn burst_does_not_end_waiting_watch() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let mut watch = client.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", server.revision())).await;
    let wait = || tokio::time::sleep(Duration::from_secs(10));
    wait().await;
    assert_burst_arrives(&server, &mut watch, "idle", || {}).await;
    server.faults().freeze(true);
    wait().await;
    assert_burst_arrives(&server, &mut watch, "frozen", || server.faults().freeze(false)).await;
    server.faults().stall_streams(true);
    wait().await;
    assert_burst_arrives(&server, &mut watch, "stalled", || server.faults().stall_streams(false)).await;
}
