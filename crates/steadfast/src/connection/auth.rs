//! Credentials: what is put into a request's `Authorization`, and how it is renewed.

use std::future::{Ready, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use http::{Request, Response};
use kube::client::{AuthError, Body, ConfigExt};
use kube::config::AuthInfo;
use secrecy::ExposeSecret;
use steadfast_core::Instant;
use tokio::sync::oneshot;
use tower::util::{BoxCloneService, Either};
use tower::{BoxError, Layer, Service, ServiceExt};

use super::attempts::Attempts;
use super::error::{describe, describe_boxed};
use super::header::{basic, bearer};
use super::plugin::{self, Plugin};
use super::{ConnectError, SendError};
use crate::environment::SharedEnvironment;
use crate::transport::Login;

/// How often credentials are renewed at most because a server refuses them.
const RENEWAL: Duration = Duration::from_secs(5);

/// How often a token is read from its file; a kubelet renews it long before it expires.
const TOKEN_FILE: Duration = Duration::from_secs(60);

/// How often it is said that the server refuses the credentials.
const COMPLAINT: Duration = Duration::from_secs(60);

/// Why nothing came of an attempt whose task is gone.
const GIVEN_UP: &str = "the attempt was given up";

type Source = BoxCloneService<Request<Body>, Shown, BoxError>;

/// Credentials, in the form of an answer that the layers which add them ask for.
type Shown = Response<Option<HeaderValue>>;

/// Puts credentials into requests.
pub(super) struct Authorizer {
    server: String,
    environment: SharedEnvironment,
    /// How long a request waits for credentials.
    patience: Duration,
    /// How long a credential plugin may run.
    plugin_timeout: Duration,
    current: Mutex<Current>,
    renewals: Attempts<Result<(), String>>,
    complained: Mutex<Option<Instant>>,
}

struct Current {
    config: Arc<kube::Config>,
    credentials: Credentials,
    generation: u64,
}

#[derive(Clone)]
enum Credentials {
    None,
    Fixed(HeaderValue),
    File(Arc<TokenFile>),
    /// From a plugin, which runs again before they expire.
    Plugin(Arc<Plugin>),
    /// From a source that `kube` implements, which is asked again before they expire.
    Sourced(Arc<Sourced>),
}

/// A source of credentials, asked by one at a time for all.
struct Sourced {
    source: Mutex<Source>,
    asked: Attempts<Result<Option<HeaderValue>, NoAnswer>>,
}

/// Why a source gave nothing.
#[derive(Clone)]
struct NoAnswer {
    detail: String,
    /// It gives something of another kind now, as does a plugin whose tokens expire no more.
    changed: bool,
}

/// A token in a file, as it was read last.
struct TokenFile {
    path: PathBuf,
    read: Mutex<(HeaderValue, Instant)>,
}

impl Authorizer {
    /// Credentials as `config` says.
    pub(super) fn new(
        config: Arc<kube::Config>,
        server: String,
        environment: SharedEnvironment,
        patience: Duration,
        plugin_timeout: Duration,
    ) -> Result<Self, ConnectError> {
        let loaded = Credentials::load(&config, environment.now(), plugin_timeout);
        let credentials = loaded.map_err(|detail| ConnectError::Credentials { detail })?;
        Ok(Self {
            server,
            environment,
            patience,
            plugin_timeout,
            current: Mutex::new(Current { config, credentials, generation: 0 }),
            renewals: Attempts::new(),
            complained: Mutex::new(None),
        })
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether requests carry no credentials, as where a certificate is all that says who we are.
    pub(super) fn has_none(&self) -> bool {
        match &self.current().credentials {
            Credentials::None => true,
            Credentials::Plugin(plugin) => plugin.latest().is_none_or(|credentials| credentials.token.is_none()),
            _ => false,
        }
    }

    /// The plugin that the credentials come from, if they come from one.
    pub(super) fn plugin(&self) -> Option<Arc<Plugin>> {
        match &self.current().credentials {
            Credentials::Plugin(plugin) => Some(plugin.clone()),
            _ => None,
        }
    }

    /// How long a credential plugin may run.
    pub(super) fn plugin_timeout(&self) -> Duration {
        self.plugin_timeout
    }

    /// The generation of the credentials: it grows with each configuration, and with each run of the plugin.
    fn generation(&self) -> u64 {
        self.current().generation()
    }

    /// Takes the credentials of `config` from now on.
    pub(super) async fn adopt(&self, config: Arc<kube::Config>) -> Result<(), SendError> {
        let credentials = self.load(config.clone()).await.map_err(|detail| self.failed(detail))?;
        let mut current = self.current();
        *current = Current { config, credentials, generation: current.generation + 1 };
        Ok(())
    }

    /// Says, once in a while, that the server takes none of the credentials there are.
    pub(super) fn complain(&self) {
        let now = self.environment.now();
        let mut complained = self.complained.lock().unwrap_or_else(PoisonError::into_inner);
        if complained.is_some_and(|last| now.since(last) < COMPLAINT) {
            return;
        }
        *complained = Some(now);
        let server = &self.server;
        if renewable(&self.current().config.auth_info) {
            tracing::warn!(%server, "the server refuses the credentials (401), new ones from their source too");
        } else {
            tracing::warn!(
                %server,
                "the server refuses the credentials (401), and the configuration has no source of others; \
                 give it new ones, or a tokenFile or an exec plugin that does"
            );
        }
    }

    /// Puts credentials into `headers`, unless the request has its own; returns the generation of the credentials.
    pub(super) async fn authorize(self: &Arc<Self>, headers: &mut HeaderMap) -> Result<u64, SendError> {
        if is_authorized(headers) {
            return Ok(self.generation());
        }
        let mut loaded_anew = false;
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
                    let given = self.ask_plugin(&plugin, None).await.map_err(|detail| self.failed(detail))?;
                    generation = self.current().generation.saturating_add(given.generation);
                    given.token.clone()
                }
                Credentials::Sourced(sourced) => match self.ask(&sourced).await {
                    Ok(value) => value,
                    Err(NoAnswer { changed: true, .. }) if !std::mem::replace(&mut loaded_anew, true) => {
                        self.renew(generation).await?;
                        continue;
                    }
                    Err(NoAnswer { detail, .. }) => return Err(self.failed(detail)),
                },
            };
            break (value, generation);
        };
        if let Some(mut value) = value {
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        Ok(generation)
    }

    /// The credentials of `plugin`, which runs if they have expired, or are not newer than the generation `refused`.
    async fn ask_plugin(&self, plugin: &Arc<Plugin>, refused: Option<u64>) -> Result<Arc<plugin::Credentials>, String> {
        tokio::select! {
            biased;
            asked = plugin.request(&self.environment, refused) => asked,
            // The plugin goes on until its own deadline, and the next request waits for the same process.
            () = self.environment.sleep_until(self.environment.now() + self.patience) => Err(self.too_long()),
        }
    }

    /// What `sourced` gives, asked now or by someone else just before.
    async fn ask(&self, sourced: &Sourced) -> Result<Option<HeaderValue>, NoAnswer> {
        let ask = || -> BoxFuture<'static, Result<Option<HeaderValue>, NoAnswer>> {
            let source = sourced.source.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let (given_up, detail) =
                (self.environment.sleep_until(self.environment.now() + self.patience), self.too_long());
            Box::pin(async move {
                tokio::select! {
                    biased;
                    asked = source.oneshot(Request::new(Body::empty())) => match asked {
                        Ok(shown) => Ok(shown.into_body()),
                        Err(error) => {
                            let known = error.downcast_ref::<AuthError>();
                            let changed = matches!(known, Some(AuthError::UnrefreshableTokenResponse));
                            Err(NoAnswer { detail: describe_boxed(&error), changed })
                        }
                    },
                    () = given_up => Err(NoAnswer { detail, changed: false }),
                }
            })
        };
        // A plugin's threads are those of the runtime that it is asked on, as the attempt is.
        let asked = sourced.asked.join(&self.environment, Duration::ZERO, ask).await;
        asked.unwrap_or_else(|| Err(NoAnswer { detail: GIVEN_UP.to_owned(), changed: false }))
    }

    /// Gets other credentials than those of the generation `refused`; says whether there are any.
    pub(super) async fn renew(self: &Arc<Self>, refused: u64) -> Result<bool, SendError> {
        if !renewable(&self.current().config.auth_info) {
            return Ok(false);
        }
        if self.generation() > refused {
            return Ok(true);
        }
        let renewing = Arc::downgrade(self);
        let renew = || -> BoxFuture<'static, Result<(), String>> {
            Box::pin(async move {
                match renewing.upgrade() {
                    Some(authorizer) => authorizer.renew_now().await,
                    None => Err(GIVEN_UP.to_owned()),
                }
            })
        };
        if let Some(renewed) = self.renewals.join(&self.environment, RENEWAL, renew).await {
            renewed.map_err(|detail| self.failed(detail))?;
        }
        Ok(self.generation() > refused)
    }

    async fn renew_now(&self) -> Result<(), String> {
        let config = self.current().config.clone();
        let plugin = self.plugin();
        tracing::info!(server = %self.server, "the credentials are refused, or of another kind now; they are requested anew");
        if let Some(plugin) = plugin {
            // It counts its own generations.
            return self.ask_plugin(&plugin, Some(plugin.generation())).await.map(drop);
        }
        let credentials = self.load(config.clone()).await?;
        let mut current = self.current();
        // Where another configuration was adopted meanwhile, these are of the one before.
        if Arc::ptr_eq(&current.config, &config) {
            current.credentials = credentials;
            current.generation += 1;
        }
        Ok(())
    }

    /// The credentials of `config`, from wherever it has them.
    async fn load(&self, config: Arc<kube::Config>) -> Result<Credentials, String> {
        let (done, loaded) = oneshot::channel();
        let (now, timeout) = (self.environment.now(), self.plugin_timeout);
        self.environment.run_blocking(Box::new(move || drop(done.send(Credentials::load(&config, now, timeout)))));
        self.within_patience(loaded).await?
    }

    /// The token in `file`, read again by one request where it was read long ago; the last one where it cannot be, and for
    /// those who ask meanwhile.
    async fn token(&self, file: Arc<TokenFile>) -> HeaderValue {
        let now = self.environment.now();
        let last = {
            let mut read = file.read.lock().unwrap_or_else(PoisonError::into_inner);
            let (last, at) = read.clone();
            if now.since(at) < TOKEN_FILE {
                return last;
            }
            read.1 = now;
            last
        };
        let (done, found) = oneshot::channel();
        let path = file.path.clone();
        self.environment.run_blocking(Box::new(move || drop(done.send(read_token(&path)))));
        let found = self.within_patience(found).await.and_then(|found| found);
        let token = found.unwrap_or_else(|error| {
            tracing::warn!(server = %self.server, error, "the token cannot be read again; the last one is used");
            last
        });
        file.read.lock().unwrap_or_else(PoisonError::into_inner).0 = token.clone();
        token
    }

    async fn within_patience<T>(&self, answer: oneshot::Receiver<T>) -> Result<T, String> {
        tokio::select! {
            biased;
            answer = answer => answer.map_err(|_| GIVEN_UP.to_owned()),
            () = self.environment.sleep_until(self.environment.now() + self.patience) => Err(self.too_long()),
        }
    }

    fn too_long(&self) -> String {
        format!("their source gave none within {:.1} s; check the plugin", self.patience.as_secs_f64())
    }

    fn failed(&self, detail: String) -> SendError {
        SendError::Credentials { server: self.server.clone(), detail }
    }
}

