//! Writes during a connection loss. Each write ends before its deadline, and its error reports whether the server may
//! have executed the write. A write is retried only if no server has executed it.

use std::future::pending;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use kube::client::Body;
use steadfast::Connection;
use steadfast::connection::SendError;
use steadfast::environment::Socket;
use steadfast::transport::{Deadlines, Settings, TransportError};
use steadfast_apiserver::ApiServer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::time::Instant;

use crate::fixture::{
    PODS, Sockets, body_text, config, connection_with_dialer, get_request, http2_settings, in_memory_server,
    post_request,
};

const DEADLINE: Duration = Duration::from_secs(4);
const MAYBE_EXECUTED_ADVICE: &str =
    "a read can be retried; after a write, check the object first, because the server may have executed the request";
const NOT_EXECUTED_ADVICE: &str = "the server did not execute the request; a retry is safe";

const HEADERS: u8 = 1;
/// Error code of a stream that the server has not processed (RFC 9113, section 8.7).
const REFUSED_STREAM: [u8; 4] = [0, 0, 0, 7];
const INTERNAL_ERROR: [u8; 4] = [0, 0, 0, 2];

/// Behaviour of a server for each request.
#[derive(Clone, Copy, Debug)]
enum PeerBehaviour {
    Respond,
    /// Reads and does not respond.
    NeverRespond,
    /// Reads and closes.
    CloseAfterRead,
    /// Closes in the middle of the response.
    CloseInResponse,
    Reset,
    Refuse,
    /// Sends a GOAWAY that excludes the request.
    GoAwayExcludingRequest,
    /// Sends a GOAWAY that includes the request, and closes.
    GoAwayIncludingRequest,
}

struct WriteServer {
    connection: Connection,
    requests: Arc<AtomicUsize>,
    /// True while the client's writes are blocked.
    writes_blocked: Arc<AtomicBool>,
}

