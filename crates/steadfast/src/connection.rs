//! One Kubernetes API server: its connections, how to authenticate there, and an ordinary `kube::Client`.

mod attempts;
mod auth;
mod builder;
mod client;
mod discreet;
mod error;
mod inquiry;
mod keeper;
#[cfg(feature = "metrics")]
mod observing;
mod patience;
mod places;
mod proxies;
mod reach;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use http::header::{HeaderValue, USER_AGENT};
use http::{Request, Response, StatusCode};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use steadfast_core::Instant;
use tokio::sync::{oneshot, watch};

use crate::environment::threads::Threads;
use crate::environment::{Environment, SharedEnvironment};
use crate::probes::Board;
use crate::transport::{self, ClosedConnection, ConnectionReport, Pool, ResponseBody, TransportError};
use auth::Authorizer;
use builder::Addressing;
pub use builder::ConnectionBuilder;
pub use discreet::WithheldAnswer;
pub use error::{ConnectError, SendError, unusable};
use keeper::Keeper;
#[cfg(feature = "metrics")]
pub(crate) use observing::WeakConnection;
pub(crate) use places::Place;
use places::Places;

/// Everything between this program and one API server; cheap to clone.
///
/// It opens connections when they are needed, keeps them healthy, and closes them, with all tasks, when its
/// last clone and the last client of it are dropped.
#[derive(Clone)]
pub struct Connection {
    inner: Arc<Inner>,
}

struct Inner {
    pool: Pool,
    authorizer: Authorizer,
    addressing: ArcSwap<Addressing>,
    keeper: Keeper,
    agent: HeaderValue,
    server: String,
    default_namespace: String,
    places: Places,
    manners: patience::Manners,
    probes: Board,
    /// Paths of collections that the server does not stream as lists.
    paged: Mutex<BTreeMap<String, Instant>>,
    #[cfg(feature = "metrics")]
    observed: crate::metrics::observed::Observed,
    // After the pool: what runs in it ends first.
    environment: SharedEnvironment,
}

impl Connection {
    /// The server that the kubeconfig or the cluster around this program names, as `kube` infers it.
    ///
    /// The kubeconfig is followed, as by [`from_loader`](Self::from_loader), in the context that is current now.
    ///
    /// # Errors
    ///
    /// No configuration is found, or it cannot be used.
    pub async fn infer() -> Result<Self, ConnectError> {
        let config = kube::Config::infer().await?;
        let context = Kubeconfig::read().ok().and_then(|kubeconfig| kubeconfig.current_context);
        let again = move || {
            // Another context may be another cluster, which a program that runs is not to wander to.
            let options = KubeConfigOptions { context: context.clone(), ..KubeConfigOptions::default() };
            async move {
                if options.context.is_none() {
                    return Ok::<_, ConnectError>(kube::Config::infer().await?);
                }
                let mut config = kube::Config::from_kubeconfig(&options).await?;
                config.apply_debug_overrides();
                Ok(config)
            }
        };
        Self::build_aside(Self::builder(config).loader(again)).await
    }

    /// The server of the configuration that `load` gives, now and whenever it may have changed.
    ///
    /// It is asked again every 5 minutes, and when the server refuses credentials or TLS fails; see
    /// [`ConnectionBuilder::loader`].
    ///
    /// # Errors
    ///
    /// What `load` says the first time, or its configuration cannot be used.
    pub async fn from_loader<F, R, E>(load: F) -> Result<Self, ConnectError>
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = Result<kube::Config, E>> + Send + 'static,
        E: Into<ConnectError>,
    {
        let config = load().await.map_err(Into::into)?;
        Self::build_aside(Self::builder(config).loader(load)).await
    }

    /// Builds where a credential plugin may take its time, which is not the caller's runtime's to lose.
    async fn build_aside(builder: ConnectionBuilder) -> Result<Self, ConnectError> {
        let environment = Arc::new(Threads::new().map_err(ConnectError::Threads)?);
        let (done, built) = oneshot::channel();
        let builder = builder.environment(environment.clone());
        environment.run_blocking(Box::new(move || drop(done.send(builder.build()))));
        built.await.unwrap_or_else(|_| Err(ConnectError::Credentials { detail: "the attempt was given up".into() }))
    }

    /// The server of `config`, in an environment of its own with default settings.
    ///
    /// A credential plugin that `config` names is run here, and waited for.
    ///
    /// # Errors
    ///
    /// `config` cannot be used: its URL, certificates or credentials.
    pub fn new(config: kube::Config) -> Result<Self, ConnectError> {
        Self::builder(config).build()
    }

    /// The server of `config`, with more to say about it.
    pub fn builder(config: kube::Config) -> ConnectionBuilder {
        ConnectionBuilder::new(config)
    }

    /// An ordinary client on these connections; it keeps them open as a clone of this would.
    pub fn client(&self) -> kube::Client {
        client::client(self)
    }

    /// Where time, threads, randomness and sockets come from.
    pub fn environment(&self) -> &SharedEnvironment {
        &self.inner.environment
    }

    /// The connections there are, oldest first.
    pub fn connections(&self) -> Vec<ConnectionReport> {
        self.inner.pool.connections()
    }

    /// Has every connection drained, as after a rotation of credentials: what runs on it may end, watches move to new ones
    /// without a doubt, and nothing else goes there.
    pub fn drain(&self) {
        self.inner.pool.drain();
    }

    /// The last 16 connections that have ended, the latest first, and why.
    pub fn recently_closed(&self) -> Vec<ClosedConnection> {
        self.inner.pool.recently_closed()
    }

    /// How many connections were ever dialled.
    pub fn opened(&self) -> u64 {
        self.inner.pool.opened()
    }

