//! What a monitor asks of the program: `/metrics`, `/healthz`, `/readyz`.

use std::convert::Infallible;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::registry::Registry;
use steadfast::metrics::Metrics;
use steadfast::{Connection, InformerFactory};
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
const STARTING: &str = "starting: the server has not said yet what it has\n";

/// What is to be synced and fresh before the program is ready.
#[derive(Clone, Default)]
pub(crate) struct Followed(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    /// Whose informers; nothing before the server has said what it has.
    factory: Option<InformerFactory>,
    /// The kinds that the server does not have yet.
    awaited: Vec<String>,
}

impl Followed {
    /// The server has said what it has: the informers of `factory` follow that, and these kinds are waited for.
    pub(crate) fn begin(&self, factory: InformerFactory, awaited: Vec<String>) {
        *self.known() = Known { factory: Some(factory), awaited };
    }

    /// The server has `awaited` now, and it is followed.
    pub(crate) fn arrived(&self, awaited: &str) {
        self.known().awaited.retain(|name| name != awaited);
    }

    /// What to answer a readiness probe with.
    fn readiness(&self) -> (StatusCode, String) {
        let known = self.known();
        let Some(freshness) = known.factory.as_ref().map(InformerFactory::freshness) else {
            return (StatusCode::SERVICE_UNAVAILABLE, STARTING.to_owned());
        };
        if known.awaited.is_empty() {
            return (freshness.status(), freshness.to_string());
        }
        let mut text = String::new();
        for kind in &known.awaited {
            let _ = writeln!(text, "{kind}: the server does not have this kind yet");
        }
        for (name, state) in freshness.informers().filter(|(_, state)| !state.is_fresh()) {
            let _ = writeln!(text, "{name}: {state}");
        }
        (StatusCode::SERVICE_UNAVAILABLE, text)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        // Nothing panics under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct State {
    registry: Registry,
    followed: Followed,
}

/// Serves at `address`, and says where on standard error.
pub(crate) async fn serve(address: SocketAddr, connection: &Connection, followed: Followed) -> Result<(), Failure> {
    let cannot =
        |error| Failure::run(format!("metrics cannot be served at {address}: {error}; choose another address"));
    let listener = TcpListener::bind(address).await.map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    eprintln!("metrics at http://{address}/metrics");
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Metrics::new([connection])));
    tokio::spawn(accept(listener, Arc::new(State { registry, followed })));
    Ok(())
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    let places = Arc::new(Semaphore::new(ASKERS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let state = state.clone();
                tokio::spawn(async move {
                    // Ends by itself, by its deadlines, or here: a place is never held for ever.
                    let _ = tokio::time::timeout(VISIT, converse(stream, state)).await;
                    drop(place);
                });
            }
            // Out of files, most likely: what is open has to close first.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn converse(stream: TcpStream, state: Arc<State>) {
    let answer = service_fn(move |request: Request<Incoming>| {
        let answer = state.answer(request.method(), request.uri().path());
        async move { Ok::<_, Infallible>(answer) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(LONGEST_HEAD);
    if let Err(error) = server.serve_connection(TokioIo::new(stream), answer).await {
        tracing::debug!(%error, "a request for metrics went wrong");
    }
}

impl State {
    fn answer(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        let (status, kind, text) = match path {
            "/metrics" | "/healthz" | "/readyz" if !matches!(*method, Method::GET | Method::HEAD) => {
                (StatusCode::METHOD_NOT_ALLOWED, PLAIN, "only GET is answered\n".to_owned())
            }
            "/metrics" => {
                let mut text = String::new();
                match prometheus_client::encoding::text::encode(&mut text, &self.registry) {
                    Ok(()) => (StatusCode::OK, OPENMETRICS, text),
                    Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, PLAIN, "the metrics cannot be written\n".to_owned()),
                }
            }
            "/healthz" => (StatusCode::OK, PLAIN, "ok\n".to_owned()),
            "/readyz" => {
                let (status, text) = self.followed.readiness();
                (status, PLAIN, text)
            }
            _ => (StatusCode::NOT_FOUND, PLAIN, "there are /metrics, /healthz and /readyz\n".to_owned()),
        };
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        if status == StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        response
    }
}