impl WriteServer {
    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

/// Returns a server that handles requests like `behaviours`, in order; the last one repeats.
async fn server(settings: Settings, behaviours: &'static [PeerBehaviour]) -> WriteServer {
    let multiplexed = settings.prior_knowledge;
    let (requests, writes_blocked) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (request_count, block_writes, dials) = (requests.clone(), writes_blocked.clone(), AtomicUsize::new(0));
    let connection = connection_with_dialer(config(&in_memory_server().await).await, settings, move || {
        let (client_end, server_end) = tokio::io::duplex(1 << 16);
        let request_count = request_count.clone();
        tokio::spawn(async move {
            // Ends when the client closes the pipe.
            let _ = if multiplexed {
                http2_peer(server_end, behaviours, &request_count).await
            } else {
                http1_peer(server_end, behaviours, &request_count).await
            };
        });
        let writes_blocked = (dials.fetch_add(1, Ordering::SeqCst) == 0).then(|| block_writes.clone());
        let socket = Sockets::default().track(BlockableSocket { socket: client_end, writes_blocked });
        async move { Ok(socket) }
    });
    WriteServer { connection, requests, writes_blocked }
}

fn next_behaviour(behaviours: &[PeerBehaviour], request_count: &AtomicUsize) -> PeerBehaviour {
    behaviours[request_count.fetch_add(1, Ordering::SeqCst).min(behaviours.len() - 1)]
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a small payload").to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

async fn http2_peer(
    mut pipe: DuplexStream,
    behaviours: &[PeerBehaviour],
    request_count: &AtomicUsize,
) -> io::Result<()> {
    pipe.read_exact(&mut [0; 24]).await?;
    pipe.write_all(&frame(4, 0, 0, &[])).await?;
    loop {
        let mut head = [0; 9];
        pipe.read_exact(&mut head).await?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        pipe.read_exact(&mut payload).await?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        match (head[3], head[4]) {
            // Type 6 is PING, and 4 is SETTINGS. Each needs an acknowledgement (flag 1).
            (6, 0) => pipe.write_all(&frame(6, 1, 0, &payload)).await?,
            (4, 0) => pipe.write_all(&frame(4, 1, 0, &[])).await?,
            (HEADERS, _) => match next_behaviour(behaviours, request_count) {
                PeerBehaviour::Respond => {
                    // 0x88 is `:status: 200`.
                    pipe.write_all(&frame(HEADERS, 4, stream, &[0x88])).await?;
                    pipe.write_all(&frame(0, 1, stream, b"well")).await?;
                }
                PeerBehaviour::NeverRespond => {}
                PeerBehaviour::CloseAfterRead => return Ok(()),
                PeerBehaviour::CloseInResponse => {
                    pipe.write_all(&frame(HEADERS, 4, stream, &[0x88])).await?;
                    pipe.write_all(&frame(0, 0, stream, b"we")).await?;
                    return Ok(());
                }
                PeerBehaviour::Reset => pipe.write_all(&frame(3, 0, stream, &INTERNAL_ERROR)).await?,
                PeerBehaviour::Refuse => pipe.write_all(&frame(3, 0, stream, &REFUSED_STREAM)).await?,
                // The last stream ID 0 states that the server has processed no stream.
                PeerBehaviour::GoAwayExcludingRequest => pipe.write_all(&frame(7, 0, 0, &[0; 8])).await?,
                PeerBehaviour::GoAwayIncludingRequest => {
                    let last = [&stream.to_be_bytes()[..], &[0; 4]].concat();
                    pipe.write_all(&frame(7, 0, 0, &last)).await?;
                    return Ok(());
                }
            },
            _ => {}
        }
    }
}

/// Expects one request in each read, because the client sends the small requests of these tests in one write.
async fn http1_peer(
    mut pipe: DuplexStream,
    behaviours: &[PeerBehaviour],
    request_count: &AtomicUsize,
) -> io::Result<()> {
    while pipe.read(&mut [0; 4096]).await? > 0 {
        match next_behaviour(behaviours, request_count) {
            PeerBehaviour::Respond => pipe.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nwell").await?,
            PeerBehaviour::NeverRespond => pending().await,
            PeerBehaviour::CloseInResponse => {
                return pipe.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nwe").await;
            }
            _ => return Ok(()),
        }
    }
    Ok(())
}

/// Socket that blocks all writes while held.
struct BlockableSocket {
    socket: DuplexStream,
    writes_blocked: Option<Arc<AtomicBool>>,
}

impl AsyncRead for BlockableSocket {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, into)
    }
}

