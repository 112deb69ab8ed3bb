//! Peers that are permitted to be slow.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::join;
use http::{Request, Response};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use steadfast::Connection;
use steadfast::transport::{ResponseBody, Settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::{Instant, sleep, timeout};

use crate::fixture::{
    PODS, Sockets, body_text, config, connect_over_pipes, connection_with_dialer, get_request, in_memory_server,
    next_chunk, post_request, wait_until,
};

const FOLLOWED_LOG_PATH: &str = "/api/v1/namespaces/default/pods/a/log?follow=true";
const HOUR: Duration = Duration::from_secs(3600);
const SWITCHING_PROTOCOLS: &str =
    "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: SPDY/3.1\r\n\r\n";

/// Returns a connection to HTTP/1.1 peers. Each peer reads one request head and then runs `respond`.
fn connection_to_http1_peer<F>(
    config: kube::Config,
    sockets: &Sockets,
    respond: impl Fn(DuplexStream) -> F + Copy + Send + Sync + 'static,
) -> Connection
where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let sockets = sockets.clone();
    connection_with_dialer(config, Settings::default(), move || {
        let (client_end, mut server_end) = tokio::io::duplex(1 << 16);
        let sockets = sockets.clone();
        tokio::spawn(async move {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(server_end.read_u8().await?);
            }
            respond(server_end).await
        });
        async move { Ok(sockets.track(client_end)) }
    })
}

/// Returns the `101` response to an upgrade request for a stream to a pod.
async fn send_upgrade(connection: &Connection) -> Response<ResponseBody> {
    let request = Request::post("/api/v1/namespaces/default/pods/a/exec?command=cat&stdin=true")
        .header("connection", "upgrade")
        .header("upgrade", "SPDY/3.1")
        .body(Body::empty())
        .expect("a request");
    let response = connection.send(request).await.expect("a response");
    assert_eq!(response.status(), 101);
    response
}

#[tokio::test(start_paused = true)]
async fn slow_reader_in_pod_keeps_stream() {
    let sockets = Sockets::default();
    let config = config(&in_memory_server().await).await;
    let connection = connection_to_http1_peer(config, &sockets, |mut server_end| async move {
        server_end.write_all(SWITCHING_PROTOCOLS.as_bytes()).await?;
        sleep(HOUR).await;
        drop(server_end);
        Ok(())
    });
    let _answer = send_upgrade(&connection).await;
    assert_eq!(sockets.slow_peer_settings(), [true], "the kernel must not time out a peer that acknowledges");
}

/// Returns a connection and an upgraded stream with sent data. The first dial reaches a peer that accepts the upgrade
/// and then stays silent; later dials use `next`.
async fn upgraded_stream<F>(
    sockets: &Sockets,
    next: impl Fn(u64) -> F + Send + Sync + 'static,
) -> (Connection, TokioIo<Upgraded>)
where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let sockets_clone = sockets.clone();
    let dials = AtomicU64::new(0);
    let next = Arc::new(next);
    let connection = connection_with_dialer(config(&in_memory_server().await).await, Settings::default(), move || {
        let (number, sockets, next) = (dials.fetch_add(1, Ordering::SeqCst), sockets_clone.clone(), next.clone());
        async move {
            let (client_end, mut server_end) = tokio::io::duplex(1 << 16);
            if number > 0 {
                next(number).await?;
            } else {
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        head.push(server_end.read_u8().await?);
                    }
                    server_end.write_all(SWITCHING_PROTOCOLS.as_bytes()).await?;
                    sleep(48 * HOUR).await;
                    drop(server_end);
                    io::Result::Ok(())
                });
            }
            Ok(sockets.track(client_end))
        }
    });
    let response = send_upgrade(&connection).await;
    let mut stream = TokioIo::new(hyper::upgrade::on(response).await.expect("an upgraded stream"));
    stream.write_all(b"something").await.expect("the stream accepts the bytes");
    (connection, stream)
}

