//! Configured timeouts of `connection.client()`, and its retries against a busy server, compared with `kube::Client`.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, PostParams};
use steadfast::Connection;
use steadfast_apiserver::{ApiServer, InjectedResponse, RequestRule, Verb};
use tokio::time::Instant;

use crate::fixture::{Sockets, config, connection_with_dialer, http2_settings, in_memory_server};

/// Returns an in-memory connection to `server` with a changed configuration.
async fn connection(server: &ApiServer, change: impl FnOnce(&mut kube::Config)) -> Connection {
    let mut config = config(server).await;
    change(&mut config);
    let (dialer, sockets) = (server.dialer(), Sockets::default());
    connection_with_dialer(config, http2_settings(), move || {
        let (dialer, sockets) = (dialer.clone(), sockets.clone());
        async move { Ok(sockets.track(dialer.connect(0).await?)) }
    })
}

fn config_maps(connection: &Connection) -> Api<ConfigMap> {
    Api::default_namespaced(connection.client())
}

fn config_map(name: &str) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    object
}

fn status_code(error: kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        other => panic!("not a status: {other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn busy_server_causes_retries_of_all_requests() {
    let server = in_memory_server().await;
    let connection = connection(&server, |_| {}).await;
    for code in [429, 503] {
        for (verb, times) in [(Verb::List, 3), (Verb::Create, 3)] {
            server.faults().respond(RequestRule::any().verb(verb).times(times), InjectedResponse::code(code));
        }
        config_maps(&connection).list(&ListParams::default()).await.expect("a list after the retries");
        config_maps(&connection)
            .create(&PostParams::default(), &config_map(&format!("of-{code}")))
            .await
            .expect("written");
    }
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_capped_at_a_minute() {
    let server = in_memory_server().await;
    let connection = connection(&server, |_| {}).await;
    for (requested, min_seconds, max_seconds) in [(7, 7, 8), (3600, 60, 67)] {
        let response = InjectedResponse::retry_after(429, Duration::from_secs(requested));
        server.faults().respond(RequestRule::any().verb(Verb::List).times(1), response);
        let started_at = Instant::now();
        config_maps(&connection).list(&ListParams::default()).await.expect("a list after the retries");
        let seconds = started_at.elapsed().as_secs();
        assert!((min_seconds..=max_seconds).contains(&seconds), "{seconds} s, with a requested delay of {requested} s");
    }
}

#[tokio::test(start_paused = true)]
async fn busy_server_fails_after_fifteen_attempts() {
    let server = in_memory_server().await;
    let connection = connection(&server, |_| {}).await;
    server.faults().respond(RequestRule::any().verb(Verb::List), InjectedResponse::code(429));
    let error = config_maps(&connection).list(&ListParams::default()).await.expect_err("busy");
    assert_eq!(status_code(error), 429);
    assert_eq!(server.requests().iter().filter(|request| request.verb == Verb::List).count(), 16);
}

#[tokio::test(start_paused = true)]
async fn disabled_retries_send_one_attempt() {
    let server = in_memory_server().await;
    let connection = connection(&server, |config| config.default_retry = false).await;
    server.faults().respond(RequestRule::any().verb(Verb::List).times(1), InjectedResponse::code(429));
    let error = config_maps(&connection).list(&ListParams::default()).await.expect_err("retries are disabled");
    assert_eq!(status_code(error), 429);
}

#[tokio::test(start_paused = true)]
async fn possibly_executed_write_is_not_retried() {
    let server = in_memory_server().await;
    let connection = connection(&server, |_| {}).await;
    server.faults().respond(RequestRule::any().times(2), InjectedResponse::code(504));
    config_maps(&connection).list(&ListParams::default()).await.expect("a read is retried");
    server.faults().respond(RequestRule::any().times(1), InjectedResponse::code(504));
    let error = config_maps(&connection)
        .create(&PostParams::default(), &config_map("a"))
        .await
        .expect_err("a write is not retried");
    assert_eq!(status_code(error), 504);
}

#[tokio::test(start_paused = true)]
async fn proxied_write_is_not_retried() {
    let server = in_memory_server().await;
    let connection = connection(&server, |_| {}).await;
    for code in [429, 503] {
        server.faults().respond(RequestRule::any().times(1), InjectedResponse::code(code));
        let request = http::Request::post("/api/v1/namespaces/default/services/shop/proxy/orders").body(b"{}".to_vec());
        let request = request.expect("a request");
        let error = connection.client().request_text(request).await.expect_err("the backend may have acted");
        assert_eq!(status_code(error), code);
    }
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn configured_read_timeout_applies_to_clients() {
    let server = in_memory_server().await;
    let connection = connection(&server, |config| config.read_timeout = Some(Duration::from_secs(50))).await;
    server.faults().delay_matching(RequestRule::any().times(1), Duration::from_secs(45));
    config_maps(&connection).list(&ListParams::default()).await.expect("a response within the read timeout");
    server.faults().delay_matching(RequestRule::any().times(1), Duration::from_secs(55));
    let started_at = Instant::now();
    let error = config_maps(&connection)
        .list(&ListParams::default())
        .await
        .expect_err("a response after the read timeout")
        .to_string();
    assert_eq!(started_at.elapsed().as_secs(), 50, "{error}");
}

#[tokio::test(start_paused = true)]
async fn configured_write_timeout_extends_requests_with_body() {
    let server = in_memory_server().await;
    let connection = connection(&server, |config| config.write_timeout = Some(Duration::from_secs(20))).await;
    server.faults().delay_matching(RequestRule::any(), Duration::from_secs(45));
    config_maps(&connection)
        .create(&PostParams::default(), &config_map("a"))
        .await
        .expect("both timeouts apply to a request with a body");
    config_maps(&connection)
        .list(&ListParams::default())
        .await
        .expect_err("the write timeout does not apply to a list");
}

#[tokio::test(start_paused = true)]
async fn configured_connect_timeout_is_applied() {
    let server = in_memory_server().await;
    let mut config = config(&server).await;
    config.connect_timeout = Some(Duration::from_secs(3));
    let connection = connection_with_dialer(config, http2_settings(), std::future::pending);
    let started_at = Instant::now();
    config_maps(&connection).list(&ListParams::default()).await.expect_err("the dial times out");
    assert_eq!(started_at.elapsed().as_secs(), 3);
}
