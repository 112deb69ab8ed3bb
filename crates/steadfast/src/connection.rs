//! Access to one Kubernetes API server: connections, authentication, and an ordinary `kube::Client`.

mod addressing;
mod auth;
pub(crate) mod authorization_source;
mod builder;
mod busy_retry;
mod client;
mod client_defaults;
mod config_reloader;
mod error;
mod expiring_flags;
mod freeze_detector;
mod header;
mod identity;
mod kubeconfig;
mod layers;
mod liveness_probes;
pub(crate) mod normal;
mod plugin;
mod proxies;
mod request_decorator;
mod route;
mod secret_filter;
mod single_flight;
mod tls;
mod transfer_limiter;
mod warnings;
#[cfg(feature = "metrics")]
mod weak_connection;

use std::fmt;
use std::sync::{Arc, Weak};

use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use kube::client::Body;
use steadfast_core::Instant;
use tokio::sync::watch;
use tower::ServiceExt;

use crate::environment::SharedEnvironment;
use crate::probes::ProbeBoard;
use crate::transport::{
    self, ClosedConnection, ConnectionReport, Fence, Pool, ResponseBody, ResponseKind, TransportError,
};
use crate::writes::recording::Recordings;
pub use builder::ConnectionBuilder;
use client_defaults::ClientDefaults;
use config_reloader::ConfigReloader;
pub use error::{ConnectError, SendError};
use expiring_flags::ExpiringFlags;
use freeze_detector::FreezeDetector;
pub(crate) use freeze_detector::Freezes;
pub use kubeconfig::{KubeconfigFiles, MergedKubeconfig};
use layers::Layers;
pub use layers::RequestService;
use request_decorator::RequestDecorator;
pub(crate) use route::proxy_name;
pub use secret_filter::WithheldResponse;
use transfer_limiter::TransferLimiter;
pub(crate) use transfer_limiter::TransferSlot;
pub use warnings::ServerWarning;
use warnings::Warnings;
#[cfg(feature = "metrics")]
pub(crate) use weak_connection::WeakConnection;

/// Access to one API server: connection pool, credentials and limits. Cheap to clone.
///
/// A `Connection` dials when a request needs a socket, and keeps the sockets healthy. Dropping the last clone and the
/// last client closes all sockets and ends all tasks.
///
/// ```no_run
/// # use k8s_openapi::api::core::v1::Pod;
/// # use steadfast::kube::Api;
/// # use steadfast::{Connection, InformerFactory};
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// // The kubeconfig that kubectl reads, or the service account of the pod.
/// let connection = Connection::infer().await?;
/// // An ordinary client of kube on the same sockets, for writes.
/// let pods: Api<Pod> = Api::namespaced(connection.client(), connection.default_namespace());
/// let informers = InformerFactory::new(&connection);
/// # Ok(())
/// # }
/// ```
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
    client_defaults: ClientDefaults,
    probes: ProbeBoard,
    freeze_detector: FreezeDetector,
    /// Resources that the server does not list as a stream.
    paged_resources: ExpiringFlags,
    /// Resources with protobuf that failed to decode.
    json_resources: ExpiringFlags,
    /// Resources that the server does not serve as metadata only. Their relists are full.
    full_list_resources: ExpiringFlags,
    recordings: Arc<Recordings>,
    layers: Layers,
    /// Service with all layers; `None` without layers.
    layered_service: Option<RequestService>,
    observed: crate::metrics::observed::InformerRegistry,
    // Fields drop in this order: the pool must end its tasks before their environment ends.
    environment: SharedEnvironment,
}

impl Inner {
    /// Returns the service with all `layers` for the connection `weak_inner`; `None` without layers.
    fn layered_service(weak_inner: &Weak<Self>, layers: &Layers) -> Option<RequestService> {
        // A weak reference, because the connection owns the service.
        let weak_inner = weak_inner.clone();
        layers.service(move |request| {
            let inner = weak_inner.upgrade();
            async move {
                // The connection no longer exists only if a layer delays a request until the connection is dropped.
                let Some(inner) = inner else {
                    let detail = "the connection was dropped before the layer sent the request".to_owned();
                    return Err(SendError::Layer { detail, maybe_sent: false });
                };
                Connection { inner }.send_unlayered(request).await
            }
        })
    }
}

impl Connection {
    /// Returns the source of time, threads, randomness and sockets.
    pub fn environment(&self) -> &SharedEnvironment {
        &self.inner.environment
    }

    /// Returns reports on the open connections, oldest first.
    pub fn connections(&self) -> Vec<ConnectionReport> {
        self.inner.pool.connections()
    }

    /// Drains every connection, as after a rotation of credentials.
    ///
    /// Requests in flight may finish, watches move to new connections without a doubt, and new requests use new
    /// connections.
    pub fn drain(&self) {
        self.inner.pool.drain();
    }