#[tokio::test(start_paused = true)]
async fn vanished_peer_with_unacknowledged_data_is_detected() {
    let sockets = Sockets::default();
    let (connection, mut stream) = upgraded_stream(&sockets, |_| std::future::pending()).await;
    let started_at = Instant::now();
    let error = timeout(HOUR, stream.read_u8()).await.expect("the stream ends").expect_err("an error instead of data");
    let noticed = started_at.elapsed();
    assert!(error.to_string().contains("does not respond"), "{error}");
    assert!((Duration::from_secs(10)..Duration::from_secs(35)).contains(&noticed), "{noticed:?}");
    wait_until("the connection is removed", || connection.connections().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn slow_peer_is_never_reported_vanished() {
    for refused in [false, true] {
        let sockets = Sockets::default();
        let (_connection, mut stream) = upgraded_stream(&sockets, move |number| async move {
            // Two of three attempts are lost.
            if number % 3 != 0 {
                std::future::pending::<()>().await;
            }
            if refused { Err(io::ErrorKind::ConnectionRefused.into()) } else { Ok(()) }
        })
        .await;
        timeout(HOUR, stream.read_u8()).await.expect_err("neither an end nor data");
        // A probe is a dial to the peer. One successful or rejected dial proves that the machine is alive.
        assert!(sockets.dialled() <= 3600 / 20 * 3, "{} dials in an hour", sockets.dialled());
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_stream_causes_no_probe() {
    let sockets = Sockets::default();
    let (_connection, stream) = upgraded_stream(&sockets, |_| std::future::ready(Ok(()))).await;
    sleep(Duration::from_secs(60)).await;
    let before = sockets.dialled();
    assert!(before > 1, "unacknowledged data must cause probes");
    drop(stream);
    sleep(HOUR).await;
    assert_eq!(sockets.dialled(), before);
}

#[tokio::test(start_paused = true)]
async fn only_body_readers_are_allowed_slow() {
    let sockets = Sockets::default();
    let server = in_memory_server().await;
    let connection = connect_over_pipes(&server, Settings::default(), &sockets).await;
    for _ in 0..2 {
        body_text(&connection, get_request(PODS)).await.expect("a response");
    }
    assert_eq!(sockets.slow_peer_settings(), [] as [bool; 0]);
    body_text(&connection, post_request(PODS, "{}")).await.expect("a response");
    assert_eq!(sockets.slow_peer_settings(), [true]);
    body_text(&connection, get_request(PODS)).await.expect("a response");
    assert_eq!(sockets.slow_peer_settings(), [true, false]);
    assert_eq!(sockets.dialled(), 1);
}

/// API servers and kubelets send the response head of a log together with its first byte.
#[tokio::test(start_paused = true)]
async fn followed_log_can_be_silent_for_hours() {
    let config = config(&in_memory_server().await).await;
    let connection = connection_to_http1_peer(config, &Sockets::default(), |mut server_end| async move {
        sleep(HOUR).await;
        server_end.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\na\n\r\n").await?;
        sleep(HOUR).await;
        server_end.write_all(b"2\r\nb\n\r\n0\r\n\r\n").await
    });
    let both = join(
        body_text(&connection, get_request(FOLLOWED_LOG_PATH)),
        body_text(&connection, get_request("/api/v1/nodes/a/proxy/configz")),
    )
    .await;
    assert_eq!(both.0.expect("a log"), "a\nb\n");
    assert_eq!(both.1.expect("the response of the node"), "a\nb\n");
    let error = connection.send(get_request("/api/v1/namespaces/default/pods/a/log")).await.expect_err("a timeout");
    assert!(error.to_string().contains("sent no response within 30.0 s"), "{error}");
}

/// The path of the server's URL may contain `api` and `apis`, and objects may have the name of a subresource.
#[tokio::test(start_paused = true)]
async fn only_subresources_can_be_silent_below_url_path() {
    let mut config = config(&in_memory_server().await).await;
    let url = config.cluster_url.to_string();
    config.cluster_url = format!("{}/apis/tenants/api/one", url.trim_end_matches('/')).parse().expect("a URL");
    let connection = connection_to_http1_peer(config, &Sockets::default(), |mut server_end| async move {
        sleep(HOUR).await;
        server_end.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\na\n").await
    });
    assert_eq!(body_text(&connection, get_request(FOLLOWED_LOG_PATH)).await.expect("a log"), "a\n");
    for path in ["/api/v1/namespaces/default/services/proxy", "/api/v1/namespaces/default/configmaps/log?follow=true"] {
        let error = connection.send(get_request(path)).await.expect_err("a timeout");
        assert!(error.to_string().contains("sent no response within 30.0 s"), "{path}: {error}");
    }
}

/// All values that API servers treat as true.
#[tokio::test(start_paused = true)]
async fn every_spelling_of_watch_can_be_silent() {
    let server = in_memory_server().await;
    let connection = connect_over_pipes(&server, Settings::default(), &Sockets::default()).await;
    for spelling in ["watch=true", "watch=1", "watch=True", "watch=yes", "watch", "watch="] {
        let request = get_request(&format!("{PODS}?{spelling}&timeoutSeconds=100"));
        let mut body = connection.send(request).await.expect("a response").into_body();
        let first = timeout(Duration::from_secs(50), next_chunk(&mut body)).await;
        assert!(first.is_err(), "{spelling}: {first:?}");
    }
    for spelling in ["watch=false", "watch=0", "watch=FALSE"] {
        let list = body_text(&connection, get_request(&format!("{PODS}?{spelling}"))).await.expect("a list");
        assert!(list.contains("PodList"), "{spelling}: {list}");
    }
    assert!(connection.connections().iter().any(|report| !report.carries_watches));
}
