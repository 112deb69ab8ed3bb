//! `exec`, `attach` and `port-forward` of `kube` over a [`Connection`], next to watches.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use http::Request;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, AttachParams, AttachedProcess, ListParams, TerminalSize, WatchEvent, WatchParams};
use steadfast::Connection;
use steadfast::transport::{ConnectionReport, Protocol};
use steadfast_apiserver::{ApiServer, ApiServerBuilder};
use steadfast_testing::{config_map, connection, pod};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

const TIMEOUT: Duration = Duration::from_secs(30);

struct StreamingFixture {
    server: ApiServer,
    connection: Connection,
    pods: Api<Pod>,
}

async fn start_fixture(builder: ApiServerBuilder) -> StreamingFixture {
    let server = builder.start().await.expect("a server");
    server.create(&pod("web", "node-1")).expect("a pod");
    let connection = connection(&server).await.expect("a connection");
    let pods = Api::namespaced(connection.client(), "default");
    StreamingFixture { server, connection, pods }
}

fn with_tls() -> ApiServerBuilder {
    ApiServer::builder().tls(true)
}

fn without_tls() -> ApiServerBuilder {
    ApiServer::builder()
}

/// Reads the length of `expected` in bytes, and compares the text.
async fn expect_text(stream: &mut (impl AsyncRead + Unpin), expected: &str) {
    let mut bytes = vec![0; expected.len()];
    timeout(TIMEOUT, stream.read_exact(&mut bytes)).await.expect("no timeout").expect("bytes");
    assert_eq!(String::from_utf8_lossy(&bytes), expected);
}

async fn expect_end(stream: &mut (impl AsyncRead + Unpin)) {
    let mut rest = Vec::new();
    timeout(TIMEOUT, stream.read_to_end(&mut rest)).await.expect("no timeout").expect("the end of the output");
    assert_eq!(String::from_utf8_lossy(&rest), "");
}

async fn until(description: &str, condition: impl Fn() -> bool) {
    for _ in 0..3000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("timeout while waiting until {description}");
}

/// Sends a line to a command, reads its output, and ends it.
async fn check_echo(mut process: AttachedProcess, arguments: &str) {
    let mut stdin = process.stdin().expect("stdin");
    let mut stdout = process.stdout().expect("stdout");
    let status = process.take_status().expect("a status");
    expect_text(&mut stdout, arguments).await;
    for line in ["one\n", "two\n"] {
        stdin.write_all(line.as_bytes()).await.expect("the write succeeds");
        expect_text(&mut stdout, line).await;
    }
    stdin.shutdown().await.expect("the input closes");
    let status = timeout(TIMEOUT, status).await.expect("no timeout").expect("a status");
    assert_eq!(status.status.as_deref(), Some("Success"));
    expect_end(&mut stdout).await;
    timeout(TIMEOUT, process.join()).await.expect("no timeout").expect("a clean end");
}

fn connections_with(connection: &Connection, protocol: Protocol) -> Vec<ConnectionReport> {
    connection.connections().into_iter().filter(|report| report.protocol == Some(protocol)).collect()
}

#[tokio::test]
async fn exec_uses_separate_http1_connection() {
    let StreamingFixture { server, connection, pods } = start_fixture(with_tls()).await;
    let maps: Api<ConfigMap> = Api::namespaced(connection.client(), "default");
    let mut watch = maps.watch(&WatchParams::default().disable_bookmarks(), "0").await.expect("a watch").boxed();
    let process =
        pods.exec("web", ["cat", "a b"], &AttachParams::default().stdin(true)).await.expect("the command starts");
    let [command_connection] = &connections_with(&connection, Protocol::Http1)[..] else {
        panic!("expected one HTTP/1.1 connection, for the command")
    };
    // An upgrade (RFC 9110, section 7.8) takes over the whole HTTP/1.1 connection. HTTP/2 has no such upgrade.
    assert_eq!((command_connection.streams, command_connection.carries_watches), (1, false));
    assert_eq!(connections_with(&connection, Protocol::Http2).len(), 1);
    check_echo(process, "cat a b\n").await;
    until("the connection is closed", || connections_with(&connection, Protocol::Http1).is_empty()).await;

    server.create(&config_map("after", "1")).expect("a config map");
    let event = timeout(TIMEOUT, watch.try_next()).await.expect("no timeout").expect("no error").expect("an event");
    assert!(matches!(&event, WatchEvent::Added(map) if map.metadata.name.as_deref() == Some("after")), "{event:?}");
    assert_eq!(pods.list_metadata(&ListParams::default()).await.expect("a list").items.len(), 1);
    assert!(
        connections_with(&connection, Protocol::Http1).is_empty(),
        "no request may use the connection of a command"
    );
}

