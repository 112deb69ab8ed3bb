//! The counters of one server's connections.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Method, Response};

use crate::transport::TransportError;

/// The upper bounds of the buckets of latencies, in seconds: those of client-go's `rest_client_request_duration_seconds`.
pub(crate) const LATENCIES: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];

/// What was counted of a pool's requests and of its connections that are gone.
///
/// A lock, for each is taken once for a request or for a connection's end, never for an event.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    totals: Mutex<Totals>,
}

/// What [`Traffic`] holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    /// By verb and by the status or the error.
    pub(crate) requests: BTreeMap<(&'static str, Code), u64>,
    /// By verb, until the head of the answer.
    pub(crate) latencies: BTreeMap<&'static str, Latencies>,
    /// Connections that never came to be, by cause.
    pub(crate) failed_dials: BTreeMap<&'static str, u64>,
    /// Connections that were and are gone, by cause.
    pub(crate) closed: BTreeMap<&'static str, u64>,
    /// Bytes received by connections that are gone.
    pub(crate) received: u64,
    /// Bytes sent by connections that are gone.
    pub(crate) sent: u64,
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Code {
    /// An answer.
    Status(u16),
    /// None.
    Error(&'static str),
}

/// How long requests waited for the head of an answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latencies {
    /// By [`LATENCIES`], each in the first that it fits, and those above all of them.
    pub(crate) counts: [u64; LATENCIES.len() + 1],
    /// In seconds.
    pub(crate) sum: f64,
}

impl Traffic {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Totals> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request was answered, or was not.
    pub(crate) fn request<B>(&self, verb: &'static str, answer: &Result<Response<B>, TransportError>, took: Duration) {
        let code = match answer {
            Ok(answer) => Code::Status(answer.status().as_u16()),
            Err(error) => Code::Error(error_name(error)),
        };
        self.count(verb, code, took);
    }

    /// A request of a verb came to this.
    pub(crate) fn count(&self, verb: &'static str, code: Code, took: Duration) {
        let seconds = took.as_secs_f64();
        let mut totals = self.lock();
        *totals.requests.entry((verb, code)).or_default() += 1;
        let latencies = totals.latencies.entry(verb).or_default();
        let place = LATENCIES.iter().position(|bound| seconds <= *bound).unwrap_or(LATENCIES.len());
        latencies.counts[place] += 1;
        latencies.sum += seconds;
    }

    /// A connection is gone: `why` it ended, or the error because of which it never came to be.
    pub(crate) fn gone(&self, why: &'static str, error: Option<&TransportError>, received: u64, sent: u64) {
        let mut totals = self.lock();
        let count = match error {
            Some(error) => totals.failed_dials.entry(error_name(error)),
            None => totals.closed.entry(why),
        };
        *count.or_default() += 1;
        totals.received += received;
        totals.sent += sent;
    }
}

/// A request's verb, a watch apart from the others; what a server need not know has one name.
pub(crate) fn verb(method: &Method, watch: bool) -> &'static str {
    match method.as_str() {
        "GET" if watch => "WATCH",
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        _ => "OTHER",
    }
}

fn error_name(error: &TransportError) -> &'static str {
    match error {
        TransportError::Dial { .. } => "dial",
        TransportError::Proxy { .. } => "proxy",
        TransportError::ConnectTimeout { .. } => "connect_timeout",
        TransportError::Tls { .. } => "tls",
        TransportError::Protocol { .. } => "protocol",
        TransportError::Reset { .. } => "reset",
        TransportError::ConnectionLost { .. } => "connection_lost",
        TransportError::Refused { .. } => "refused",
        TransportError::Busy { .. } => "no_room",
        TransportError::HeadersTimeout { .. } => "headers_timeout",
        TransportError::BodyStalled { .. } => "body_stalled",
        TransportError::Upload { .. } => "upload",
        TransportError::Invalid { .. } => "invalid",
        TransportError::Closed { .. } => "closed",
        TransportError::Fenced { .. } => "fenced",
    }
}
