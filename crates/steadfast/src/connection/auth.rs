//! Credentials: the value of a request's `Authorization`, and its renewal.

use std::future::{Ready, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use http::{Request, Response};
use kube::client::{AuthError, Body, ConfigExt};
use kube::config::{AuthInfo, ExecConfig};
use parking_lot::{Mutex, MutexGuard};
use secrecy::{ExposeSecret, SecretString};
use steadfast_core::Instant;
use tokio::sync::oneshot;
use tower::util::{BoxCloneService, Either};
use tower::{BoxError, Layer, Service, ServiceExt};

use super::authorization_source::AuthorizationSource;
use super::error::{describe, describe_boxed};
use super::header::{basic, bearer};
use super::plugin::{self, Plugin};
use super::single_flight::SingleFlight;
use super::{ConnectError, SendError};
use crate::environment::SharedEnvironment;
use crate::transport::Login;

/// Minimum interval between renewals of credentials that the server rejects.
const MIN_RENEWAL_INTERVAL: Duration = Duration::from_secs(5);

/// Interval between reads of a token file. The kubelet renews a token long before its expiry.
const TOKEN_FILE_READ_INTERVAL: Duration = Duration::from_secs(60);

/// Minimum interval between warnings that the server rejects the credentials.
const MIN_WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Error of an attempt after its task was dropped.
const CANCELLED: &str = "the attempt was cancelled";

type HeaderService = BoxCloneService<Request<Body>, HeaderResponse, BoxError>;

/// Value of `Authorization`, as a response: `kube`'s layers wrap a service, and so need a response type.
type HeaderResponse = Response<Option<HeaderValue>>;

/// Adds credentials to requests.
pub(super) struct Authorizer {
    server: String,
    environment: SharedEnvironment,
    /// Maximum time that a request waits for credentials.
    timeout: Duration,
    /// Maximum run time of a credential plugin.
    plugin_timeout: Duration,
    current: Mutex<CurrentCredentials>,
    renewals: SingleFlight<Result<(), String>>,
    warned_at: Mutex<Option<Instant>>,
}

struct CurrentCredentials {
    config: Arc<kube::Config>,
    credentials: Credentials,
    generation: u64,
}

#[derive(Clone)]
enum Credentials {
    None,
    Fixed(HeaderValue),
    File(Arc<TokenFile>),
    /// From a plugin, which runs again before the credentials expire.
    Plugin(Arc<Plugin>),
    /// From a source that `kube` implements, which renews the credentials before they expire.
    FromSource(Arc<CredentialSource>),
}

/// Source of credentials. Concurrent requests share one query.
struct CredentialSource {
    source: Mutex<HeaderService>,
    queries: SingleFlight<Result<Option<HeaderValue>, SourceError>>,
}

/// Error of a source of credentials.
#[derive(Clone)]
struct SourceError {
    detail: String,
    /// True if the source now returns another kind of credentials, for example tokens that can no longer be refreshed.
    kind_changed: bool,
}

/// Path of a token file, and the token of the last read with its time.
struct TokenFile {
    path: PathBuf,
    last_read: Mutex<(HeaderValue, Instant)>,
}

impl Authorizer {
    /// Loads the credentials that `config` specifies.
    pub(super) fn new(
        config: Arc<kube::Config>,
        server: String,
        environment: SharedEnvironment,
        timeout: Duration,
        plugin_timeout: Duration,
    ) -> Result<Self, ConnectError> {
        let loaded = Credentials::load(&config, environment.now(), plugin_timeout);
        let credentials = loaded.map_err(|detail| ConnectError::Credentials { detail })?;
        Ok(Self {
            server,
            environment,
            timeout,
            plugin_timeout,
            current: Mutex::new(CurrentCredentials { config, credentials, generation: 0 }),
            renewals: SingleFlight::new(),
            warned_at: Mutex::new(None),
        })
    }

    fn current(&self) -> MutexGuard<'_, CurrentCredentials> {
        self.current.lock()
    }

    /// Returns true if requests carry no `Authorization`, as with a client certificate alone.
    pub(super) fn sends_no_authorization(&self) -> bool {
        match &self.current().credentials {
            Credentials::None => true,
            Credentials::Plugin(plugin) => plugin.latest().is_none_or(|credentials| credentials.token.is_none()),
            _ => false,
        }
    }

    /// Returns the plugin that provides the credentials, if any.
    pub(super) fn plugin(&self) -> Option<Arc<Plugin>> {
        match &self.current().credentials {
            Credentials::Plugin(plugin) => Some(plugin.clone()),
            _ => None,
        }
    }

    /// Returns the maximum run time of a credential plugin.
    pub(super) fn plugin_timeout(&self) -> Duration {
        self.plugin_timeout
    }

    /// Returns the generation of the credentials, which grows with each configuration and each run of the plugin.
    fn generation(&self) -> u64 {
        self.current().generation()
    }

    /// Replaces the credentials by those of `config`.
    pub(super) async fn adopt(&self, config: Arc<kube::Config>) -> Result<(), SendError> {
        let credentials = self.load(config.clone()).await.map_err(|detail| self.credentials_error(detail))?;
        let mut current = self.current();
        *current = CurrentCredentials { config, credentials, generation: current.generation + 1 };
        Ok(())
    }

    /// Logs that the server rejects all available credentials, at most once per [`MIN_WARNING_INTERVAL`].
    pub(super) fn warn_of_rejection(&self) {
        let now = self.environment.now();
        let mut warned_at = self.warned_at.lock();
        if warned_at.is_some_and(|last| now.since(last) < MIN_WARNING_INTERVAL) {
            return;
        }
        // With rejected credentials every request fails and calls this method. The stored time throttles the log.
        *warned_at = Some(now);
        let server = &self.server;
        if can_renew(&self.current().config.auth_info) {
            tracing::warn!(%server, "the server rejects the credentials (401), including renewed ones");
        } else {
            tracing::warn!(
                %server,
                "the server rejects the credentials (401), and the configuration cannot renew them; \
                 configure new credentials, a tokenFile, or an exec plugin"
            );
        }
    }

    /// Adds credentials to `headers`, unless the request has its own. Returns the generation of the credentials.
    pub(super) async fn authorize(self: &Arc<Self>, headers: &mut HeaderMap) -> Result<u64, SendError> {
        if is_authorized(headers) {
            return Ok(self.generation());
        }
        let mut is_reloaded = false;
        let (value, generation) = loop {
            let (credentials, mut generation) = {
                let current = self.current();
                (current.credentials.clone(), current.generation())
            };
            let value = match credentials {
                Credentials::None => None,
                Credentials::Fixed(value) => Some(value),
                Credentials::File(file) => Some(self.token(file).await),
                Credentials::Plugin(plugin) => {
                    let credentials =
                        self.run_plugin(&plugin, None).await.map_err(|detail| self.credentials_error(detail))?;
                    // The generation of the returned token: the plugin may have run again since.
                    generation = self.current().generation.saturating_add(credentials.generation);
                    credentials.token.clone()
                }
                Credentials::FromSource(credential_source) => match self.query(&credential_source).await {
                    Ok(value) => value,
                    // `kube` cannot switch a source to another kind, so the whole source is loaded again, once.
                    Err(SourceError { kind_changed: true, .. }) if !std::mem::replace(&mut is_reloaded, true) => {
                        self.renew(generation).await?;
                        continue;
                    }
                    Err(SourceError { detail, .. }) => return Err(self.credentials_error(detail)),
                },
            };
            break (value, generation);
        };
        if let Some(mut value) = value {
            // Hides the value in `Debug` output, and keeps it out of HPACK's dynamic table.
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        Ok(generation)
    }

    /// Returns the credentials of `plugin`. Runs the plugin if its last credentials have expired, or are not newer than
    /// the generation `rejected`.
    async fn run_plugin(
        &self,
        plugin: &Arc<Plugin>,
        rejected: Option<u64>,
    ) -> Result<Arc<plugin::PluginCredentials>, String> {
        tokio::select! {
            biased;
            result = plugin.request(&self.environment, rejected) => result,
            // The plugin continues until its own deadline, and the next request waits for that process.
            () = self.environment.sleep_until(self.environment.now() + self.timeout) => Err(self.timeout_detail()),
        }
    }

    /// Returns the value from `credential_source`. Joins a query in flight instead of starting a second one.
    async fn query(&self, credential_source: &CredentialSource) -> Result<Option<HeaderValue>, SourceError> {
        let request = || -> BoxFuture<'static, Result<Option<HeaderValue>, SourceError>> {
            let source = credential_source.source.lock().clone();
            let (timeout, detail) =
                (self.environment.sleep_until(self.environment.now() + self.timeout), self.timeout_detail());
            Box::pin(async move {
                tokio::select! {
                    biased;
                    result = source.oneshot(Request::new(Body::empty())) => match result {
                        Ok(shown) => Ok(shown.into_body()),
                        Err(error) => {
                            let known = error.downcast_ref::<AuthError>();
                            let kind_changed = matches!(known, Some(AuthError::UnrefreshableTokenResponse));
                            Err(SourceError { detail: describe_boxed(&error), kind_changed })
                        }
                    },
                    () = timeout => Err(SourceError { detail, kind_changed: false }),
                }
            })
        };
        // The attempt is a task of the environment: the source must use its runtime, not the caller's, which may end.
        let result = credential_source.queries.join(&self.environment, Duration::ZERO, request).await;
        result.unwrap_or_else(|| Err(SourceError { detail: CANCELLED.to_owned(), kind_changed: false }))
    }

    /// Requests newer credentials than the generation `rejected`. Returns true if newer credentials are available.
    pub(super) async fn renew(self: &Arc<Self>, rejected: u64) -> Result<bool, SendError> {
        if !can_renew(&self.current().config.auth_info) {
            return Ok(false);
        }
        if self.generation() > rejected {
            // Another request has renewed the credentials since this request read them.
            return Ok(true);
        }
        let renewing = Arc::downgrade(self);
        let renew = || -> BoxFuture<'static, Result<(), String>> {
            Box::pin(async move {
                match renewing.upgrade() {
                    Some(authorizer) => authorizer.renew_now().await,
                    None => Err(CANCELLED.to_owned()),
                }
            })
        };
        if let Some(renewed) = self.renewals.join(&self.environment, MIN_RENEWAL_INTERVAL, renew).await {
            renewed.map_err(|detail| self.credentials_error(detail))?;
        }
        Ok(self.generation() > rejected)
    }

    async fn renew_now(&self) -> Result<(), String> {
        let config = self.current().config.clone();
        let plugin = self.plugin();
        tracing::info!(server = %self.server, "the credentials were rejected or changed their type; requesting new credentials");
        if let Some(plugin) = plugin {
            // The plugin counts its runs, and the generation here includes that count.
            return self.run_plugin(&plugin, Some(plugin.generation())).await.map(drop);
        }
        let credentials = self.load(config.clone()).await?;
        let mut current = self.current();
        // If another configuration was adopted during the load, these credentials belong to the previous one.
        if Arc::ptr_eq(&current.config, &config) {
            current.credentials = credentials;
            current.generation += 1;
        }
        Ok(())
    }

    /// Loads the credentials of `config` on a thread that may block.
    async fn load(&self, config: Arc<kube::Config>) -> Result<Credentials, String> {
        let (done, loaded) = oneshot::channel();
        let (now, timeout) = (self.environment.now(), self.plugin_timeout);
        self.environment.run_blocking(Box::new(move || drop(done.send(Credentials::load(&config, now, timeout)))));
        self.within_timeout(loaded).await?
    }

    /// Returns the token in `file`, and reads the file again after [`TOKEN_FILE_READ_INTERVAL`].
    ///
    /// One request reads the file; concurrent requests, and a failed read, use the last token.
    async fn token(&self, file: Arc<TokenFile>) -> HeaderValue {
        let now = self.environment.now();
        let last = {
            let mut read = file.last_read.lock();
            let (last, at) = read.clone();
            if now.since(at) < TOKEN_FILE_READ_INTERVAL {
                return last;
            }
            // Set before the read, so that concurrent requests do not read the file too.
            read.1 = now;
            last
        };
        // On a blocking thread: a projected token may be on a slow mount, and the runtime must not wait for it.
        let (done, found) = oneshot::channel();
        let path = file.path.clone();
        self.environment.run_blocking(Box::new(move || drop(done.send(read_token(&path)))));
        let found = self.within_timeout(found).await.and_then(|found| found);
        let token = found.unwrap_or_else(|error| {
            tracing::warn!(server = %self.server, error, "cannot reload the token; the last token is used");
            last
        });
        file.last_read.lock().0 = token.clone();
        token
    }

    async fn within_timeout<T>(&self, receiver: oneshot::Receiver<T>) -> Result<T, String> {
        tokio::select! {
            biased;
            result = receiver => result.map_err(|_| CANCELLED.to_owned()),
            () = self.environment.sleep_until(self.environment.now() + self.timeout) => Err(self.timeout_detail()),
        }
    }

    fn timeout_detail(&self) -> String {
        format!(
            "no source returned credentials within {:.1} s; check the credential plugin or the token source of the kubeconfig",
            self.timeout.as_secs_f64()
        )
    }

    fn credentials_error(&self, detail: String) -> SendError {
        SendError::Credentials { server: self.server.clone(), detail }
    }
}

