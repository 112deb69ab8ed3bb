//! Connector from a server's address to a byte stream with a negotiated protocol.

mod host_port;
mod http_tunnel;
mod login;
mod proxy;
mod race;
mod rejection;
mod socks;

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;

use super::error::TransportError;
use super::report::Protocol;
use super::socket::{CountingSocket, Stream, Traffic};
use crate::environment::SharedEnvironment;
pub(crate) use host_port::HostPort;
pub(crate) use login::Login;
pub(crate) use proxy::Proxy;
use race::{Addresses, UnprovenAddress};
use rejection::RejectionRecorder;

/// Route of new connections, which can change, for example with new certificates.
pub(crate) struct Route {
    tls: Option<(TlsConnector, ServerName<'static>)>,
    plain: Protocol,
    proxy: Option<Proxy>,
}

impl Route {
    /// Creates a route with TLS, with HTTP/2 if the server supports it, and HTTP/1.1 otherwise.
    pub(crate) fn secure(mut config: ClientConfig, name: ServerName<'static>) -> Self {
        // The order is the preference: API servers support HTTP/2, but some proxies before them do not.
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Self { tls: Some((TlsConnector::from(Arc::new(config)), name)), plain: Protocol::Http1, proxy: None }
    }

    /// Creates a route without TLS. HTTP/2 is used only with prior knowledge.
    pub(crate) fn plain(prior_knowledge: bool) -> Self {
        let plain = if prior_knowledge { Protocol::Http2 } else { Protocol::Http1 };
        Self { tls: None, plain, proxy: None }
    }

    /// Adds `proxy` to the route, if any.
    pub(crate) fn through(mut self, proxy: Option<Proxy>) -> Self {
        self.proxy = proxy;
        self
    }
}

/// Opens byte streams to one server.
pub(crate) struct Connector {
    environment: SharedEnvironment,
    target: HostPort,
    route: ArcSwap<Route>,
    addresses: Arc<Addresses>,
}

/// Byte stream and its protocol.
pub(super) struct Wire {
    pub(super) stream: Box<dyn Stream>,
    pub(super) protocol: Protocol,
    pub(super) peer: String,
    /// Address that the first response proves to work. Without a response, the next connection tries another address
    /// first.
    pub(super) unproven_address: UnprovenAddress,
}

/// Step of a connection attempt, for messages.
#[derive(Debug)]
pub(super) struct Stage(Mutex<&'static str>);

impl Stage {
    /// Creates a tracker at the first step.
    pub(super) fn new() -> Self {
        Self(Mutex::new("name resolution"))
    }

    /// Returns the current step.
    pub(super) fn current(&self) -> &'static str {
        *self.0.lock()
    }

    /// Sets the current step.
    pub(super) fn enter(&self, stage: &'static str) {
        *self.0.lock() = stage;
    }
}

impl Connector {
    /// Creates a connector to `target` over `route`.
    pub(crate) fn new(environment: SharedEnvironment, target: HostPort, route: Route) -> Self {
        let addresses = Arc::new(Addresses::new(environment.clone()));
        Self { environment, target, route: ArcSwap::from_pointee(route), addresses }
    }

    /// Uses `route` for new streams.
    pub(crate) fn reroute(&self, route: Route) {
        self.route.store(Arc::new(route));
    }

    /// Returns the environment of the connections without another runtime.
    pub(super) fn environment(&self) -> &SharedEnvironment {
        &self.environment
    }

    /// Returns the server's name for messages.
    pub(super) fn name(&self) -> String {
        self.target.name()
    }

    /// Opens one stream in `environment` and counts its traffic in `traffic`.
    pub(super) async fn open(
        &self,
        environment: &SharedEnvironment,
        traffic: Arc<Traffic>,
        stage: &Stage,
    ) -> Result<Wire, TransportError> {
        self.open_offering(None, environment, traffic, stage).await
    }

    /// Opens one stream that offers only HTTP/1.1.
    pub(super) async fn open_http1(&self, traffic: Arc<Traffic>, stage: &Stage) -> Result<Wire, TransportError> {
        self.open_offering(Some(Protocol::Http1), &self.environment, traffic, stage).await
    }

    async fn open_offering(
        &self,
        only_protocol: Option<Protocol>,
        environment: &SharedEnvironment,
        traffic: Arc<Traffic>,
        stage: &Stage,
    ) -> Result<Wire, TransportError> {
        // Loaded once: a route that changes during the dial applies from the next dial on.
        let route = self.route.load_full();
        let first_hop = route.proxy.as_ref().map_or(&self.target, |proxy| &proxy.target);
        let dialled =
            race::dial(&self.addresses, environment, &first_hop.host, first_hop.port, || stage.enter("TCP")).await;
        let (socket, unproven_address) = dialled.map_err(|error| match &route.proxy {
            Some(proxy) => self.proxy_error(proxy, format!("the proxy cannot be reached: {error}")),
            None => TransportError::Dial { peer: self.name(), source: Arc::new(error) },
        })?;
        // Set before the first byte: the kernel must discard unsent data of a fenced socket in time.
        if let Some(fence) = traffic.fence() {
            socket.limit_lateness(fence.lateness());
        }
        let peer = socket.peer();
        let mut stream: Box<dyn Stream> = Box::new(CountingSocket::new(socket, traffic.clone(), environment.clone()));
        if let Some(proxy) = &route.proxy {
            stage.enter("the proxy");
            let passed = proxy.pass(stream, &self.target).await;
            stream = passed.map_err(|detail| self.proxy_error(proxy, detail))?;
        }
        let Some((connector, name)) = &route.tls else {
            return Ok(Wire { stream, protocol: only_protocol.unwrap_or(route.plain), peer, unproven_address });
        };
        stage.enter("TLS");
        let connecting = match only_protocol {
            Some(Protocol::Http1) => connector.with_alpn(vec![b"http/1.1".to_vec()]).connect(name.clone(), stream),
            _ => connector.connect(name.clone(), stream),
        };
        let stream = connecting.await.map_err(|error| TransportError::tls(self.name(), error))?;
        let agreed = stream.get_ref().1.alpn_protocol();
        let protocol = if agreed == Some(b"h2") { Protocol::Http2 } else { Protocol::Http1 };
        Ok(Wire { stream: Box::new(RejectionRecorder::new(stream, traffic)), protocol, peer, unproven_address })
    }

    fn proxy_error(&self, proxy: &Proxy, detail: String) -> TransportError {
        TransportError::Proxy { peer: self.name(), proxy: proxy.name(), detail }
    }
}