#[tokio::test]
async fn exec_and_attach_work_without_tls() {
    let StreamingFixture { pods, connection, server: _server } = start_fixture(without_tls()).await;
    check_echo(
        pods.exec("web", ["cat"], &AttachParams::default().stdin(true)).await.expect("the command starts"),
        "cat\n",
    )
    .await;
    check_echo(pods.attach("web", &AttachParams::default().stdin(true)).await.expect("the attach succeeds"), "").await;
    until("both are closed", || connection.connections().iter().all(|report| report.streams == 0)).await;
}

#[tokio::test]
async fn attached_terminal_can_be_resized() {
    let StreamingFixture { pods, server: _server, .. } = start_fixture(with_tls()).await;
    let mut process = pods.attach("web", &AttachParams::interactive_tty()).await.expect("the attach succeeds");
    let mut sizes = process.terminal_size().expect("a terminal");
    futures::SinkExt::send(&mut sizes, TerminalSize { height: 40, width: 100 }).await.expect("the resize succeeds");
    check_echo(process, "").await;
}

#[tokio::test]
async fn command_without_input_ends() {
    let StreamingFixture { pods, server: _server, .. } = start_fixture(with_tls()).await;
    let mut process = pods.exec("web", ["date", "-u"], &AttachParams::default()).await.expect("the command starts");
    let mut stdout = process.stdout().expect("stdout");
    expect_text(&mut stdout, "date -u\n").await;
    expect_end(&mut stdout).await;
    timeout(TIMEOUT, process.join()).await.expect("no timeout").expect("a clean end");
}

async fn check_port_forward(builder: ApiServerBuilder) {
    let StreamingFixture { pods, connection, server: _server } = start_fixture(builder).await;
    let mut forwarder = pods.portforward("web", &[80, 8443]).await.expect("the forwarding starts");
    let mut web = forwarder.take_stream(80).expect("a port");
    let mut admin = forwarder.take_stream(8443).expect("a port");
    web.write_all(b"GET / HTTP/1.1\r\n").await.expect("the write succeeds");
    admin.write_all(b"hello").await.expect("the write succeeds");
    expect_text(&mut admin, "hello").await;
    expect_text(&mut web, "GET / HTTP/1.1\r\n").await;
    let text: String = "0123456789".repeat(50_000);
    let (mut reader, mut writer) = tokio::io::split(web);
    let sent_text = text.clone();
    let write_task = tokio::spawn(async move {
        writer.write_all(sent_text.as_bytes()).await.expect("the write succeeds");
        writer
    });
    expect_text(&mut reader, &text).await;
    drop((write_task.await.expect("no panic"), reader, admin));
    timeout(TIMEOUT, forwarder.join()).await.expect("no timeout").expect("a clean end");
    until("the connection is closed", || connection.connections().iter().all(|report| report.streams == 0)).await;
}

#[tokio::test]
async fn ports_are_forwarded_over_tls() {
    check_port_forward(with_tls()).await;
}

#[tokio::test]
async fn ports_are_forwarded_without_tls() {
    check_port_forward(without_tls()).await;
}

