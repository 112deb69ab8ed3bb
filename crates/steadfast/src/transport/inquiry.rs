//! Whether the server behind a connection answers, where something on the way may answer pings in its place (R2a).
//!
//! When nothing has come of any watch of a connection for a while, the server is asked something small, on the same
//! connection, through all that is on the way. Any answer will do. A watch that waits for the head of its answer is as silent
//! as one that waits for events: silence says as little there. An HTTP/1.1 connection is occupied by its one watch, and
//! one of HTTP/2 may be full: then the question goes on another connection, once for all that are silent. That the server
//! answers there proves that it lives, and not that it would serve this watch; that it does not is a doubt all the same.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use h2::client::{ResponseFuture, SendRequest};
use http::{Request, Response, Version};
use kube::client::Body;
use steadfast_core::Instant;
use steadfast_core::breach::Breach;

use super::body::ResponseBody;
use super::connection::{Connection, Way};
use super::error::TransportError;
use super::purpose::Purpose;
use super::report::Protocol;
use super::settings::{Reader, Settings};
use crate::environment::SharedEnvironment;
use crate::metrics::traffic::{Code, Traffic};

/// Makes the question, as a request of the connection's owner; none once that is gone.
///
/// Where credentials are not there by the moment given, it goes without: a refusal is an answer too.
pub(crate) type Ask = Box<dyn Fn(Instant) -> BoxFuture<'static, Option<Request<Body>>> + Send + Sync>;

/// Sends a question on another connection, to be answered within that time; nothing once there is no pool.
pub(super) type SendAside = Box<dyn Fn(Request<Body>, Duration) -> BoxFuture<'static, Option<Answer>> + Send + Sync>;

type Answer = Result<Response<ResponseBody>, TransportError>;

/// How connections of one pool are asked, and what came of it on another connection than the one in question.
pub(super) struct Inquiries {
    means: OnceLock<(Ask, SendAside)>,
    traffic: Arc<Traffic>,
    aside: tokio::sync::Mutex<Option<(Instant, bool)>>,
}

impl Inquiries {
    /// Nothing is asked before it is known how.
    pub(super) fn new(traffic: Arc<Traffic>) -> Self {
        Self { means: OnceLock::new(), traffic, aside: tokio::sync::Mutex::default() }
    }

    /// Asks what `ask` makes from now on, by `send` where it is to go on another connection.
    pub(super) fn begin(&self, ask: Ask, send: SendAside) {
        drop(self.means.set((ask, send)));
    }

    /// What is asked, or nothing where nobody is left to ask.
    async fn question(&self, deadline: Instant) -> Option<Request<Body>> {
        let (ask, _) = self.means.get()?;
        ask(deadline).await
    }
}

/// How often it is looked whether the watches of a connection that does not answer have brought anything after all.
const LOOKING: Duration = Duration::from_secs(1);

/// Asks after each silence, and tells the watches of `connection` when there is no answer, and when there is one again.
pub(super) async fn inquire(
    connection: &Connection,
    inquiries: &Inquiries,
    environment: &SharedEnvironment,
    settings: &Settings,
) -> Infallible {
    let may_carry = connection.purpose == Purpose::INFORMERS_WATCHES
        || connection.purpose.reader == Reader::Informer && connection.protocol() == Some(Protocol::Http1);
    if !may_carry || settings.breaches.commit(Breach::Unpinged) {
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
                ask_here(connection, sender, inquiries, environment, deadline).await;
                (environment.now(), true)
            }
            Way::Aside => ask_aside(begun, inquiries, environment, settings).await,
            Way::Nowhere => (begun, true),
        };
        asked = then;
        connection.answers(answered || connection.answered() > begun);
    }
}

/// Asks on the connection itself, and has it in doubt from `deadline` until the answer comes, or anything of a watch. It is
/// of no use to ask again meanwhile.
async fn ask_here(
    connection: &Connection,
    mut sender: SendRequest<Bytes>,
    inquiries: &Inquiries,
    environment: &SharedEnvironment,
    deadline: Instant,
) {
    let begun = environment.now();
    let Some(request) = inquiries.question(begun + deadline.since(begun) / 4).await else { return };
    let (head, _) = request.into_parts();
    let mut bare = Request::from_parts(head, ());
    *bare.version_mut() = Version::HTTP_2;
    // What is wrong with the connection, or with the question, is not for this to tell.
    let Ok((answer, _)) = sender.send_request(bare, true) else { return };
    drop(sender);
    let answer = status_of(answer, environment);
    tokio::pin!(answer);
    let mut due = deadline;
    loop {
        tokio::select! {
            biased;
            code = &mut answer => {
                if let Some(code) = code {
                    inquiries.traffic.count("GET", Code::Status(code), environment.now().since(begun));
                }
                return;
            }
            () = environment.sleep_until(due) => {}
        }
        let now = environment.now();
        if now.since(due) > LOOKING {
            // This process was stopped; what has come meanwhile was not read yet.
            due = now + LOOKING;
            continue;
        }
        if connection.answered() > begun {
            return;
        }
        if due == deadline {
            inquiries.traffic.count("GET", Code::Error("headers_timeout"), now.since(begun));
        }
        connection.answers(false);
        due = now + LOOKING;
    }
}

/// The status of an answer, none where the stream ended before it.
async fn status_of(answer: ResponseFuture, environment: &SharedEnvironment) -> Option<u16> {
    let (head, mut body) = answer.await.ok()?.into_parts();
    // A health check's answer has two bytes, and is read so that the stream need not be reset.
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

/// Asks on another connection, or takes what came of it when it was asked there last, a short while before `now` or since;
/// tells when that was, and whether there was an answer.
async fn ask_aside(
    now: Instant,
    inquiries: &Inquiries,
    environment: &SharedEnvironment,
    settings: &Settings,
) -> (Instant, bool) {
    let Some((_, send)) = inquiries.means.get() else { return (now, true) };
    let mut last = inquiries.aside.lock().await;
    if let Some(told) = last.filter(|(then, _)| *then + settings.inquire_after > now) {
        return told;
    }
    let begun = environment.now();
    let limit = settings.inquire_timeout;
    let Some(request) = inquiries.question(begun + limit / 4).await else { return (begun, true) };
    let rest = limit.saturating_sub(environment.now().since(begun));
    let Some(answer) = send(request, rest).await else { return (begun, true) };
    inquiries.traffic.request("GET", &answer, environment.now().since(begun));
    // Whatever fails at once is told by those whom it fails; a silence is told by nobody.
    let silent = matches!(answer, Err(TransportError::HeadersTimeout { .. } | TransportError::ConnectTimeout { .. }));
    *last.insert((begun, !silent))
}
