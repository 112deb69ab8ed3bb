//! HTTP endpoints for monitors: `/metrics`, `/livez` (and its older name `/healthz`), `/readyz`, and `/status` of some
//! commands.
//!
//! A separate thread serves the endpoints, so that `/livez` responds and reports the failure if all threads of the
//! program are blocked. Idle clients cannot exhaust the connections: each connection carries one response and has a
//! deadline. At the limit, a new connection replaces the oldest idle connection.

mod heartbeat;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::registry::Registry;
use steadfast_notify::Supervisor;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::timeout;

use crate::failure::Failure;
use heartbeat::Heartbeat;

/// Maximum number of open connections.
const MAX_CONNECTIONS: usize = 64;

/// Deadline for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Deadline of a whole connection: request and response.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// Deadline for preparing a response other than that of `/livez`.
const RENDER_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of responses that are being prepared, other than those of `/livez`.
const MAX_RENDERINGS: usize = 4;

/// Longest head of a request, in bytes; bodies are never read.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// Delay after a connection could not be accepted.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN_TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const HTML: &str = "text/html; charset=utf-8";

/// Content security policy of the HTML page: no scripts and no external resources.
const HTML_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";

/// Source of the responses of the endpoints.
pub(crate) trait StatusSource: Send + Sync + 'static {
    /// Returns the reason if the program should be restarted. Must not block.
    fn liveness(&self) -> Result<(), String> {
        Ok(())
    }

    /// Returns the readiness status and a text with the reasons.
    fn readiness(&self) -> (StatusCode, String);

    /// Registers the current metrics.
    fn register(&self, registry: &mut Registry);

    /// Returns the state of the program as JSON. `None` disables `/status`.
    fn status(&self) -> Option<String> {
        None
    }

    /// Returns the state of the program as an HTML page. `None` disables `/`.
    fn overview(&self) -> Option<String> {
        None
    }
}

/// Shared state of all connections of the endpoint.
struct EndpointState {
    status_source: Arc<dyn StatusSource>,
    heartbeat: Heartbeat,
    render_permits: Arc<Semaphore>,
}

/// Serves at `address`, and reports the address on standard error.
pub(crate) fn serve(
    address: SocketAddr,
    status_source: impl StatusSource,
    supervisor: &Supervisor,
) -> Result<SocketAddr, Failure> {
    let serve_error =
        |error| Failure::run(format!("metrics cannot be served at {address}: {error}; choose another address"));
    // The socket is bound on the calling thread, so that an occupied address fails the start of the program.
    let listener = std::net::TcpListener::bind(address).map_err(serve_error)?;
    listener.set_nonblocking(true).map_err(serve_error)?;
    let address = listener.local_addr().map_err(serve_error)?;
    let heartbeat = Heartbeat::start(supervisor);
    let state = EndpointState {
        status_source: Arc::new(status_source),
        heartbeat,
        render_permits: Arc::new(Semaphore::new(MAX_RENDERINGS)),
    };
    let (state, supervisor) = (Arc::new(state), supervisor.clone());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // One thread for each blocked response, and one for name resolution.
        .max_blocking_threads(MAX_RENDERINGS + 1)
        .build()
        .map_err(serve_error)?;
    let serve_connections = move || {
        runtime.block_on(async move {
            // Dropping the handle would abort the task. A restarted task duplicates the socket, so the address stays
            // bound after a panic.
            let _accepting = supervisor.spawn("health endpoint", move || accept(listener.try_clone(), state.clone()));
            // The runtime polls its tasks only inside `block_on`, which therefore must not return.
            std::future::pending::<Infallible>().await
        });
    };
    thread::Builder::new().name("health".to_owned()).spawn(serve_connections).map_err(serve_error)?;
    eprintln!("metrics at http://{address}/metrics");
    Ok(address)
}

/// An open connection.
struct OpenConnection {
    task: AbortHandle,
    /// Set when a whole request has arrived.
    is_requested: Arc<AtomicBool>,
}

impl OpenConnection {
    /// Returns true until a whole request has arrived.
    fn is_idle(&self) -> bool {
        !self.is_requested.load(Ordering::Relaxed)
    }
}

async fn accept(listener: std::io::Result<std::net::TcpListener>, state: Arc<EndpointState>) -> String {
    let listener = match listener.and_then(TcpListener::from_std) {
        Ok(listener) => listener,
        Err(error) => return format!("its socket cannot be used: {error}"),
    };
    let mut connections = VecDeque::<OpenConnection>::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // The process has probably no file descriptors left. Closing idle connections frees some. Without an idle
            // one, the oldest connection is closed.
            let (mut closed, open): (VecDeque<_>, VecDeque<_>) =
                connections.into_iter().partition(OpenConnection::is_idle);
            connections = open;
            if closed.is_empty() {
                closed.extend(connections.pop_front());
            }
            for connection in closed {
                connection.task.abort();
            }
            tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            continue;
        };
        connections.retain(|open| !open.task.is_finished());
        if connections.len() >= MAX_CONNECTIONS {
            let idle = connections.iter().position(OpenConnection::is_idle);
            // The queue is in order of arrival: the first match is the oldest idle connection. Without an idle one, the
            // oldest of all is closed.
            if let Some(connection) = connections.remove(idle.unwrap_or_default()) {
                connection.task.abort();
            }
        }
        let is_requested = Arc::new(AtomicBool::new(false));
        let conversation = timeout(CONNECTION_TIMEOUT, converse(stream, state.clone(), is_requested.clone()));
        connections.push_back(OpenConnection { task: tokio::spawn(conversation).abort_handle(), is_requested });
    }
}

