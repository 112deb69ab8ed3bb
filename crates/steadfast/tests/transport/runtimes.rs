//! Clients on runtimes of the program (`Connection::client_on`).

use std::sync::mpsc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{ListParams, ObjectMeta, PostParams};
use kube::{Api, Client};
use steadfast::Connection;
use steadfast::transport::{ConnectionState, Settings};
use steadfast_apiserver::ApiServer;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::Instant;

use crate::fixture::{Sockets, connect_over_pipes, connect_over_tcp, http2_settings, in_memory_server, wait_until};

async fn list(client: &Client) -> kube::Result<usize> {
    Ok(Api::<Pod>::default_namespaced(client.clone()).list(&ListParams::default()).await?.items.len())
}

async fn create(client: &Client, name: &str, size: usize) -> kube::Result<ConfigMap> {
    let map = ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some([("value".to_owned(), "x".repeat(size))].into()),
        ..ConfigMap::default()
    };
    Api::default_namespaced(client.clone()).create(&PostParams::default(), &map).await
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

/// Runs a list on `handle`'s runtime.
async fn list_on(handle: &Handle, client: &Client) -> kube::Result<usize> {
    let client = client.clone();
    handle.spawn(async move { list(&client).await }).await.expect("no panic")
}

/// R1, for the requests of a client.
#[tokio::test(start_paused = true)]
async fn silent_server_fails_request_within_15_s() {
    for settings in [http2_settings(), Settings { headers_timeout: Duration::from_secs(14), ..Settings::default() }] {
        let server = in_memory_server().await;
        let connection = connect_over_pipes(&server, settings, &Sockets::default()).await;
        let client = connection.client_on(&Handle::current());
        list(&client).await.expect("a list");
        server.faults().black_hole(true);
        let started_at = Instant::now();
        list(&client).await.expect_err("the server is silent");
        assert!(started_at.elapsed() <= Duration::from_secs(15), "{:?}", started_at.elapsed());
        server.faults().black_hole(false);
        list(&client).await.expect("a list on a new connection");
    }
}

/// R1, between requests.
#[tokio::test(start_paused = true)]
async fn idle_connection_of_silent_server_is_removed() {
    let server = in_memory_server().await;
    let connection = connect_over_pipes(&server, http2_settings(), &Sockets::default()).await;
    let client = connection.client_on(&Handle::current());
    list(&client).await.expect("a list");
    server.faults().black_hole(true);
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert!(connection.connections().is_empty(), "{:?}", connection.connections());
}

/// R4.
#[tokio::test(start_paused = true)]
async fn restarted_server_is_reached_again() {
    for settings in [http2_settings(), Settings::default()] {
        let server = in_memory_server().await;
        let connection = connect_over_pipes(&server, settings, &Sockets::default()).await;
        let client = connection.client_on(&Handle::current());
        for round in 0..3 {
            create(&client, &format!("map-{round}"), 10).await.expect("a write");
            server.faults().restart();
        }
        drop(client);
        wait_until("the connections end with their client", || {
            connection.connections().iter().all(|report| report.streams == 0)
        })
        .await;
    }
}

