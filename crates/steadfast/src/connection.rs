//! One Kubernetes API server: its connections, how to authenticate there, and an ordinary `kube::Client`.

mod addressing;
mod attempts;
mod auth;
mod builder;
mod client;
mod client_defaults;
mod config_reloader;
mod discreet;
mod error;
mod header;
mod identity;
mod kubeconfig;
mod liveness_probes;
mod normal;
#[cfg(feature = "metrics")]
mod observing;
mod patience;
mod plugin;
mod proxies;
mod reach;
mod remembered;
mod request_decorator;
mod tls;
mod transfer_limiter;
mod warnings;

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use kube::client::Body;
use steadfast_core::Instant;
use tokio::sync::watch;

use crate::environment::SharedEnvironment;
use crate::probes::Board;
use crate::transport::{self, ClosedConnection, ConnectionReport, Fence, Pool, ResponseBody, TransportError};
use crate::writes::recording::Recordings;
pub use builder::ConnectionBuilder;
use client_defaults::ClientDefaults;
use config_reloader::ConfigReloader;
pub use discreet::WithheldAnswer;
pub use error::{ConnectError, SendError};
pub use kubeconfig::{KubeconfigFiles, MergedKubeconfig};
#[cfg(feature = "metrics")]
pub(crate) use observing::WeakConnection;
use remembered::Remembered;
use request_decorator::RequestDecorator;
pub(crate) use transfer_limiter::Place;
use transfer_limiter::TransferLimiter;
pub use warnings::ServerWarning;
use warnings::Warnings;

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
    decorator: Arc<RequestDecorator>,
    reloader: Arc<ConfigReloader>,
    server: String,
    default_namespace: String,
    takes_gzip: bool,
    transfers: TransferLimiter,
    warnings: Arc<Warnings>,
    manners: ClientDefaults,
    probes: Board,
    /// What the server does not stream as lists.
    paged: Remembered,
    /// What cannot be read in protobuf.
    in_json: Remembered,
    /// The resources that are relisted in full: metadata alone are not to be had.
    in_full: Remembered,
    recordings: Arc<Recordings>,
    #[cfg(feature = "metrics")]
    observed: crate::metrics::observed::Observed,
    // After the pool: what runs in it ends first.
    environment: SharedEnvironment,
}

impl Connection {
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

