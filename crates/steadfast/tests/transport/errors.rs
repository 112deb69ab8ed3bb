//! Errors name the failure, its object and advice, without secrets.

use std::time::Duration;

use steadfast::Connection;
use steadfast::connection::{ConnectError, SendError};
use steadfast::transport::{Settings, TransportError};
use steadfast_apiserver::ApiServer;

use crate::fixture::{
    PODS, Sockets, body_text, config, connect_over_pipes, connect_over_tcp, get_request, http2_settings,
    in_memory_server, next_chunk, open_watch, post_request, wait_until,
};

const TOKEN: &str = "planted-token-8c1f";

#[tokio::test]
async fn rejected_connection_names_address() {
    let server = ApiServer::start().await.expect("a server");
    let address = server.address(0).expect("an address").to_string();
    let connection = connect_over_tcp(&server, Settings::default()).await;
    server.faults().stop();
    wait_until("the port is closed", || std::net::TcpStream::connect(&address).is_err()).await;
    let error = body_text(&connection, get_request(PODS)).await.expect_err("refused");
    assert!(error.to_string().starts_with(&format!("cannot connect to {address}: ")), "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
    assert!(!error.maybe_sent());
    server.faults().start();
    while let Err(error) = body_text(&connection, get_request(PODS)).await {
        assert!(matches!(error, SendError::Transport(TransportError::Dial { .. })), "{error:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn certificate_of_unknown_authority_is_rejected() {
    let server = ApiServer::builder().tls(true).start().await.expect("a server");
    let other = ApiServer::builder().tls(true).start().await.expect("a server");
    let mut wrong = config(&server).await;
    wrong.root_cert = config(&other).await.root_cert;
    let error = body_text(&Connection::new(wrong).expect("a connection"), get_request(PODS))
        .await
        .expect_err("an untrusted certificate");
    assert!(error.to_string().contains("check certificate-authority in the kubeconfig"), "{error}");
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn certificate_for_other_name_is_rejected() {
    let server = ApiServer::builder().tls(true).start().await.expect("a server");
    let mut wrong = config(&server).await;
    wrong.tls_server_name = Some("elsewhere.example".to_owned());
    let error = body_text(&Connection::new(wrong).expect("a connection"), get_request(PODS))
        .await
        .expect_err("an untrusted certificate");
    assert!(error.to_string().contains("tls-server-name"), "{error}");
}

#[tokio::test]
async fn tls_mismatch_is_reported() {
    let plain = ApiServer::start().await.expect("a server");
    let mut config = config(&plain).await;
    config.cluster_url = plain.url(0).replace("http:", "https:").parse().expect("a URL");
    let error =
        body_text(&Connection::new(config).expect("a connection"), get_request(PODS)).await.expect_err("no TLS");
    assert!(error.to_string().contains("the TLS handshake with"), "{error}");

    let tls = ApiServer::builder().tls(true).start().await.expect("a server");
    let mut config = crate::fixture::config(&tls).await;
    config.cluster_url = tls.url(0).replace("https:", "http:").parse().expect("a URL");
    for settings in [http2_settings(), Settings::default()] {
        let connection = Connection::builder(config.clone()).settings(settings).build().expect("a connection");
        let error = body_text(&connection, get_request(PODS)).await.expect_err("TLS");
        assert!(error.to_string().contains(&tls.address(0).expect("an address").to_string()), "{error}");
    }
}

#[tokio::test]
async fn unusable_configurations_are_rejected() {
    let server = ApiServer::start().await.expect("a server");
    let mut config = config(&server).await;
    config.cluster_url = "ftp://example.org".parse().expect("a URL");
    let error = Connection::new(config.clone()).expect_err("no HTTP");
    assert!(matches!(error, ConnectError::Url { .. }), "{error:?}");

    config.cluster_url = "https://example.org".parse().expect("a URL");
    config.proxy_url = Some(format!("ftp://user:{TOKEN}@proxy.example:3128").parse().expect("a URL"));
    let error = Connection::new(config.clone()).expect_err("a proxy");
    assert!(error.to_string().contains("proxy.example:3128"), "{error}");
    assert!(!format!("{error} {error:?}").contains(TOKEN));

    config.proxy_url = None;
    config.auth_info.token_file = Some("/nonexistent/token".to_owned());
    let error = Connection::new(config.clone()).expect_err("no token");
    assert!(error.to_string().contains("/nonexistent/token"), "{error}");
}

#[cfg(unix)]
#[tokio::test]
async fn failing_plugin_token_is_never_printed() {
    let server = ApiServer::start().await.expect("a server");
    for script in [format!("echo {TOKEN}; exit 3"), format!("echo '{{\"token\": \"{TOKEN}\"'")] {
        let mut config = config(&server).await;
        config.auth_info.exec = Some(
            serde_json::from_value(serde_json::json!({
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": "sh",
                "args": ["-c", script],
                "interactiveMode": "Never",
            }))
            .expect("a plugin"),
        );
        let error = Connection::new(config).expect_err("no credentials");
        assert!(matches!(error, ConnectError::Credentials { .. }), "{error:?}");
        assert!(!format!("{error} {error:?}").contains(TOKEN), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_token_in_any_message() {
    let server = ApiServer::builder().in_memory().token(TOKEN).start().await.expect("a server");
    let connection = connect_over_pipes(&server, http2_settings(), &Sockets::default()).await;
    let response = open_watch(&connection).await;
    let calm = format!("{connection:?} {response:?} {:?}", connection.connections());
    server.faults().stop();
    let mut body = response.into_body();
    let cut = next_chunk(&mut body).await.expect("an error instead of a clean end").expect_err("no data");
    let refused = body_text(&connection, get_request(PODS)).await.expect_err("stopped");
    let message = format!("{calm} {cut} {cut:?} {refused} {refused:?}");
    assert!(!message.contains(TOKEN), "{message}");
}

#[tokio::test(start_paused = true)]
async fn interrupted_body_ends_with_error() {
    for settings in [http2_settings(), Settings::default()] {
        let server = in_memory_server().await;
        let connection = connect_over_pipes(&server, settings, &Sockets::default()).await;
        let mut cut = open_watch(&connection).await.into_body();
        server.faults().reset();
        let error = next_chunk(&mut cut).await.expect("an error instead of a clean end").expect_err("no data");
        assert!(matches!(error, TransportError::ConnectionLost { .. }), "{error:?}");
        assert!(next_chunk(&mut cut).await.is_none(), "a body yields nothing after an error");

        let mut ended = open_watch(&connection).await.into_body();
        server.faults().end_watches();
        while let Some(last) = next_chunk(&mut ended).await {
            last.expect("bookmarks, and then a clean end");
        }
    }
}

/// F29.
#[tokio::test(start_paused = true)]
async fn write_across_cut_reports_possible_execution() {
    let server = in_memory_server().await;
    let connection = connect_over_pipes(&server, http2_settings(), &Sockets::default()).await;
    let map = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one"}}"#;
    let path = "/api/v1/namespaces/default/configmaps";
    body_text(&connection, get_request(PODS)).await.expect("a response");
    server.faults().freeze(true);
    let (response, ()) = tokio::join!(body_text(&connection, post_request(path, map)), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.faults().reset();
    });
    let error = response.expect_err("cut");
    assert!(error.maybe_sent(), "{error}");
    server.faults().freeze(false);
    server.faults().cut();
    assert!(!body_text(&connection, post_request(path, map)).await.expect_err("cut").maybe_sent());
    server.faults().heal();
    let posts = server.requests().iter().filter(|request| request.path == path).count();
    assert!(posts <= 1, "a write was sent {posts} times");
}