/// A body above the flow-control window of a stream.
#[tokio::test(start_paused = true)]
async fn large_body_is_sent_completely() {
    let server = in_memory_server().await;
    let connection = connect_over_pipes(&server, http2_settings(), &Sockets::default()).await;
    for (client, name) in [(connection.client_on(&Handle::current()), "one"), (connection.client(), "two")] {
        let written = create(&client, name, 900_000).await.expect("a write");
        assert_eq!(written.data.expect("data")["value"].len(), 900_000);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_runtime_uses_its_own_connection() {
    let server = ApiServer::start().await.expect("a server");
    let connection = connect_over_tcp(&server, http2_settings()).await;
    let runtimes: Vec<Runtime> = (0..4).map(|_| runtime()).collect();
    for round in 1..=3 {
        for runtime in &runtimes {
            // Clients of a runtime share its connection.
            let client = connection.client_on(runtime.handle());
            list_on(runtime.handle(), &client).await.expect("a list");
        }
        list(&connection.client()).await.expect("a list");
        let requests: Vec<u64> = connection.connections().iter().map(|report| report.requests).collect();
        assert_eq!(requests, [round; 5]);
    }
    for runtime in runtimes {
        runtime.shutdown_background();
    }
    wait_until("only the connection of the environment is left", || connection.connections().len() == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_serves_callers_of_other_runtimes() {
    let server = ApiServer::start().await.expect("a server");
    for settings in [http2_settings(), Settings::default()] {
        let connection = connect_over_tcp(&server, settings).await;
        let (one, other) = (runtime(), runtime());
        let client = connection.client_on(one.handle());
        list_on(other.handle(), &client).await.expect("a list");
        list(&client).await.expect("a list");
        for runtime in [one, other] {
            runtime.shutdown_background();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ended_runtime_affects_only_its_client() {
    let server = ApiServer::start().await.expect("a server");
    for settings in [http2_settings(), Settings::default()] {
        let connection = connect_over_tcp(&server, settings).await;
        let shared = connection.client();
        let ending_runtime = runtime();
        let client = connection.client_on(ending_runtime.handle());
        list_on(ending_runtime.handle(), &shared).await.expect("a list");
        list_on(ending_runtime.handle(), &client).await.expect("a list");
        // The runtime `ending_runtime` has a connection. A task of another runtime sends a request over it.
        server.faults().freeze(true);
        let waiting = tokio::spawn({
            let client = client.clone();
            async move { list(&client).await }
        });
        wait_until("the request is in flight", || connection.connections().iter().any(|report| report.streams > 0))
            .await;
        ending_runtime.shutdown_background();
        waiting.await.expect("no panic").expect_err("the connection has ended");
        server.faults().freeze(false);
        list(&client).await.expect_err("the client has ended with its runtime");
        list(&shared).await.expect("a list");
        let next = runtime();
        list_on(next.handle(), &connection.client_on(next.handle())).await.expect("a list");
        next.shutdown_background();
    }
}

/// The runtime ends while its connection is being opened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runtime_may_end_during_dial() {
    let server = ApiServer::start().await.expect("a server");
    let connection = connect_over_tcp(&server, http2_settings()).await;
    server.faults().black_hole(true);
    let ending_runtime = runtime();
    let client = connection.client_on(ending_runtime.handle());
    let waiting = tokio::spawn(async move { list(&client).await });
    let dials = |connection: &Connection| {
        connection.connections().iter().any(|report| report.state == ConnectionState::Connecting)
    };
    wait_until("the connection is being opened", || dials(&connection)).await;
    ending_runtime.shutdown_background();
    waiting.await.expect("no panic").expect_err("the dial has ended");
    wait_until("the dial is removed", || connection.connections().is_empty()).await;
    server.faults().black_hole(false);
    list(&connection.client()).await.expect("a list");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runtime_without_io_fails_its_requests() {
    let server = ApiServer::start().await.expect("a server");
    let connection = connect_over_tcp(&server, http2_settings()).await;
    let bare = Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
    let client = connection.client_on(bare.handle());
    list(&client).await.expect_err("no I/O");
    list(&connection.client()).await.expect("a list");
    bare.shutdown_background();
}

/// A blocked runtime delays neither clients of other runtimes nor the limits of the pool.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocked_runtime_delays_no_other_client() {
    let server = ApiServer::start().await.expect("a server");
    for settings in [http2_settings(), Settings::default()] {
        let connection = connect_over_tcp(&server, settings).await;
        let blocked = runtime();
        let client = connection.client_on(blocked.handle());
        list_on(blocked.handle(), &client).await.expect("a list");
        let (release, held) = mpsc::channel::<()>();
        let (started, blocks) = mpsc::channel();
        blocked.spawn(async move {
            started.send(()).expect("the test waits");
            let _ = held.recv();
        });
        blocks.recv().expect("the runtime blocks");
        let waiting = tokio::spawn(async move { list(&client).await });
        for number in 0..20 {
            list(&connection.client()).await.expect("a list");
            let other = connection.client_on(&Handle::current());
            create(&other, &format!("map-{}-{number}", connection.connections()[0].id), 10).await.ok();
            list(&other).await.expect("a list");
        }
        assert!(!waiting.is_finished());
        drop(release);
        waiting.await.expect("no panic").expect("a list after the runtime continues");
        blocked.shutdown_background();
    }
}
