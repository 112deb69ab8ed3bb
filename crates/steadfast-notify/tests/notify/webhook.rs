//! Delivery of `CloudEvents` to servers.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use steadfast_notify::Plan;
use steadfast_notify::delivery_outcome::DeliveryOutcome;
use steadfast_notify::message::Message;
use steadfast_notify::sink::MessageSink;
use steadfast_notify::sink::stdout::JsonLines;
use tokio::net::TcpListener;

use crate::folder::Folder;

/// Received requests.
struct ReceivedRequest {
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Vec<u8>,
}

/// Server that records requests and returns a fixed response.
#[derive(Clone)]
struct Receiver {
    address: std::net::SocketAddr,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl Receiver {
    async fn start(status: u16, header: Option<(&'static str, &'static str)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let server = Self { address: listener.local_addr().expect("an address"), requests: Arc::default() };
        let request_log = server.requests.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let request_log = request_log.clone();
                let service = service_fn(move |request: Request<Incoming>| {
                    let request_log = request_log.clone();
                    async move {
                        let (parts, body) = request.into_parts();
                        let body = body.collect().await.map(|body| body.to_bytes().to_vec()).unwrap_or_default();
                        let (method, path, headers) = (parts.method, parts.uri.to_string(), parts.headers);
                        let received_request = ReceivedRequest { method, path, headers, body };
                        request_log.lock().push(received_request);
                        let mut response = Response::builder().status(status);
                        if let Some((name, value)) = header {
                            response = response.header(name, value);
                        }
                        Ok::<_, Infallible>(response.body(Full::new(Bytes::new())).expect("an answer"))
                    }
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service),
                );
            }
        });
        server
    }

    fn take(&self) -> ReceivedRequest {
        let mut requests = self.requests.lock();
        assert_eq!(requests.len(), 1, "one request");
        requests.remove(0)
    }
}

/// Creates a folder with a key and a token, for one test.
pub(crate) fn folder(name: &str) -> Folder {
    let folder = Folder::new(&format!("webhook-{name}"));
    std::fs::write(folder.join("key"), "a key that is shared\n").expect("enough space");
    std::fs::write(folder.join("token"), "Bearer hunter2").expect("enough space");
    folder
}

pub(crate) async fn open_sink(folder: &std::path::Path, url: &str, more: &str) -> Result<Arc<dyn MessageSink>, String> {
    let text = format!(
        "[[rules]]\nname = \"r\"\nresources = [\"pods\"]\nsend = \"object.status\"\nto = [\"s\"]\n[sinks.s.webhook]\nurl = \"{url}\"\n{more}\n"
    );
    let plan = Plan::read(&folder.join("x.toml").display().to_string(), &text).map_err(|error| error.to_string())?;
    let stdout: Arc<dyn MessageSink> = Arc::new(JsonLines::new(std::io::sink(), |_| {}));
    Ok(plan.open(&stdout).await.map_err(|error| error.to_string())?["s"].clone())
}

pub(crate) fn message(name: &str) -> Arc<Message> {
    let message = json!({
        "id": format!("{name}@7/r"), "time": "2026-01-02T03:04:05Z", "type": "Added", "rule": "r", "cluster": "here",
        "resource": "pods", "namespace": "shop", "name": name, "uid": "u", "data": {"ip": "10.0.0.1"},
    });
    Arc::new(serde_json::from_value(message).expect("a message"))
}

fn cloud_event(name: &str) -> Value {
    json!({
        "specversion": "1.0", "id": format!("{name}@7/r"), "source": "/clusters/here/pods", "type": "dev.steadfast.added",
        "subject": format!("shop/{name}"), "time": "2026-01-02T03:04:05Z", "datacontenttype": "application/json",
        "rule": "r", "uid": "u", "data": {"ip": "10.0.0.1"},
    })
}

