//! State shared by candidates, leaders and observers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use steadfast::Connection;
use steadfast::environment::{Instant, SharedEnvironment};
use steadfast::kube;
use steadfast::transport::Fence;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::lease_error::LeaseErrors;
use super::timing::Timing;

/// One term as the leader, with its client.
pub(super) struct Term {
    pub(super) number: u64,
    /// Increases with each holder of the lease.
    pub(super) token: u64,
    pub(super) fence: Fence,
    /// Connection whose requests are sent within the term or not at all.
    connection: Connection,
    pub(super) client: kube::Client,
}

impl Term {
    /// Opens a term until `until`, with this number and token.
    pub(super) fn new(connection: &Connection, [number, token]: [u64; 2], until: Instant, timing: &Timing) -> Self {
        // Half of the margin is for the arrival of sent requests, the other half for their processing at the server.
        let fence = Fence::new(connection.environment().clone(), until, timing.margin() / 2);
        let connection = connection.with_fence(fence.clone());
        let client = connection.client();
        Self { number, token, fence, connection, client }
    }

    /// Returns a client with the guarantees of `client`, whose requests run on `runtime`.
    pub(super) fn client_on(&self, runtime: &Handle) -> kube::Client {
        self.connection.client_on(runtime)
    }
}

/// Time until which the server may still process unanswered requests of ended terms. Until then, no new term starts and
/// the lease is not released.
#[derive(Clone, Copy, Default)]
pub(super) struct UnansweredRequests(Option<Instant>);

impl UnansweredRequests {
    /// Ends a term. Nothing is sent afterwards, so the set of unanswered requests is final.
    pub(super) fn close(&mut self, term: &Term, timing: &Timing) {
        term.fence.close();
        self.0 = self.0.max(term.fence.last_unconfirmed_request().map(|at| at + timing.margin()));
    }

    /// Returns the end of the wait if the server may still process requests at `now`.
    pub(super) fn pending_until(self, now: Instant) -> Option<Instant> {
        self.0.filter(|until| *until > now)
    }
}

/// Published status of an election.
#[derive(Clone, Default)]
pub(super) struct ElectionStatus {
    /// The current term, or the last one after its end.
    pub(super) term: Option<Arc<Term>>,
    /// Last known holder of the lease.
    pub(super) holder: Option<String>,
    /// Present after the stop: true if the lease was released.
    pub(super) stopped: Option<bool>,
}

/// State of an election, shared by its handles and its task.
pub(super) struct ElectionState {
    pub(super) environment: SharedEnvironment,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) identity: String,
    pub(super) status: watch::Sender<ElectionStatus>,
    pub(super) stopping: watch::Sender<bool>,
    pub(super) lease_errors: LeaseErrors,
    /// Number of renewals that failed at the first attempt.
    slow_renewals: AtomicU64,
}

impl ElectionState {
    /// Builds the state without a holder.
    pub(super) fn new(environment: SharedEnvironment, namespace: String, name: String, identity: String) -> Self {
        Self {
            environment,
            namespace,
            name,
            identity,
            status: watch::Sender::default(),
            stopping: watch::Sender::new(false),
            lease_errors: LeaseErrors::default(),
            slow_renewals: AtomicU64::new(0),
        }
    }

    /// Returns the current term.
    pub(super) fn term(&self) -> Option<Arc<Term>> {
        self.status.borrow().term.clone().filter(|term| term.fence.is_open())
    }

    /// Counts a renewal that failed at the first attempt.
    pub(super) fn count_slow_renewal(&self) {
        self.slow_renewals.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of renewals that failed at the first attempt.
    #[cfg(feature = "metrics")]
    pub(super) fn slow_renewals(&self) -> u64 {
        self.slow_renewals.load(Ordering::Relaxed)
    }
}
