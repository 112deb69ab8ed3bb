//! Retries of requests that the server has certainly not executed.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use steadfast::Connection;
use steadfast::transport::Settings;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

use crate::fixture::{
    PODS, Sockets, body_text, config, connection_with_dialer, contains_request, get_request, http2_settings,
    in_memory_server, post_request,
};

/// Behaviour of the server's n-th connection.
#[derive(Clone, Copy, Debug)]
enum PeerBehaviour {
    Respond,
    RejectStream,
    /// Resets the stream of the request, and starts a graceful shutdown. Its GOAWAY excludes no request.
    GoAwayBefore,
    Reset,
    /// Reads a request and closes.
    CloseAfterRequest,
}

struct ScriptedServer {
    connection: Connection,
    requests: Arc<AtomicUsize>,
    sockets: Sockets,
}

/// Returns a server whose connections behave like `behaviours`, in order; the last one repeats.
async fn scripted_server(behaviours: &'static [PeerBehaviour]) -> ScriptedServer {
    let config = config(&in_memory_server().await).await;
    let requests = Arc::new(AtomicUsize::new(0));
    let sockets = Sockets::default();
    let (seen, counted, connections) = (requests.clone(), sockets.clone(), AtomicUsize::new(0));
    let connection = connection_with_dialer(config, http2_settings(), move || {
        let index = connections.fetch_add(1, Ordering::SeqCst).min(behaviours.len() - 1);
        let (client_end, server_end) = tokio::io::duplex(1 << 16);
        tokio::spawn(serve(server_end, behaviours[index], seen.clone()));
        let socket = counted.track(client_end);
        async move { Ok(socket) }
    });
    ScriptedServer { connection, requests, sockets }
}

