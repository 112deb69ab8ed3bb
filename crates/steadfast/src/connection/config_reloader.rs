//! Reloading of the configuration: certificates and keys in files or from a plugin, and an optional loader.
//!
//! New connections use the changed configuration. Existing connections drain, and their watches move to new ones.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use rustls::sign::CertifiedKey;
use tokio::sync::oneshot;

use super::auth::used_plugin;
use super::normal::normalize;
use super::plugin::{self, Plugin};
use super::request_decorator::RequestDecorator;
use super::single_flight::SingleFlight;
use super::{ConnectError, route};
use crate::environment::{SharedEnvironment, Task};
use crate::transport::{HostPort, Pool, Route, Settings};

/// Interval between checks of the files, as for a CA or a token in `kube`.
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Number of checks of the files per run of the loader. The loader therefore runs every 5 minutes.
const FILE_CHECKS_PER_LOAD: u32 = 5;

/// Minimum interval between checks that a rejection by the server triggers.
const MIN_REJECTION_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Loads the configuration again.
pub(super) type Loader = Arc<dyn Fn() -> BoxFuture<'static, Result<kube::Config, ConnectError>> + Send + Sync>;

/// Applies changes of the configuration to a connection.
pub(super) struct ConfigReloader {
    environment: SharedEnvironment,
    target: HostPort,
    prior_knowledge: bool,
    /// Timeout of a load.
    timeout: Duration,
    loader: Option<Loader>,
    state: Mutex<ConfigState>,
    /// Held during a check.
    check_lock: tokio::sync::Mutex<()>,
    /// Checks after rejections by the server.
    rejection_checks: SingleFlight<bool>,
    /// Receives a changed route.
    pool: Pool,
    /// Receives changed headers and credentials.
    decorator: Arc<RequestDecorator>,
}

/// Configuration in use, and the hashes of its files when it was adopted.
pub(super) struct ConfigState {
    config: Arc<kube::Config>,
    files: FileHashes,
    /// Credentials of the plugin, if any.
    plugin_credentials: Option<Arc<plugin::PluginCredentials>>,
    /// Number of changes.
    generation: u64,
    check_task: Option<Task>,
}

/// Hashes of the files' content. Unreadable files are absent.
type FileHashes = BTreeMap<PathBuf, u64>;

/// Changed configuration, ready for use.
struct ConfigChange {
    config: Arc<kube::Config>,
    files: FileHashes,
    plugin_credentials: Option<Arc<plugin::PluginCredentials>>,
    route: Route,
    /// Keeps the plugin's credentials until the requests use them.
    _plugin: Option<Arc<Plugin>>,
}

/// Current state of a connection, with which a change is compared.
struct CurrentState {
    files: FileHashes,
    plugin_credentials: Option<Arc<plugin::PluginCredentials>>,
    target: HostPort,
    prior_knowledge: bool,
    plugin_timeout: Duration,
}

impl ConfigState {
    /// Hashes the files of `config`.
    pub(super) fn new(config: Arc<kube::Config>) -> Self {
        Self { files: hash_files(&config), config, plugin_credentials: None, generation: 0, check_task: None }
    }

    /// Adds the credentials of the plugin.
    pub(super) fn with_plugin_credentials(self, plugin_credentials: Option<Arc<plugin::PluginCredentials>>) -> Self {
        Self { plugin_credentials, ..self }
    }
}

impl ConfigReloader {
    /// Creates a reloader that applies changes of `state` to `pool` and `decorator`.
    pub(super) fn new(
        state: ConfigState,
        loader: Option<Loader>,
        target: HostPort,
        settings: &Settings,
        pool: Pool,
        decorator: Arc<RequestDecorator>,
    ) -> Self {
        Self {
            environment: pool.environment().clone(),
            target,
            prior_knowledge: settings.prior_knowledge,
            timeout: settings.headers_timeout,
            loader,
            state: Mutex::new(state),
            check_lock: tokio::sync::Mutex::new(()),
            rejection_checks: SingleFlight::new(),
            pool,
            decorator,
        }
    }

    /// Starts periodic checks until the connection is dropped, unless nothing can change.
    pub(super) fn start(self: &Arc<Self>) {
        let config = self.config();
        if self.loader.is_none() && route_files(&config).is_empty() && used_plugin(&config.auth_info).is_none() {
            return;
        }
        let check_task = check_periodically(self.environment.clone(), Arc::downgrade(self));
        self.lock().check_task = Some(self.environment.spawn(Box::pin(check_task)));
    }

    /// Returns the number of changes of the configuration.
    pub(super) fn generation(&self) -> u64 {
        self.lock().generation
    }

