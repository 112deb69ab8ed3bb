//! Limits of streams and connections.

use std::time::Duration;

use futures::future::join_all;
use steadfast::connection::SendError;
use steadfast::transport::{Deadlines, Placement, Settings, TransportError};
use steadfast_apiserver::ApiServer;

use crate::fixture::{
    PODS, Sockets, body_text, connect_over_pipes, connect_over_tcp, get_request, http2_settings, in_memory_server,
    open_watch, wait_until,
};

#[tokio::test(start_paused = true)]
async fn more_watches_than_streams_open_more_connections() {
    let server = in_memory_server().await;
    let connection = connect_over_pipes(&server, http2_settings(), &Sockets::default()).await;
    let watches = join_all((0..250).map(|_| open_watch(&connection))).await;
    let reports = connection.connections();
    assert!(reports.iter().all(|report| report.streams <= 100 && report.carries_watches), "{reports:?}");
    assert_eq!(reports.iter().map(|report| report.streams).sum::<usize>(), 250);
    assert_eq!(reports.len(), 3, "{reports:?}");
    assert_eq!(server.open_watches(0), 250);

    // A connection for watches carries no other requests, so a large response cannot delay events.
    body_text(&connection, get_request(PODS)).await.expect("a response in addition to all watches");
    let reports = connection.connections();
    assert!(reports.iter().any(|report| !report.carries_watches && report.requests == 1), "{reports:?}");
    drop(watches);
    let idle = || connection.connections().iter().all(|report| report.streams == 0);
    wait_until("the streams of dropped watches are released", idle).await;
    join_all((0..250).map(|_| open_watch(&connection))).await;
    assert_eq!(steadfast::unstable::dial_count(&connection), 4, "open connections must be reused");
}

#[tokio::test(start_paused = true)]
async fn server_stream_limit_is_respected() {
    let server = ApiServer::builder().in_memory().max_streams(7).start().await.expect("a server");
    let connection = connect_over_pipes(&server, http2_settings(), &Sockets::default()).await;
    let _watches = join_all((0..40).map(|_| open_watch(&connection))).await;
    assert!(connection.connections().iter().all(|report| report.streams <= 7), "{:?}", connection.connections());
    assert_eq!(server.open_watches(0), 40);
    assert!(
        server.requests().iter().all(|request| request.code == Some(200)),
        "the server must not reject any request"
    );
}

#[tokio::test(start_paused = true)]
async fn http1_watches_use_separate_connections() {
    let server = in_memory_server().await;
    let connection = connect_over_pipes(&server, Settings::default(), &Sockets::default()).await;
    let watches = join_all((0..30).map(|_| open_watch(&connection))).await;
    assert_eq!(connection.connections().len(), 30);
    drop(watches);
    wait_until("dropped watches close their connections", || connection.connections().is_empty()).await;
    wait_until("the server sees closed watches", || server.open_watches(0) == 0).await;
    for _ in 0..5 {
        body_text(&connection, get_request(PODS)).await.expect("a response");
    }
    // 30 dials for the watches, and one for the requests.
    assert_eq!(steadfast::unstable::dial_count(&connection), 31, "sequential requests must share one connection");
}

#[tokio::test(start_paused = true)]
async fn connection_limit_reserves_share_for_informers() {
    let server = in_memory_server().await;
    let settings = Settings { max_connections: 4, ..Settings::default() };
    let connection = connect_over_pipes(&server, settings, &Sockets::default()).await;
    let mut watches = join_all((0..3).map(|_| open_watch(&connection))).await;
    let error = connection.send(get_request(PODS)).await.expect_err("the last connection is reserved for informers");
    assert_eq!(
        error.to_string(),
        "no connection to localhost:6443 had capacity within 30.0 s: 3 connections carry 3 requests; \
         the server did not execute the request; a retry is safe"
    );
    assert!(!error.maybe_sent());
    // A full pool proves nothing about the server.
    assert!(matches!(error, SendError::Transport(TransportError::Busy { is_opening: false, .. })), "{error:?}");
    let (response, ()) = tokio::join!(body_text(&connection, get_request(PODS)), async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        watches.pop();
    });
    response.expect("a response after a watch has ended");
}

#[tokio::test(start_paused = true)]
async fn hanging_new_connection_is_reported() {
    let server = in_memory_server().await;
    let connection = connect_over_pipes(&server, Settings::default(), &Sockets::default()).await;
    server.faults().black_hole(true);
    // Shorter than the timeout of an address.
    let mut request = get_request(PODS);
    request.extensions_mut().insert(Deadlines { headers: Some(Duration::from_secs(4)), progress: None });
    let error = connection.send(request).await.expect_err("no connection opens within 4 s");
    assert!(matches!(error, SendError::Transport(TransportError::Busy { is_opening: true, .. })), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn recent_placement_uses_new_connection() {
    let server = in_memory_server().await;
    let connection = connect_over_pipes(&server, http2_settings(), &Sockets::default()).await;
    let first_watch = open_watch(&connection).await;
    // `Placement::RecentlyOpened` permits only recently opened connections. After the pause, the first connection is excluded.
    tokio::time::sleep(Duration::from_secs(120)).await;
    let open_on_recent_connection = || {
        let mut request = get_request(crate::fixture::WATCH);
        request.extensions_mut().insert(Placement::RecentlyOpened);
        connection.send(request)
    };
    let (first, second) = tokio::join!(open_on_recent_connection(), open_on_recent_connection());
    let first = first.expect("a watch").into_body().connection();
    assert_ne!(first, first_watch.body().connection());
    assert_eq!(
        first,
        second.expect("a watch").body().connection(),
        "concurrent requests for another connection must share one"
    );
}

#[tokio::test]
async fn many_concurrent_requests_share_few_connections() {
    let server = ApiServer::builder().tls(true).start().await.expect("a server");
    let connection = connect_over_tcp(&server, Settings::default()).await;
    let responses = join_all((0..300).map(|_| body_text(&connection, get_request(PODS)))).await;
    assert!(responses.iter().all(|response| response.as_ref().is_ok_and(|response| response.contains("PodList"))));
    assert!(steadfast::unstable::dial_count(&connection) <= 3, "{}", steadfast::unstable::dial_count(&connection));
}