    /// Returns the last 16 closed connections with their reasons, the latest first.
    pub fn recently_closed(&self) -> Vec<ClosedConnection> {
        self.inner.pool.recently_closed()
    }

    /// Returns another connection to this server with these credentials, which sends requests only while `fence` is
    /// open.
    ///
    /// The new connection uses separate sockets. A closing fence aborts them and their requests in flight; see
    /// [`Fence`].
    #[must_use]
    pub fn with_fence(&self, fence: Fence) -> Self {
        let Inner { decorator, reloader, server, default_namespace, takes_gzip, client_defaults, environment, .. } =
            &*self.inner;
        let pool = self.inner.pool.with_fence(fence);
        liveness_probes::start_probes(&pool, decorator, environment);
        let layers = self.inner.layers.clone();
        let inner = Arc::new_cyclic(|weak_inner| Inner {
            layered_service: Inner::layered_service(weak_inner, &layers),
            layers,
            pool,
            decorator: decorator.clone(),
            reloader: reloader.clone(),
            server: server.clone(),
            default_namespace: default_namespace.clone(),
            takes_gzip: *takes_gzip,
            transfers: self.inner.transfers.clone(),
            warnings: self.inner.warnings.clone(),
            client_defaults: *client_defaults,
            probes: ProbeBoard::default(),
            freeze_detector: FreezeDetector::default(),
            paged_resources: ExpiringFlags::default(),
            json_resources: ExpiringFlags::default(),
            full_list_resources: ExpiringFlags::default(),
            // Shared with the unfenced connection, whose caches must also wait for the writes of the fenced connection.
            recordings: self.inner.recordings.clone(),
            observed: crate::metrics::observed::InformerRegistry::default(),
            environment: environment.clone(),
        });
        Self { inner }
    }

    /// Returns the informers on this connection.
    pub(crate) fn observed(&self) -> &crate::metrics::observed::InformerRegistry {
        &self.inner.observed
    }

    /// Returns the URL of the server, for messages.
    pub fn server(&self) -> &str {
        &self.inner.server
    }

    /// Returns the namespace that the configuration names. Defaults to `default`.
    pub fn default_namespace(&self) -> &str {
        &self.inner.default_namespace
    }

    /// Returns true if requests accept gzip for long responses.
    pub(crate) fn takes_gzip(&self) -> bool {
        self.inner.takes_gzip
    }

    /// Returns the number of dials since the start.
    pub(crate) fn dial_count(&self) -> u64 {
        self.inner.pool.dial_count()
    }

    /// Returns a counter that grows when the server responds after a failure, at most every 2 s.
    ///
    /// A task in backoff may retry at each change, because another request received a response.
    pub(crate) fn reachability(&self) -> watch::Receiver<u64> {
        self.inner.pool.reachability()
    }

    /// Returns the freezes of the process from now on.
    pub(crate) fn freezes(&self) -> Freezes {
        self.inner.freeze_detector.subscribe(self.environment())
    }

