//! Dispatch of one request, from its deadlines to the response head.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Method, Request, Response};
use kube::client::Body;

use super::body::ResponseBody;
use super::connection::RequestSender;
use super::connection_event::ResponsivenessWatch;
use super::connection_runtime::ConnectionRuntime;
use super::error::TransportError;
use super::failure::{Failure, RetrySafety};
use super::liveness_probes::MakeProbeRequest;
use super::placement_request::PlacementRequest;
use super::pool::Pool;
use super::purpose::{Purpose, Role};
use super::response_kind::ResponseKind;
use super::settings::{CarryingConnection, Deadlines, Placement, Reader};
use super::state::ConnectionState;
use super::{deadline, http1, http2, upgrade};
use crate::metrics::pool_counters::verb;

/// Maximum number of attempts on different connections for a request that no server has processed.
const MAX_ATTEMPTS: u32 = 4;

impl Pool {
    /// Sends `request`, whose URI names the server, and waits for the response head.
    ///
    /// The request's extensions may contain [`Deadlines`], a [`Placement`] and a [`ResponseKind`].
    ///
    /// # Errors
    ///
    /// Returns an error if no connection is available, if the response times out, or if the connection is lost. A
    /// request is retried only if the server has certainly not executed it, or if it is a read and its reused
    /// connection ended before the response.
    pub(crate) async fn send(&self, request: Request<Body>) -> Result<Response<ResponseBody>, TransportError> {
        let settings = &self.inner.settings;
        let kind = request.extensions().get().copied().unwrap_or_else(|| ResponseKind::of(request.uri()));
        let is_read = is_safe(request.method()) && !upgrade::is_upgrade(&request);
        // While the fence is open, reads are not tracked: only a write can take effect after the end of the leadership.
        let in_flight = match &self.inner.fence {
            Some(fence) if fence.is_open() && is_read => None,
            Some(fence) => Some(fence.begin_request().ok_or_else(|| self.inner.closed_error())?),
            None => None,
        };
        let deadlines = request.extensions().get().copied().unwrap_or(Deadlines {
            headers: None,
            progress: (!kind.may_be_silent).then_some(settings.progress_timeout),
        });
        let placement = request.extensions().get().copied().unwrap_or_default();
        let role = if kind.is_watch { Role::Watches } else { Role::Requests };
        let reader = request.extensions().get().copied().unwrap_or_default();
        let placement_request = PlacementRequest::new(Purpose { role, reader }, placement);
        let limit = deadlines.headers.unwrap_or(settings.headers_timeout);
        let (verb, started_at) = (verb(request.method(), kind.is_watch), self.inner.environment.now());
        let response = if upgrade::is_upgrade(&request) {
            self.upgrade(request, limit).await
        } else {
            self.attempts(request, placement_request, limit, kind.may_start_late && deadlines.headers.is_none()).await
        };
        if let Some(in_flight) = in_flight.filter(|_| is_settled(&response)) {
            in_flight.settle();
        }
        self.inner.traffic.request(verb, &response, self.inner.environment.now().since(started_at));
        let mut response = response?;
        response.body_mut().limit_progress(deadlines.progress);
        // Any status counts: an overloaded server that responds is reachable.
        self.inner.record_response();
        Ok(response)
    }

