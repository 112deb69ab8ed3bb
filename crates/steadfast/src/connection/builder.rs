//! Construction of a connection from a configuration.

use std::sync::Arc;
use std::time::Duration;

use http::header::HeaderValue;
use http::{Request, Response};
use kube::client::Body;
use tokio::sync::oneshot;
use tower::{Layer, Service};

use super::auth::Authorizer;
use super::client_defaults::{self, ClientDefaults};
use super::config_reloader::{ConfigReloader, ConfigState, Loader};
use super::expiring_flags::ExpiringFlags;
use super::kubeconfig::KubeconfigFiles;
use super::layers::{Layers, RequestService};
use super::normal::normalize;
use super::request_decorator::RequestDecorator;
use super::transfer_limiter::TransferLimiter;
use super::warnings::{OnWarning, ServerWarning, Warnings};
use super::{ConnectError, Connection, Inner, SendError, liveness_probes, plugin, route};
use crate::environment::threads::ThreadedEnvironment;
use crate::environment::{Environment, SharedEnvironment};
use crate::transport::{Connector, Pool, ResponseBody, Settings};

impl Connection {
    /// Connects to the server that the kubeconfig names, or else to the cluster in which this program runs.
    ///
    /// The kubeconfig is that of kubectl: the files in `KUBECONFIG`, else `~/.kube/config`. If the kubeconfig cannot be
    /// used, the service account of the pod replaces it. The kubeconfig is reloaded, as by
    /// [`from_loader`](Self::from_loader), in the context that is current at the start.
    ///
    /// # Errors
    ///
    /// Returns an error if no configuration is found, or if the configuration cannot be used.
    pub async fn infer() -> Result<Self, ConnectError> {
        Self::infer_in(None).await
    }

    /// Connects to the server of `context` in the kubeconfig that kubectl reads, as with kubectl's flag `--context`.
    ///
    /// The kubeconfig is reloaded, as by [`infer`](Self::infer). The service account of the pod is never used, because
    /// it may belong to another cluster than the requested one.
    ///
    /// # Errors
    ///
    /// Returns an error if no kubeconfig can be used, or if `context` does not exist in it. The error lists the
    /// contexts.
    pub async fn infer_with_context(context: &str) -> Result<Self, ConnectError> {
        if context.is_empty() {
            // An empty name is often an unset variable. The current context does not replace it, because it may belong
            // to another cluster.
            return Err(ConnectError::Kubeconfig { detail: "the name of the requested context is empty".to_owned() });
        }
        Self::infer_in(Some(context)).await
    }

    async fn infer_in(context: Option<&str>) -> Result<Self, ConnectError> {
        let (config, context) = inferred(KubeconfigFiles::from_env(), context)?;
        let reload = move || {
            // The current context may change to another cluster, but a running program must stay with its cluster.
            let read = inferred(KubeconfigFiles::from_env(), context.as_deref());
            async move { read.map(|(config, _)| config) }
        };
        Self::build_on_thread(Self::builder(config).loader(reload)).await
    }

    /// Connects to the server of the configuration that `load` returns, and reloads the configuration later.
    ///
    /// `load` runs again every 5 minutes, after rejected credentials, and after a failure of TLS; see
    /// [`ConnectionBuilder::loader`].
    ///
    /// # Errors
    ///
    /// Returns an error if the first `load` fails, or if its configuration cannot be used.
    pub async fn from_loader<F, R, E>(load: F) -> Result<Self, ConnectError>
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = Result<kube::Config, E>> + Send + 'static,
        E: Into<ConnectError>,
    {
        let config = load().await.map_err(Into::into)?;
        Self::build_on_thread(Self::builder(config).loader(load)).await
    }

    /// Builds the connection on a thread of the environment: a credential plugin may block, and must not block the
    /// caller's runtime.
    async fn build_on_thread(builder: ConnectionBuilder) -> Result<Self, ConnectError> {
        let environment = Arc::new(ThreadedEnvironment::new().map_err(ConnectError::Threads)?);
        let (done, built) = oneshot::channel();
        let builder = builder.environment(environment.clone());
        environment.run_blocking(Box::new(move || drop(done.send(builder.build()))));
        built.await.unwrap_or_else(|_| Err(ConnectError::Credentials { detail: "the attempt was cancelled".into() }))
    }

    /// Connects to the server of `config`, in a separate environment with default settings.
    ///
    /// Blocks while a credential plugin of `config` runs.
    ///
    /// # Errors
    ///
    /// Returns an error if the URL, certificates or credentials of `config` cannot be used.
    pub fn new(config: kube::Config) -> Result<Self, ConnectError> {
        Self::builder(config).build()
    }