impl CurrentCredentials {
    fn generation(&self) -> u64 {
        let runs = match &self.credentials {
            Credentials::Plugin(plugin) => plugin.generation(),
            _ => 0,
        };
        self.generation.saturating_add(runs)
    }
}

/// Returns true if a request has credentials of its own, which client-go sends unchanged.
pub(super) fn is_authorized(headers: &HeaderMap) -> bool {
    headers.get(AUTHORIZATION).is_some_and(|value| !value.is_empty())
}

/// Returns true if the configuration has a source that can provide new credentials.
fn can_renew(info: &AuthInfo) -> bool {
    AuthorizationSource::of_user(info).is_some_and(AuthorizationSource::can_renew)
}

/// Returns the plugin from which the credentials come, if any: fixed credentials, token files and auth providers take
/// precedence.
pub(super) fn used_plugin(info: &AuthInfo) -> Option<&ExecConfig> {
    match AuthorizationSource::of_user(info)? {
        AuthorizationSource::Plugin(exec) => Some(exec),
        _ => None,
    }
}

fn read_token(path: &Path) -> Result<HeaderValue, String> {
    let shown = path.display();
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("the token file {shown} cannot be read: {error}"))?;
    let token = text.trim();
    if token.is_empty() {
        return Err(format!("the token file {shown} is empty"));
    }
    bearer(token).ok_or_else(|| format!("the content of the token file {shown} is not a token"))
}