impl Current {
    fn generation(&self) -> u64 {
        let runs = match &self.credentials {
            Credentials::Plugin(plugin) => plugin.generation(),
            _ => 0,
        };
        self.generation.saturating_add(runs)
    }
}

/// If a request has credentials of its own, which client-go sends unchanged.
pub(super) fn is_authorized(headers: &HeaderMap) -> bool {
    headers.get(AUTHORIZATION).is_some_and(|value| !value.is_empty())
}

/// Whether the configuration has a source of other credentials than those it began with.
fn renewable(info: &AuthInfo) -> bool {
    info.auth_provider.is_some() || uses_plugin(info) || (info.username.is_none() && info.token_file.is_some())
}

/// If the credentials come from a plugin: fixed ones, and files, take precedence over it.
pub(super) fn uses_plugin(info: &AuthInfo) -> bool {
    let others = info.username.is_some() || info.token.is_some() || info.token_file.is_some();
    info.exec.is_some() && !others && info.auth_provider.is_none()
}

fn read_token(path: &Path) -> Result<HeaderValue, String> {
    let shown = path.display();
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("the token file {shown} cannot be read: {error}"))?;
    let token = text.trim();
    if token.is_empty() {
        return Err(format!("the token file {shown} is empty"));
    }
    bearer(token).ok_or_else(|| format!("what the token file {shown} holds is no token"))
}

