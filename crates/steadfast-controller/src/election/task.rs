//! Background task of a candidate: executes the steps of the [`machine`](super::machine), and starts and ends terms.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use steadfast::Connection;
use steadfast::environment::Instant;
use steadfast::k8s_openapi::api::core::v1::ObjectReference;
use steadfast::k8s_openapi::jiff::Timestamp;
use tokio::sync::watch;

use super::leases::{Leases, RequestResult, end_lease_errors};
use super::machine::{ElectionMachine, Step, StepResult};
use super::registration::Registration;
use super::state::{ElectionState, Term, UnansweredRequests};
use super::timing::Timing;
use crate::events::{EventDraft, EventRecorder};
use crate::wall_clock::WallClock;

/// Background task of a candidate.
pub(super) struct ElectionTask {
    connection: Connection,
    leases: Leases,
    state: Arc<ElectionState>,
    timing: Timing,
    wall_clock: WallClock,
    /// Records the start and the end of each term.
    events: Option<EventRecorder>,
    /// UID of the lease of the last term.
    uid: Option<String>,
    machine: ElectionMachine,
    /// Present in a coordinated election.
    registration: Option<Registration>,
    /// The published term, until its end is published.
    term: Option<Arc<Term>>,
    unanswered_requests: UnansweredRequests,
    /// True if the last request had no response.
    last_request_failed: bool,
}

impl ElectionTask {
    /// Builds the task for `state`, with requests on `connection`. `registration` is present in a coordinated election.
    pub(super) fn new(
        connection: Connection,
        state: Arc<ElectionState>,
        timing: Timing,
        (wall_clock, events): (WallClock, Option<EventRecorder>),
        registration: Option<Registration>,
    ) -> Self {
        let now = connection.environment().boot_time();
        let (namespace, name, identity) = (&state.namespace, &state.name, state.identity.clone());
        let machine = if registration.is_some() {
            ElectionMachine::coordinated(namespace, name, identity, timing, now)
        } else {
            ElectionMachine::new(namespace, name, identity, timing, now)
        };
        let leases = Leases::new(connection.clone(), &state.namespace, &state.name, timing.request_timeout());
        Self {
            connection,
            leases,
            state,
            timing,
            wall_clock,
            events,
            uid: None,
            machine,
            registration,
            term: None,
            unanswered_requests: UnansweredRequests::default(),
            last_request_failed: false,
        }
    }

    /// Runs until the election stops, then releases the lease.
    pub(super) async fn run(mut self) {
        let mut stopping = self.state.stopping.subscribe();
        loop {
            if self.machine.must_yield(self.now()) {
                self.yield_lease().await;
            }
            let step = self.machine.step(self.now(), self.wall_time());
            self.publish_term();
            let is_running = match step {
                Step::Wait(until) => self.wait_until(until, &mut stopping).await,
                step => self.attempt(step, &mut stopping).await,
            };
            if !is_running {
                break;
            }
        }
        self.unregister().await;
        let released = self.release().await;
        self.state.status.send_modify(|status| {
            status.stopped = Some(released);
            if released {
                status.holder = None;
            }
        });
    }

    /// Waits until `until`, and maintains the registration in the meantime. Returns false if the election stops.
    async fn wait_until(&mut self, until: Instant, stopping: &mut watch::Receiver<bool>) -> bool {
        let now = self.now();
        let until = self.unanswered_requests.pending_until(now).map_or(until, |settled_at| until.min(settled_at));
        // Without a read of the lease, a candidate does not know its predecessor. So the first read must precede the
        // registration.
        let registration = self.registration.as_mut().filter(|_| self.machine.has_read());
        let until = match registration {
            Some(registration) if registration.due() <= now => {
                return tokio::select! {
                    biased;
                    () = wait_for_stop(stopping) => false,
                    () = registration.maintain(&self.wall_clock) => true,
                };
            }
            Some(registration) => until.min(registration.due()),
            None => until,
        };
        tokio::select! {
            biased;
            () = wait_for_stop(stopping) => false,
            () = self.pause(until.since(now)) => true,
        }
    }

    /// Ends the term and releases the lease for the preferred candidate.
    async fn yield_lease(&mut self) {
        let ElectionState { namespace, name, identity, .. } = &*self.state;
        tracing::info!(%namespace, %name, %identity, "releasing the lease for the preferred candidate");
        self.release().await;
        self.machine.resign(self.now());
    }