impl Credentials {
    /// Loads the credentials of `config` from the source that takes precedence ([`AuthorizationSource`]). Reads files
    /// and runs plugins, and so may block.
    fn load(config: &kube::Config, now: Instant, plugin_timeout: Duration) -> Result<Self, String> {
        const UNSENDABLE: &str = "has a character that a header cannot contain, such as a line break";

        let info = &config.auth_info;
        let header =
            |token: &SecretString| bearer(token.expose_secret()).ok_or_else(|| format!("the token {UNSENDABLE}"));
        Ok(match AuthorizationSource::of(config) {
            Some(AuthorizationSource::AuthProvider(provider)) => Self::of_provider(config, &provider.name)?,
            Some(AuthorizationSource::Password(name)) => {
                let password = info.password.as_ref().map_or("", |password| password.expose_secret());
                let value = basic(name, password).ok_or_else(|| format!("the name or the password {UNSENDABLE}"))?;
                Self::Fixed(value)
            }
            Some(AuthorizationSource::TokenFile(path)) => {
                let path = PathBuf::from(path);
                let fallback = info.token.as_ref().map(header).transpose()?;
                // As in client-go, the token is the fallback for a file that cannot be read.
                let read = read_token(&path).or_else(|error| fallback.ok_or(error))?;
                Self::File(Arc::new(TokenFile { path, last_read: Mutex::new((read, now)) }))
            }
            Some(AuthorizationSource::Token(token)) => Self::Fixed(header(token)?),
            Some(AuthorizationSource::Plugin(exec)) => {
                let plugin = Plugin::of(exec, plugin_timeout);
                plugin.obtain(None)?;
                Self::Plugin(plugin)
            }
            Some(AuthorizationSource::Url) => Self::of_url(config).map_or(Self::None, Self::Fixed),
            None => Self::None,
        })
    }

