//! Requests to etcd without TLS, each over its own connection, and the interface for clients with TLS.

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::header::HOST;
use hyper::{Request, Response, Uri};
use tokio::net::TcpStream;
use tokio::time::{Duration, timeout};

use crate::exchange::open;

/// Timeout for a TCP connection to an endpoint.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Streaming response body. Dropping the body closes the stream.
pub type Body = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// Client that sends requests to etcd. The implementation handles certificates and proxies.
pub trait EtcdClient: Send + Sync + 'static {
    /// Sends `request`, whose URL is absolute, and returns the head of the response with its body. Errors must not
    /// contain secrets.
    ///
    /// The caller applies a timeout. A request must not be sent a second time: it may be a write.
    fn send(&self, request: Request<Vec<u8>>) -> impl Future<Output = Result<Response<Body>, String>> + Send;
}

/// Sends requests to `http://HOST:PORT`, without TLS and without a proxy.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlainEtcdClient;

impl EtcdClient for PlainEtcdClient {
    async fn send(&self, request: Request<Vec<u8>>) -> Result<Response<Body>, String> {
        let (mut head, body) = request.into_parts();
        let authority = head.uri.authority().filter(|_| head.uri.scheme_str() == Some("http")).cloned();
        let authority = authority.ok_or("https needs TLS, which is not configured")?;
        let address = (authority.host().trim_matches(['[', ']']), authority.port_u16().unwrap_or(80));
        let connected = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await;
        let stream = connected
            .map_err(|_| format!("no connection within {CONNECT_TIMEOUT:?}"))?
            .map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let host = authority.as_str().parse().map_err(|_| format!("{authority} is not a host"))?;
        head.headers.insert(HOST, host);
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        // HTTP/1.1 requests to an origin server carry the path alone; the authority moves to `Host` (RFC 9112, section
        // 3.2.1).
        head.uri = path.parse::<Uri>().map_err(|error| error.to_string())?;
        let request = Request::from_parts(head, Full::new(Bytes::from(body)));
        let response = open(stream, request).await.map_err(|error| error.to_string())?;
        Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()))
    }
}
