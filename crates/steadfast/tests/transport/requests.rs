//! Requests and responses over each protocol.

use std::collections::BTreeMap;

use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, PostParams};
use steadfast::transport::{Protocol, Settings};
use steadfast_apiserver::ApiServer;

use crate::fixture::{PODS, body_text, connect_over_tcp, get_request, http2_settings};

async fn serves_request(server: ApiServer, settings: Settings, protocol: Protocol) {
    let connection = connect_over_tcp(&server, settings).await;
    let response = body_text(&connection, get_request(PODS)).await.expect("a response");
    assert!(response.contains("\"PodList\""), "{response}");
    let report = connection.connections().remove(0);
    assert_eq!(report.protocol, Some(protocol));
    assert_eq!(report.requests, 1);
    assert!(report.received > 0 && report.sent > 0);
    assert!(server.requests()[0].user_agent.starts_with("steadfast/"), "{:?}", server.requests());

    let maps: Api<ConfigMap> = Api::default_namespaced(connection.client());
    let text = "a".repeat(500_000);
    let data = BTreeMap::from([("text".to_owned(), text.clone())]);
    let mut map = ConfigMap { data: Some(data), ..ConfigMap::default() };
    map.metadata.name = Some("large".to_owned());
    maps.create(&PostParams::default(), &map).await.expect("created");
    let listed = maps.list(&ListParams::default()).await.expect("a list");
    assert_eq!(listed.items[0].data.as_ref().expect("data")["text"], text);
    maps.get("absent").await.expect_err("no object has this name");
    assert!(
        steadfast::unstable::dial_count(&connection) <= 2,
        "requests share connections: {:?}",
        connection.connections()
    );
}

#[tokio::test]
async fn http2_without_tls() {
    let server = ApiServer::start().await.expect("a server");
    serves_request(server, http2_settings(), Protocol::Http2).await;
}

#[tokio::test]
async fn http2_with_tls() {
    let server = ApiServer::builder().tls(true).start().await.expect("a server");
    serves_request(server, Settings::default(), Protocol::Http2).await;
}

#[tokio::test]
async fn http1_without_tls() {
    let server = ApiServer::start().await.expect("a server");
    serves_request(server, Settings::default(), Protocol::Http1).await;
}

#[tokio::test]
async fn http1_with_tls() {
    let server = ApiServer::builder().tls(true).http2(false).start().await.expect("a server");
    serves_request(server, Settings::default(), Protocol::Http1).await;
}

#[tokio::test]
async fn tokens_are_sent() {
    let server = ApiServer::builder().tls(true).token("hunter2").start().await.expect("a server");
    let connection = connect_over_tcp(&server, Settings::default()).await;
    assert!(body_text(&connection, get_request(PODS)).await.expect("a response").contains("\"PodList\""));
}

#[tokio::test]
async fn rejected_token_is_read_again() {
    let server = ApiServer::builder().token("old").start().await.expect("a server");
    let file = std::env::temp_dir().join(format!("steadfast-token-{}", std::process::id()));
    std::fs::write(&file, "old").expect("a file");
    let mut config = crate::fixture::config(&server).await;
    config.auth_info.token = None;
    config.auth_info.token_file = Some(file.to_string_lossy().into_owned());
    let connection = steadfast::Connection::new(config).expect("a connection");
    assert!(body_text(&connection, get_request(PODS)).await.expect("a response").contains("\"PodList\""));

    server.faults().replace_tokens(&["new"]);
    std::fs::write(&file, "new").expect("a file");
    assert!(body_text(&connection, get_request(PODS)).await.expect("a response").contains("\"PodList\""));
    let codes: Vec<_> = server.requests().iter().filter_map(|request| request.code).collect();
    assert_eq!(codes, [200, 401, 200]);

    server.faults().replace_tokens(&["unknown"]);
    let response = connection.send(get_request(PODS)).await.expect("a response");
    assert_eq!(response.status(), 401, "the caller must receive the 401 if renewal does not help");
    assert!(server.requests().len() <= 5, "the token must be renewed at most once");
    std::fs::remove_file(&file).expect("removed");
}

#[tokio::test]
async fn client_and_stream_outlive_connection_handle() {
    let server = ApiServer::start().await.expect("a server");
    let connection = connect_over_tcp(&server, http2_settings()).await;
    let client = connection.client();
    drop(connection);
    let response = client.send(get_request(crate::fixture::WATCH)).await.expect("a watch");
    drop(client);
    let mut body = response.into_body();
    let map = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one", "namespace": "default"},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    });
    server.create(&map).expect("created");
    let frame = body.frame().await.expect("another frame").expect("an event");
    let event = frame.into_data().expect("data");
    assert!(event.starts_with(b"{\"type\":\"ADDED\""), "{event:?}");
}