    /// Deletes the registration, so that the coordinator does not return the released lease to this candidate.
    async fn unregister(&mut self) {
        if let Some(registration) = self.registration.take() {
            if let Some(term) = &self.term {
                term.fence.close();
            }
            registration.unregister().await;
            self.registration = Some(registration);
        }
    }

    /// Sends one request and processes the response. Returns false if the election stops first.
    async fn attempt(&mut self, step: Step, stopping: &mut watch::Receiver<bool>) -> bool {
        // Taken before sending, so that no other candidate can see this write before `sent_at`.
        let sent_at = self.now();
        let is_held = self.machine.term(sent_at).is_some();
        let (result, is_running) =
            send_until_stop(&self.leases, &step, self.last_request_failed, is_held, stopping).await;
        self.record_result(&step, sent_at, result);
        // A stopped candidate starts no term, even if the request has just acquired the lease.
        if is_running {
            self.publish_term();
        }
        is_running
    }

    fn record_result(&mut self, step: &Step, sent_at: Instant, RequestResult { result, problem }: RequestResult) {
        let now = self.now();
        let is_leader = self.machine.term(now).is_some();
        let ElectionState { namespace, name, identity, .. } = &*self.state;
        if let Some(problem) = problem {
            let is_new = self.state.lease_errors.add(problem.clone());
            if is_leader {
                tracing::warn!(%namespace, %name, %identity, %problem, "cannot renew the lease; retrying");
            } else if is_new {
                tracing::warn!(%namespace, %name, %identity, %problem, "cannot use the lease; retrying");
            } else {
                tracing::debug!(%namespace, %name, %identity, %problem, "cannot use the lease; retrying");
            }
        } else {
            end_lease_errors(&self.state.lease_errors, step, &result);
        }
        self.last_request_failed = result == StepResult::Unknown;
        let jitter_fraction = self.state.environment.random() as f64 / u64::MAX as f64;
        match step {
            Step::Get => self.machine.record_read(result, sent_at, now, jitter_fraction),
            Step::ReadHistory { .. } => self.machine.record_history(result, now),
            _ => {
                if is_leader && !matches!(result, StepResult::Lease(_)) {
                    self.state.count_slow_renewal();
                }
                self.machine.record_write(result, sent_at, now, jitter_fraction);
            }
        }
    }

    /// Starts, extends or ends the published term, to match the term of the machine.
    fn publish_term(&mut self) {
        let now = self.now();
        let state = self.state.clone();
        let ElectionState { namespace, name, identity, .. } = &*state;
        let current = self.machine.term(now).map(|held| (held.number, held.until));
        if let Some(term) = self.term.clone() {
            match current {
                Some((number, until)) if number == term.number => {
                    term.fence.extend(until);
                    if term.fence.is_open() {
                        return;
                    }
                    // A reader has already seen the expired fence, so this term must not resume.
                    self.machine.resign(now);
                }
                _ => {}
            }
            self.unanswered_requests.close(&term, &self.timing);
            tracing::warn!(%namespace, %name, %identity, "leadership lost: the lease may have expired or changed its \
             holder");
            self.term = None;
            self.publish_event("stopped leading");
        }
        let new_term = self
            .machine
            .term(now)
            .filter(|_| self.term.is_none() && self.unanswered_requests.pending_until(self.now()).is_none());
        let starting_term = new_term.map(|held| ([held.number, held.token], held.until, held.uid.clone()));
        if let Some((numbers, until, uid)) = starting_term {
            tracing::info!(%namespace, %name, %identity, "leadership acquired");
            state.lease_errors.clear();
            self.term = Some(Arc::new(Term::new(&self.connection, numbers, until, &self.timing)));
            self.uid = Some(uid).filter(|uid| !uid.is_empty());
            self.publish_event("became leader");
        }
        let (term, holder) = (self.term.clone(), self.machine.holder());
        self.state.status.send_if_modified(|status| {
            let is_same = status.term.as_ref().map(|term| term.number) == term.as_ref().map(|term| term.number)
                && status.holder.as_deref() == holder;
            status.term = term;
            status.holder = holder.map(str::to_owned);
            !is_same
        });
    }

