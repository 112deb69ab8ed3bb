//! Liveness probes of the server behind a connection, for networks in which a proxy acknowledges pings (R2a).
//!
//! If no watch of a connection has received data for a while, a small request is sent over the same connection, through
//! all proxies. Any response is sufficient. A watch that waits for its response head is probed too. Without data,
//! neither such a watch nor an open watch shows whether the server is frozen.
//!
//! An HTTP/1.1 connection is occupied by its watch, and an HTTP/2 connection may be full. The probe then uses another
//! connection, once for all silent connections. A response on the other connection proves that the server is alive, but
//! not that the server serves this watch. If no response arrives there, the watch is in doubt all the same.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use h2::client::{ResponseFuture, SendRequest};
use http::{Request, Response, Version};
use kube::client::Body;
use steadfast_core::Instant;
use steadfast_core::fault_injection::inject;

use super::body::ResponseBody;
use super::connection::{ProbePath, TransportConnection};
use super::error::TransportError;
use super::purpose::Purpose;
use super::report::Protocol;
use super::settings::{Reader, Settings};
use crate::environment::SharedEnvironment;
use crate::metrics::pool_counters::{Code, PoolCounters};

/// Function of the connection's owner that creates the probe request. Returns `None` after the owner was dropped.
///
/// If credentials are not available by the given time, the request is sent without credentials: an error response is
/// sufficient.
pub(crate) type MakeProbeRequest = Box<dyn Fn(Instant) -> BoxFuture<'static, Option<Request<Body>>> + Send + Sync>;

/// Function that sends a probe on another connection with this timeout. Returns `None` after the pool was dropped.
pub(super) type SendOnAnotherConnection =
    Box<dyn Fn(Request<Body>, Duration) -> BoxFuture<'static, Option<ProbeResult>> + Send + Sync>;

type ProbeResult = Result<Response<ResponseBody>, TransportError>;

/// Probe functions of a pool, and the result of the last probe on another connection.
pub(super) struct LivenessProbes {
    probe_functions: OnceLock<(MakeProbeRequest, SendOnAnotherConnection)>,
    counters: Arc<PoolCounters>,
    other_connection: tokio::sync::Mutex<Option<(Instant, bool)>>,
}

impl LivenessProbes {
    /// Creates the state without a probe request; nothing is probed yet.
    pub(super) fn new(counters: Arc<PoolCounters>) -> Self {
        Self { probe_functions: OnceLock::new(), counters, other_connection: tokio::sync::Mutex::default() }
    }

    /// Starts probes with requests of `make_request`, sent by `send` if another connection is needed.
    pub(super) fn start(&self, make_request: MakeProbeRequest, send: SendOnAnotherConnection) {
        drop(self.probe_functions.set((make_request, send)));
    }

    /// Returns the probe request, or `None` without an owner.
    async fn probe_request(&self, deadline: Instant) -> Option<Request<Body>> {
        let (make_request, _) = self.probe_functions.get()?;
        make_request(deadline).await
    }
}

/// Interval of checks for silent watches, and for watch data on an unresponsive connection.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Probes after each silence, and notifies the watches of `connection` if the server stops or resumes responding.
pub(super) async fn probe_while_silent(
    connection: &TransportConnection,
    liveness_probes: &LivenessProbes,
    environment: &SharedEnvironment,
    settings: &Settings,
) -> Infallible {
    let can_have_watches = connection.purpose == Purpose::INFORMERS_WATCHES
        || connection.purpose.reader == Reader::Informer && connection.protocol() == Some(Protocol::Http1);
    if !can_have_watches || inject!(settings.faults, Unpinged) {
        return std::future::pending().await;
    }
    let mut probed_at = connection.dialled_at;
    loop {
        let now = environment.now();
        let due = connection.silent_since().map(|since| since.max(probed_at) + settings.probe_after);
        if let Some(wait) = due.map_or(Some(now + CHECK_INTERVAL), |due| (now < due).then_some(due)) {
            environment.sleep_until(wait).await;
            continue;
        }
        let started_at = environment.now();
        let (probe_time, responsive) = match connection.probe_path() {
            ProbePath::SameConnection(sender) => {
                let deadline = started_at + settings.probe_timeout;
                probe_on_connection(connection, sender, liveness_probes, environment, deadline).await;
                (environment.now(), true)
            }
            ProbePath::OtherConnection => {
                probe_on_other_connection(started_at, liveness_probes, environment, settings).await
            }
            ProbePath::None => (started_at, true),
        };
        probed_at = probe_time;
        // Watch data that arrived during the probe proves more than the probe.
        connection.set_responsive(responsive || connection.last_response() > started_at);
    }
}