    /// Returns the name and the password in the URL of the server, as Go sends them.
    fn of_url(config: &kube::Config) -> Option<HeaderValue> {
        let login = Login::of(&config.cluster_url)?;
        basic(&login.user, &login.password)
    }

    /// Returns the credentials of an auth provider. `kube` implements only `oidc`.
    fn of_provider(config: &kube::Config, name: &str) -> Result<Self, String> {
        match name {
            "oidc" => {}
            // These providers ran a program that the configuration names. client-go removed them in 1.26.
            "gcp" | "azure" => {
                let plugin = if name == "gcp" { "gke-gcloud-auth-plugin" } else { "kubelogin" };
                return Err(format!(
                    "the auth provider {name:?} has been removed from Kubernetes clients; use the exec plugin {plugin} instead"
                ));
            }
            _ => {
                return Err(format!("no auth provider {name:?} is known; use an exec plugin instead"));
            }
        }
        let mut config = config.clone();
        // `kube` must not run a plugin here: an auth provider takes precedence over `exec`.
        config.auth_info.exec = None;
        // `kube` panics on a token that is not a valid header value.
        let layer = catch_unwind(AssertUnwindSafe(|| config.auth_layer())).map_err(|_| {
            format!("the token of the auth provider {name:?} has a character that a header cannot contain")
        })?;
        let Some(layer) = layer.map_err(|error| describe(&error))? else { return Ok(Self::None) };
        Ok(match layer.layer(ReturnAddedHeader) {
            Either::Left(mut fixed) => match fixed.call(Request::new(Body::empty())).into_inner() {
                Ok(shown) => shown.into_body().map_or(Self::None, Self::Fixed),
                Err(_) => Self::None,
            },
            Either::Right(source) => {
                let source = Mutex::new(BoxCloneService::new(source));
                Self::FromSource(Arc::new(CredentialSource { source, queries: SingleFlight::new() }))
            }
        })
    }
}

/// Innermost service: returns the credentials added by the outer layers.
#[derive(Clone)]
struct ReturnAddedHeader;

impl Service<Request<Body>> for ReturnAddedHeader {
    type Response = HeaderResponse;
    type Error = BoxError;
    type Future = Ready<Result<HeaderResponse, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        ready(Ok(Response::new(request.headers().get(AUTHORIZATION).cloned())))
    }
}
