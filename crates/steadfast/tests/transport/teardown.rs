//! Release of sockets, tasks and threads.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};
use std::time::Duration;

use steadfast::transport::{Settings, TransportError};
use steadfast_apiserver::ApiServer;
use tokio::time::Instant;

use crate::fixture::{
    PODS, Sockets, body_text, connect_over_pipes, connect_over_tcp, get_request, http2_settings, in_memory_server,
    next_chunk, open_watch, wait_until,
};

/// R10.
#[tokio::test(start_paused = true)]
async fn dropping_last_clone_closes_every_socket() {
    for settings in [http2_settings(), Settings::default()] {
        for cut_off in [false, true] {
            let server = in_memory_server().await;
            let sockets = Sockets::default();
            let connection = connect_over_pipes(&server, settings.clone(), &sockets).await;
            let mut body = open_watch(&connection).await.into_body();
            body_text(&connection, get_request(PODS)).await.expect("a response");
            server.faults().black_hole(cut_off);
            drop(connection.clone());
            assert!(sockets.open() > 0);
            let started_at = Instant::now();
            drop(connection);
            let error = next_chunk(&mut body).await.expect("an error instead of a clean end").expect_err("closed");
            assert!(matches!(error, TransportError::Closed { .. }), "{error:?}");
            wait_until("all sockets are closed", || sockets.open() == 0).await;
            assert!(started_at.elapsed() < Duration::from_millis(100));
        }
    }
}

#[tokio::test]
async fn connections_with_threads_may_be_dropped_anywhere() {
    let server = ApiServer::start().await.expect("a server");
    for settings in [http2_settings(), Settings::default()] {
        let connection = connect_over_tcp(&server, settings).await;
        let body = open_watch(&connection).await.into_body();
        drop(connection);
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(body);
    }
    wait_until("the server sees closed watches", || server.open_watches(0) == 0).await;
    let connection = connect_over_tcp(&server, http2_settings()).await;
    let client = connection.client();
    drop(connection);
    let kept = client.clone();
    drop(client);
    client_lists(kept).await;
}

async fn client_lists(client: kube::Client) {
    let pods: kube::Api<k8s_openapi::api::core::v1::Pod> = kube::Api::default_namespaced(client);
    pods.list(&kube::api::ListParams::default()).await.expect("a list");
}

#[test]
fn connection_works_without_tokio_runtime() {
    // This thread has no tokio runtime; the connection uses its own.
    let server = tokio::runtime::Runtime::new().expect("a runtime");
    let running = server.block_on(ApiServer::start()).expect("a server");
    let connection = server.block_on(connect_over_tcp(&running, http2_settings()));
    let response = block_on(body_text(&connection, get_request(PODS))).expect("a response");
    assert!(response.contains("PodList"));
}

/// Polls `future` on this thread, like any executor.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}
