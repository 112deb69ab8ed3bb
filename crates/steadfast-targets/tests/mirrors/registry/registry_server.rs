//! Minimal HTTP service tree: a server that stores items and has no knowledge of mirrors.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// State of the server.
#[derive(Default)]
pub(crate) struct RegistryServerState {
    /// Items by requested path, each with its change count.
    pub(crate) items: BTreeMap<String, (u64, Value)>,
    /// Requests, as `METHOD PATH`.
    pub(crate) requests: Vec<String>,
    /// Status that replaces all responses, if set.
    pub(crate) status_override: Option<u16>,
    /// True if the server checks `If-Match` and `If-None-Match`.
    pub(crate) checks_conditions: bool,
    /// Required `authorization` header, if set.
    pub(crate) token: Option<String>,
    change_count: u64,
}

/// Server that runs until its runtime ends. Items are under `/services/`, and listed at `/services`.
#[derive(Clone)]
pub(crate) struct RegistryServer {
    /// `http://HOST:PORT`
    pub(crate) url: String,
    state: Arc<Mutex<RegistryServerState>>,
}

impl RegistryServer {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("a bound address"));
        let state =
            Arc::new(Mutex::new(RegistryServerState { checks_conditions: true, ..RegistryServerState::default() }));
        let server = Self { url, state };
        let accepting = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let server = accepting.clone();
                let service = service_fn(move |request: Request<Incoming>| {
                    let server = server.clone();
                    async move {
                        let (head, body) = request.into_parts();
                        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
                        Ok::<_, Infallible>(server.state().respond(&Request::from_parts(head, body)))
                    }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        server
    }

    /// Returns the current state.
    pub(crate) fn state(&self) -> MutexGuard<'_, RegistryServerState> {
        self.state.lock()
    }
}

impl RegistryServerState {
    /// Returns the items with their content, by name.
    pub(crate) fn values(&self) -> BTreeMap<String, Value> {
        let values = self
            .items
            .values()
            .map(|(_, item)| (item["key"].as_str().unwrap_or_default().to_owned(), item["value"].clone()));
        values.collect()
    }

    /// Adds an item as another client.
    pub(crate) fn put(&mut self, path: &str, item: Value) {
        self.change_count += 1;
        self.items.insert(path.to_owned(), (self.change_count, item));
    }

    fn respond(&mut self, request: &Request<Bytes>) -> Response<Full<Bytes>> {
        let (method, path) = (request.method(), request.uri().path().to_owned());
        self.requests.push(format!("{method} {path}"));
        let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
        let response = |status: u16, body: Option<&Value>| {
            let body = body.map(ToString::to_string).unwrap_or_default();
            let response = Response::builder().status(status);
            response.body(Full::new(Bytes::from(body))).expect("an answer")
        };
        if let Some(status) = self.status_override {
            return response(status, None);
        }
        if self.token.as_deref().is_some_and(|token| header("authorization") != Some(token)) {
            return response(401, None);
        }
        if path == "/services" {
            let all: Vec<_> = self.items.values().map(|(_, item)| item.clone()).collect();
            return response(200, Some(&json!({ "services": all })));
        }
        let existing_item = self.items.get(&path).cloned();
        let tag = |number: u64| format!("\"{number}\"");
        let condition_holds = match (header("if-match"), header("if-none-match")) {
            (Some(desired), _) => existing_item.as_ref().is_some_and(|(number, _)| tag(*number) == desired),
            (None, Some("*")) => existing_item.is_none(),
            _ => true,
        };
        if self.checks_conditions && !condition_holds {
            return response(412, None);
        }
        match (method, existing_item) {
            (&Method::GET, Some((number, item))) => {
                let mut response = response(200, Some(&item));
                if self.checks_conditions {
                    response.headers_mut().insert("etag", tag(number).parse().expect("a tag"));
                }
                response
            }
            (&Method::PUT, existing_item) => match serde_json::from_slice(request.body()) {
                Ok(item) => {
                    self.put(&path, item);
                    response(if existing_item.is_some() { 200 } else { 201 }, None)
                }
                Err(_) => response(400, None),
            },
            (&Method::DELETE, Some(_)) => {
                self.items.remove(&path);
                response(204, None)
            }
            (&Method::GET | &Method::DELETE, None) => response(404, None),
            _ => response(405, None),
        }
    }
}