    /// Returns a builder for a connection to the server of `config`.
    pub fn builder(config: kube::Config) -> ConnectionBuilder {
        ConnectionBuilder::new(config)
    }
}

/// Returns the configuration of `context`, or of the current context, and the context's name.
///
/// Without a usable kubeconfig, returns the pod's configuration and no name.
fn inferred(
    files: Result<KubeconfigFiles, ConnectError>,
    context: Option<&str>,
) -> Result<(kube::Config, Option<String>), ConnectError> {
    let kubeconfig = || {
        let merged = files?.read()?;
        let context = context.or(merged.current_context()).map(str::to_owned);
        merged.config(context.as_deref()).map(|config| (config, context))
    };
    let (mut config, context) = match kubeconfig() {
        Ok(found) => found,
        // A requested context, and a reload, never fall back to the pod, which may belong to another cluster.
        Err(error) if context.is_some() => return Err(error),
        Err(error) => {
            let config = kube::Config::incluster().map_err(|_| match error {
                ConnectError::Kubeconfig { detail } => ConnectError::Infer { detail },
                other => other,
            })?;
            (config, None)
        }
    };
    config.apply_debug_overrides();
    Ok((config, context))
}

/// Builder of a connection; see [`Connection::builder`].
pub struct ConnectionBuilder {
    config: kube::Config,
    environment: Option<SharedEnvironment>,
    settings: Settings,
    agent: Option<String>,
    loader: Option<Loader>,
    plugin_timeout: Duration,
    on_warning: Option<OnWarning>,
    layers: Layers,
}

impl ConnectionBuilder {
    pub(super) fn new(config: kube::Config) -> Self {
        Self {
            config: normalize(config),
            environment: None,
            settings: Settings::default(),
            agent: None,
            loader: None,
            plugin_timeout: plugin::DEFAULT_TIMEOUT,
            on_warning: None,
            layers: Layers::default(),
        }
    }

    /// Runs the connection in `environment` instead of separate threads.
    #[must_use]
    pub fn environment(mut self, environment: SharedEnvironment) -> Self {
        self.environment = Some(environment);
        self
    }

    /// Sets the timeouts and limits.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Sets the header `User-Agent`. Defaults to `steadfast/` and the version.
    #[must_use]
    pub fn user_agent(mut self, agent: impl Into<String>) -> Self {
        self.agent = Some(agent.into());
        self
    }

    /// Kills a credential plugin that runs for longer than `timeout`. Defaults to 60 s.
    ///
    /// The timeout is at least 5 minutes for a plugin that may read from a terminal, since a user logs in there.
    #[must_use]
    pub fn plugin_timeout(mut self, timeout: Duration) -> Self {
        self.plugin_timeout = timeout;
        self
    }

    /// Passes each warning of the API server to `receive`: deprecated versions, fields without effect, unsafe settings.
    ///
    /// Each warning is also logged once, with or without this callback. `receive` runs on a thread for the program's
    /// code, and may block.
    #[must_use]
    pub fn on_warning(mut self, receive: impl Fn(&ServerWarning) + Send + Sync + 'static) -> Self {
        self.on_warning = Some(Arc::new(receive));
        self
    }

    /// Adds a tower layer around each request of informers and clients, outside of the layers added before. For
    /// example, a layer can open a span and send its context in the header `traceparent` (OpenTelemetry).
    ///
    /// A layer sees each request once and without credentials, even if the request is sent again after a 401. It also
    /// sees the head of the response. The layer must pass on the body, from which informers read how the response
    /// ended. The pings and liveness probes of the connections pass no layer. A slow layer delays its requests, and the
    /// deadlines of the connection do not include its time.
    ///
    /// ```no_run
    /// # use http::{HeaderValue, Request};
    /// # use kube::client::Body;
    /// # use steadfast::Connection;
    /// # use tower::util::MapRequestLayer;
    /// # fn example(config: kube::Config) -> Result<Connection, steadfast::connection::ConnectError> {
    /// let traced = MapRequestLayer::new(|mut request: Request<Body>| {
    ///     // With OpenTelemetry: the context of the current span.
    ///     let context = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    ///     request.headers_mut().insert("traceparent", HeaderValue::from_static(context));
    ///     request
    /// });
    /// Connection::builder(config).layer(traced).build()
    /// # }
    /// ```
    #[must_use]
    pub fn layer<L>(mut self, layer: L) -> Self
    where
        L: Layer<RequestService> + Send + Sync + 'static,
        L::Service: Service<Request<Body>, Response = Response<ResponseBody>> + Clone + Send + Sync + 'static,
        <L::Service as Service<Request<Body>>>::Error: Into<SendError>,
        <L::Service as Service<Request<Body>>>::Future: Send + 'static,
    {
        self.layers.add(layer);
        self
    }