    /// Records an event about the lease.
    fn publish_event(&self, action: &str) {
        let Some(events) = &self.events else { return };
        let ElectionState { namespace, name, identity, .. } = &*self.state;
        let lease = ObjectReference {
            api_version: Some("coordination.k8s.io/v1".to_owned()),
            kind: Some("Lease".to_owned()),
            namespace: Some(namespace.clone()),
            name: Some(name.clone()),
            uid: self.uid.clone(),
            ..ObjectReference::default()
        };
        events.publish(&lease, EventDraft::normal("LeaderElection", "Electing").note(format!("{identity} {action}")));
    }

    /// Releases the lease if held. Returns true if the lease is free now.
    async fn release(&mut self) -> bool {
        let until = self.machine.term(self.now()).map(|held| held.until);
        match self.term.take() {
            Some(term) => {
                self.unanswered_requests.close(&term, &self.timing);
                self.state.status.send_modify(|_| {});
                self.publish_event("stopped leading");
            }
            // A candidate that does not hold the lease releases nothing, except with an injected fault.
            None if until.is_none() => return self.machine.releases_unheld_lease() && self.release_lease().await,
            // The lease is held again, but its term was not published yet, because requests of the last term have no
            // response.
            None => {}
        }
        let Some(until) = until else { return false };
        if let Some(settled_at) = self.unanswered_requests.pending_until(self.now()) {
            // The server may still process unanswered requests. No other leader may start before these requests have
            // ended.
            if settled_at >= until {
                return false;
            }
            self.pause(settled_at.since(self.now())).await;
        }
        self.release_lease().await
    }

    /// Writes an empty holder into the lease if held. Returns true on success.
    async fn release_lease(&mut self) -> bool {
        // Sends at most four requests, for example two reads and two writes. After that the lease expires on its own.
        for _ in 0..4 {
            let Some(step) = self.machine.release(self.now(), self.wall_time()) else { return false };
            let sent_at = self.now();
            let result = self.leases.send(&step, self.last_request_failed).await;
            if step != Step::Get && matches!(result.result, StepResult::Lease(_)) {
                let ElectionState { namespace, name, identity, .. } = &*self.state;
                tracing::info!(%namespace, %name, %identity, "lease released");
                self.record_result(&step, sent_at, result);
                return true;
            }
            self.record_result(&step, sent_at, result);
        }
        false
    }

    /// Returns the time of the clock for lease durations, which includes suspend time.
    fn now(&self) -> Instant {
        self.state.environment.boot_time()
    }

    /// Returns the time for lease fields. A coordinated election uses the server's clock, because the coordinator
    /// compares these fields.
    fn wall_time(&self) -> Timestamp {
        let wall_time = (self.wall_clock)();
        self.registration.as_ref().map_or(wall_time, |registration| registration.server_time(wall_time))
    }

    async fn pause(&self, wait: Duration) {
        let environment = &self.state.environment;
        environment.sleep_until(environment.now() + wait).await;
    }
}

impl Drop for ElectionTask {
    /// Also runs if the runtime ended before the task. No caller may wait forever.
    fn drop(&mut self) {
        self.state.status.send_if_modified(|status| {
            let is_new = status.stopped.is_none();
            if is_new {
                status.term = None;
                status.stopped = Some(false);
            }
            is_new
        });
    }
}

/// Sends the request of `step`. Returns the result, and false if the election stopped in the meantime.
///
/// A stop abandons the request, except a write of a candidate that does not hold the lease. Such a write may acquire
/// the lease. The lease must then be released, or other candidates wait for its expiry.
pub(super) async fn send_until_stop(
    leases: &Leases,
    step: &Step,
    on_recent_connection: bool,
    is_held: bool,
    stopping: &mut watch::Receiver<bool>,
) -> (RequestResult, bool) {
    let mut sending = pin!(leases.send(step, on_recent_connection));
    tokio::select! {
        biased;
        () = wait_for_stop(stopping) => {
            let may_acquire = !is_held && matches!(step, Step::Create(_) | Step::Update(_));
            let abandoned = RequestResult { result: StepResult::Unknown, problem: None };
            (if may_acquire { sending.await } else { abandoned }, false)
        }
        result = &mut sending => (result, true),
    }
}

/// Waits until the election stops.
pub(super) async fn wait_for_stop(stopping: &mut watch::Receiver<bool>) {
    if stopping.wait_for(|stopping| *stopping).await.is_err() {
        // The task itself holds the sender, so this error cannot occur.
        std::future::pending::<()>().await;
    }
}