    /// Another connection to the same server, with the same credentials, which sends nothing unless `fence` is open.
    ///
    /// It has sockets of its own, which are aborted with what is under way on them when the fence closes; see [`Fence`].
    #[must_use]
    pub fn behind(&self, fence: Fence) -> Self {
        let Inner { decorator, reloader, server, default_namespace, takes_gzip, manners, environment, .. } =
            &*self.inner;
        let pool = self.inner.pool.behind(fence);
        liveness_probes::begin(&pool, decorator, environment);
        let inner = Inner {
            pool,
            decorator: decorator.clone(),
            reloader: reloader.clone(),
            server: server.clone(),
            default_namespace: default_namespace.clone(),
            takes_gzip: *takes_gzip,
            transfers: self.inner.transfers.clone(),
            warnings: self.inner.warnings.clone(),
            manners: *manners,
            probes: Board::default(),
            paged: Remembered::default(),
            in_json: Remembered::default(),
            in_full: Remembered::default(),
            // Its writes are the connection's, for the caches to know.
            recordings: self.inner.recordings.clone(),
            #[cfg(feature = "metrics")]
            observed: crate::metrics::observed::Observed::default(),
            environment: environment.clone(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The URL of the server, for messages.
    pub fn server(&self) -> &str {
        &self.inner.server
    }

    /// The namespace that the configuration names, else `default`.
    pub fn default_namespace(&self) -> &str {
        &self.inner.default_namespace
    }

    /// Whether answers that are long may come compressed.
    pub(crate) fn takes_gzip(&self) -> bool {
        self.inner.takes_gzip
    }

    /// How many connections were ever dialled.
    pub(crate) fn dialled(&self) -> u64 {
        self.inner.pool.dialled()
    }

    /// Counts how often the server was found to answer after a failure, at most every 2 s.
    ///
    /// Whoever waits before trying again may try at each change: someone else has had an answer.
    pub(crate) fn reachability(&self) -> watch::Receiver<u64> {
        self.inner.pool.reachability()
    }

    /// A place among the full transfers that are requested of the server at once, for the collection of this path.
    pub(crate) fn transfer(&self, path: &str) -> BoxFuture<'static, Place> {
        self.inner.transfers.wait(path)
    }

    /// A place among the full transfers if one is free now and nobody waits for it.
    pub(crate) fn spare_transfer(&self, path: &str) -> Option<Place> {
        self.inner.transfers.spare(path)
    }

    /// The probes that informers on this connection share.
    pub(crate) fn probes(&self) -> &Board {
        &self.inner.probes
    }

    /// Remembers that the resource, by its path in all namespaces, is to be listed in pages until then: its list was not
    /// streamed, and pages came (R3).
    pub(crate) fn remember_pages(&self, everywhere: &str, until: Instant) {
        self.inner.paged.remember(everywhere, until);
    }

    /// Until when the resource, by its path in all namespaces, is to be listed in pages.
    pub(crate) fn remembers_pages(&self, everywhere: &str) -> Option<Instant> {
        self.inner.paged.until(everywhere, self.environment().now())
    }

    /// Remembers that the resource, by its path in all namespaces, is to be requested in JSON until then: in protobuf it
    /// could not be read.
    pub(crate) fn remember_json(&self, everywhere: &str, until: Instant) {
        self.inner.in_json.remember(everywhere, until);
    }

    /// Until when the resource, by its path in all namespaces, is to be requested in JSON.
    pub(crate) fn remembers_json(&self, everywhere: &str) -> Option<Instant> {
        self.inner.in_json.until(everywhere, self.environment().now())
    }

    /// Remembers that relists of the resource, by its path in all namespaces, are to be full until then: metadata alone are
    /// not to be had of it.
    pub(crate) fn remember_full(&self, everywhere: &str, until: Instant) {
        self.inner.in_full.remember(everywhere, until);
    }

    /// Until when relists of the resource, by its path in all namespaces, are to be full.
    pub(crate) fn remembers_full(&self, everywhere: &str) -> Option<Instant> {
        self.inner.in_full.until(everywhere, self.environment().now())
    }

    /// Who records the writes of its clients.
    pub(crate) fn recordings(&self) -> &Arc<Recordings> {
        &self.inner.recordings
    }

    /// Sends `request`, a path and query, with the configuration's authentication and headers.
    ///
    /// A request with an `Authorization` of its own keeps it, as in client-go, and is not sent again if the server rejects it.
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
        let authorizer = &inner.decorator.authorizer;
        let known = inner.reloader.generation();
        // The caller's own credentials cannot be renewed here.
        let fixed = is_passed_on(request.uri().path()) || auth::is_authorized(request.headers());
        let spare = transport::copy(&request);
        let (answer, generation) = self.send_once(request).await?;
        let answer = match answer {
            Err(error @ TransportError::Tls { .. }) => {
                // No request has left yet, so that one may be sent by what the configuration says now.
                let Some(spare) = spare else { return Err(error.into()) };
                if !inner.reloader.refused(known).await {
                    return Err(error.into());
                }
                return Ok(self.send_once(spare).await?.0?);
            }
            answer => answer?,
        };
        let Some(spare) = spare.filter(|_| answer.status() == StatusCode::UNAUTHORIZED && !fixed) else {
            return Ok(answer);
        };
        let renewed = authorizer.renew(generation).await;
        let other = matches!(renewed, Ok(true)) && !authorizer.has_none();
        if !other && !inner.reloader.refused(known).await {
            renewed?;
            authorizer.complain();
            return Ok(answer);
        }
        drop(answer);
        let answer = self.send_once(spare).await?.0?;
        if answer.status() == StatusCode::UNAUTHORIZED {
            authorizer.complain();
        }
        Ok(answer)
    }

    /// Sends `request` with the credentials and headers of now; says which generation of credentials that was.
    async fn send_once(
        &self,
        request: Request<Body>,
    ) -> Result<(Result<Response<ResponseBody>, TransportError>, u64), SendError> {
        let inner = &*self.inner;
        let mut request = inner.decorator.address(request);
        let generation = inner.decorator.authorize(request.headers_mut()).await?;
        let response = inner.pool.send(request).await;
        if let Ok(response) = &response {
            inner.warnings.report(response.headers(), self.environment());
        }
        Ok((response, generation))
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