    /// Sets the request for liveness probes of connections with silent watches.
    pub(crate) fn enable_liveness_probes(&self, make_request: MakeProbeRequest) {
        let pool = Arc::downgrade(&self.inner);
        let send = move |request: Request<Body>, limit: Duration| -> BoxFuture<'static, _> {
            let pool = pool.clone();
            Box::pin(async move {
                let inner = pool.upgrade()?;
                let placement_request =
                    PlacementRequest::new(Purpose { role: Role::Requests, reader: Reader::Informer }, Placement::Any);
                Some(Self { inner }.attempts(request, placement_request, limit, false).await)
            })
        };
        self.inner.liveness_probes.start(make_request, Box::new(send));
    }

    async fn attempts(
        &self,
        request: Request<Body>,
        placement_request: PlacementRequest,
        limit: Duration,
        may_start_late: bool,
    ) -> Result<Response<ResponseBody>, TransportError> {
        let environment = &self.inner.environment;
        let started_at = environment.now();
        // One deadline for all attempts, including the wait for a connection with a free stream.
        let mut deadline = pin!(deadline::reached(environment, started_at + limit));
        let is_safe_method = is_safe(request.method());
        let carrier = request.extensions().get::<CarryingConnection>().copied();
        let responsiveness_watch = request.extensions().get::<ResponsivenessWatch>().cloned();
        let runtime = request.extensions().get::<ConnectionRuntime>().cloned().unwrap_or_default();
        let mut next_request = Some(request);
        let mut attempt = 0;
        let mut avoided = Vec::new();
        loop {
            let Some(request) = next_request.take() else { unreachable!("each further attempt has a request") };
            attempt += 1;
            // Copied before the attempt, which consumes the request. A streamed body cannot be copied, so such a
            // request is not retried.
            let request_copy = copy_request(&request);
            let (stream_slot, sender) = tokio::select! {
                biased;
                assignment = async {
                    match carrier {
                        Some(carrier) => self.acquire_slot_on(carrier, placement_request.purpose()),
                        None => self.acquire_slot(placement_request, &runtime, &avoided).await,
                    }
                } => assignment?,
                () = &mut deadline => return Err(self.busy_error(placement_request.purpose(), &runtime, limit)),
            };
            let connection = stream_slot.connection.clone();
            // If the byte count is unchanged at the deadline, the server has not seen the request.
            let sent_before = connection.traffic.sent();
            let is_exclusive = matches!(sender, RequestSender::Http1(_));
            let forwarding = async {
                match &responsiveness_watch {
                    Some(responsiveness_watch) => responsiveness_watch.follow(&connection).await,
                    None => std::future::pending().await,
                }
            };
            let sent = async {
                // Tasks of the request belong to the connection's runtime.
                let environment = &connection.environment;
                match sender {
                    RequestSender::Http2(sender) => http2::send(sender, stream_slot, environment, request).await,
                    RequestSender::Http1(sender) => http1::send(sender, stream_slot, environment, request).await,
                }
            };
            let Failure { error, retry_safety } = tokio::select! {
                biased;
                sent = sent => match sent {
                    Ok(mut response) => {
                        response.extensions_mut().insert(CarryingConnection(connection.id));
                        connection.record_response();
                        return Ok(response);
                    }
                    Err(failure) => failure,
                },
                () = &mut deadline, if !may_start_late => {
                    // On HTTP/2 the request may still be written, because the connection serves others.
                    let maybe_sent = !(is_exclusive && connection.traffic.seal_at(sent_before));
                    return Err(TransportError::HeadersTimeout { peer: connection.peer(), waited: limit, maybe_sent });
                }
                never = forwarding => match never {},
            };
            if matches!(error, TransportError::Tls { .. }) {
                // A server that rejects the client would also reject it on another connection.
                return Err(error);
            }
            if attempt == MAX_ATTEMPTS && matches!(retry_safety, RetrySafety::Safe | RetrySafety::Unsent) {
                return Err(error.refused(self.server(), attempt));
            }
            let may_retry = match retry_safety {
                RetrySafety::Safe => true,
                // A server that closes each new connection needs backoff. Otherwise, each request would open several.
                // The number of requests proves nothing: the first requests of an HTTP/2 connection run concurrently.
                RetrySafety::Unsent => connection.has_responded() || connection.was_open_before(started_at),
                // A server may close an idle connection just as a request is sent. Only this race is retried.
                RetrySafety::BeforeHead => is_safe_method && attempt < MAX_ATTEMPTS && connection.has_responded(),
                RetrySafety::Never => false,
            };
            next_request = request_copy.filter(|_| may_retry);
            if next_request.is_none() {
                return Err(error);
            }
            tracing::debug!(connection = connection.id, attempt, %error, "moved to another connection");
            // A connection that is shutting down may reject again before the pool records the shutdown.
            avoided.push(connection.id);
        }
    }

    fn busy_error(&self, purpose: Purpose, runtime: &ConnectionRuntime, waited: Duration) -> TransportError {
        let connections = self.connections();
        let busy: usize = connections.iter().map(|connection| connection.streams).sum();
        let opening = connections.iter().filter(|connection| connection.state == ConnectionState::Connecting).count();
        let detail = match (opening, self.inner.without_streams()) {
            (0, 0) => format!("{} connections carry {busy} requests", connections.len()),
            (0, without_streams) => {
                format!(
                    "on {without_streams} of {} connections the server currently accepts no requests",
                    connections.len()
                )
            }
            (opening, _) => format!("{opening} of {} are still being opened", connections.len()),
        };
        // Only a long dial for this purpose shows that the server does not respond: a more recent dial may still
        // complete, and other purposes have their own connections.
        let is_opening = self.inner.is_dial_hanging(runtime, purpose, waited / 2);
        TransportError::Busy { peer: self.server(), detail, is_opening, waited }
    }
}

/// Returns true if the method changes nothing on the server.
fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Returns true if the server has finished with the request of this response. After an error the server may continue,
/// for example with an etcd write that timed out.
fn is_settled(response: &Result<Response<ResponseBody>, TransportError>) -> bool {
    match response {
        Ok(response) => !response.status().is_server_error(),
        Err(error) => !error.maybe_sent(),
    }
}

/// Clones the request, if its body can be cloned.
pub(crate) fn copy_request(request: &Request<Body>) -> Option<Request<Body>> {
    let body = request.body().try_clone()?;
    let mut copy = Request::new(body);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    Some(copy)
}

impl tower::Service<Request<Body>> for Pool {
    type Response = Response<ResponseBody>;
    type Error = TransportError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let pool = self.clone();
        Box::pin(async move { pool.send(request).await })
    }
}
