//! HTTP proxy before the embedded server that replaces some responses and their dates.

use std::net::SocketAddr;
use std::sync::Arc;

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, DATE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};

type ProxyError = Box<dyn std::error::Error + Send + Sync>;
type ProxiedBody = BoxBody<Bytes, hyper::Error>;

/// Changes that the proxy makes.
pub(super) struct Rewrites {
    /// Returns the response to a request with this path and body; `None` for the response of the server.
    pub(super) respond: fn(&str, &Value) -> Option<Value>,
    /// Headers that are set in all responses.
    pub(super) headers: Vec<(&'static str, String)>,
}

/// Starts the proxy, which runs until the end of the test. Returns its address.
pub(super) async fn start(upstream: SocketAddr, rewrites: Rewrites) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let rewrites = Arc::new(rewrites);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let rewrites = rewrites.clone();
            let service = service_fn(move |request| {
                let rewrites = rewrites.clone();
                async move { respond(upstream, &rewrites, request).await }
            });
            // A client may close its connection at any time.
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service));
        }
    });
    address
}

async fn respond(
    upstream: SocketAddr,
    rewrites: &Rewrites,
    request: Request<Incoming>,
) -> Result<Response<ProxiedBody>, ProxyError> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
    let mut response = if let Some(object) = (rewrites.respond)(head.uri.path(), &sent) {
        let body = Full::new(Bytes::from(object.to_string())).map_err(|never| match never {});
        Response::builder().header(CONTENT_TYPE, "application/json").body(body.boxed())?
    } else {
        let socket = TokioIo::new(TcpStream::connect(upstream).await?);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(socket).await?;
        tokio::spawn(connection);
        let response = sender.send_request(Request::from_parts(head, Full::new(body))).await?;
        response.map(BodyExt::boxed)
    };
    response.headers_mut().remove(DATE);
    for (name, value) in &rewrites.headers {
        response.headers_mut().insert(*name, HeaderValue::from_str(value)?);
    }
    Ok(response)
}
