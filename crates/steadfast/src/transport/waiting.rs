//! Requests that wait for a connection, by the runtime and the purpose of the connection.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use super::connection::RequestSender;
use super::connection_runtime::ConnectionRuntime;
use super::error::TransportError;
use super::placement_request::PlacementRequest;
use super::purpose::Purpose;
use super::stream_slot::StreamSlot;

/// Slot of a request on a connection, and the sender for the request.
pub(super) type Assignment = (StreamSlot, RequestSender);

/// A request that waits for a connection.
pub(super) struct WaitingRequest {
    /// Connections that rejected the request.
    pub(super) avoided: Vec<u64>,
    pub(super) assignment: oneshot::Sender<Result<Assignment, TransportError>>,
}

/// Waiting requests of all runtimes.
pub(super) struct WaitingRequests {
    /// The queues of the environment's runtime, and then those of other runtimes with waiting requests.
    by_runtime: Vec<RuntimeQueues>,
}

/// Waiting requests for connections of one runtime, by their requirements.
pub(super) struct RuntimeQueues {
    pub(super) runtime: ConnectionRuntime,
    queues: [VecDeque<WaitingRequest>; PlacementRequest::COUNT],
}

impl RuntimeQueues {
    fn new(runtime: ConnectionRuntime) -> Self {
        Self { runtime, queues: std::array::from_fn(|_| VecDeque::new()) }
    }

    /// Returns the requests of `placement_request`, oldest first.
    pub(super) fn queue(&mut self, placement_request: PlacementRequest) -> &mut VecDeque<WaitingRequest> {
        &mut self.queues[placement_request.index()]
    }

    /// Returns the number of waiting requests whose purpose satisfies `matches`.
    pub(super) fn count(&self, matches: impl Fn(Purpose) -> bool) -> usize {
        PlacementRequest::all()
            .filter(|placement_request| matches(placement_request.purpose()))
            .map(|placement_request| self.queues[placement_request.index()].len())
            .sum()
    }
}

impl WaitingRequests {
    /// Creates the state without waiting requests.
    pub(super) fn new() -> Self {
        Self { by_runtime: vec![RuntimeQueues::new(ConnectionRuntime::Environment)] }
    }

    /// Returns the runtimes with waiting requests.
    pub(super) fn runtimes(&self) -> Vec<ConnectionRuntime> {
        let waits = |at: &&RuntimeQueues| at.queues.iter().any(|queue| !queue.is_empty());
        self.by_runtime.iter().filter(waits).map(|at| at.runtime.clone()).collect()
    }

    /// Returns the number of waiting requests whose purpose satisfies `matches`, on all runtimes.
    pub(super) fn count(&self, matches: impl Fn(Purpose) -> bool) -> usize {
        self.by_runtime.iter().map(|at| at.count(&matches)).sum()
    }

    /// Returns the requests that wait for connections of `runtime`.
    pub(super) fn on_runtime(&mut self, runtime: &ConnectionRuntime) -> &mut RuntimeQueues {
        let known = self.by_runtime.iter().position(|at| at.runtime == *runtime);
        let index = known.unwrap_or_else(|| {
            // Removed only here, where the order of the runtimes does not matter. A runtime that has ended must not
            // stay in the list.
            self.by_runtime.retain(|at| {
                at.runtime == ConnectionRuntime::Environment || at.queues.iter().any(|queue| !queue.is_empty())
            });
            self.by_runtime.push(RuntimeQueues::new(runtime.clone()));
            self.by_runtime.len() - 1
        });
        &mut self.by_runtime[index]
    }

    /// Removes and returns all waiting requests.
    pub(super) fn take_all(&mut self) -> Vec<WaitingRequest> {
        self.by_runtime.iter_mut().flat_map(|at| &mut at.queues).flat_map(std::mem::take).collect()
    }
}
