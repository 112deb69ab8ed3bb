//! Small client that exposes the data on the wire.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use steadfast_apiserver::ApiServer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// One connection.
pub(crate) enum Client {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

impl Client {
    pub(crate) async fn http1(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Self, Failure> {
        let (sender, connection) = http1::handshake(TokioIo::new(io)).await?;
        tokio::spawn(connection);
        Ok(Self::Http1(sender))
    }

    pub(crate) async fn http2(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Self, Failure> {
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(io)).await?;
        tokio::spawn(connection);
        Ok(Self::Http2(sender))
    }

    /// Connects over HTTP/2 in memory.
    pub(crate) async fn in_memory(server: &ApiServer, replica: usize) -> Result<Self, Failure> {
        Self::http2(server.connect(replica).await?).await
    }

    /// Connects over HTTP/1.1 and TCP.
    pub(crate) async fn over_tcp(server: &ApiServer, replica: usize) -> Result<Self, Failure> {
        Self::http1(TcpStream::connect(server.address(replica).expect("a server with sockets")).await?).await
    }

    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Failure> {
        Ok(match self {
            Self::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
            Self::Http2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
        })
    }

    pub(crate) async fn request(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Result<Response<Incoming>, Failure> {
        let uri = match self {
            Self::Http1(_) => path.to_owned(),
            Self::Http2(_) => format!("http://localhost{path}"),
        };
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let mut request = Request::builder().method(method).uri(uri).header("host", "localhost");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.body(Full::new(body))?).await
    }

    /// Performs a request and reads the whole response.
    pub(crate) async fn call(&mut self, method: Method, path: &str, body: &Value) -> Result<(u16, Value), Failure> {
        self.call_with(method, path, &[("content-type", "application/json")], body).await
    }

    pub(crate) async fn call_with(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Result<(u16, Value), Failure> {
        let response = self.request(method, path, headers, body).await?;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await?.to_bytes();
        let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
        Ok((code, serde_json::from_slice(&bytes).unwrap_or_else(|_| text())))
    }

    pub(crate) async fn get(&mut self, path: &str) -> (u16, Value) {
        self.call(Method::GET, path, &Value::Null).await.expect("the server responds")
    }

    pub(crate) async fn patch(&mut self, path: &str, kind: &str, body: &Value) -> (u16, Value) {
        let content_type = format!("application/{kind}+json");
        let headers = [("content-type", content_type.as_str())];
        self.call_with(Method::PATCH, path, &headers, body).await.expect("the server responds")
    }

    pub(crate) async fn watch(&mut self, path: &str) -> Watch {
        self.try_watch(path).await.expect("the server responds")
    }

    pub(crate) async fn try_watch(&mut self, path: &str) -> Result<Watch, Failure> {
        let response = self.request(Method::GET, path, &[], &Value::Null).await?;
        let code = response.status().as_u16();
        Ok(Watch { code, body: response.into_body(), buffered: Vec::new() })
    }
}

/// A watch stream.
pub(crate) struct Watch {
    pub code: u16,
    body: Incoming,
    buffered: Vec<u8>,
}

impl Watch {
    /// Returns the next event; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Result<Option<Value>, Failure> {
        loop {
            if let Some(end) = self.buffered.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.buffered.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            match self.body.frame().await {
                Some(frame) => {
                    if let Some(data) = frame?.data_ref() {
                        self.buffered.extend_from_slice(data);
                    }
                }
                None => return Ok(None),
            }
        }
    }

    /// Returns the next event, which must exist.
    pub(crate) async fn event(&mut self) -> Value {
        let event = timeout(Duration::from_secs(600), self.next()).await.expect("an event within the timeout");
        event.expect("an intact stream").expect("an open stream")
    }

    /// Returns the next event as its type, its object's name and its version.
    pub(crate) async fn summary(&mut self) -> (String, String, u64) {
        let event = self.event().await;
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let version = text("/object/metadata/resourceVersion").parse().unwrap_or_default();
        (text("/type"), text("/object/metadata/name"), version)
    }

    /// Asserts that no event arrives within `wait`.
    pub(crate) async fn assert_silent_for(&mut self, wait: Duration) {
        if let Ok(event) = timeout(wait, self.next()).await {
            panic!("unexpected event {event:?}");
        }
    }

    /// Asserts that the stream ends cleanly.
    pub(crate) async fn assert_ends(&mut self) {
        let end = timeout(Duration::from_secs(600), self.next()).await.expect("the stream ends");
        assert_eq!(end.expect("a clean end"), None);
    }

    /// Asserts that the stream ends with an error.
    pub(crate) async fn assert_breaks(&mut self) -> Failure {
        let end = timeout(Duration::from_secs(600), self.next()).await.expect("an end within the timeout");
        end.expect_err("the stream must break")
    }
}

pub(crate) fn config_map(name: &str) -> Value {
    labelled(name, &json!({}))
}

pub(crate) fn labelled(name: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", "labels": labels}, "data": {"k": "v"},
    })
}

pub(crate) fn version_of(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).expect("a numeric version")
}

pub(crate) fn names(list: &Value) -> Vec<&str> {
    list["items"]
        .as_array()
        .expect("a list of items")
        .iter()
        .filter_map(|item| item["metadata"]["name"].as_str())
        .collect()
}

/// Returns the whole seconds since `instant` on the server's clock.
pub(crate) fn seconds_since(server: &ApiServer, instant: Duration) -> u64 {
    server.elapsed().saturating_sub(instant).as_secs()
}

pub(crate) async fn in_memory_server() -> ApiServer {
    ApiServer::builder().in_memory().start().await.expect("the server starts")
}

pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