    /// Checks for changes after the server rejected the configuration of `generation`. Returns true if it has changed.
    ///
    /// Waits no longer than the timeout of a load, even if the check takes longer.
    pub(super) async fn recheck_after_rejection(self: &Arc<Self>, generation: u64) -> bool {
        if self.generation() > generation {
            return true;
        }
        let reloader = Arc::downgrade(self);
        let check = || -> BoxFuture<'static, bool> {
            Box::pin(async move {
                let Some(reloader) = reloader.upgrade() else { return false };
                let _checking = reloader.check_lock.lock().await;
                // A plugin's certificate is in no file, so no hash reveals a change: the plugin must run again.
                let plugin = used_plugin(&reloader.config().auth_info).is_some()
                    && reloader.decorator.authorizer.sends_no_authorization();
                reloader.check(true, plugin).await
            })
        };
        let found = tokio::select! {
            biased;
            found = self.rejection_checks.join(&self.environment, MIN_REJECTION_CHECK_INTERVAL, check) => found,
            () = self.environment.sleep_until(self.environment.now() + self.timeout) => None,
        };
        found == Some(true) || self.generation() > generation
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, ConfigState> {
        self.state.lock()
    }

    fn config(&self) -> Arc<kube::Config> {
        self.lock().config.clone()
    }

    /// Checks for changes and applies them. Logs an unusable configuration, and keeps the current one.
    async fn check(&self, load: bool, force_renewal: bool) -> bool {
        let (current, files, plugin_credentials) = {
            let state = self.lock();
            (state.config.clone(), state.files.clone(), state.plugin_credentials.clone())
        };
        let server = route::server(&current);
        let config = match self.loader.as_ref().filter(|_| load) {
            Some(loader) => match self.load(loader).await.map(normalize) {
                Ok(config) if config.cluster_url != current.cluster_url => {
                    let named = route::server(&config);
                    tracing::warn!(%server, %named, "the configuration now has another server; restart the program to use that server");
                    current.clone()
                }
                Ok(config) if are_equivalent(&config, &current) => current.clone(),
                Ok(config) => Arc::new(config),
                Err(error) => {
                    tracing::warn!(%server, %error, "cannot reload the configuration; the last configuration is used");
                    current.clone()
                }
            },
            None => current.clone(),
        };
        let other = !Arc::ptr_eq(&config, &current);
        // On a blocking thread: files may be on a slow mount, and a plugin may run.
        let (done, found) = oneshot::channel();
        let (target, prior_knowledge) = (self.target.clone(), self.prior_knowledge);
        let plugin_timeout = self.decorator.authorizer.plugin_timeout();
        let current_state = CurrentState { files, plugin_credentials, target, prior_knowledge, plugin_timeout };
        self.environment.run_blocking(Box::new(move || {
            drop(done.send(prepare_change(config, &current_state, other, force_renewal)));
        }));
        let change = match self.within_timeout(found).await {
            Ok(Ok(Some(change))) => change,
            Ok(Ok(None)) => return false,
            Ok(Err(error)) => {
                tracing::warn!(%server, %error, "the changed configuration cannot be used; the last configuration is used");
                return false;
            }
            Err(detail) => {
                tracing::warn!(%server, detail, "cannot read the configuration's files; the last content is used");
                return false;
            }
        };
        // Headers and credentials come first. If the change of the credentials fails, the route must stay unchanged
        // too.
        if other && let Err(error) = self.decorator.adopt(change.config.clone()).await {
            tracing::warn!(%server, error, "the changed configuration cannot be used; the last configuration is used");
            return false;
        }
        {
            let mut state = self.lock();
            state.config = change.config;
            state.files = change.files;
            state.plugin_credentials = change.plugin_credentials;
            state.generation += 1;
        }
        // The pool changes after the generation, so that a request that fails on a drained connection sees the change
        // and retries.
        self.pool.renew(change.route);
        tracing::info!(%server, "the configuration has changed; new connections use it, and existing connections drain");
        true
    }

    async fn load(&self, loader: &Loader) -> Result<kube::Config, ConnectError> {
        let (done, result) = oneshot::channel();
        let loader = loader.clone();
        // The loader runs on the environment's runtime, because it may need timers and I/O. Its panic must end this
        // task alone.
        let task = self.environment.spawn_user_task(Box::pin(async move { drop(done.send(loader().await)) }));
        let result = self.within_timeout(result).await.inspect_err(|_| task.abort());
        result.map_err(|detail| ConnectError::Infer { detail })?
    }

