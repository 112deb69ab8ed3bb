//! Time lines of a run: faults, freshness, events and requests, with times of the server's clock.
//!
//! | module | content |
//! |---|---|
//! | `parts` | intervals, states, events and requests with their times |
//! | `faults` | intervals of faults, from the records of the server and of the network |
//! | `informers` | freshness and events of each informer, from the trace |

mod faults;
mod informers;
mod parts;

use std::time::Duration;

use steadfast_apiserver::ApiServer;
use steadfast_contract::Trace;

use crate::proxy::NetworkFaults;
pub use parts::{FaultInterval, FreshnessChange, HandlerEventKind, InformerTimeline, TimedEvent, TimedRequest};

/// The course of one run. All times are on the clock of its server, and all lists are in the order of their times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timeline {
    /// Time at which the recording ended.
    pub end: Duration,
    /// Injected faults.
    pub faults: Vec<FaultInterval>,
    /// Observed informers, in the order of their starts.
    pub informers: Vec<InformerTimeline>,
    /// Requests to the server.
    pub requests: Vec<TimedRequest>,
    /// Times of the changes at the server, without those of its start.
    pub changes: Vec<Duration>,
}

impl Timeline {
    /// Creates the time line of a run. `network` was created at the time `network_start` of the server's clock.
    pub(super) fn new(
        server: &ApiServer,
        trace: &Trace,
        network: Option<&NetworkFaults>,
        network_start: Duration,
    ) -> Self {
        let end = server.elapsed();
        let requests = server.requests().into_iter().map(|request| {
            let query = if request.query.is_empty() { String::new() } else { format!("?{}", request.query) };
            let target = format!("{}{query}", request.path);
            TimedRequest::new(request.at, request.verb, &target, request.code)
        });
        let changes = server.history().changes.iter().map(|change| change.at).collect::<Vec<_>>();
        let changes = changes.into_iter().filter(|at| !at.is_zero());
        let mut timeline = Self {
            end,
            faults: faults::of_server(&server.fault_log(), server.replicas(), end),
            informers: informers::of_trace(trace),
            requests: requests.collect(),
            changes: changes.collect(),
        };
        let network_changes = network.map(NetworkFaults::changes).unwrap_or_default();
        timeline.faults.extend(faults::of_network(&network_changes, network_start, end));
        timeline.faults.sort_by_key(|fault| fault.start);
        timeline
    }
}
