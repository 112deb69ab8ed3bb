//! Liveness probes of the server behind a connection, for networks in which a proxy acknowledges pings (R2a).
//!
//! If no watch of a connection has received data for a while, a small request is sent over the same connection, through
//! all proxies. Any response is sufficient. A pending watch is as silent as an established one, so silence proves
//! nothing in either case. An HTTP/1.1 connection is occupied by its watch, and an HTTP/2 connection may be full. The
//! probe then uses another connection, once for all silent connections. A response on the other connection proves that
//! the server is alive, but not that the server serves this watch. A missing response nevertheless causes a doubt.

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
use super::connection::{Connection, Way};
use super::error::TransportError;
use super::purpose::Purpose;
use super::report::Protocol;
use super::settings::{Reader, Settings};
use crate::environment::SharedEnvironment;
use crate::metrics::traffic::{Code, Traffic};

/// Creates the probe request for the connection's owner, or `None` after the owner was dropped.
///
/// If credentials are not available by the given time, the request is sent without credentials: an error response is
/// sufficient.
pub(crate) type Ask = Box<dyn Fn(Instant) -> BoxFuture<'static, Option<Request<Body>>> + Send + Sync>;

/// Sends a probe on another connection with this timeout. Returns `None` after the pool was dropped.
pub(super) type SendAside = Box<dyn Fn(Request<Body>, Duration) -> BoxFuture<'static, Option<Answer>> + Send + Sync>;

type Answer = Result<Response<ResponseBody>, TransportError>;

/// Probe settings of a pool, and the result of the last probe on another connection.
pub(super) struct LivenessProbes {
    means: OnceLock<(Ask, SendAside)>,
    traffic: Arc<Traffic>,
    aside: tokio::sync::Mutex<Option<(Instant, bool)>>,
}

impl LivenessProbes {
    /// Creates the state without a probe request; nothing is probed yet.
    pub(super) fn new(traffic: Arc<Traffic>) -> Self {
        Self { means: OnceLock::new(), traffic, aside: tokio::sync::Mutex::default() }
    }

    /// Starts probes with requests of `ask`, sent by `send` if another connection is needed.
    pub(super) fn begin(&self, ask: Ask, send: SendAside) {
        drop(self.means.set((ask, send)));
    }

    /// Returns the probe request, or `None` without an owner.
    async fn question(&self, deadline: Instant) -> Option<Request<Body>> {
        let (ask, _) = self.means.get()?;
        ask(deadline).await
    }
}

/// Interval of checks for watch data on an unresponsive connection.
const LOOKING: Duration = Duration::from_secs(1);

/// Probes after each silence, and notifies the watches of `connection` if the server stops or resumes responding.
pub(super) async fn probe_while_silent(
    connection: &Connection,
    liveness_probes: &LivenessProbes,
    environment: &SharedEnvironment,
    settings: &Settings,
) -> Infallible {
    let may_carry = connection.purpose == Purpose::INFORMERS_WATCHES
        || connection.purpose.reader == Reader::Informer && connection.protocol() == Some(Protocol::Http1);
    if !may_carry || inject!(settings.faults, Unpinged) {
        return std::future::pending().await;
    }
    let mut asked = connection.opened;
    loop {
        let now = environment.now();
        let due = connection.silent_since().map(|since| since.max(asked) + settings.inquire_after);
        if let Some(wait) = due.map_or(Some(now + LOOKING), |due| (now < due).then_some(due)) {
            environment.sleep_until(wait).await;
            continue;
        }
        let begun = environment.now();
        let (then, answered) = match connection.way_to_ask() {
            Way::Here(sender) => {
                let deadline = begun + settings.inquire_timeout;
                ask_here(connection, sender, liveness_probes, environment, deadline).await;
                (environment.now(), true)
            }
            Way::Aside => ask_aside(begun, liveness_probes, environment, settings).await,
            Way::Nowhere => (begun, true),
        };
        asked = then;
        // Watch data that arrived during the probe proves more than the probe.
        connection.answers(answered || connection.answered() > begun);
    }
}

/// Probes on the connection itself. From `deadline` the connection is in doubt, until a response or watch data arrives.
/// A second probe in that time would prove nothing.
async fn ask_here(
    connection: &Connection,
    mut sender: SendRequest<Bytes>,
    liveness_probes: &LivenessProbes,
    environment: &SharedEnvironment,
    deadline: Instant,
) {
    let begun = environment.now();
    let Some(request) = liveness_probes.question(begun + deadline.since(begun) / 4).await else { return };
    let (head, _) = request.into_parts();
    let mut bare = Request::from_parts(head, ());
    *bare.version_mut() = Version::HTTP_2;
    // Errors of the connection or the probe are reported elsewhere.
    let Ok((answer, _)) = sender.send_request(bare, true) else { return };
    // A held sender would keep a draining connection open.
    drop(sender);
    let answer = status_of(answer, environment);
    tokio::pin!(answer);
    let mut due = deadline;
    loop {
        tokio::select! {
            biased;
            code = &mut answer => {
                if let Some(code) = code {
                    liveness_probes.traffic.count("GET", Code::Status(code), environment.now().since(begun));
                }
                return;
            }
            () = environment.sleep_until(due) => {}
        }
        let now = environment.now();
        if now.since(due) > LOOKING {
            // The process was suspended, and data that arrived in that time was not read yet.
            due = now + LOOKING;
            continue;
        }
        if connection.answered() > begun {
            return;
        }
        if due == deadline {
            liveness_probes.traffic.count("GET", Code::Error("headers_timeout"), now.since(begun));
        }
        // The loop continues: a late response, or watch data, ends the doubt.
        connection.answers(false);
        due = now + LOOKING;
    }
}

/// Returns the status of a response, or `None` if the stream ended before it.
async fn status_of(answer: ResponseFuture, environment: &SharedEnvironment) -> Option<u16> {
    let (head, mut body) = answer.await.ok()?.into_parts();
    // The body of a health check has two bytes. Reading it avoids a reset of the stream.
    let read = async {
        while let Some(Ok(data)) = body.data().await {
            drop(body.flow_control().release_capacity(data.len()));
        }
    };
    tokio::select! {
        biased;
        () = read => {}
        () = environment.sleep_until(environment.now() + LOOKING) => {}
    }
    Some(head.status.as_u16())
}

/// Probes on another connection, or reuses a probe that was sent shortly before `now` or later. Returns the time of the
/// probe and its success.
async fn ask_aside(
    now: Instant,
    liveness_probes: &LivenessProbes,
    environment: &SharedEnvironment,
    settings: &Settings,
) -> (Instant, bool) {
    let Some((_, send)) = liveness_probes.means.get() else { return (now, true) };
    // Held across the probe: all silent connections wait for one probe instead of sending one each.
    let mut last = liveness_probes.aside.lock().await;
    if let Some(result) = last.filter(|(then, _)| *then + settings.inquire_after > now) {
        return result;
    }
    let begun = environment.now();
    let limit = settings.inquire_timeout;
    let Some(request) = liveness_probes.question(begun + limit / 4).await else { return (begun, true) };
    let rest = limit.saturating_sub(environment.now().since(begun));
    let Some(answer) = send(request, rest).await else { return (begun, true) };
    liveness_probes.traffic.request("GET", &answer, environment.now().since(begun));
    // Only a timeout counts as silence. The affected requests report an immediate failure.
    let silent = matches!(answer, Err(TransportError::HeadersTimeout { .. } | TransportError::ConnectTimeout { .. }));
    *last.insert((begun, !silent))
}
