//! Local HTTP server with scripted responses.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpListener;

/// Received request.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl ReceivedRequest {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }
}

/// A response: status, one header, body.
pub(crate) type Reply = (u16, Option<(&'static str, String)>, String);

/// A local HTTP server that keeps all requests.
#[derive(Clone)]
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl Receiver {
    /// Starts a receiver. `reply` gets each request and its number, from zero.
    pub(crate) async fn start(reply: impl Fn(&ReceivedRequest, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let receiver = Self { address: listener.local_addr().expect("an address"), requests: Arc::default() };
        let (request_log, reply) = (receiver.requests.clone(), Arc::new(reply));
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (request_log, reply) = (request_log.clone(), reply.clone());
                let service = service_fn(move |request: Request<Incoming>| {
                    let (request_log, reply) = (request_log.clone(), reply.clone());
                    async move {
                        let (parts, body) = request.into_parts();
                        let body = body.collect().await.map(|body| body.to_bytes().to_vec()).unwrap_or_default();
                        let received_request = ReceivedRequest {
                            method: parts.method.to_string(),
                            path: parts.uri.to_string(),
                            headers: parts.headers,
                            body: String::from_utf8_lossy(&body).into_owned(),
                        };
                        let number = {
                            let mut request_log = request_log.lock();
                            request_log.push(received_request.clone());
                            request_log.len() - 1
                        };
                        let (status, header, body) = reply(&received_request, number);
                        let mut response = Response::builder().status(status);
                        if let Some((name, value)) = header {
                            response = response.header(name, value);
                        }
                        Ok::<_, Infallible>(response.body(Full::new(Bytes::from(body))).expect("a response"))
                    }
                });
                let connection =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service);
                tokio::spawn(connection);
            }
        });
        receiver
    }

    /// Starts a receiver that always returns this status.
    pub(crate) async fn with_status(status: u16) -> Self {
        Self::start(move |_, _| (status, None, String::new())).await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Takes all requests that have arrived since the last call.
    pub(crate) fn take(&self) -> Vec<ReceivedRequest> {
        std::mem::take(&mut *self.requests.lock())
    }
}
