//! What candidates, leaders and those who watch them have in common: who is the leader now, and until when.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use steadfast::Connection;
use steadfast::environment::{Instant, SharedEnvironment};
use steadfast::kube;
use steadfast::transport::Fence;
use tokio::sync::watch;

use super::timing::Timing;
use super::trouble::Troubles;

/// One term as a leader, in which requests may be sent.
pub(super) struct Term {
    pub(super) number: u64,
    /// Rises from each holder of the lease to the next.
    pub(super) token: u64,
    pub(super) fence: Fence,
    /// Its requests are sent within the term or not at all.
    pub(super) client: kube::Client,
}

impl Term {
    /// One with this number and token that is open until `until`.
    pub(super) fn new(connection: &Connection, [number, token]: [u64; 2], until: Instant, timing: &Timing) -> Self {
        // Half of what is left of the lease is for what was sent to arrive, the other half for the server to act on it.
        let fence = Fence::new(connection.environment().clone(), until, timing.margin() / 2);
        let client = connection.behind(fence.clone()).client();
        Self { number, token, fence, client }
    }
}

/// Until when what terms that are over have sent, and the server has not answered, may still be acted on: neither does one of
/// our own begin before, nor is the lease given up.
#[derive(Clone, Copy, Default)]
pub(super) struct Unsettled(Option<Instant>);

impl Unsettled {
    /// Ends a term: from here on nothing of it is sent, so that what is unanswered now is all there will ever be.
    pub(super) fn close(&mut self, term: &Term, timing: &Timing) {
        term.fence.close();
        self.0 = self.0.max(term.fence.last_unanswered().map(|at| at + timing.margin()));
    }

    /// Until when it is waited, where something may still be acted on at `now`.
    pub(super) fn until(self, now: Instant) -> Option<Instant> {
        self.0.filter(|until| *until > now)
    }
}

/// How an election stands.
#[derive(Clone, Default)]
pub(super) struct Standing {
    /// Ours, or the last one of ours, which has lapsed.
    pub(super) term: Option<Arc<Term>>,
    /// Who holds the lease, by what was last seen of it.
    pub(super) holder: Option<String>,
    /// Once nothing is tried any more: whether the lease was released.
    pub(super) over: Option<bool>,
}

/// An election, as its handles and its campaign share it.
pub(super) struct Office {
    pub(super) environment: SharedEnvironment,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) identity: String,
    pub(super) standing: watch::Sender<Standing>,
    pub(super) stopping: watch::Sender<bool>,
    pub(super) troubles: Troubles,
    /// How often a leader could not renew at the first attempt.
    slow_paths: AtomicU64,
}

impl Office {
    /// Nobody holds it yet.
    pub(super) fn new(environment: SharedEnvironment, namespace: String, name: String, identity: String) -> Self {
        Self {
            environment,
            namespace,
            name,
            identity,
            standing: watch::Sender::default(),
            stopping: watch::Sender::new(false),
            troubles: Troubles::default(),
            slow_paths: AtomicU64::new(0),
        }
    }

    /// The term of now, if there is one.
    pub(super) fn term(&self) -> Option<Arc<Term>> {
        self.standing.borrow().term.clone().filter(|term| term.fence.is_open())
    }

    /// A leader's renewal has failed at the first attempt.
    pub(super) fn took_the_slow_path(&self) {
        self.slow_paths.fetch_add(1, Ordering::Relaxed);
    }

    /// How often that was so.
    #[cfg(feature = "metrics")]
    pub(super) fn slow_paths(&self) -> u64 {
        self.slow_paths.load(Ordering::Relaxed)
    }
}
