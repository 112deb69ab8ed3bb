//! Requests that wait for a connection, by the runtime and the purpose of the connection.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use super::connection::Sender;
use super::error::TransportError;
use super::home::Home;
use super::lease::Lease;
use super::placement_request::PlacementRequest;
use super::purpose::Purpose;

/// Place of a request on a connection, and the sender for it.
pub(super) type Assignment = (Lease, Sender);

/// A request that waits for a connection.
pub(super) struct Waiter {
    /// Connections that rejected the request.
    pub(super) avoid: Vec<u64>,
    pub(super) place: oneshot::Sender<Result<Assignment, TransportError>>,
}

/// Waiting requests of all runtimes.
pub(super) struct Waiting {
    /// The environment first, and then only runtimes with waiting requests.
    by_home: Vec<WaitingAt>,
}

/// Waiting requests for connections of one runtime, by their requirements.
pub(super) struct WaitingAt {
    pub(super) home: Home,
    queues: [VecDeque<Waiter>; PlacementRequest::COUNT],
}

impl WaitingAt {
    fn new(home: Home) -> Self {
        Self { home, queues: std::array::from_fn(|_| VecDeque::new()) }
    }

    /// Returns the requests of `placement_request`, oldest first.
    pub(super) fn queue(&mut self, placement_request: PlacementRequest) -> &mut VecDeque<Waiter> {
        &mut self.queues[placement_request.index()]
    }

    /// Returns the number of waiting requests whose purpose satisfies `such`.
    pub(super) fn count(&self, such: impl Fn(Purpose) -> bool) -> usize {
        PlacementRequest::all()
            .filter(|placement_request| such(placement_request.purpose()))
            .map(|placement_request| self.queues[placement_request.index()].len())
            .sum()
    }
}

impl Waiting {
    /// Creates the state without waiting requests.
    pub(super) fn new() -> Self {
        Self { by_home: vec![WaitingAt::new(Home::Environment)] }
    }

    /// Returns the runtimes with waiting requests.
    pub(super) fn homes(&self) -> Vec<Home> {
        let waits = |at: &&WaitingAt| at.queues.iter().any(|queue| !queue.is_empty());
        self.by_home.iter().filter(waits).map(|at| at.home.clone()).collect()
    }

    /// Returns the number of waiting requests whose purpose satisfies `such`, on all runtimes.
    pub(super) fn count(&self, such: impl Fn(Purpose) -> bool) -> usize {
        self.by_home.iter().map(|at| at.count(&such)).sum()
    }

    /// Returns the requests that wait for connections of `home`.
    pub(super) fn at(&mut self, home: &Home) -> &mut WaitingAt {
        let known = self.by_home.iter().position(|at| at.home == *home);
        let index = known.unwrap_or_else(|| {
            // Removed only here, where their order does not matter. A runtime that has ended must not stay known for ever.
            self.by_home.retain(|at| at.home == Home::Environment || at.queues.iter().any(|queue| !queue.is_empty()));
            self.by_home.push(WaitingAt::new(home.clone()));
            self.by_home.len() - 1
        });
        &mut self.by_home[index]
    }

    /// Removes and returns all waiting requests.
    pub(super) fn take_all(&mut self) -> Vec<Waiter> {
        self.by_home.iter_mut().flat_map(|at| &mut at.queues).flat_map(std::mem::take).collect()
    }
}