impl AsyncWrite for BlockableSocket {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.writes_blocked.as_ref().is_some_and(|writes_blocked| writes_blocked.load(Ordering::SeqCst)) {
            return Poll::Pending;
        }
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

fn write(method: &Method) -> Request<Body> {
    let mut request = post_request(PODS, "{}");
    *request.method_mut() = method.clone();
    request.extensions_mut().insert(Deadlines { headers: Some(DEADLINE), progress: Some(DEADLINE) });
    request
}

/// Returns a write with a streamed body of `chunks`, which cannot be cloned.
async fn streamed(chunks: Vec<io::Result<&'static [u8]>>) -> Request<Body> {
    // Only a response body can be created from a stream.
    let responses = tower::service_fn(move |_: Request<Body>| {
        let frames = chunks.iter().map(|chunk| match chunk {
            Ok(bytes) => Ok(Frame::data(Bytes::from_static(bytes))),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        });
        let body = StreamBody::new(futures::stream::iter(frames.collect::<Vec<_>>()));
        std::future::ready(Ok::<_, io::Error>(Response::new(body)))
    });
    let body = kube::Client::new(responses, "default").send(get_request(PODS)).await.expect("a response").into_body();
    write(&Method::POST).map(|_| body)
}

const WRITES: [Method; 4] = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

/// Sends each kind of write to a new server and checks its error.
async fn assert_failure(
    settings: fn() -> Settings,
    behaviours: &'static [PeerBehaviour],
    maybe_sent: bool,
    requests: usize,
) {
    for method in WRITES {
        let server = server(settings(), behaviours).await;
        let started_at = Instant::now();
        let error = body_text(&server.connection, write(&method)).await.expect_err("an error instead of a response");
        assert!(started_at.elapsed() <= DEADLINE, "{method} {behaviours:?}: {:?}", started_at.elapsed());
        check_error(&error, maybe_sent);
        tokio::time::sleep(Duration::from_secs(120)).await;
        // Two minutes are enough for any delayed retry in the background.
        assert_eq!(server.requests(), requests, "{method} {behaviours:?}: {error}");
    }
}

fn check_error(error: &SendError, maybe_sent: bool) {
    assert_eq!(error.maybe_sent(), maybe_sent, "{error}");
    let message = error.to_string();
    assert_eq!(message.contains(MAYBE_EXECUTED_ADVICE), maybe_sent, "{message}");
}

#[tokio::test(start_paused = true)]
async fn possibly_executed_write_is_sent_once() {
    for behaviours in [
        &[PeerBehaviour::NeverRespond, PeerBehaviour::Respond],
        &[PeerBehaviour::CloseAfterRead, PeerBehaviour::Respond],
        &[PeerBehaviour::CloseInResponse, PeerBehaviour::Respond],
    ] {
        assert_failure(http2_settings, behaviours, true, 1).await;
        assert_failure(Settings::default, behaviours, true, 1).await;
    }
    assert_failure(http2_settings, &[PeerBehaviour::Reset, PeerBehaviour::Respond], true, 1).await;
    assert_failure(http2_settings, &[PeerBehaviour::GoAwayIncludingRequest, PeerBehaviour::Respond], true, 1).await;
}

#[tokio::test(start_paused = true)]
async fn unprocessed_write_is_retried_elsewhere() {
    for behaviours in [
        &[PeerBehaviour::Refuse, PeerBehaviour::Respond],
        &[PeerBehaviour::GoAwayExcludingRequest, PeerBehaviour::Respond],
    ] {
        for method in WRITES {
            let server = server(http2_settings(), behaviours).await;
            assert_eq!(body_text(&server.connection, write(&method)).await.expect("a response"), "well", "{method}");
            assert_eq!(server.requests(), 2, "{method} {behaviours:?}");
        }
    }
    assert_failure(http2_settings, &[PeerBehaviour::Refuse], false, 4).await;
}

#[tokio::test(start_paused = true)]
async fn streamed_body_is_sent_once() {
    let server = server(http2_settings(), &[PeerBehaviour::Refuse, PeerBehaviour::Respond]).await;
    let error = body_text(&server.connection, streamed(vec![Ok(b"{}")]).await).await.expect_err("refused");
    check_error(&error, false);
    assert!(error.to_string().contains(NOT_EXECUTED_ADVICE), "{error}");
    assert_eq!(server.requests(), 1);
}

#[tokio::test(start_paused = true)]
async fn failing_body_is_reported_as_upload_error() {
    for settings in [http2_settings(), Settings::default()] {
        let server = server(settings, &[PeerBehaviour::NeverRespond]).await;
        let request = streamed(vec![Ok(b"{"), Err(io::Error::other("the disk is gone"))]).await;
        let error = body_text(&server.connection, request).await.expect_err("the body failed");
        check_error(&error, true);
        assert!(matches!(error, SendError::Transport(TransportError::Upload { .. })), "{error:?}");
        assert!(error.to_string().contains("its body failed (the disk is gone)"), "{error}");
        assert!(server.requests() <= 1);
    }
}

#[tokio::test(start_paused = true)]
async fn unreachable_server_received_nothing() {
    for swallowed in [true, false] {
        let connection =
            connection_with_dialer(config(&in_memory_server().await).await, http2_settings(), move || async move {
                if swallowed {
                    pending::<()>().await;
                }
                Err::<Box<dyn Socket>, _>(io::ErrorKind::ConnectionRefused.into())
            });
        for method in WRITES {
            let started_at = Instant::now();
            let error = body_text(&connection, write(&method)).await.expect_err("every dial fails");
            assert!(started_at.elapsed() <= DEADLINE, "{:?}", started_at.elapsed());
            check_error(&error, false);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn closed_idle_connection_retries_only_reads() {
    const PEER_BEHAVIOURS: &[PeerBehaviour] =
        &[PeerBehaviour::Respond, PeerBehaviour::CloseAfterRead, PeerBehaviour::Respond];
    for method in WRITES {
        let server = server(Settings::default(), PEER_BEHAVIOURS).await;
        body_text(&server.connection, get_request(PODS)).await.expect("a response");
        // The server may have executed the write before it closed the idle connection (RFC 9110, section 9.2.2).
        check_error(&body_text(&server.connection, write(&method)).await.expect_err("closed"), true);
        assert_eq!(server.requests(), 2, "{method}");
    }
    let server = server(Settings::default(), PEER_BEHAVIOURS).await;
    body_text(&server.connection, get_request(PODS)).await.expect("a response");
    body_text(&server.connection, get_request(PODS)).await.expect("a response at the second attempt");
    assert_eq!(server.requests(), 3);
}

#[tokio::test(start_paused = true)]
async fn unsent_write_is_reported_and_never_sent() {
    let server = server(Settings::default(), &[PeerBehaviour::Respond]).await;
    body_text(&server.connection, get_request(PODS)).await.expect("a response");
    server.writes_blocked.store(true, Ordering::SeqCst);
    let started_at = Instant::now();
    let error = body_text(&server.connection, write(&Method::POST)).await.expect_err("stuck");
    assert_eq!(started_at.elapsed(), DEADLINE);
    // No byte was sent before the deadline, so the write is certainly not executed.
    assert!(matches!(error, SendError::Transport(TransportError::HeadersTimeout { .. })), "{error:?}");
    check_error(&error, false);
    server.writes_blocked.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(server.requests(), 1, "only the first request must arrive");
}

#[tokio::test(start_paused = true)]
async fn queued_request_moves_to_another_connection() {
    let server = server(http2_settings(), &[PeerBehaviour::Respond]).await;
    body_text(&server.connection, get_request(PODS)).await.expect("a response");
    server.writes_blocked.store(true, Ordering::SeqCst);
    check_error(&body_text(&server.connection, write(&Method::POST)).await.expect_err("stuck"), true);
    let started_at = Instant::now();
    let response = body_text(&server.connection, post_request(PODS, "{}")).await.expect("a response");
    assert_eq!(response, "well");
    assert!(started_at.elapsed() < Duration::from_secs(30), "{:?}", started_at.elapsed());
    assert_eq!(server.requests(), 2);
}

#[tokio::test]
async fn rejecting_backend_is_not_retried() {
    let server = ApiServer::builder().token("old").start().await.expect("a server");
    let file = std::env::temp_dir().join(format!("steadfast-writes-token-{}", std::process::id()));
    std::fs::write(&file, "old").expect("a file");
    let mut config = config(&server).await;
    config.auth_info.token = None;
    config.auth_info.token_file = Some(file.to_string_lossy().into_owned());
    let connection = Connection::new(config).expect("a connection");
    server.faults().replace_tokens(&["new"]);
    std::fs::write(&file, "new").expect("a file");
    // The API server forwards this path, so the status code may be the backend's own.
    let proxied = "/api/v1/namespaces/default/services/shop/proxy/orders";
    assert_eq!(connection.send(post_request(proxied, "{}")).await.expect("a response").status(), 401);
    assert_eq!(server.requests().len(), 1, "a 401 of a proxied request may come from a backend that has acted");
    assert_eq!(connection.send(get_request(PODS)).await.expect("a response").status(), 200);
    std::fs::remove_file(&file).expect("removed");
}
