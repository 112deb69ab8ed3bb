//! HTTP proxy before the reference that stalls watches, loses records, and rejects streamed lists.
//!
//! It authenticates with the credentials of the reference. Its clients need none.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures::StreamExt;
use futures::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderValue, VIA};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use kube::Client;
use serde_json::json;
use steadfast_testing::TestError;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Parts of the queries of watches.
const WATCH: [&str; 2] = ["watch=1", "watch=true"];

/// Part of the query of each streamed list.
const STREAMED_LIST: &str = "sendInitialEvents=true";

type ProxiedBody = UnsyncBoxBody<Bytes, TestError>;

/// Running proxy. It ends with the runtime of the test.
pub(crate) struct MisbehavingProxy {
    address: SocketAddr,
    faults: Arc<Faults>,
}

struct Faults {
    /// Number of the next watch, which starts at 0.
    next_watch: AtomicU64,
    /// Watches with a lower number deliver nothing.
    first_running: watch::Sender<u64>,
    /// Number of records that were forwarded.
    forwarded: watch::Sender<u64>,
    /// Records with this text are lost.
    lost_text: Option<&'static str>,
    loses_records: AtomicBool,
    has_old_protocol: bool,
}

impl MisbehavingProxy {
    /// Starts a proxy before `upstream` that forwards everything unchanged. After [`lose_records`](Self::lose_records),
    /// it loses the records with `lost_text`.
    pub(crate) async fn start(upstream: Client, lost_text: &'static str) -> Result<Self, TestError> {
        Self::start_with(upstream, Some(lost_text), false).await
    }

    /// Starts a proxy that rejects streamed lists, removes bookmarks, and names itself in responses.
    pub(crate) async fn start_with_old_protocol(upstream: Client) -> Result<Self, TestError> {
        Self::start_with(upstream, None, true).await
    }

    async fn start_with(
        upstream: Client,
        lost_text: Option<&'static str>,
        has_old_protocol: bool,
    ) -> Result<Self, TestError> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let faults = Arc::new(Faults {
            next_watch: AtomicU64::new(0),
            first_running: watch::Sender::new(0),
            forwarded: watch::Sender::new(0),
            lost_text,
            loses_records: AtomicBool::new(false),
            has_old_protocol,
        });
        let shared = faults.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (upstream, faults) = (upstream.clone(), shared.clone());
                let service = service_fn(move |request| respond(upstream.clone(), faults.clone(), request));
                // A client may close its connection at any time.
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service),
                );
            }
        });
        Ok(Self { address, faults })
    }

    /// Returns the address for clients, which use no TLS.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a kubeconfig without credentials.
    pub(crate) fn kubeconfig(&self) -> String {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "proxy",
            "contexts": [{ "name": "proxy", "context": { "cluster": "proxy", "user": "nobody" } }],
            "clusters": [{ "name": "proxy", "cluster": { "server": format!("http://{}", self.address) } }],
            "users": [{ "name": "nobody", "user": {} }],
        })
        .to_string()
    }

    /// Waits until a client has received a record of a watch.
    pub(crate) async fn until_watched(&self) -> Result<(), TestError> {
        self.faults.forwarded.subscribe().wait_for(|forwarded| *forwarded > 0).await?;
        Ok(())
    }

    /// Stalls the open watches. Later ones are not affected.
    pub(crate) fn stall_open_watches(&self) {
        self.faults.first_running.send_replace(self.faults.next_watch.load(Ordering::Relaxed));
    }

    /// Loses records with the text of the proxy from now on.
    pub(crate) fn lose_records(&self) {
        self.faults.loses_records.store(true, Ordering::Relaxed);
    }
}

async fn respond(
    upstream: Client,
    faults: Arc<Faults>,
    request: Request<Incoming>,
) -> Result<Response<ProxiedBody>, TestError> {
    let (mut head, body) = request.into_parts();
    let target = head.uri.to_string();
    if faults.has_old_protocol && target.contains(STREAMED_LIST) {
        return rejection();
    }
    // The filter reads text, and the credentials of the client are not those of the server.
    head.headers.remove(ACCEPT_ENCODING);
    head.headers.remove(AUTHORIZATION);
    head.uri = head.uri.path_and_query().ok_or("a request without a path")?.as_str().parse()?;
    let body = body.collect().await?.to_bytes();
    let response = upstream.send(Request::from_parts(head, kube::client::Body::from(body.to_vec()))).await?;
    let (mut head, body) = response.into_parts();
    if faults.has_old_protocol {
        head.headers.insert(VIA, HeaderValue::from_static("1.1 old-proxy"));
    }
    let body = body.map_err(TestError::from);
    if !WATCH.iter().any(|watch| target.contains(watch)) {
        return Ok(Response::from_parts(head, body.boxed_unsync()));
    }
    let number = faults.next_watch.fetch_add(1, Ordering::Relaxed);
    let state = (body, Vec::new(), faults);
    let records = stream::try_unfold(state, move |(mut body, mut buffer, faults)| async move {
        loop {
            if let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let record: Vec<u8> = buffer.drain(..=end).collect();
                if faults.forwards(number, &record).await {
                    faults.forwarded.send_modify(|forwarded| *forwarded += 1);
                    return Ok(Some((Frame::data(Bytes::from(record)), (body, buffer, faults))));
                }
                continue;
            }
            let Some(frame) = body.frame().await else { return Ok::<_, TestError>(None) };
            buffer.extend(frame?.into_data().unwrap_or_default());
        }
    });
    Ok(Response::from_parts(head, StreamBody::new(records.boxed()).boxed_unsync()))
}

impl Faults {
    /// Waits while the watch `number` is stalled. Returns false if the record is lost.
    async fn forwards(&self, number: u64, record: &[u8]) -> bool {
        // The sender lives as long as the proxy.
        let _ = self.first_running.subscribe().wait_for(|first| number >= *first).await;
        let contains = |text: &str| record.windows(text.len()).any(|window| window == text.as_bytes());
        let is_lost = self.loses_records.load(Ordering::Relaxed) && self.lost_text.is_some_and(contains);
        let is_removed_bookmark = self.has_old_protocol && contains(r#""type":"BOOKMARK""#);
        !is_lost && !is_removed_bookmark
    }
}

/// Returns the response of an old server to a streamed list.
fn rejection() -> Result<Response<ProxiedBody>, TestError> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 422, "reason": "Invalid",
        "message": "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled",
    });
    let body = Full::new(Bytes::from(status.to_string())).map_err(|never| match never {});
    let response =
        Response::builder().status(StatusCode::UNPROCESSABLE_ENTITY).header(CONTENT_TYPE, "application/json");
    Ok(response.body(body.boxed_unsync())?)
}
