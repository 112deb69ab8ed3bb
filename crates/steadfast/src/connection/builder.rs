//! From a configuration to a connection.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use arc_swap::ArcSwap;
use http::header::HeaderValue;
use http::{Request, Uri};
use kube::client::middleware::{BaseUri, ExtraHeaders};
use kube::client::{Body, ConfigExt};
use tower::{Layer, Service};

use super::auth::Authorizer;
use super::error::describe;
use super::keeper::{Keeper, Loader};
use super::patience::{self, Manners};
use super::places::Places;
use super::{ConnectError, Connection, Inner, inquiry, reach};
use crate::environment::SharedEnvironment;
use crate::environment::threads::Threads;
use crate::transport::{Connector, Pool, Settings};

/// What a connection is made of; see [`Connection::builder`].
pub struct ConnectionBuilder {
    config: kube::Config,
    environment: Option<SharedEnvironment>,
    settings: Settings,
    agent: Option<String>,
    loader: Option<Loader>,
}

impl ConnectionBuilder {
    pub(super) fn new(config: kube::Config) -> Self {
        Self { config, environment: None, settings: Settings::default(), agent: None, loader: None }
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

    /// Asks `load` for the configuration anew: every 5 minutes, and when the server refuses credentials or TLS fails.
    ///
    /// What has changed is used by new connections and requests; connections there are drain. A
    /// configuration that names another server is not followed: what an informer knows is of one server.
    #[must_use]
    pub fn loader<F, R, E>(mut self, load: F) -> Self
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = Result<kube::Config, E>> + Send + 'static,
        E: Into<ConnectError>,
    {
        self.loader = Some(Arc::new(move || {
            let loading = load();
            Box::pin(async move { loading.await.map_err(Into::into) })
        }));
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
        let Self { config, environment, settings, agent, loader } = self;
        let environment = match environment {
            Some(environment) => environment,
            None => Arc::new(Threads::new().map_err(ConnectError::Threads)?),
        };
        let agent = agent.unwrap_or_else(|| concat!("steadfast/", env!("CARGO_PKG_VERSION")).to_owned());
        let agent = HeaderValue::from_str(&agent)
            .map_err(|_| ConnectError::Headers { detail: format!("the user agent {agent:?} is no header") })?;
        let settings = patience::within(settings, &config);
        let server = reach::server(&config);
        let target = reach::target(&config)?;
        let config = Arc::new(config);
        let keeper = Keeper::new(config.clone(), target.clone(), loader, environment.clone(), &settings);
        let route = reach::route(&config, &target, settings.prior_knowledge)?;
        let authorizer = Authorizer::new(config.clone(), server.clone(), environment.clone(), settings.headers)?;
        let inner = Inner {
            authorizer,
            addressing: ArcSwap::from_pointee(Addressing::new(&config)?),
            agent,
            server,
            probes: crate::probes::Board::default(),
            default_namespace: config.default_namespace.clone(),
            places: Places::new(environment.clone(), settings.transfers),
            manners: Manners::new(&config, &settings),
            paged: Mutex::default(),
            pool: Pool::new(Connector::new(environment.clone(), target, route), settings),
            keeper,
            #[cfg(feature = "metrics")]
            observed: crate::metrics::observed::Observed::default(),
            environment,
        };
        let inner = Arc::new(inner);
        Keeper::start(&inner);
        inquiry::begin(&inner);
        Ok(Connection { inner })
    }
}

/// Makes a request for a path one for the server, with the configuration's headers.
pub(super) struct Addressing {
    service: BaseUri<ExtraHeaders<Given>>,
}

impl Addressing {
    pub(super) fn new(config: &kube::Config) -> Result<Self, ConnectError> {
        let headers =
            config.extra_headers_layer().map_err(|error| ConnectError::Headers { detail: describe(&error) })?;
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