    /// Counts how often the server was found to answer after a failure, at most every 2 s.
    ///
    /// Whoever waits before trying again may try at each change: someone else has had an answer.
    pub fn reachability(&self) -> watch::Receiver<u64> {
        self.inner.pool.reachability()
    }

    /// The URL of the server, for messages.
    pub fn server(&self) -> &str {
        &self.inner.server
    }

    /// The namespace that the configuration names, else `default`.
    pub fn default_namespace(&self) -> &str {
        &self.inner.default_namespace
    }

    /// A place among the full transfers that the server is asked for at once, for the collection of this path.
    pub(crate) fn transfer(&self, path: &str) -> BoxFuture<'static, Place> {
        self.inner.places.wait(path)
    }

    /// A place among the full transfers if one is free now and nobody waits for it.
    pub(crate) fn spare_transfer(&self, path: &str) -> Option<Place> {
        self.inner.places.spare(path)
    }

    /// The probes that informers on this connection share.
    pub(crate) fn probes(&self) -> &Board {
        &self.inner.probes
    }

    /// Remembers that the resource, by its path in all namespaces, is to be listed in pages until then: its list was not
    /// streamed, and pages came (R3).
    pub(crate) fn remember_pages(&self, everywhere: &str, until: Instant) {
        self.inner.paged.lock().unwrap_or_else(PoisonError::into_inner).insert(everywhere.to_owned(), until);
    }

    /// Until when the resource, by its path in all namespaces, is to be listed in pages.
    pub(crate) fn remembers_pages(&self, everywhere: &str) -> Option<Instant> {
        let now = self.environment().now();
        let mut paged = self.inner.paged.lock().unwrap_or_else(PoisonError::into_inner);
        paged.retain(|_, until| *until > now);
        paged.get(everywhere).copied()
    }

    /// Sends `request`, a path and query, with the configuration's authentication and headers.
    ///
    /// Its extensions may hold [`Deadlines`](crate::transport::Deadlines) and a
    /// [`Placement`](crate::transport::Placement). Credentials that the server refuses (401) are renewed
    /// once where the configuration has a source for others, and the request is sent again; not below a subresource
    /// `proxy`, where they may be refused by what the server passes the request on to, after it has acted.
    ///
    /// # Errors
    ///
    /// No credentials could be had, or what the transport met.
    pub async fn send(&self, request: Request<Body>) -> Result<Response<ResponseBody>, SendError> {
        let inner = &*self.inner;
        let known = inner.keeper.generation();
        let passed_on = is_passed_on(request.uri().path());
        let spare = transport::copy(&request);
        let (answer, generation) = self.send_once(request).await?;
        let answer = match answer {
            Err(error @ TransportError::Tls { .. }) => {
                // No request has left yet, so that one may be sent by what the configuration says now.
                let Some(spare) = spare else { return Err(error.into()) };
                if !inner.keeper.refused(&self.inner, known).await {
                    return Err(error.into());
                }
                return Ok(self.send_once(spare).await?.0?);
            }
            answer => answer?,
        };
        let Some(spare) = spare.filter(|_| answer.status() == StatusCode::UNAUTHORIZED && !passed_on) else {
            return Ok(answer);
        };
        let renewed = inner.authorizer.renew(&self.inner, generation).await;
        let other = matches!(renewed, Ok(true)) && !inner.authorizer.has_none();
        if !other && !inner.keeper.refused(&self.inner, known).await {
            renewed?;
            inner.authorizer.complain();
            return Ok(answer);
        }
        drop(answer);
        let answer = self.send_once(spare).await?.0?;
        if answer.status() == StatusCode::UNAUTHORIZED {
            inner.authorizer.complain();
        }
        Ok(answer)
    }

    /// Sends `request` with the credentials and headers of now; says which generation of credentials that was.
    async fn send_once(
        &self,
        request: Request<Body>,
    ) -> Result<(Result<Response<ResponseBody>, TransportError>, u64), SendError> {
        let inner = &*self.inner;
        let mut request = inner.addressing.load().address(request);
        request.headers_mut().entry(USER_AGENT).or_insert_with(|| inner.agent.clone());
        let generation = inner.authorizer.authorize(&self.inner, request.headers_mut()).await?;
        Ok((inner.pool.send(request).await, generation))
    }
}

/// Whether the server passes a request for `path`, which names no server, on to something else: a node, a pod, a service,
/// another server. An object may be named `proxy`, or its type; only a subresource of that name counts.
fn is_passed_on(path: &str) -> bool {
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    // The version, and a group before it.
    let skipped = match segments.next() {
        Some("api") => 1,
        Some("apis") => 2,
        _ => return false,
    };
    let mut segments = segments.skip(skipped).peekable();
    let before = if segments.peek() == Some(&"namespaces") { 4 } else { 2 };
    segments.nth(before) == Some("proxy")
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("server", &self.server()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_a_subresource_and_no_name() {
        for path in [
            "/api/v1/nodes/one/proxy",
            "/api/v1/nodes/one/proxy/metrics",
            "/api/v1/namespaces/default/pods/one:8080/proxy/",
            "/api/v1/namespaces/default/services/https:one:web/proxy/orders/7",
            "/apis/cluster.example.com/v1/clusters/one/proxy/api/v1/pods",
        ] {
            assert!(is_passed_on(path), "{path}");
        }
        for path in [
            "/api/v1/namespaces/default/pods/proxy",
            "/api/v1/namespaces/proxy/pods/one",
            "/apis/apps/v1/namespaces/default/deployments/proxy/scale",
            "/apis/apps/v1/namespaces/proxy/deployments",
            "/apis/example.com/v1/proxy/one",
            "/api/v1/nodes/proxy",
            "/proxy/api",
            "/",
            "",
        ] {
            assert!(!is_passed_on(path), "{path}");
        }
    }
}