/// Computes the HMAC by RFC 2104, independently of the tested implementation.
fn hmac_sha256(key: &[u8], text: &[u8]) -> String {
    let mut block = [0_u8; 64];
    block[..key.len()].copy_from_slice(key);
    let inner = Sha256::new().chain_update(block.map(|byte| byte ^ 0x36)).chain_update(text).finalize();
    let outer = Sha256::new().chain_update(block.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize();
    outer.iter().fold(String::new(), |digits, byte| format!("{digits}{byte:02x}"))
}

#[test]
fn test_hmac_matches_rfc_4231() {
    let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
    assert_eq!(hmac_sha256(b"Jefe", b"what do ya want for nothing?"), expected);
}

#[tokio::test]
async fn message_is_a_signed_cloud_event() {
    let receiver = Receiver::start(204, None).await;
    let more =
        "hmac = {file = \"key\"}\nheaders = {X-Team = \"edge\"}\nsecret_headers = {Authorization = {file = \"token\"}}";
    let url = format!("http://{}/hooks/in?x=1", receiver.address);
    let stream = open_sink(&folder("structured"), &url, more).await.expect("a valid configuration");
    assert_eq!(stream.deliver(&[message("a")]).await, DeliveryOutcome::Delivered);
    let ReceivedRequest { method, path, headers, body } = receiver.take();
    assert_eq!((method, path.as_str()), (Method::POST, "/hooks/in?x=1"));
    assert_eq!(headers["content-type"], "application/cloudevents+json; charset=utf-8");
    assert_eq!(
        (&headers["x-team"], &headers["authorization"]),
        (&"edge".parse().unwrap(), &"Bearer hunter2".parse().unwrap())
    );
    assert_eq!(headers["steadfast-signature"], format!("sha256={}", hmac_sha256(b"a key that is shared", &body)));
    assert_eq!(serde_json::from_slice::<Value>(&body).expect("valid JSON"), cloud_event("a"));
}

#[tokio::test]
async fn messages_are_batched_in_order() {
    let receiver = Receiver::start(200, None).await;
    let url = format!("http://{}", receiver.address);
    let stream = open_sink(&folder("batched"), &url, "mode = \"batched\"").await.expect("a valid configuration");
    assert_eq!(stream.deliver(&[message("a"), message("b")]).await, DeliveryOutcome::Delivered);
    let ReceivedRequest { path, headers, body, .. } = receiver.take();
    assert_eq!(path, "/");
    assert_eq!(headers["content-type"], "application/cloudevents-batch+json; charset=utf-8");
    assert!(!headers.contains_key("steadfast-signature"));
    assert_eq!(
        serde_json::from_slice::<Value>(&body).expect("valid JSON"),
        json!([cloud_event("a"), cloud_event("b")])
    );
}

#[tokio::test]
async fn retry_after_is_returned_without_hidden_retries() {
    for status in [429, 503] {
        let receiver = Receiver::start(status, Some(("retry-after", "77"))).await;
        let url = format!("http://{}", receiver.address);
        let stream = open_sink(&folder("busy"), &url, "").await.expect("a valid configuration");
        let outcome = stream.deliver(&[message("a")]).await;
        let (after, reason) = match outcome {
            DeliveryOutcome::Busy { retry_after: after, reason } if status == 429 => (after, reason),
            DeliveryOutcome::Retry { retry_after: after, reason } if status == 503 => (after, reason),
            other => panic!("{other:?}"),
        };
        assert_eq!(after, Some(Duration::from_secs(77)));
        assert!(reason.contains(&status.to_string()), "{reason}");
        receiver.take();
    }
    let receiver = Receiver::start(410, None).await;
    let stream =
        open_sink(&folder("gone"), &format!("http://{}", receiver.address), "").await.expect("a valid configuration");
    assert!(matches!(stream.deliver(&[message("a")]).await, DeliveryOutcome::Rejected { .. }));
}

#[tokio::test]
async fn unreachable_server_is_retried_with_reason() {
    // Bound and released, so that no server listens.
    let address = TcpListener::bind("127.0.0.1:0").await.and_then(|listener| listener.local_addr()).expect("a port");
    let url = format!("http://{address}");
    let stream = open_sink(&folder("nobody"), &url, "timeout = \"2s\"").await.expect("a valid configuration");
    let DeliveryOutcome::Retry { retry_after: None, reason } = stream.deliver(&[message("a")]).await else {
        panic!("not a retry")
    };
    assert!(!reason.is_empty() && !reason.contains("hunter2"), "{reason}");
}

#[tokio::test]
async fn missing_certificates_have_positions() {
    let url = "https://127.0.0.1:1/";
    let reported =
        open_sink(&folder("certificates"), url, "ca_file = \"none.pem\"").await.map(drop).expect_err("missing file");
    assert!(reported.contains("x.toml:6:") && reported.contains("none.pem"), "{reported}");
}
