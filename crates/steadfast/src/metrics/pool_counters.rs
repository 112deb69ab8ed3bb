//! Counters of one server's connections.

use std::collections::BTreeMap;
use std::time::Duration;

use http::{Method, Response};
use parking_lot::{Mutex, MutexGuard};

use crate::transport::TransportError;

/// Upper bounds of the latency buckets in seconds, equal to client-go's `rest_client_request_duration_seconds`.
pub(crate) const LATENCIES: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];

/// Counters of a pool's requests and closed connections.
///
/// A lock is cheap enough here: it is taken once for a request or for the end of a connection, never for an event.
#[derive(Debug, Default)]
pub(crate) struct PoolCounters {
    totals: Mutex<Totals>,
}

/// Contents of [`PoolCounters`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    /// Requests by verb, and by status or error.
    pub(crate) requests: BTreeMap<(&'static str, Code), u64>,
    /// Time until the response head, by verb.
    pub(crate) latencies: BTreeMap<&'static str, Latencies>,
    /// Failed connection attempts, by cause.
    pub(crate) failed_dials: BTreeMap<&'static str, u64>,
    /// Closed connections, by cause.
    pub(crate) closed: BTreeMap<&'static str, u64>,
    /// Bytes received on closed connections.
    pub(crate) received: u64,
    /// Bytes sent on closed connections.
    pub(crate) sent: u64,
}

/// Result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Code {
    /// Response with this status.
    Status(u16),
    /// Error without a response.
    Error(&'static str),
}

/// Histogram of the time until the response head.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latencies {
    /// Counts for the buckets of [`LATENCIES`], each value in its first matching bucket, and for larger values.
    pub(crate) counts: [u64; LATENCIES.len() + 1],
    /// Sum of the times in seconds.
    pub(crate) sum: f64,
}

impl PoolCounters {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Totals> {
        self.totals.lock()
    }

    /// Counts a request with its response or error.
    pub(crate) fn request<B>(
        &self,
        verb: &'static str,
        response: &Result<Response<B>, TransportError>,
        duration: Duration,
    ) {
        let code = match response {
            Ok(response) => Code::Status(response.status().as_u16()),
            Err(error) => Code::Error(error_name(error)),
        };
        self.count(verb, code, duration);
    }

    /// Counts the result of a request.
    pub(crate) fn count(&self, verb: &'static str, code: Code, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let mut totals = self.lock();
        *totals.requests.entry((verb, code)).or_default() += 1;
        let latencies = totals.latencies.entry(verb).or_default();
        // Beyond the last bound, the value counts only in the bucket for `+Inf`.
        let place = LATENCIES.iter().position(|bound| seconds <= *bound).unwrap_or(LATENCIES.len());
        latencies.counts[place] += 1;
        latencies.sum += seconds;
    }

    /// Counts the end of a connection. `reason` is the cause of the end, and `error` the error of a failed dial.
    pub(crate) fn count_end(&self, reason: &'static str, error: Option<&TransportError>, received: u64, sent: u64) {
        let mut totals = self.lock();
        let count = match error {
            Some(error) => totals.failed_dials.entry(error_name(error)),
            None => totals.closed.entry(reason),
        };
        *count.or_default() += 1;
        totals.received += received;
        totals.sent += sent;
    }
}

/// Returns the verb of a request, with a separate verb for watches. Unknown methods share one name.
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
