//! From a configuration to a connection.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use http::header::HeaderValue;
use http::uri::Scheme;
use http::{Request, Uri};
use kube::client::middleware::{BaseUri, ExtraHeaders};
use kube::client::{Body, ConfigExt};
use rustls::pki_types::ServerName;
use tokio::sync::Semaphore;
use tower::{Layer, Service};

use super::auth::{self, Authorizer};
use super::{ConnectError, Connection, Inner};
use crate::environment::SharedEnvironment;
use crate::environment::threads::Threads;
use crate::transport::{Connector, Pool, Settings, Target};

/// What a connection is made of; see [`Connection::builder`].
pub struct ConnectionBuilder {
    config: kube::Config,
    environment: Option<SharedEnvironment>,
    settings: Settings,
    agent: Option<String>,
}

impl ConnectionBuilder {
    pub(super) fn new(config: kube::Config) -> Self {
        Self { config, environment: None, settings: Settings::default(), agent: None }
    }

    /// Runs in `environment` instead of threads of its own.
    #[must_use]
    pub fn environment(mut self, environment: SharedEnvironment) -> Self {
        self.environment = Some(environment);
        self
    }

    /// Waits and limits by `settings` instead of the defaults.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Says `agent` to the server instead of `steadfast/` and the version.
    #[must_use]
    pub fn user_agent(mut self, agent: impl Into<String>) -> Self {
        self.agent = Some(agent.into());
        self
    }

    /// The connection; nothing is dialled before the first request.
    ///
    /// A credential plugin that the configuration names is run here, and waited for.
    ///
    /// # Errors
    ///
    /// The configuration cannot be used: its URL, certificates or credentials.
    pub fn build(self) -> Result<Connection, ConnectError> {
        let Self { config, environment, settings, agent } = self;
        let environment = match environment {
            Some(environment) => environment,
            None => Arc::new(Threads::new().map_err(ConnectError::Threads)?),
        };
        let agent = agent.unwrap_or_else(|| concat!("steadfast/", env!("CARGO_PKG_VERSION")).to_owned());
        let agent = HeaderValue::from_str(&agent)
            .map_err(|_| ConnectError::Headers { detail: format!("the user agent {agent:?} is no header") })?;
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let connector = connector(&config, &server, environment.clone(), settings.prior_knowledge)?;
        let addressing = Addressing::new(&config)?;
        let default_namespace = config.default_namespace.clone();
        let transfers = Arc::new(Semaphore::new(settings.transfers.max(1)));
        let authorizer = Authorizer::new(config, server.clone(), environment.clone(), settings.headers)?;
        let inner = Inner {
            pool: Pool::new(connector, settings),
            authorizer,
            addressing,
            agent,
            server,
            default_namespace,
            transfers,
            paged: Mutex::default(),
            environment,
        };
        Ok(Connection { inner: Arc::new(inner) })
    }
}

fn connector(
    config: &kube::Config,
    server: &str,
    environment: SharedEnvironment,
    prior_knowledge: bool,
) -> Result<Connector, ConnectError> {
    let url = &config.cluster_url;
    let invalid = |detail: &str| ConnectError::Url { url: server.to_owned(), detail: detail.to_owned() };
    let host = url.host().ok_or_else(|| invalid("it names no host"))?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    refuse_proxy(config, server, &host)?;
    let secure = match url.scheme() {
        Some(scheme) if *scheme == Scheme::HTTPS => true,
        Some(scheme) if *scheme == Scheme::HTTP => false,
        _ => return Err(invalid("it begins with neither https:// nor http://")),
    };
    let port = url.port_u16().unwrap_or(if secure { 443 } else { 80 });
    let target = Target { host, port };
    if !secure {
        return Ok(Connector::plain(environment, target, prior_knowledge));
    }
    let broken = |detail: String| ConnectError::Tls { server: server.to_owned(), detail };
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Where a program's crates bring two providers, rustls panics unless one is the default. An error
        // means that another thread has just set one, which serves as well.
        drop(rustls::crypto::ring::default_provider().install_default());
    }
    let tls = config.rustls_client_config().map_err(|error| broken(auth::describe(&error)))?;
    let name = config.tls_server_name.clone().unwrap_or_else(|| target.host.clone());
    let name = ServerName::try_from(name.clone())
        .map_err(|_| broken(format!("{name:?} is no name that a certificate can have")))?;
    Ok(Connector::secure(environment, target, tls, name))
}

fn refuse_proxy(config: &kube::Config, server: &str, host: &str) -> Result<(), ConnectError> {
    let Some(proxy) = &config.proxy_url else { return Ok(()) };
    // `kube` takes it from the environment of the process too, whose proxies never mean the machine itself.
    let local = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    if local {
        return Ok(());
    }
    let port = proxy.port().map(|port| format!(":{port}")).unwrap_or_default();
    let proxy = format!("{}{port}", proxy.host().unwrap_or("without a name"));
    Err(ConnectError::Proxy { proxy, server: server.to_owned() })
}

/// Makes a request for a path one for the server, with the configuration's headers.
pub(super) struct Addressing {
    service: BaseUri<ExtraHeaders<Given>>,
}

impl Addressing {
    fn new(config: &kube::Config) -> Result<Self, ConnectError> {
        let headers =
            config.extra_headers_layer().map_err(|error| ConnectError::Headers { detail: auth::describe(&error) })?;
        Ok(Self { service: config.base_uri_layer().layer(headers.layer(Given)) })
    }

    pub(super) fn address(&self, mut request: Request<Body>) -> Request<Body> {
        if request.uri().path_and_query().is_none() {
            *request.uri_mut() = Uri::from_static("/");
        }
        let Ok(request) = self.service.clone().call(request).into_inner();
        request
    }
}

/// Answers a request with the request itself, as the layers around it have shaped it.
#[derive(Clone)]
struct Given;

impl Service<Request<Body>> for Given {
    type Response = Request<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Request<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        ready(Ok(request))
    }
}
