//! Detection of dead peers, and the state of their connections.

use std::time::Duration;

use steadfast::transport::{ConnectionState, Settings, TransportError};
use tokio::time::Instant;

use crate::fixture::{
    PODS, Sockets, body_text, connect_over_pipes, get_request, http2_settings, in_memory_server, next_chunk,
    open_watch, wait_until,
};

/// R1: a dead peer is detected within 15 s.
#[tokio::test(start_paused = true)]
async fn black_hole_is_detected_within_15_s() {
    let server = in_memory_server().await;
    let connection = connect_over_pipes(&server, http2_settings(), &Sockets::default()).await;
    let mut body = open_watch(&connection).await.into_body();
    tokio::time::sleep(Duration::from_secs(42)).await;
    server.faults().black_hole(true);
    let started_at = Instant::now();
    let suspect = || connection.connections()[0].state == ConnectionState::Suspect;
    wait_until("the connection is suspect", suspect).await;
    let error = next_chunk(&mut body).await.expect("an error instead of a clean end").expect_err("no data");
    assert!(started_at.elapsed() <= Duration::from_secs(15), "{:?}", started_at.elapsed());
    assert!(matches!(error, TransportError::ConnectionLost { .. }), "{error:?}");
    assert!(error.to_string().contains("no response to a ping"), "{error}");
    wait_until("the connection is removed", || connection.connections().is_empty()).await;
    server.faults().black_hole(false);
    body_text(&connection, get_request(PODS)).await.expect("a response on a new connection");
}

#[tokio::test(start_paused = true)]
async fn idle_black_hole_is_detected_before_use() {
    let server = in_memory_server().await;
    let connection = connect_over_pipes(&server, http2_settings(), &Sockets::default()).await;
    body_text(&connection, get_request(PODS)).await.expect("a response");
    server.faults().black_hole(true);
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert!(connection.connections().is_empty(), "{:?}", connection.connections());
}

#[tokio::test(start_paused = true)]
async fn suspect_connection_takes_no_request_and_recovers() {
    let server = in_memory_server().await;
    let connection = connect_over_pipes(&server, http2_settings(), &Sockets::default()).await;
    let _watch = open_watch(&connection).await;
    server.faults().black_hole(true);
    wait_until("the connection is suspect", || connection.connections()[0].state == ConnectionState::Suspect).await;
    let (response, ()) = tokio::join!(open_watch(&connection), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let reports = connection.connections();
        assert_eq!((reports[0].state, reports[0].requests), (ConnectionState::Suspect, 1));
        assert_eq!(reports[1].state, ConnectionState::Connecting, "a replacement must be in progress");
        server.faults().black_hole(false);
    });
    assert_eq!(response.status(), 200);
    wait_until("the connection is ready again", || connection.connections()[0].state == ConnectionState::Ready).await;
    // The replacement must not displace the recovered connection.
    assert_eq!(open_watch(&connection).await.body().connection(), 1);
}

/// A frozen server behind a live proxy: the connection is healthy, and the reflector decides about the stream.
#[tokio::test(start_paused = true)]
async fn silent_stream_keeps_connection_ready() {
    let server = in_memory_server().await;
    let connection = connect_over_pipes(&server, http2_settings(), &Sockets::default()).await;
    let mut body = open_watch(&connection).await.into_body();
    server.faults().freeze(true);
    let silence = tokio::time::timeout(Duration::from_secs(1500), async {
        loop {
            next_chunk(&mut body).await.expect("no end").expect("no error");
        }
    });
    silence.await.expect_err("the watch stays open for 25 minutes of silence");
    let report = &connection.connections()[0];
    assert_eq!(report.state, ConnectionState::Ready);
    assert!(report.silence <= Duration::from_secs(6), "{report:?}");
    assert!(report.round_trip.is_some());
}