impl Credentials {
    /// Reads files and runs plugins, so it may block.
    ///
    /// The order is that of client-go: a name and a password, a token file, a token, a plugin, and the URL at last.
    fn load(config: &kube::Config, now: Instant, plugin_timeout: Duration) -> Result<Self, String> {
        const UNSENDABLE: &str = "has a character that no header can hold, such as the end of a line";

        let info = &config.auth_info;
        if let Some(provider) = &info.auth_provider {
            return Self::of_provider(config, &provider.name);
        }
        if let Some(name) = &info.username {
            let password = info.password.as_ref().map_or("", |password| password.expose_secret());
            let value = basic(name, password).ok_or_else(|| format!("the name or the password {UNSENDABLE}"))?;
            return Ok(Self::Fixed(value));
        }
        let token = info.token.as_ref().map(|token| bearer(token.expose_secret()));
        let token = token.map(|value| value.ok_or_else(|| format!("the token {UNSENDABLE}"))).transpose()?;
        if let Some(path) = &info.token_file {
            let path = PathBuf::from(path);
            // The token serves where the file does not.
            let read = read_token(&path).or_else(|error| token.ok_or(error))?;
            return Ok(Self::File(Arc::new(TokenFile { path, read: Mutex::new((read, now)) })));
        }
        if let Some(token) = token {
            return Ok(Self::Fixed(token));
        }
        if let Some(exec) = &info.exec {
            let plugin = Plugin::of(exec, plugin_timeout);
            plugin.obtain(None)?;
            return Ok(Self::Plugin(plugin));
        }
        Ok(Self::of_url(config).map_or(Self::None, Self::Fixed))
    }