    async fn within_timeout<T>(&self, result: oneshot::Receiver<T>) -> Result<T, String> {
        tokio::select! {
            biased;
            result = result => result.map_err(|_| "the attempt was cancelled".to_owned()),
            () = self.environment.sleep_until(self.environment.now() + self.timeout) => {
                Err(format!("no result within {:.1} s", self.timeout.as_secs_f64()))
            }
        }
    }
}

impl Drop for ConfigReloader {
    fn drop(&mut self) {
        if let Some(check_task) = self.lock().check_task.take() {
            check_task.abort();
        }
    }
}

async fn check_periodically(environment: SharedEnvironment, reloader: Weak<ConfigReloader>) {
    let mut round = 0_u32;
    loop {
        environment.sleep_until(environment.now() + FILE_CHECK_INTERVAL).await;
        round = round.wrapping_add(1);
        // Upgraded only for the check, so that the task does not keep the connection alive.
        let Some(reloader) = reloader.upgrade() else { return };
        let check_lock = reloader.check_lock.lock().await;
        reloader.check(round.is_multiple_of(FILE_CHECKS_PER_LOAD), false).await;
        drop(check_lock);
    }
}

/// Compares `config`, its files and its plugin's credentials with the state `current_state`, and returns the change.
/// May block.
///
/// If `other` is true, the configuration is always a change. If `renew` is true, the plugin returns credentials newer
/// than those in `current_state`.
fn prepare_change(
    config: Arc<kube::Config>,
    current_state: &CurrentState,
    other: bool,
    renew: bool,
) -> Result<Option<ConfigChange>, ConnectError> {
    let files = hash_files(&config);
    let plugin = used_plugin(&config.auth_info).map(|exec| Plugin::of(exec, current_state.plugin_timeout));
    let rejected_generation =
        current_state.plugin_credentials.as_ref().filter(|_| renew && !other).map(|credentials| credentials.generation);
    // A request can renew a token, but a handshake cannot renew a certificate: a check must renew it in advance.
    let provides_certificate =
        current_state.plugin_credentials.as_ref().is_some_and(|credentials| credentials.certificate.is_some());
    let plugin_credentials = match &plugin {
        Some(plugin) if other || renew || provides_certificate => Some(plugin.obtain(rejected_generation)),
        Some(_) => current_state.plugin_credentials.clone().map(Ok),
        None => None,
    };
    let plugin_credentials = plugin_credentials.transpose().map_err(|detail| ConnectError::Credentials { detail })?;
    let has_other_certificate =
        match (certificate(plugin_credentials.as_deref()), certificate(current_state.plugin_credentials.as_deref())) {
            (Some(one), Some(another)) => !Arc::ptr_eq(one, another),
            (one, another) => one.is_some() || another.is_some(),
        };
    let changed = files.iter().any(|(name, content)| current_state.files.get(name) != Some(content));
    // A changed token needs no new connection, since each request carries the current one.
    if !changed && !has_other_certificate && !other && !renew {
        return Ok(None);
    }
    let route =
        route::route(&config, &current_state.target, current_state.prior_knowledge, plugin_credentials.as_deref())?;
    Ok(Some(ConfigChange { config, files, plugin_credentials, route, _plugin: plugin }))
}

fn certificate(plugin_credentials: Option<&plugin::PluginCredentials>) -> Option<&Arc<CertifiedKey>> {
    plugin_credentials?.certificate.as_ref()
}

/// Returns the files that determine the route. The authorizer reads the token file itself.
fn route_files(config: &kube::Config) -> Vec<PathBuf> {
    let info = &config.auth_info;
    let certificate = info.client_certificate.as_ref().filter(|_| info.client_certificate_data.is_none());
    let key = info.client_key.as_ref().filter(|_| info.client_key_data.is_none());
    certificate.into_iter().chain(key).map(PathBuf::from).chain(config.root_cert_file.clone()).collect()
}

fn hash_files(config: &kube::Config) -> FileHashes {
    let hash = |name: PathBuf| {
        let mut hasher = DefaultHasher::new();
        std::fs::read(&name).ok()?.hash(&mut hasher);
        Some((name, hasher.finish()))
    };
    route_files(config).into_iter().filter_map(hash).collect()
}

/// Returns true if two configurations result in equal requests and connections.
fn are_equivalent(one: &kube::Config, other: &kube::Config) -> bool {
    // `AuthInfo` has no `PartialEq`.
    let identity = |config: &kube::Config| serde_json::to_value(&config.auth_info).ok();
    one.cluster_url == other.cluster_url
        && one.root_cert == other.root_cert
        && one.root_cert_file == other.root_cert_file
        && one.accept_invalid_certs == other.accept_invalid_certs
        && one.proxy_url == other.proxy_url
        && one.tls_server_name == other.tls_server_name
        && one.headers == other.headers
        && identity(one) == identity(other)
}