async fn converse(stream: TcpStream, state: Arc<EndpointState>, is_requested: Arc<AtomicBool>) {
    let respond = service_fn(move |request: Request<Incoming>| {
        // Relaxed is enough: the flag orders no other data, and a late view only closes a different connection.
        is_requested.store(true, Ordering::Relaxed);
        let state = state.clone();
        async move { Ok::<_, Infallible>(respond(&state, request.method(), request.uri().path()).await) }
    });
    let mut server = http1::Builder::new();
    // One response per connection, so that idle clients hold no connection.
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(MAX_HEAD_BYTES).keep_alive(false);
    if let Err(error) = server.serve_connection(TokioIo::new(stream), respond).await {
        tracing::debug!(%error, "a request to the health endpoint failed");
    }
}

/// Status, content type and text of a response.
type Page = (StatusCode, &'static str, String);

async fn respond(state: &EndpointState, method: &Method, path: &str) -> Response<Full<Bytes>> {
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    let (status, kind, text) = match path {
        "/" | "/metrics" | "/healthz" | "/livez" | "/readyz" | "/status" if !is_read => {
            (StatusCode::METHOD_NOT_ALLOWED, PLAIN_TEXT, "only GET is supported\n".to_owned())
        }
        // The response is computed here and not on the blocking pool, because all threads of the pool may wait for
        // locks.
        "/healthz" | "/livez" => liveness_page(state),
        // A blocked program is not ready, even if its caches are fresh.
        "/readyz" if liveness_page(state).0 != StatusCode::OK => liveness_page(state),
        _ => render_page(state, path).await,
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    if kind == HTML {
        response.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(HTML_POLICY));
    }
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

fn liveness_page(state: &EndpointState) -> Page {
    match state.heartbeat.check().and_then(|()| state.status_source.liveness()) {
        Ok(()) => (StatusCode::OK, PLAIN_TEXT, "ok\n".to_owned()),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, PLAIN_TEXT, format!("{}\n", reason.trim_end())),
    }
}

/// Renders a page on the blocking pool, since rendering may wait for locks of the program.
async fn render_page(state: &EndpointState, path: &str) -> Page {
    // Requests are rejected and not queued: they would accumulate while a lock is blocked, and scrapers retry anyway.
    let Ok(permit) = state.render_permits.clone().try_acquire_owned() else {
        let reason = format!("{MAX_RENDERINGS} responses are being prepared and do not get ready; see /livez\n");
        return (StatusCode::SERVICE_UNAVAILABLE, PLAIN_TEXT, reason);
    };
    let (status_source, path) = (state.status_source.clone(), path.to_owned());
    let rendering = spawn_blocking(move || {
        let page = render(&*status_source, &path);
        // The thread keeps the permit even if the client has disconnected.
        drop(permit);
        page
    });
    // The timeout abandons only the response: a blocking thread cannot be cancelled, and keeps its permit.
    match timeout(RENDER_TIMEOUT, rendering).await {
        Ok(Ok(page)) => page,
        Ok(Err(error)) => {
            (StatusCode::INTERNAL_SERVER_ERROR, PLAIN_TEXT, format!("the response could not be prepared: {error}\n"))
        }
        Err(_) => {
            let reason = format!("the response was not ready within {} s\n", RENDER_TIMEOUT.as_secs());
            (StatusCode::SERVICE_UNAVAILABLE, PLAIN_TEXT, reason)
        }
    }
}

fn render(status_source: &dyn StatusSource, path: &str) -> Page {
    // Without an overview, `/` continues to the list of endpoints with status 404.
    if path == "/"
        && let Some(overview) = status_source.overview()
    {
        return (StatusCode::OK, HTML, overview);
    }
    match path {
        // The registry is built for each scrape: informers and sinks come and go with reloads, and collectors read
        // current values.
        "/metrics" => {
            let (mut registry, mut text) = (Registry::default(), String::new());
            status_source.register(&mut registry);
            match prometheus_client::encoding::text::encode(&mut text, &registry) {
                Ok(()) => (StatusCode::OK, OPENMETRICS, text),
                Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, PLAIN_TEXT, "the metrics cannot be written\n".to_owned()),
            }
        }
        "/readyz" => {
            let (status, text) = status_source.readiness();
            (status, PLAIN_TEXT, text)
        }
        _ => {
            let status = status_source.status();
            let pages = if status.is_some() {
                "/, /metrics, /healthz, /livez, /readyz and /status"
            } else {
                "/metrics, /healthz, /livez and /readyz"
            };
            match status.filter(|_| path == "/status") {
                Some(status) => (StatusCode::OK, JSON, status),
                None => (StatusCode::NOT_FOUND, PLAIN_TEXT, format!("there are {pages}\n")),
            }
        }
    }
}
