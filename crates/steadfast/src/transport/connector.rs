//! From a server's address to a byte stream on which a protocol is agreed.

use std::sync::{Arc, Mutex, PoisonError};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;

use super::error::TransportError;
use super::report::Protocol;
use super::socket::{Counted, Stream, Traffic};
use crate::environment::SharedEnvironment;

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Its name or address, without brackets.
    pub(crate) host: String,
    /// Its port.
    pub(crate) port: u16,
}

impl Target {
    /// As messages name it.
    pub(crate) fn name(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

/// Opens byte streams to one server.
pub(crate) struct Connector {
    environment: SharedEnvironment,
    target: Target,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    plain: Protocol,
}

/// A byte stream, and what is to be spoken on it.
pub(super) struct Wire {
    pub(super) stream: Box<dyn Stream>,
    pub(super) protocol: Protocol,
    pub(super) peer: String,
}

/// How far the opening of a connection has come.
#[derive(Debug)]
pub(super) struct Stage(Mutex<&'static str>);

impl Stage {
    /// At the beginning.
    pub(super) fn new() -> Self {
        Self(Mutex::new("the name or TCP"))
    }

    /// What is being done.
    pub(super) fn current(&self) -> &'static str {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what is being done from now on.
    pub(super) fn enter(&self, stage: &'static str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = stage;
    }
}

impl Connector {
    /// TLS on every stream, with HTTP/2 if the server agrees and HTTP/1.1 otherwise.
    pub(crate) fn secure(
        environment: SharedEnvironment,
        target: Target,
        mut config: ClientConfig,
        name: ServerName<'static>,
    ) -> Self {
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let tls = Some((TlsConnector::from(Arc::new(config)), name));
        Self { environment, target, tls, plain: Protocol::Http1 }
    }

    /// No TLS; HTTP/2 only if the server is known to speak it.
    pub(crate) fn plain(environment: SharedEnvironment, target: Target, prior_knowledge: bool) -> Self {
        let plain = if prior_knowledge { Protocol::Http2 } else { Protocol::Http1 };
        Self { environment, target, tls: None, plain }
    }

    /// The environment that sockets come from.
    pub(super) fn environment(&self) -> &SharedEnvironment {
        &self.environment
    }

    /// The server as messages name it.
    pub(super) fn name(&self) -> String {
        self.target.name()
    }

    /// Opens one stream, its traffic counted in `traffic`.
    pub(super) async fn open(&self, traffic: Arc<Traffic>, stage: &Stage) -> Result<Wire, TransportError> {
        let dialled = self.environment.dial(&self.target.host, self.target.port).await;
        let socket = dialled.map_err(|error| TransportError::Dial { peer: self.name(), source: Arc::new(error) })?;
        let peer = socket.peer();
        let socket = Counted::new(socket, traffic, self.environment.clone());
        let Some((connector, name)) = &self.tls else {
            return Ok(Wire { stream: Box::new(socket), protocol: self.plain, peer });
        };
        stage.enter("TLS");
        let stream =
            connector.connect(name.clone(), socket).await.map_err(|error| TransportError::tls(self.name(), error))?;
        let agreed = stream.get_ref().1.alpn_protocol();
        let protocol = if agreed == Some(b"h2") { Protocol::Http2 } else { Protocol::Http1 };
        Ok(Wire { stream: Box::new(stream), protocol, peer })
    }
}