#[tokio::test]
async fn rejected_exec_returns_api_error() {
    let StreamingFixture { pods, connection, server: _server } = start_fixture(with_tls()).await;
    let start_rejected = async |name: &str, params: AttachParams| match pods.exec(name, ["cat"], &params).await {
        Err(kube::Error::Api(status)) => (status.code, status.message.clone()),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("the command must not start"),
    };
    let missing_pod = start_rejected("nobody", AttachParams::default()).await;
    assert_eq!(missing_pod, (404, "pods \"nobody\" not found".to_owned()));
    let missing_container = start_rejected("web", AttachParams::default().container("side")).await;
    assert_eq!(missing_container, (400, "container side is not valid for pod web".to_owned()));
    until("their connections are closed", || connections_with(&connection, Protocol::Http1).is_empty()).await;
}

#[tokio::test]
async fn unsupported_subprotocol_is_rejected_with_body() {
    let StreamingFixture { connection, server: _server, .. } = start_fixture(with_tls()).await;
    let request = Request::get("/api/v1/namespaces/default/pods/web/exec?command=cat&stdout=true")
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .header("sec-websocket-protocol", "v1.channel.k8s.io")
        .body(Vec::new())
        .expect("a request");
    let error = connection.client().request_text(request).await.expect_err("refused");
    assert!(error.to_string().contains("not supported: [v1.channel.k8s.io]"), "{error}");
}

#[tokio::test]
async fn cut_ends_command_with_error() {
    let StreamingFixture { server, connection, pods } = start_fixture(with_tls()).await;
    let mut process =
        pods.exec("web", ["cat"], &AttachParams::default().stdin(true)).await.expect("the command starts");
    let mut stdout = process.stdout().expect("stdout");
    expect_text(&mut stdout, "cat\n").await;
    server.faults().reset();
    let error = timeout(TIMEOUT, process.join()).await.expect("no timeout").expect_err("an error after the disconnect");
    // `join` closes the input first, so the send may fail because of the disconnect.
    let text = error.to_string();
    assert!(text.contains("failed to receive") || text.contains("failed to send"), "{text}");
    until("the connection is closed", || connections_with(&connection, Protocol::Http1).is_empty()).await;
}

#[tokio::test]
async fn command_outlives_its_client() {
    let StreamingFixture { server, connection, pods } = start_fixture(with_tls()).await;
    let process = pods.exec("web", ["cat"], &AttachParams::default().stdin(true)).await.expect("the command starts");
    drop((connection, pods));
    check_echo(process, "cat\n").await;
    until("the server reads the end", || server.connections().iter().all(|record| record.ended.is_some())).await;
}

#[tokio::test(start_paused = true)]
async fn silent_server_is_tried_once_until_deadline() {
    let server = ApiServer::builder().in_memory().start().await.expect("a server");
    server.create(&pod("web", "node-1")).expect("a pod");
    let connection = steadfast_testing::InMemory::default().connection(&server).await.expect("a connection");
    let pods: Api<Pod> = Api::namespaced(connection.client(), "default");
    server.faults().freeze(true);
    let start = tokio::time::Instant::now();
    let Err(error) = pods.exec("web", ["cat"], &AttachParams::default()).await else {
        panic!("the command must not start")
    };
    assert_eq!(start.elapsed().as_secs(), 30);
    let kube::Error::Service(error) = error else { panic!("{error}") };
    let error = error.downcast::<steadfast::connection::SendError>().expect("our error");
    assert!(error.maybe_sent(), "{error}");
    // An `exec` may have started its command, so the request is not retried.
    assert_eq!(server.requests().len(), 1);
    until("its connection is closed", || connection.connections().is_empty()).await;
}

#[tokio::test]
async fn command_survives_drain_of_connections() {
    let StreamingFixture { server, connection, pods } = start_fixture(with_tls()).await;
    let process = pods.exec("web", ["cat"], &AttachParams::default().stdin(true)).await.expect("the command starts");
    server.faults().goaway();
    assert_eq!(pods.list_metadata(&ListParams::default()).await.expect("a list").items.len(), 1);
    check_echo(process, "cat\n").await;
    until("the connection is closed", || connections_with(&connection, Protocol::Http1).is_empty()).await;
}
