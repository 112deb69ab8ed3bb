//! Peers that take their time, as they may.

use std::io;
use std::time::Duration;

use futures::future::join;
use http::Request;
use kube::client::Body;
use steadfast::Connection;
use steadfast::transport::Settings;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::{sleep, timeout};

use crate::world::{PODS, Sockets, config, dialled, get, in_memory, over_pipes, piece, post, text};

const LOG: &str = "/api/v1/namespaces/default/pods/a/log?follow=true";
const HOUR: Duration = Duration::from_secs(3600);

/// A connection over HTTP/1.1 to a peer that answers each request as `answer` does.
async fn answering<F>(
    sockets: &Sockets,
    answer: impl Fn(DuplexStream) -> F + Copy + Send + Sync + 'static,
) -> Connection
where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let sockets = sockets.clone();
    dialled(config(&in_memory().await).await, Settings::default(), move || {
        let (near, mut far) = tokio::io::duplex(1 << 16);
        let sockets = sockets.clone();
        tokio::spawn(async move {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(far.read_u8().await?);
            }
            answer(far).await
        });
        async move { Ok(sockets.watch(near)) }
    })
}

#[tokio::test(start_paused = true)]
async fn what_runs_in_a_pod_may_be_slow_to_read() {
    let sockets = Sockets::default();
    let connection = answering(&sockets, |mut far| async move {
        let head = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: SPDY/3.1\r\n\r\n";
        far.write_all(head.as_bytes()).await?;
        sleep(HOUR).await;
        drop(far);
        Ok(())
    })
    .await;
    let request = Request::post("/api/v1/namespaces/default/pods/a/exec?command=cat&stdin=true")
        .header("connection", "upgrade")
        .header("upgrade", "SPDY/3.1")
        .body(Body::empty())
        .expect("a request");
    let answer = connection.send(request).await.expect("an answer");
    assert_eq!(answer.status(), 101);
    assert_eq!(sockets.slow(), [true], "the kernel gives up nobody who acknowledges");
}

#[tokio::test(start_paused = true)]
async fn whoever_reads_the_body_of_a_request_may_be_slow_and_nobody_else() {
    let sockets = Sockets::default();
    let server = in_memory().await;
    let connection = over_pipes(&server, Settings::default(), &sockets).await;
    for _ in 0..2 {
        text(&connection, get(PODS)).await.expect("an answer");
    }
    assert_eq!(sockets.slow(), [] as [bool; 0]);
    text(&connection, post(PODS, "{}")).await.expect("an answer");
    assert_eq!(sockets.slow(), [true]);
    text(&connection, get(PODS)).await.expect("an answer");
    assert_eq!(sockets.slow(), [true, false]);
    assert_eq!(sockets.dialled(), 1);
}

/// API servers and kubelets send the head of such an answer with its first byte.
#[tokio::test(start_paused = true)]
async fn a_log_that_is_followed_may_say_nothing_for_an_hour_and_again() {
    let connection = answering(&Sockets::default(), |mut far| async move {
        sleep(HOUR).await;
        far.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\na\n\r\n").await?;
        sleep(HOUR).await;
        far.write_all(b"2\r\nb\n\r\n0\r\n\r\n").await
    })
    .await;
    let both = join(text(&connection, get(LOG)), text(&connection, get("/api/v1/nodes/a/proxy/configz"))).await;
    assert_eq!(both.0.expect("a log"), "a\nb\n");
    assert_eq!(both.1.expect("what the node says"), "a\nb\n");
    let error = connection.send(get("/api/v1/namespaces/default/pods/a/log")).await.expect_err("nothing in time");
    assert!(error.to_string().contains("sent no answer within 30.0 s"), "{error}");
}

/// Whatever API servers take for a yes.
#[tokio::test(start_paused = true)]
async fn every_spelling_of_a_watch_is_one_and_may_be_silent() {
    let server = in_memory().await;
    let connection = over_pipes(&server, Settings::default(), &Sockets::default()).await;
    for spelling in ["watch=true", "watch=1", "watch=True", "watch=yes", "watch", "watch="] {
        let request = get(&format!("{PODS}?{spelling}&timeoutSeconds=100"));
        let mut body = connection.send(request).await.expect("an answer").into_body();
        let first = timeout(Duration::from_secs(50), piece(&mut body)).await;
        assert!(first.is_err(), "{spelling}: {first:?}");
    }
    for spelling in ["watch=false", "watch=0", "watch=FALSE"] {
        let told = text(&connection, get(&format!("{PODS}?{spelling}"))).await.expect("a list");
        assert!(told.contains("PodList"), "{spelling}: {told}");
    }
    assert!(connection.connections().iter().any(|report| !report.watches));
}