async fn serve(stream: DuplexStream, behaviour: PeerBehaviour, requests: Arc<AtomicUsize>) {
    let mut connection = h2::server::handshake(stream).await.expect("HTTP/2");
    while let Some(Ok((_request, mut respond))) = connection.accept().await {
        requests.fetch_add(1, Ordering::SeqCst);
        match behaviour {
            PeerBehaviour::Respond => {
                let mut body = respond.send_response(http::Response::new(()), false).expect("a head");
                body.send_data(Bytes::from_static(b"well"), true).expect("a body");
            }
            PeerBehaviour::RejectStream => respond.send_reset(Reason::REFUSED_STREAM),
            PeerBehaviour::Reset => respond.send_reset(Reason::INTERNAL_ERROR),
            PeerBehaviour::GoAwayBefore => {
                drop(respond);
                connection.graceful_shutdown();
            }
            PeerBehaviour::CloseAfterRequest => return,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn rejected_stream_is_retried_for_any_method() {
    let server =
        scripted_server(&[PeerBehaviour::RejectStream, PeerBehaviour::RejectStream, PeerBehaviour::Respond]).await;
    assert_eq!(body_text(&server.connection, post_request(PODS, "{}")).await.expect("a response"), "well");
    assert_eq!(server.requests.load(Ordering::SeqCst), 3);
    assert_eq!(server.sockets.dialled(), 3, "each attempt must use another connection");
}

#[tokio::test(start_paused = true)]
async fn permanent_rejection_ends_in_error() {
    let server = scripted_server(&[PeerBehaviour::RejectStream]).await;
    let error = body_text(&server.connection, get_request(PODS)).await.expect_err("refused");
    assert!(error.to_string().contains("rejected the request 4 times"), "{error}");
    assert!(!error.maybe_sent());
    assert_eq!(server.requests.load(Ordering::SeqCst), 4);
}

#[tokio::test(start_paused = true)]
async fn reset_stream_is_not_retried() {
    let server = scripted_server(&[PeerBehaviour::Reset, PeerBehaviour::Respond]).await;
    let error = body_text(&server.connection, post_request(PODS, "{}")).await.expect_err("reset");
    assert!(error.maybe_sent());
    assert!(error.to_string().contains("reset the stream"), "{error}");
    assert_eq!(server.requests.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn request_on_ended_connection_is_not_retried() {
    let server = scripted_server(&[PeerBehaviour::CloseAfterRequest, PeerBehaviour::Respond]).await;
    let error = body_text(&server.connection, get_request(PODS)).await.expect_err("the server closes the connection");
    assert!(error.to_string().contains("the server closed the connection"), "{error}");
    assert_eq!(server.requests.load(Ordering::SeqCst), 1);
    assert_eq!(body_text(&server.connection, get_request(PODS)).await.expect("a response"), "well");
    assert_eq!(server.sockets.written_after_failure(), 0);
}

#[tokio::test(start_paused = true)]
async fn goaway_during_request_ends_in_response_or_error() {
    let server = scripted_server(&[PeerBehaviour::GoAwayBefore, PeerBehaviour::Respond]).await;
    if let Err(error) = body_text(&server.connection, get_request(PODS)).await {
        assert!(error.maybe_sent(), "{error}");
    }
    assert_eq!(body_text(&server.connection, get_request(PODS)).await.expect("a response"), "well");
}

/// The error must be the same whether the connection ends just before or just after the first sent byte. In an
/// earlier version, a server that closed each new connection received four connections for one request.
#[tokio::test(start_paused = true)]
async fn immediately_closed_connection_is_reported_lost() {
    let dials = Arc::new(AtomicUsize::new(0));
    let counted_dials = dials.clone();
    let connection = connection_with_dialer(config(&in_memory_server().await).await, Settings::default(), move || {
        counted_dials.fetch_add(1, Ordering::Relaxed);
        async {
            let (client_end, _closed) = tokio::io::duplex(64 << 10);
            Ok(Sockets::default().track(client_end))
        }
    });
    let error = body_text(&connection, get_request(PODS)).await.expect_err("closed");
    let message = error.to_string();
    assert!(message.starts_with("the connection to localhost:6443 (memory) was lost: "), "{error:?}: {message}");
    assert_eq!(dials.load(Ordering::Relaxed), 1);
}

/// Pipe that fails at a write of a request, after a number of written requests. Other writes succeed.
struct FailingPipe {
    pipe: DuplexStream,
    remaining_requests: usize,
}

impl AsyncRead for FailingPipe {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_read(context, into)
    }
}

impl AsyncWrite for FailingPipe {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if contains_request(bytes) {
            match self.remaining_requests.checked_sub(1) {
                Some(remaining) => self.remaining_requests = remaining,
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            }
        }
        Pin::new(&mut self.pipe).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_shutdown(context)
    }
}

/// Time to open a connection of [`failing_server`].
const DIAL_TIME: Duration = Duration::from_millis(20);

/// Returns a server whose connections fail after this number of requests.
async fn failing_server(requests_per_connection: usize) -> ScriptedServer {
    let config = config(&in_memory_server().await).await;
    let requests = Arc::new(AtomicUsize::new(0));
    let sockets = Sockets::default();
    let (seen, counted) = (requests.clone(), sockets.clone());
    let connection = connection_with_dialer(config, http2_settings(), move || {
        let (client_end, server_end) = tokio::io::duplex(1 << 16);
        tokio::spawn(serve(server_end, PeerBehaviour::Respond, seen.clone()));
        let socket = counted.track(FailingPipe { pipe: client_end, remaining_requests: requests_per_connection });
        async move {
            tokio::time::sleep(DIAL_TIME).await;
            Ok(socket)
        }
    });
    ScriptedServer { connection, requests, sockets }
}

/// The number of requests once decided: concurrent requests counted as sent on a reused connection.
#[tokio::test(start_paused = true)]
async fn concurrent_first_requests_are_not_retried() {
    let server = failing_server(0).await;
    let request_during_dial = async {
        tokio::time::sleep(DIAL_TIME / 2).await;
        body_text(&server.connection, get_request(PODS)).await
    };
    let first_requests = futures::join!(
        body_text(&server.connection, get_request(PODS)),
        body_text(&server.connection, post_request(PODS, "{}")),
        request_during_dial
    );
    for result in [first_requests.0, first_requests.1, first_requests.2] {
        let error = result.expect_err("lost");
        assert!(error.to_string().contains("was lost"), "{error}");
        assert!(!error.maybe_sent(), "{error}");
    }
    assert_eq!(server.sockets.dialled(), 1);
    assert_eq!(server.requests.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn unsent_request_after_response_is_retried() {
    let server = failing_server(1).await;
    for number in 1..=3 {
        assert_eq!(body_text(&server.connection, post_request(PODS, "{}")).await.expect("a response"), "well");
        assert_eq!(server.sockets.dialled(), number);
    }
    assert_eq!(server.requests.load(Ordering::SeqCst), 3);
}