#[tokio::test(start_paused = true)]
async fn unused_connection_closes_after_a_minute() {
    for settings in [http2_settings(), Settings::default()] {
        let server = in_memory_server().await;
        let sockets = Sockets::default();
        let connection = connect_over_pipes(&server, settings, &sockets).await;
        body_text(&connection, get_request(PODS)).await.expect("a response");
        tokio::time::sleep(Duration::from_secs(59)).await;
        assert_eq!(connection.connections().len(), 1);
        body_text(&connection, get_request(PODS)).await.expect("a response");
        tokio::time::sleep(Duration::from_secs(59)).await;
        assert_eq!(sockets.open(), 1, "the second request must restart the idle time");
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(connection.connections().is_empty());
        assert_eq!(sockets.open(), 0);
        body_text(&connection, get_request(PODS)).await.expect("a response");
        assert_eq!(sockets.dialled(), 2);
    }
}

/// R4, F8: streams on a draining connection continue, and new requests use another connection.
#[tokio::test(start_paused = true)]
async fn goaway_drains() {
    let server = in_memory_server().await;
    let connection = connect_over_pipes(&server, http2_settings(), &Sockets::default()).await;
    let mut body = open_watch(&connection).await.into_body();
    server.faults().goaway();
    let draining = || connection.connections().first().is_some_and(|first| first.state == ConnectionState::Draining);
    wait_until("the connection drains", draining).await;
    let other = open_watch(&connection).await;
    assert_eq!(other.body().connection(), 2);
    let pod = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one", "namespace": "default"},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    });
    server.create(&pod).expect("created");
    let event = next_chunk(&mut body).await.expect("another chunk").expect("an event on the draining connection");
    assert!(event.starts_with(b"{\"type\":\"ADDED\""));
    drop(body);
    wait_until("the connection is removed", || connection.connections().iter().all(|report| report.id != 1)).await;
    assert_eq!(connection.connections().len(), 1);
}

/// F2: a failed connection is never used again.
#[tokio::test(start_paused = true)]
async fn dead_connection_is_never_reused() {
    for settings in [http2_settings(), Settings::default()] {
        let server = in_memory_server().await;
        let sockets = Sockets::default();
        let connection = connect_over_pipes(&server, settings, &sockets).await;
        for round in 1..=20 {
            let mut watches = Vec::new();
            for _ in 0..5 {
                watches.push(open_watch(&connection).await.into_body());
            }
            body_text(&connection, get_request(PODS)).await.expect("a response");
            let before: Vec<u64> = connection.connections().iter().map(|report| report.id).collect();
            if round % 2 == 0 {
                server.faults().restart();
            } else {
                server.faults().reset();
            }
            let mut failed = 0;
            for body in &mut watches {
                let error = next_chunk(body).await.expect("an error instead of a clean end").expect_err("no data");
                assert!(error.maybe_sent());
                failed += 1;
            }
            assert_eq!(failed, 5);
            let response =
                connection.send(get_request(PODS)).await.expect("a response on a new connection, without an error");
            assert!(!before.contains(&response.body().connection()));
        }
        assert_eq!(sockets.written_after_failure(), 0);
        // Each failed connection must also be closed.
        assert!(server.connections().iter().all(|link| link.failed_at.is_none() || link.ended.is_some()));
    }
}

#[tokio::test(start_paused = true)]
async fn recovery_of_server_notifies_waiters() {
    let server = in_memory_server().await;
    let connection = connect_over_pipes(&server, http2_settings(), &Sockets::default()).await;
    let mut reachable = steadfast::unstable::reachability(&connection);
    body_text(&connection, get_request(PODS)).await.expect("a response");
    assert!(!reachable.has_changed().expect("open"), "nothing has failed yet");
    server.faults().cut();
    body_text(&connection, get_request(PODS)).await.expect_err("cut");
    server.faults().heal();
    assert!(!reachable.has_changed().expect("open"));
    body_text(&connection, get_request(PODS)).await.expect("a response");
    reachable.changed().await.expect("open");

    // A server that accepts and closes connections must not cause a hot loop.
    server.faults().reset();
    server.faults().accept_and_close(true);
    for _ in 0..50 {
        body_text(&connection, get_request(PODS)).await.expect_err("the server closes the connection");
    }
    assert!(!reachable.has_changed().expect("open"));
}
