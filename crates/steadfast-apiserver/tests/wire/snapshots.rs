//! Watches and lists of a server that continues from a snapshot.

use serde_json::json;
use steadfast_apiserver::{ApiServer, Snapshot};

use crate::support::{CONFIG_MAPS, Client, config_map, in_memory_server, names, version_of};

async fn restarted(snapshot: Snapshot) -> ApiServer {
    let snapshot = Snapshot::decode(&snapshot.encode()).expect("an intact snapshot");
    ApiServer::builder().in_memory().seed(9).snapshot(snapshot).start().await.expect("a server")
}

fn watch_from(version: u64) -> String {
    format!("{CONFIG_MAPS}?watch=1&resourceVersion={version}")
}

#[tokio::test(start_paused = true)]
async fn newest_version_continues_after_restart() {
    let server = in_memory_server().await;
    let old = version_of(&server.create(&config_map("a")).expect("a creation"));
    let newest = version_of(&server.create(&config_map("b")).expect("a creation"));
    let server = restarted(server.snapshot()).await;
    let mut client = Client::in_memory(&server, 0).await.expect("a connection");
    let mut watch = client.watch(&watch_from(newest)).await;
    let created = version_of(&server.create(&config_map("c")).expect("a creation"));
    assert_eq!((created, watch.summary().await.1.as_str()), (newest + 1, "c"));
    let expired = client.watch(&watch_from(old)).await.event().await;
    assert_eq!((&expired["type"], &expired["object"]["code"]), (&json!("ERROR"), &json!(410)));
    let exact = format!("{CONFIG_MAPS}?resourceVersion={old}&resourceVersionMatch=Exact");
    assert_eq!(client.get(&exact).await.0, 410);
    let (code, list) = client.get(CONFIG_MAPS).await;
    assert_eq!((code, names(&list)), (200, vec!["a", "b", "c"]));
}

#[tokio::test(start_paused = true)]
async fn lost_version_is_expired_after_restart() {
    let server = in_memory_server().await;
    server.create(&config_map("a")).expect("a creation");
    let saved = server.snapshot().with_reserved_revisions(100);
    let lost = version_of(&server.create(&config_map("lost")).expect("a creation"));
    let server = restarted(saved).await;
    let mut client = Client::in_memory(&server, 0).await.expect("a connection");
    let expired = client.watch(&watch_from(lost)).await.event().await;
    assert_eq!(expired["object"]["code"], 410);
    let (code, config_maps) = client.get(&format!("{CONFIG_MAPS}?resourceVersion={lost}")).await;
    assert_eq!((code, names(&config_maps)), (200, vec!["a"]), "a list that is not older than the lost version");
    assert!(version_of(&config_maps) > lost);
}
