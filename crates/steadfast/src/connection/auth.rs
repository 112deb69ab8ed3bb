//! Credentials: what is put into a request's `Authorization`, and how it is renewed.

use std::future::{Ready, ready};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use http::{Request, Response};
use kube::client::{AuthError, Body, ConfigExt};
use kube::config::AuthInfo;
use steadfast_core::Instant;
use tokio::sync::oneshot;
use tower::util::{BoxCloneService, Either};
use tower::{BoxError, Layer, Service, ServiceExt};

use super::{ConnectError, SendError};
use crate::environment::SharedEnvironment;

/// How often credentials are renewed at most because a server refuses them.
const RENEWAL: Duration = Duration::from_secs(5);

type Source = BoxCloneService<Request<Body>, Shown, BoxError>;

/// Credentials, in the form of an answer that the layers which add them ask for.
type Shown = Response<Option<HeaderValue>>;

/// Puts credentials into requests.
pub(super) struct Authorizer {
    config: kube::Config,
    server: String,
    environment: SharedEnvironment,
    /// How long getting credentials may take.
    patience: Duration,
    current: Mutex<Current>,
    renewing: tokio::sync::Mutex<Option<Instant>>,
}

struct Current {
    credentials: Credentials,
    generation: u64,
}

#[derive(Clone)]
enum Credentials {
    None,
    Fixed(HeaderValue),
    /// From a file or a plugin, which is asked again before they expire.
    Sourced(Source),
}

impl Authorizer {
    /// Credentials as `config` says.
    pub(super) fn new(
        config: kube::Config,
        server: String,
        environment: SharedEnvironment,
        patience: Duration,
    ) -> Result<Self, ConnectError> {
        let credentials = Credentials::load(&config).map_err(|detail| ConnectError::Credentials { detail })?;
        Ok(Self {
            config,
            server,
            environment,
            patience,
            current: Mutex::new(Current { credentials, generation: 0 }),
            renewing: tokio::sync::Mutex::new(None),
        })
    }

    /// Puts credentials into `headers`; says which generation of them.
    pub(super) async fn authorize(&self, headers: &mut HeaderMap) -> Result<u64, SendError> {
        let (credentials, generation) = {
            let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
            (current.credentials.clone(), current.generation)
        };
        let value = match credentials {
            Credentials::None => None,
            Credentials::Fixed(value) => Some(value),
            Credentials::Sourced(source) => {
                let (done, asked) = oneshot::channel();
                // A plugin's threads are those of the runtime that it is asked on.
                let asking = self.environment.spawn(Box::pin(async move {
                    drop(done.send(source.oneshot(Request::new(Body::empty())).await));
                }));
                let asked = self.within_patience(asked).await.inspect_err(|_| asking.abort())?;
                asked.map_err(|error| self.failed(describe_boxed(&error)))?.into_body()
            }
        };
        if let Some(value) = value {
            headers.insert(AUTHORIZATION, value);
        }
        Ok(generation)
    }

    /// Gets other credentials than those of the generation `refused`; says whether there are any.
    pub(super) async fn renew(&self, refused: u64) -> Result<bool, SendError> {
        if !renewable(&self.config.auth_info) {
            return Ok(false);
        }
        let mut renewed = self.renewing.lock().await;
        if self.current.lock().unwrap_or_else(PoisonError::into_inner).generation > refused {
            return Ok(true);
        }
        let now = self.environment.now();
        if renewed.is_some_and(|renewed| now.since(renewed) < RENEWAL) {
            return Ok(false);
        }
        *renewed = Some(now);
        tracing::info!(server = %self.server, "the server refuses the credentials; they are asked for anew");
        let (done, loaded) = oneshot::channel();
        let config = self.config.clone();
        self.environment.run_blocking(Box::new(move || drop(done.send(Credentials::load(&config)))));
        let credentials = self.within_patience(loaded).await?.map_err(|detail| self.failed(detail))?;
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.credentials = credentials;
        current.generation += 1;
        Ok(true)
    }

    async fn within_patience<T>(&self, answer: oneshot::Receiver<T>) -> Result<T, SendError> {
        tokio::select! {
            answer = answer => answer.map_err(|_| self.failed("the attempt was given up".to_owned())),
            () = self.environment.sleep_until(self.environment.now() + self.patience) => {
                let waited = self.patience.as_secs_f64();
                Err(self.failed(format!("their source gave none within {waited:.1} s; check the plugin")))
            }
        }
    }

    fn failed(&self, detail: String) -> SendError {
        SendError::Credentials { server: self.server.clone(), detail }
    }
}

/// Whether the configuration has a source of other credentials than those it began with.
fn renewable(info: &AuthInfo) -> bool {
    let fixed = info.token.is_some() || (info.username.is_some() && info.password.is_some());
    info.auth_provider.is_some() || (!fixed && (info.token_file.is_some() || info.exec.is_some()))
}

impl Credentials {
    /// Reads files and runs plugins, so it may block.
    fn load(config: &kube::Config) -> Result<Self, String> {
        let Some(layer) = config.auth_layer().map_err(|error| describe(&error))? else { return Ok(Self::None) };
        Ok(match layer.layer(Revealed) {
            Either::Left(mut fixed) => match fixed.call(Request::new(Body::empty())).into_inner() {
                Ok(shown) => shown.into_body().map_or(Self::None, Self::Fixed),
                Err(_) => Self::None,
            },
            Either::Right(source) => Self::Sourced(BoxCloneService::new(source)),
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

/// An error of `kube` in words in which no secret can be.
pub(super) fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Auth(error) => describe_auth(error),
        error => error.to_string(),
    }
}

fn describe_boxed(error: &BoxError) -> String {
    match error.downcast_ref::<AuthError>() {
        Some(error) => describe_auth(error),
        None => "their source failed".to_owned(),
    }
}

/// The library prints what a plugin has printed, a token among it; this says only what is known to be none.
fn describe_auth(error: &AuthError) -> String {
    match error {
        // Its arguments and environment may hold secrets as well as its output.
        AuthError::AuthExecRun { out, .. } => {
            format!("the credential plugin failed ({}); run it by hand to see why", out.status)
        }
        AuthError::AuthExecParse(_) => {
            "what the credential plugin printed is no ExecCredential; run it by hand to see it".to_owned()
        }
        AuthError::ParseTokenKey(_) | AuthError::AuthExecSerialize(_) => {
            "the credential plugin's input or output is not the JSON it should be; run it by hand to see it".to_owned()
        }
        AuthError::AuthExec(_) => "the configured auth provider cannot be used; use an exec plugin instead".to_owned(),
        AuthError::InvalidBasicAuth(_)
        | AuthError::InvalidBearerToken(_)
        | AuthError::UnrefreshableTokenResponse
        | AuthError::ExecPluginFailed
        | AuthError::MalformedTokenExpirationDate(_)
        | AuthError::AuthExecStart(_)
        | AuthError::ReadTokenFile(..)
        | AuthError::MissingCommand
        | AuthError::ExecMissingClusterInfo
        | AuthError::NoValidNativeRootCA(_) => error.to_string(),
        // Compiled in only with features that other crates of a program may ask of `kube`.
        #[allow(unreachable_patterns)]
        _ => "their source failed".to_owned(),
    }
}
