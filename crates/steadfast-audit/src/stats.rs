//! State and counters of an audit.

use std::time::Duration;

use crate::finding::AuditFindingKind;
use crate::stream::DelayHistogram;

/// State and counters of an audit.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct AuditStats {
    /// Endpoints in the order of their numbers.
    pub endpoints: Vec<EndpointStats>,
}

/// State and counters of one endpoint.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EndpointStats {
    /// Name of the endpoint.
    pub endpoint: String,
    /// False while the finding [`AuditFindingKind::Unresponsive`] is active.
    pub is_responsive: bool,
    /// Number of requests so far.
    pub requests: u64,
    /// Time since the last response or record.
    pub last_response_age: Option<Duration>,
    /// Number of active findings and of all findings, by kind.
    pub findings: Vec<(AuditFindingKind, usize, u64)>,
    /// Streams in the order of the resources.
    pub streams: Vec<StreamStats>,
}

/// State and counters of the watch of one resource.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StreamStats {
    /// Name of the resource.
    pub resource: String,
    /// True if the watch is open.
    pub is_open: bool,
    /// Number of objects.
    pub objects: u64,
    /// Age of the oldest change that the watch has not delivered.
    pub lag: Duration,
    /// Delays after the first delivery of each change by any source.
    pub delays: DelayHistogram,
    /// Number of lost events.
    pub lost_events: u64,
    /// Time since the last bookmark, or since the start of the watch; `None` without an open watch.
    pub bookmark_age: Option<Duration>,
    /// Time since the last complete list of the resource.
    pub last_list_age: Option<Duration>,
}