    /// Waits for a slot for a full transfer of the collection at `path`.
    pub(crate) fn transfer(&self, path: &str) -> BoxFuture<'static, TransferSlot> {
        self.inner.transfers.wait(path)
    }

    /// Returns a slot for a full transfer of the collection at `path`, if a slot is free now. Also returns `None` if
    /// another transfer waits, unless the last transfer of its collection was silent.
    pub(crate) fn spare_transfer(&self, path: &str) -> Option<TransferSlot> {
        self.inner.transfers.try_acquire(path)
    }

    /// Returns the probes that informers on this connection share.
    pub(crate) fn probes(&self) -> &ProbeBoard {
        &self.inner.probes
    }

    /// Records that the resource must be listed in pages until `until`, because the server did not stream its list
    /// (R3).
    ///
    /// `all_namespaces_path` is the path of the resource in all namespaces.
    pub(crate) fn remember_pages(&self, all_namespaces_path: &str, until: Instant) {
        self.inner.paged_resources.remember(all_namespaces_path, until);
    }

    /// Returns the time until which the resource must be listed in pages. `all_namespaces_path` is its path in all
    /// namespaces.
    pub(crate) fn remembers_pages(&self, all_namespaces_path: &str) -> Option<Instant> {
        self.inner.paged_resources.expiry(all_namespaces_path, self.environment().now())
    }

    /// Records that the resource must be requested in JSON until `until`, because its protobuf failed to decode.
    ///
    /// `all_namespaces_path` is the path of the resource in all namespaces.
    pub(crate) fn remember_json(&self, all_namespaces_path: &str, until: Instant) {
        self.inner.json_resources.remember(all_namespaces_path, until);
    }

    /// Returns the time until which the resource must be requested in JSON. `all_namespaces_path` is its path in all
    /// namespaces.
    pub(crate) fn remembers_json(&self, all_namespaces_path: &str) -> Option<Instant> {
        self.inner.json_resources.expiry(all_namespaces_path, self.environment().now())
    }

    /// Records that relists must be full until `until`, because the server does not serve the resource's metadata
    /// alone.
    ///
    /// `all_namespaces_path` is the path of the resource in all namespaces.
    pub(crate) fn remember_full(&self, all_namespaces_path: &str, until: Instant) {
        self.inner.full_list_resources.remember(all_namespaces_path, until);
    }

    /// Returns the time until which relists of the resource must be full. `all_namespaces_path` is its path in all
    /// namespaces.
    pub(crate) fn remembers_full(&self, all_namespaces_path: &str) -> Option<Instant> {
        self.inner.full_list_resources.expiry(all_namespaces_path, self.environment().now())
    }

    /// Returns the recordings of the writes of this connection's clients.
    pub(crate) fn recordings(&self) -> &Arc<Recordings> {
        &self.inner.recordings
    }

    /// Sends `request`, a path and query, with the configuration's authentication and headers.
    ///
    /// As in client-go, the request's own `Authorization` replaces the configured credentials. Such a request is not
    /// sent again after a 401.
    ///
    /// The request's extensions may hold [`Deadlines`](crate::transport::Deadlines) and a
    /// [`Placement`](crate::transport::Placement). After a 401 the credentials are renewed once if the configuration
    /// has a source of new ones, and the request is sent again. Requests below a subresource `proxy` are not sent
    /// again: the 401 may come from the proxied server, after it has acted.
    ///
    /// The [layers](ConnectionBuilder::layer) of the connection see the request once, and the final response.
    ///
    /// # Errors
    ///
    /// Returns an error if no credentials are available, if the transport fails, or if a layer fails.
    pub async fn send(&self, request: Request<Body>) -> Result<Response<ResponseBody>, SendError> {
        match &self.inner.layered_service {
            None => self.send_unlayered(request).await,
            Some(service) => service.clone().oneshot(request).await,
        }
    }

    /// Sends `request` as [`send`](Self::send) does, without the layers.
    async fn send_unlayered(&self, request: Request<Body>) -> Result<Response<ResponseBody>, SendError> {
        let inner = &*self.inner;
        let authorizer = &inner.decorator.authorizer;
        let config_generation = inner.reloader.generation();
        // The caller's own credentials cannot be renewed here.
        let has_own_credentials = transport::is_proxied(request.uri().path()) || auth::is_authorized(request.headers());
        let request_copy = transport::copy_request(&request);
        let (response, generation) = self.send_once(request).await?;
        let response = match response {
            Err(error @ TransportError::Tls { .. }) => {
                // The handshake failed before any request was sent, so a retry is safe even for a write. Reloaded
                // certificates may fix the handshake.
                let Some(request_copy) = request_copy else { return Err(error.into()) };
                if !inner.reloader.recheck_after_rejection(config_generation).await {
                    return Err(error.into());
                }
                return Ok(self.send_once(request_copy).await?.0?);
            }
            response => response?,
        };
        let Some(request_copy) =
            request_copy.filter(|_| response.status() == StatusCode::UNAUTHORIZED && !has_own_credentials)
        else {
            return Ok(response);
        };
        let renewed = authorizer.renew(generation).await;
        // Without an `Authorization` value the server rejected the client certificate, and a renewal changes nothing.
        let has_new_credentials = matches!(renewed, Ok(true)) && !authorizer.sends_no_authorization();
        if !has_new_credentials && !inner.reloader.recheck_after_rejection(config_generation).await {
            renewed?;
            authorizer.warn_of_rejection();
            return Ok(response);
        }
        // Frees the stream of the 401 before the retry needs one.
        drop(response);
        let response = self.send_once(request_copy).await?.0?;
        if response.status() == StatusCode::UNAUTHORIZED {
            authorizer.warn_of_rejection();
        }
        Ok(response)
    }

    /// Sends `request` with the current credentials and headers. Returns the generation of the credentials as well.
    async fn send_once(
        &self,
        request: Request<Body>,
    ) -> Result<(Result<Response<ResponseBody>, TransportError>, u64), SendError> {
        let inner = &*self.inner;
        let kind = ResponseKind::of(request.uri());
        let mut request = inner.decorator.address(request);
        request.extensions_mut().insert(kind);
        let generation = inner.decorator.authorize(request.headers_mut()).await?;
        let response = inner.pool.send(request).await;
        if let Ok(response) = &response {
            inner.warnings.report(response.headers(), self.environment());
        }
        Ok((response, generation))
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("server", &self.server()).finish_non_exhaustive()
    }
}