    /// Reloads the configuration with `load`: every 5 minutes, after rejected credentials, and after a failure of TLS.
    ///
    /// New connections and requests use the changed configuration; existing connections drain. A configuration of
    /// another server is ignored, because an informer's cache belongs to one server.
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

    /// Builds the connection. The first request dials.
    ///
    /// Blocks while a credential plugin of the configuration runs. The plugin runs once for all connections of equal
    /// configurations, until its credentials expire or are rejected.
    ///
    /// # Errors
    ///
    /// Returns an error if the URL, certificates or credentials of the configuration cannot be used.
    pub fn build(self) -> Result<Connection, ConnectError> {
        let Self { config, environment, settings, agent, loader, plugin_timeout, on_warning, layers } = self;
        let environment = match environment {
            Some(environment) => environment,
            None => Arc::new(ThreadedEnvironment::new().map_err(ConnectError::Threads)?),
        };
        let agent = agent.unwrap_or_else(|| concat!("steadfast/", env!("CARGO_PKG_VERSION")).to_owned());
        let agent = HeaderValue::from_str(&agent).map_err(|_| ConnectError::Headers {
            detail: format!("the user agent {agent:?} is not a valid header value"),
        })?;
        let settings = client_defaults::with_connect_timeout(settings, &config);
        let server = route::server(&config);
        let target = route::target(&config)?;
        let takes_gzip = route::takes_gzip(&config, &target);
        let config = Arc::new(config);
        // The files are hashed before the route reads them, so that a change between the two leads to a reload.
        let followed = ConfigState::new(config.clone());
        // The authorizer also precedes the route: a plugin returns the client certificate together with the token.
        let authorizer = Authorizer::new(
            config.clone(),
            server.clone(),
            environment.clone(),
            settings.headers_timeout,
            plugin_timeout,
        )?;
        let plugin_credentials = authorizer.plugin().and_then(|plugin| plugin.latest());
        let route = route::route(&config, &target, settings.prior_knowledge, plugin_credentials.as_deref())?;
        let followed = followed.with_plugin_credentials(plugin_credentials);
        let decorator = Arc::new(RequestDecorator::new(&config, agent, Arc::new(authorizer))?);
        let (transfers, client_defaults) = (
            TransferLimiter::new(environment.clone(), settings.max_transfers),
            ClientDefaults::new(&config, &settings),
        );
        let warnings = Arc::new(Warnings::new(server.clone(), on_warning));
        let pool = Pool::new(Connector::new(environment.clone(), target.clone(), route), settings.clone());
        let reloader = ConfigReloader::new(followed, loader, target, &settings, pool.clone(), decorator.clone());
        liveness_probes::start_probes(&pool, &decorator, &environment);
        let inner = Arc::new_cyclic(|own| Inner {
            layered_service: Inner::layered_service(own, &layers),
            layers,
            pool,
            decorator,
            reloader: Arc::new(reloader),
            server,
            default_namespace: config.default_namespace.clone(),
            takes_gzip,
            transfers,
            warnings,
            client_defaults,
            probes: crate::probes::ProbeBoard::default(),
            paged_resources: ExpiringFlags::default(),
            json_resources: ExpiringFlags::default(),
            full_list_resources: ExpiringFlags::default(),
            recordings: Arc::default(),
            observed: crate::metrics::observed::InformerRegistry::default(),
            environment,
        });
        inner.reloader.start();
        Ok(Connection { inner })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_CONTEXTS: &str = "\
clusters: [{name: a, cluster: {server: 'http://a.example'}}, {name: b, cluster: {server: 'http://b.example'}}]
contexts: [{name: first, context: {cluster: a}}, {name: second, context: {cluster: b}}]
current-context: first
";

    #[test]
    fn requested_context_wins_over_current_one() {
        let path = std::env::temp_dir().join(format!("steadfast-contexts-{}", std::process::id()));
        std::fs::write(&path, TWO_CONTEXTS).expect("a file");
        let server = |context| {
            let found = inferred(Ok(KubeconfigFiles::from_path(&path)), context);
            found.map(|(config, _)| config.cluster_url.host().unwrap_or_default().to_owned())
        };
        assert_eq!(server(None).expect("a configuration"), "a.example");
        assert_eq!(server(Some("second")).expect("a configuration"), "b.example");
        let error = server(Some("third")).expect_err("no such context").to_string();
        assert!(error.contains("third") && error.contains("second"), "{error}");
        drop(std::fs::remove_file(&path));
    }

    #[tokio::test]
    async fn empty_context_name_is_rejected() {
        let error = Connection::infer_with_context("").await.expect_err("an empty context").to_string();
        assert!(error.contains("the name of the requested context is empty"), "{error}");
    }
}
