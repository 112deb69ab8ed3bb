//! An HTTP/2 client without code of Steadfast: the test must not share code with the tested server.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use secrecy::ExposeSecret;
use steadfast_testing::TestError;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Address and credentials of a server.
#[derive(Clone)]
pub struct TestServer {
    host: String,
    port: u16,
    tls: Option<TlsConnector>,
    token: Option<String>,
}

impl TestServer {
    /// Reads the address and the credentials from a client configuration.
    pub fn from_config(config: &kube::Config) -> Result<Self, TestError> {
        let uri = &config.cluster_url;
        let tls = if uri.scheme_str() == Some("https") { Some(tls_connector(config)?) } else { None };
        Ok(Self {
            host: uri.host().ok_or("the server's address has no host")?.to_owned(),
            port: uri.port_u16().ok_or("the server's address has no port")?,
            tls,
            token: config.auth_info.token.as_ref().map(|token| token.expose_secret().to_owned()),
        })
    }

    /// Opens a connection of its own. Dropping it ends the connection and its requests in flight.
    pub async fn open(&self) -> Result<Session, TestError> {
        let socket = TcpStream::connect((self.host.as_str(), self.port)).await?;
        socket.set_nodelay(true)?;
        let sender = match &self.tls {
            Some(tls) => open_connection(tls.connect(ServerName::try_from(self.host.clone())?, socket).await?).await?,
            None => open_connection(socket).await?,
        };
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        Ok(Session { sender, origin: format!("{scheme}://{}:{}", self.host, self.port), token: self.token.clone() })
    }
}

/// Connection to a server.
#[derive(Clone)]
pub struct Session {
    sender: SendRequest<Full<Bytes>>,
    origin: String,
    token: Option<String>,
}

impl Session {
    /// Sends a request. Headers without a value are omitted.
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> Result<Response<Incoming>, TestError> {
        let mut request = Request::builder()
            .method(Method::from_bytes(method.as_bytes())?)
            .uri(format!("{}{path}", self.origin))
            .header("user-agent", "differential");
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::from(body.into_bytes()))?;
        Ok(self.sender.clone().send_request(request).await?)
    }
}

async fn open_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<SendRequest<Full<Bytes>>, TestError> {
    let (sender, connection) = Builder::new(TokioExecutor::new()).handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

fn tls_connector(config: &kube::Config) -> Result<TlsConnector, TestError> {
    let mut roots = RootCertStore::empty();
    for certificate in config.root_cert.iter().flatten() {
        roots.add(certificate.clone().into())?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut settings = builder.with_root_certificates(roots).with_no_client_auth();
    settings.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsConnector::from(Arc::new(settings)))
}