/// Probes on the connection itself. From `deadline` the connection is in doubt, until a response or watch data arrives.
/// A second probe in that time would prove nothing.
async fn probe_on_connection(
    connection: &TransportConnection,
    mut sender: SendRequest<Bytes>,
    liveness_probes: &LivenessProbes,
    environment: &SharedEnvironment,
    deadline: Instant,
) {
    let started_at = environment.now();
    let Some(request) = liveness_probes.probe_request(started_at + deadline.since(started_at) / 4).await else {
        return;
    };
    let (head, _) = request.into_parts();
    let mut request = Request::from_parts(head, ());
    *request.version_mut() = Version::HTTP_2;
    // A failed send is not a silent server. The connection's own task reports its failure to the watches.
    let Ok((response, _)) = sender.send_request(request, true) else { return };
    // A held sender would keep a draining connection open.
    drop(sender);
    let response = status_of(response, environment);
    tokio::pin!(response);
    let mut due = deadline;
    loop {
        tokio::select! {
            biased;
            code = &mut response => {
                if let Some(code) = code {
                    liveness_probes.counters.count("GET", Code::Status(code), environment.now().since(started_at));
                }
                return;
            }
            () = environment.sleep_until(due) => {}
        }
        let now = environment.now();
        if now.since(due) > CHECK_INTERVAL {
            // The process was suspended, and data that arrived in that time was not read yet.
            due = now + CHECK_INTERVAL;
            continue;
        }
        if connection.last_response() > started_at {
            return;
        }
        if due == deadline {
            liveness_probes.counters.count("GET", Code::Error("headers_timeout"), now.since(started_at));
        }
        // The loop continues: a late response, or watch data, ends the doubt.
        connection.set_responsive(false);
        due = now + CHECK_INTERVAL;
    }
}

/// Returns the status of a response, or `None` if the stream ended before it.
async fn status_of(response: ResponseFuture, environment: &SharedEnvironment) -> Option<u16> {
    let (head, mut body) = response.await.ok()?.into_parts();
    // The body of a health check has two bytes. Reading it avoids a reset of the stream.
    let read = async {
        while let Some(Ok(data)) = body.data().await {
            drop(body.flow_control().release_capacity(data.len()));
        }
    };
    tokio::select! {
        biased;
        () = read => {}
        () = environment.sleep_until(environment.now() + CHECK_INTERVAL) => {}
    }
    Some(head.status.as_u16())
}

/// Probes on another connection. Returns the time of the probe and its success.
///
/// The last such probe is reused if it was sent less than `probe_after` before `now`, or after `now` while this call
/// waited for it.
async fn probe_on_other_connection(
    now: Instant,
    liveness_probes: &LivenessProbes,
    environment: &SharedEnvironment,
    settings: &Settings,
) -> (Instant, bool) {
    let Some((_, send)) = liveness_probes.probe_functions.get() else { return (now, true) };
    // Held across the probe: all silent connections wait for one probe instead of sending one each.
    let mut last = liveness_probes.other_connection.lock().await;
    if let Some(result) = last.filter(|(probed_at, _)| *probed_at + settings.probe_after > now) {
        return result;
    }
    let started_at = environment.now();
    let limit = settings.probe_timeout;
    let Some(request) = liveness_probes.probe_request(started_at + limit / 4).await else { return (started_at, true) };
    let remaining = limit.saturating_sub(environment.now().since(started_at));
    let Some(response) = send(request, remaining).await else { return (started_at, true) };
    liveness_probes.counters.request("GET", &response, environment.now().since(started_at));
    // Only a timeout counts as silence, including the timeout of a connection that is opened for the probe. Any other
    // failure is immediate, and the requests that it affects report it themselves.
    let silent = matches!(
        response,
        Err(TransportError::HeadersTimeout { .. }
            | TransportError::ConnectTimeout { .. }
            | TransportError::Busy { is_opening: true, .. })
    );
    *last.insert((started_at, !silent))
}
