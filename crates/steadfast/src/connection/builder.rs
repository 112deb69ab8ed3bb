//! Construction of a connection from a configuration.

use std::sync::Arc;
use std::time::Duration;

use http::header::HeaderValue;
use http::{Request, Response};
use kube::client::Body;
use kube::config::InClusterError;
use tokio::sync::oneshot;
use tower::{Layer, Service};

use super::auth::Authorizer;
use super::client_defaults::{self, ClientDefaults};
use super::config_reloader::{ConfigReloader, ConfigState, Loader};
use super::expiring_flags::ExpiringFlags;
use super::freeze_detector::FreezeDetector;
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
    /// The kubeconfig is that of kubectl: the files in `KUBECONFIG`, else `~/.kube/config`. The service account of the
    /// pod is used only if no kubeconfig exists: none of these files, or only files without entries. Any other problem
    /// of the kubeconfig is an error, because the pod may belong to another cluster than the configured one.
    ///
    /// The configuration is reloaded, as by [`from_loader`](Self::from_loader), from the source that was found at the
    /// start: the context that was current, or the service account.
    ///
    /// # Errors
    ///
    /// Returns an error if no configuration is found, or if the configuration cannot be used. A kubeconfig cannot be
    /// used if a file cannot be read or parsed, if no context is current, or if an entry of this context is missing or
    /// invalid. The error names the files.
    pub async fn infer() -> Result<Self, ConnectError> {
        let (config, context) = inferred(KubeconfigFiles::from_env(), kube::Config::incluster)?;
        let load = move || {
            // The current context may change to another cluster, but a running program must stay with its cluster. For
            // the same reason, the service account and the kubeconfig never replace each other.
            let config = match &context {
                Some(context) => config_of_context(KubeconfigFiles::from_env(), context),
                None => kube::Config::incluster()
                    .map(with_debug_overrides)
                    .map_err(|error| ConnectError::Infer { detail: error.to_string() }),
            };
            async move { config }
        };
        Self::build_on_thread(Self::builder(config).loader(load)).await
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
        let config = config_of_context(KubeconfigFiles::from_env(), context)?;
        let context = context.to_owned();
        let load = move || {
            let config = config_of_context(KubeconfigFiles::from_env(), &context);
            async move { config }
        };
        Self::build_on_thread(Self::builder(config).loader(load)).await
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

/// Returns the configuration of the current context, and the context's name.
///
/// Without any kubeconfig, returns the configuration of `service_account` and no name.
fn inferred(
    files: Result<KubeconfigFiles, ConnectError>,
    service_account: impl FnOnce() -> Result<kube::Config, InClusterError>,
) -> Result<(kube::Config, Option<String>), ConnectError> {
    let missing = match files {
        Ok(files) => match files.read_if_present()? {
            Some(merged) => {
                let context = merged.current_context().map(str::to_owned);
                let config = merged.config(None).map_err(|error| with_file_names(error, &files))?;
                return Ok((with_debug_overrides(config), context));
            }
            None => format!("no kubeconfig with entries exists: {files}"),
        },
        // Without a variable and a home directory, no kubeconfig can exist.
        Err(error) => error.to_string(),
    };
    let config = service_account().map_err(|_| ConnectError::Infer { detail: missing })?;
    Ok((with_debug_overrides(config), None))
}

/// Returns the configuration of `context` in the kubeconfig.
fn config_of_context(
    files: Result<KubeconfigFiles, ConnectError>,
    context: &str,
) -> Result<kube::Config, ConnectError> {
    let files = files?;
    let config = files.read()?.config(Some(context)).map_err(|error| with_file_names(error, &files))?;
    Ok(with_debug_overrides(config))
}

fn with_debug_overrides(mut config: kube::Config) -> kube::Config {
    config.apply_debug_overrides();
    config
}

fn with_file_names(error: ConnectError, files: &KubeconfigFiles) -> ConnectError {
    match error {
        ConnectError::Kubeconfig { detail } => ConnectError::Kubeconfig { detail: format!("{files}: {detail}") },
        other => other,
    }
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
            freeze_detector: FreezeDetector::default(),
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
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const TWO_CONTEXTS: &str = "\
clusters: [{name: a, cluster: {server: 'http://a.example'}}, {name: b, cluster: {server: 'http://b.example'}}]
contexts: [{name: first, context: {cluster: a}}, {name: second, context: {cluster: b}}]
current-context: first
";

    /// A file of one test, removed when the value is dropped.
    struct KubeconfigFile(PathBuf);

    impl KubeconfigFile {
        fn new(text: &str) -> Self {
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("steadfast-contexts-{}-{number}", std::process::id()));
            std::fs::write(&path, text).expect("a file");
            Self(path)
        }

        fn files(&self) -> KubeconfigFiles {
            KubeconfigFiles::from_list(self.0.as_os_str())
        }
    }

    impl Drop for KubeconfigFile {
        fn drop(&mut self) {
            drop(std::fs::remove_file(&self.0));
        }
    }

    /// Returns the host that a program in a pod connects to, or its error.
    fn host_in_pod(files: Result<KubeconfigFiles, ConnectError>) -> Result<String, String> {
        let service_account = || Ok(kube::Config::new("https://pod.example".parse().expect("a URL")));
        let found = inferred(files, service_account).map_err(|error| error.to_string())?;
        Ok(found.0.cluster_url.host().unwrap_or_default().to_owned())
    }

    #[test]
    fn requested_context_wins_over_current_one() {
        let file = KubeconfigFile::new(TWO_CONTEXTS);
        let server = |context| {
            let found = config_of_context(Ok(file.files()), context);
            found.map(|config| config.cluster_url.host().unwrap_or_default().to_owned())
        };
        assert_eq!(host_in_pod(Ok(file.files())).expect("a configuration"), "a.example");
        assert_eq!(server("second").expect("a configuration"), "b.example");
        let error = server("third").expect_err("no such context").to_string();
        assert!(error.contains("third") && error.contains("second"), "{error}");
    }

    #[test]
    fn unusable_kubeconfig_never_selects_the_pod() {
        for (text, reason) in [
            ("users: [{name: u, user: {token: hunter2}}\nclusters: 7\n", "syntax error at line 2"),
            ("kind: Pod\n", "its kind is \"Pod\""),
            (&TWO_CONTEXTS.replace("current-context: first\n", ""), "no current context is set"),
            (
                &TWO_CONTEXTS.replace("current-context: first", "current-context: fi"),
                "the context \"fi\" does not exist",
            ),
            ("current-context: first\n", "the context \"first\" does not exist"),
            (&TWO_CONTEXTS.replace("cluster: a}", "cluster: c}"), "the cluster \"c\""),
        ] {
            let file = KubeconfigFile::new(text);
            let error = host_in_pod(Ok(file.files())).expect_err(reason);
            assert!(error.contains(reason) && error.contains(&file.0.display().to_string()), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        // A folder exists, but cannot be read as a file.
        let folder = std::env::temp_dir();
        let error = host_in_pod(Ok(KubeconfigFiles::from_list(folder.as_os_str()))).expect_err("a folder");
        assert!(error.contains("cannot be read"), "{error}");
    }

    #[test]
    fn pod_replaces_only_absent_kubeconfig() {
        let missing = std::env::temp_dir().join("steadfast-no-such-kubeconfig");
        let list = || KubeconfigFiles::from_list(missing.as_os_str());
        assert_eq!(host_in_pod(Ok(list())), Ok("pod.example".to_owned()));
        let empty = KubeconfigFile::new("apiVersion: v1\nkind: Config\nclusters: []\ncurrent-context: \"\"\n");
        assert_eq!(host_in_pod(Ok(empty.files())), Ok("pod.example".to_owned()));
        let no_home = || ConnectError::Kubeconfig { detail: "no home directory is known".to_owned() };
        assert_eq!(host_in_pod(Err(no_home())), Ok("pod.example".to_owned()));
        let error = config_of_context(Ok(list()), "first").expect_err("the requested context").to_string();
        assert!(error.contains("steadfast-no-such-kubeconfig"), "{error}");
    }

    #[tokio::test]
    async fn empty_context_name_is_rejected() {
        let error = Connection::infer_with_context("").await.expect_err("an empty context").to_string();
        assert!(error.contains("the name of the requested context is empty"), "{error}");
    }
}