    /// The name and the password in the URL of the server, as Go sends them.
    fn of_url(config: &kube::Config) -> Option<HeaderValue> {
        let login = Login::of(&config.cluster_url)?;
        basic(&login.user, &login.password)
    }

    /// Credentials of an auth provider, of which `kube` implements `oidc`.
    fn of_provider(config: &kube::Config, name: &str) -> Result<Self, String> {
        match name {
            "oidc" => {}
            // They ran a program that the configuration names; client-go has not done so since 1.26.
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
        config.auth_info.exec = None;
        let layer = catch_unwind(AssertUnwindSafe(|| config.auth_layer()))
            .map_err(|_| format!("the token of the auth provider {name:?} has a character that no header can hold"))?;
        let Some(layer) = layer.map_err(|error| describe(&error))? else { return Ok(Self::None) };
        Ok(match layer.layer(Revealed) {
            Either::Left(mut fixed) => match fixed.call(Request::new(Body::empty())).into_inner() {
                Ok(shown) => shown.into_body().map_or(Self::None, Self::Fixed),
                Err(_) => Self::None,
            },
            Either::Right(source) => {
                let source = Mutex::new(BoxCloneService::new(source));
                Self::Sourced(Arc::new(Sourced { source, asked: Attempts::new() }))
            }
        })
    }
}

/// Answers a request with the credentials that were put into it.
#[derive(Clone)]
struct Revealed;

impl Service<Request<Body>> for Revealed {
    type Response = Shown;
    type Error = BoxError;
    type Future = Ready<Result<Shown, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        ready(Ok(Response::new(request.headers().get(AUTHORIZATION).cloned())))
    }
}
