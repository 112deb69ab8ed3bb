//! Deadlines of requests and bodies.

use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use futures::FutureExt;
use steadfast::transport::{Deadlines, Settings, TransportError};
use tokio::time::Instant;

use crate::fixture::{
    PODS, Sockets, WATCH, body_text, config, connect_over_pipes, connection_with_dialer, get_request, http2_settings,
    in_memory_server, next_chunk, open_watch,
};

#[tokio::test(start_paused = true)]
async fn response_head_times_out() {
    for settings in [http2_settings(), Settings::default()] {
        let server = in_memory_server().await;
        let connection = connect_over_pipes(&server, settings, &Sockets::default()).await;
        body_text(&connection, get_request(PODS)).await.expect("a response");
        server.faults().freeze(true);
        let started_at = Instant::now();
        let error = connection.send(get_request(PODS)).await.expect_err("frozen");
        assert_eq!(started_at.elapsed().as_secs(), 30);
        assert!(error.maybe_sent());
        assert!(error.to_string().starts_with("localhost:6443 (memory) sent no response within 30.0 s"), "{error}");

        let mut request = get_request(WATCH);
        request.extensions_mut().insert(Deadlines { headers: Some(Duration::from_secs(5)), progress: None });
        let started_at = Instant::now();
        connection.send(request).await.expect_err("frozen");
        assert_eq!(started_at.elapsed().as_secs(), 5);
        server.faults().freeze(false);
        body_text(&connection, get_request(PODS)).await.expect("a response on any healthy connection");
    }
}

#[tokio::test(start_paused = true)]
async fn stalled_body_times_out_if_requested() {
    let server = in_memory_server().await;
    let connection = connect_over_pipes(&server, http2_settings(), &Sockets::default()).await;
    let mut request = get_request(WATCH);
    request.extensions_mut().insert(Deadlines { headers: None, progress: Some(Duration::from_secs(20)) });
    let mut body = connection.send(request).await.expect("a watch").into_body();
    // The time between reads does not count.
    tokio::time::sleep(Duration::from_secs(50)).await;
    let started_at = Instant::now();
    let error = next_chunk(&mut body).await.expect("an error instead of a clean end").expect_err("no data");
    assert!(matches!(error, TransportError::BodyStalled { .. }), "{error:?}");
    assert_eq!(started_at.elapsed().as_secs(), 20);

    let mut patient = open_watch(&connection).await.into_body();
    tokio::time::timeout(Duration::from_secs(55), next_chunk(&mut patient))
        .await
        .expect_err("a silent watch without a deadline stays open");
}

/// A frozen process reads the responses that arrived in the meantime before it reports timeouts.
#[tokio::test(start_paused = true)]
async fn response_during_freeze_is_no_timeout() {
    let server = in_memory_server().await;
    let connection = connect_over_pipes(&server, http2_settings(), &Sockets::default()).await;
    body_text(&connection, get_request(PODS)).await.expect("a response");
    server.faults().delay(Duration::from_secs(1));
    let mut response = pin!(body_text(&connection, get_request(PODS)));
    tokio::time::timeout(Duration::from_millis(500), response.as_mut()).await.expect_err("the response is delayed");
    // The clock advances beyond the deadline of the request, and no task of this runtime runs.
    assert!(tokio::time::advance(Duration::from_secs(40)).now_or_never().is_none());
    response.await.expect("the response arrived during the freeze");
}

#[tokio::test(start_paused = true)]
async fn opening_a_connection_has_a_deadline() {
    let server = in_memory_server().await;
    let connection = connect_over_pipes(&server, http2_settings(), &Sockets::default()).await;
    server.faults().black_hole(true);
    let started_at = Instant::now();
    let error = body_text(&connection, get_request(PODS)).await.expect_err("no response of the server");
    assert_eq!(started_at.elapsed().as_secs(), 5);
    assert!(!error.maybe_sent());
    let stuck = "cannot connect to localhost:6443: 127.0.0.1:6443: no response within 5 s";
    assert!(error.to_string().starts_with(stuck), "{error}");
}

#[tokio::test(start_paused = true)]
async fn silent_server_fails_connect() {
    let config = config(&in_memory_server().await).await;
    let connection = connection_with_dialer(config, http2_settings(), || async {
        let (client_end, server_end) = tokio::io::duplex(1 << 16);
        tokio::spawn(async move {
            let _far = server_end;
            pending::<()>().await;
        });
        Ok(Sockets::default().track(client_end))
    });
    let error = body_text(&connection, get_request(PODS)).await.expect_err("no response of the server");
    assert!(error.to_string().contains("the first HTTP/2 response took longer than 10.0 s"), "{error}");
}
