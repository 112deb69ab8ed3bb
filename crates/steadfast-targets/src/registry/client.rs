//! Requests without TLS, each over its own connection.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::HOST;
use hyper::{Request, Response, Uri};
use tokio::net::TcpStream;

use super::RegistryClient;
use crate::exchange::exchange;

/// Sends requests to `http://HOST[:PORT]`, without TLS and without a proxy.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlainRegistryClient;

impl RegistryClient for PlainRegistryClient {
    async fn send(&self, request: Request<Vec<u8>>) -> Result<Response<Vec<u8>>, String> {
        let (mut head, body) = request.into_parts();
        let authority = head.uri.authority().filter(|_| head.uri.scheme_str() == Some("http")).cloned();
        let authority = authority.ok_or("https needs TLS, which is not configured")?;
        let address = (authority.host().trim_matches(['[', ']']), authority.port_u16().unwrap_or(80));
        let stream =
            TcpStream::connect(address).await.map_err(|error| format!("cannot connect to {authority}: {error}"))?;
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        let host = authority.as_str().parse().map_err(|_| format!("{authority} is not a host"))?;
        head.headers.insert(HOST, host);
        head.uri = path.parse::<Uri>().map_err(|error| error.to_string())?;
        let request = Request::from_parts(head, Full::new(Bytes::from(body)));
        let response = exchange(stream, request).await.map_err(|error| error.to_string())?;
        Ok(response.map(|body| body.to_vec()))
    }
}
