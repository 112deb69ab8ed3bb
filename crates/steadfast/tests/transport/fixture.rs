//! Servers and connections for the transport tests.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use parking_lot::Mutex;
use steadfast::Connection;
use steadfast::connection::SendError;
use steadfast::environment::local::LocalEnvironment;
use steadfast::environment::{SharedEnvironment, Socket};
use steadfast::transport::{ResponseBody, Settings};
use steadfast_apiserver::ApiServer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const WATCH: &str = "/api/v1/namespaces/default/pods?watch=true";

/// Returns settings for HTTP/2 without TLS.
pub(crate) fn http2_settings() -> Settings {
    Settings { prior_knowledge: true, ..Settings::default() }
}

pub(crate) async fn config(server: &ApiServer) -> kube::Config {
    let file = Kubeconfig::from_yaml(&server.kubeconfig()).expect("a kubeconfig");
    kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.expect("a configuration")
}

/// Returns a connection over TCP on its own threads.
pub(crate) async fn connect_over_tcp(server: &ApiServer, settings: Settings) -> Connection {
    Connection::builder(config(server).await).settings(settings).build().expect("a connection")
}

pub(crate) async fn in_memory_server() -> ApiServer {
    ApiServer::builder().in_memory().start().await.expect("a server")
}

/// Returns a connection over in-memory pipes, on this runtime and its clock.
pub(crate) async fn connect_over_pipes(server: &ApiServer, settings: Settings, sockets: &Sockets) -> Connection {
    let (dialer, sockets) = (server.dialer(), sockets.clone());
    connection_with_dialer(config(server).await, settings, move || {
        let (dialer, sockets) = (dialer.clone(), sockets.clone());
        async move { Ok(sockets.track(dialer.connect(0).await?)) }
    })
}

/// Returns a connection over the pipes of `dial`, on this runtime and its clock.
pub(crate) fn connection_with_dialer<F>(
    config: kube::Config,
    settings: Settings,
    dial: impl Fn() -> F + Send + Sync + 'static,
) -> Connection
where
    F: Future<Output = io::Result<Box<dyn Socket>>> + Send + 'static,
{
    let environment: SharedEnvironment = Arc::new(LocalEnvironment::new(1, move |_, _| Box::pin(dial())));
    Connection::builder(config).environment(environment).settings(settings).build().expect("a connection")
}

pub(crate) fn get_request(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).expect("a request")
}

pub(crate) fn post_request(path: &str, body: &str) -> Request<Body> {
    let json = ("content-type", "application/json");
    Request::post(path).header(json.0, json.1).body(Body::from(body.as_bytes().to_vec())).expect("a request")
}

pub(crate) async fn body_text(connection: &Connection, request: Request<Body>) -> Result<String, SendError> {
    let response = connection.send(request).await?;
    let body = response.into_body().collect().await?.to_bytes();
    Ok(String::from_utf8(body.to_vec()).expect("text"))
}

/// Opens a watch and returns after its response head.
pub(crate) async fn open_watch(connection: &Connection) -> Response<ResponseBody> {
    let response = connection.send(get_request(WATCH)).await.expect("a watch");
    assert_eq!(response.status(), 200);
    response
}

/// Returns the next chunk of a body, or its end.
pub(crate) async fn next_chunk(body: &mut ResponseBody) -> Option<Result<Bytes, steadfast::transport::TransportError>> {
    body.frame().await.map(|frame| frame.map(|frame| frame.into_data().expect("data")))
}

/// Polls in short intervals until `what` holds.
pub(crate) async fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("timeout while waiting until {what}");
}

/// Counts of the dialled sockets, their failures, and the requests written to a socket after its failure.
#[derive(Clone, Default)]
pub(crate) struct Sockets {
    counts: Arc<SocketCounts>,
}

#[derive(Default)]
struct SocketCounts {
    dialled: AtomicUsize,
    open: AtomicUsize,
    written_after_failure: AtomicUsize,
    failures: Mutex<Vec<io::ErrorKind>>,
    slow_peer_settings: Mutex<Vec<bool>>,
}

impl Sockets {
    pub(crate) fn dialled(&self) -> usize {
        self.counts.dialled.load(Ordering::SeqCst)
    }

    pub(crate) fn open(&self) -> usize {
        self.counts.open.load(Ordering::SeqCst)
    }

    pub(crate) fn written_after_failure(&self) -> usize {
        self.counts.written_after_failure.load(Ordering::SeqCst)
    }

    /// Returns the slow-peer settings of the sockets, in order.
    pub(crate) fn slow_peer_settings(&self) -> Vec<bool> {
        self.counts.slow_peer_settings.lock().clone()
    }

    pub(crate) fn track<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(&self, socket: S) -> Box<dyn Socket> {
        self.counts.dialled.fetch_add(1, Ordering::SeqCst);
        self.counts.open.fetch_add(1, Ordering::SeqCst);
        Box::new(TrackedSocket { socket, failed: AtomicBool::new(false), counts: self.counts.clone() })
    }
}

struct TrackedSocket<S> {
    socket: S,
    failed: AtomicBool,
    counts: Arc<SocketCounts>,
}

impl<S> TrackedSocket<S> {
    fn record_error<T>(&self, outcome: &Poll<io::Result<T>>) {
        if let Poll::Ready(Err(error)) = outcome {
            self.failed.store(true, Ordering::SeqCst);
            self.counts.failures.lock().push(error.kind());
        }
    }
}

impl<S> Drop for TrackedSocket<S> {
    fn drop(&mut self) {
        self.counts.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Socket for TrackedSocket<S> {
    fn peer(&self) -> String {
        "memory".to_owned()
    }

    fn allow_slow_peer(&self, allowed: bool) {
        self.counts.slow_peer_settings.lock().push(allowed);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TrackedSocket<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.socket).poll_read(context, into);
        self.record_error(&read);
        if matches!(read, Poll::Ready(Ok(()))) && into.filled().len() == before {
            self.failed.store(true, Ordering::SeqCst);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TrackedSocket<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.failed.load(Ordering::SeqCst) && contains_request(bytes) {
            self.counts.written_after_failure.fetch_add(1, Ordering::SeqCst);
        }
        let written = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.record_error(&written);
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

/// Returns true if `bytes` contain an HTTP/2 HEADERS frame or an HTTP/1.1 request line, unlike a connection close.
pub(crate) fn contains_request(mut bytes: &[u8]) -> bool {
    if bytes.starts_with(b"GET ") || bytes.starts_with(b"POST ") {
        return true;
    }
    while let [high, middle, low, kind, _, _, _, _, _, rest @ ..] = bytes {
        if *kind == 1 {
            return true;
        }
        let length = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
        bytes = rest.get(length..).unwrap_or_default();
    }
    false
}
