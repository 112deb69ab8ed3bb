//! What a monitor asks of the program: `/metrics`, `/livez` (`/healthz` as it was called before), `/readyz`, and of some `/status`.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::failure::Failure;

/// How many may ask at a time; others wait to be accepted.
const ASKERS: usize = 16;

/// How long a request's head may take.
const HEAD: Duration = Duration::from_secs(5);

/// How long one who asks may stay.
const VISIT: Duration = Duration::from_secs(300);

/// The longest head that is read, in bytes; a body never is.
const LONGEST_HEAD: usize = 16 * 1024;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// What a monitor asks for.
pub(crate) trait Told: Send + Sync + 'static {
    /// Whether the program is ready, and why it is not.
    fn readiness(&self) -> (StatusCode, String);

    /// Registers what `/metrics` shows now.
    fn register(&self, registry: &mut Registry);

    /// How things are, as JSON; nothing where that is not told.
    fn status(&self) -> Option<String> {
        None
    }
}

/// Serves at `address`, and says where on standard error.
pub(crate) async fn serve(address: SocketAddr, told: impl Told) -> Result<SocketAddr, Failure> {
    let cannot =
        |error| Failure::run(format!("metrics cannot be served at {address}: {error}; choose another address"));
    let listener = TcpListener::bind(address).await.map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    eprintln!("metrics at http://{address}/metrics");
    tokio::spawn(accept(listener, Arc::new(told)));
    Ok(address)
}

async fn accept(listener: TcpListener, told: Arc<dyn Told>) {
    let places = Arc::new(Semaphore::new(ASKERS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let told = told.clone();
                tokio::spawn(async move {
                    // Ends by itself, by its deadlines, or here: a place is never held for ever.
                    let _ = tokio::time::timeout(VISIT, converse(stream, told)).await;
                    drop(place);
                });
            }
            // Out of files, most likely: what is open has to close first.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn converse(stream: TcpStream, told: Arc<dyn Told>) {
    let respond = service_fn(move |request: Request<Incoming>| {
        let answer = answer(&*told, request.method(), request.uri().path());
        async move { Ok::<_, Infallible>(answer) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(LONGEST_HEAD);
    if let Err(error) = server.serve_connection(TokioIo::new(stream), respond).await {
        tracing::debug!(%error, "a request for metrics went wrong");
    }
}

/// The pages of one who tells how things are, or not.
fn pages(status: bool) -> &'static str {
    if status { "/metrics, /healthz, /livez, /readyz and /status" } else { "/metrics, /healthz, /livez and /readyz" }
}

fn answer(told: &dyn Told, method: &Method, path: &str) -> Response<Full<Bytes>> {
    let is_asked = matches!(*method, Method::GET | Method::HEAD);
    let (status, kind, text) = match path {
        "/metrics" | "/healthz" | "/livez" | "/readyz" | "/status" if !is_asked => {
            (StatusCode::METHOD_NOT_ALLOWED, PLAIN, "only GET is answered\n".to_owned())
        }
        "/metrics" => {
            let (mut registry, mut text) = (Registry::default(), String::new());
            told.register(&mut registry);
            match prometheus_client::encoding::text::encode(&mut text, &registry) {
                Ok(()) => (StatusCode::OK, OPENMETRICS, text),
                Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, PLAIN, "the metrics cannot be written\n".to_owned()),
            }
        }
        "/healthz" | "/livez" => (StatusCode::OK, PLAIN, "ok\n".to_owned()),
        "/readyz" => {
            let (status, text) = told.readiness();
            (status, PLAIN, text)
        }
        "/status" if told.status().is_some() => (StatusCode::OK, JSON, told.status().unwrap_or_default()),
        _ => (StatusCode::NOT_FOUND, PLAIN, format!("there are {}\n", pages(told.status().is_some()))),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}
