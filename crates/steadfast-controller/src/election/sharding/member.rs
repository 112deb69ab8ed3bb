//! Background task of a member: maintains its own lease, reads the other leases, and hands over keys.

use std::sync::Arc;
use std::time::Duration;

use steadfast::Connection;
use steadfast::environment::Instant;
use tokio::sync::watch;

use super::super::fault_injection::inject;
use super::super::leases::{Leases, RESOURCE, RequestResult, end_lease_errors};
use super::super::machine::{ElectionMachine, Step, StepResult};
use super::super::state::{Term, UnansweredRequests};
use super::super::task::{send_until_stop, wait_for_stop};
use super::super::timing::Timing;
use super::group::GroupLeases;
use super::membership::Membership;
use super::state::MemberState;
use crate::wall_clock::WallClock;

/// Interval between checks for the end of guards during a hand-over.
const GUARD_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// State of a hand-over of keys.
enum HandOver {
    None,
    /// Guards of the previous term may remain until this instant.
    Draining(Arc<Term>, Instant),
    /// The previous term has ended; the server may still process its requests.
    Settling,
}

/// Background task of a member.
pub(super) struct Member {
    connection: Connection,
    leases: Leases,
    group: GroupLeases,
    state: Arc<MemberState>,
    timing: Timing,
    wall_clock: WallClock,
    machine: ElectionMachine,
    membership: Membership,
    /// The published term, with the number of its term in the election machine. A term of the election machine may have
    /// several published terms.
    term: Option<(u64, Arc<Term>)>,
    published_terms: u64,
    hand_over: HandOver,
    unanswered_requests: UnansweredRequests,
    /// Time of the next read of all leases.
    next_group_read_at: Instant,
    /// Two flags, for requests about the member's lease and about the group. True if the last request had no response.
    last_request_failed: [bool; 2],
}

impl Member {
    pub(super) fn new(connection: Connection, state: Arc<MemberState>, timing: Timing, wall_clock: WallClock) -> Self {
        let now = connection.environment().boot_time();
        let MemberState { namespace, group, name, identity, .. } = &*state;
        Self {
            leases: Leases::new(connection.clone(), namespace, name, timing.request_timeout()),
            // A request about the group must not delay the renewal of the member's lease.
            group: GroupLeases::new(connection.clone(), namespace, group, timing.request_timeout() / 2),
            machine: ElectionMachine::new(namespace, name, identity.clone(), timing, now),
            membership: Membership::new(group, name, timing),
            connection,
            state,
            timing,
            wall_clock,
            term: None,
            published_terms: 0,
            hand_over: HandOver::None,
            unanswered_requests: UnansweredRequests::default(),
            next_group_read_at: now,
            last_request_failed: [false; 2],
        }
    }

    /// Runs until the member is stopped, and then releases the lease.
    pub(super) async fn run(mut self) {
        let mut stopping = self.state.stopping.subscribe();
        loop {
            let step = self.machine.step(self.now(), (self.wall_clock)());
            self.publish();
            let is_running = match (step, self.unanswered_requests.pending_until(self.now())) {
                (Step::Wait(until), _) => self.wait_until(until, &mut stopping).await,
                // A new lease claims no keys. It withdraws the claims of the previous lease, so all requests under that
                // lease must have ended.
                (Step::Create(_), Some(settled_at)) => self.pause(settled_at, &mut stopping).await,
                (step, _) => {
                    if matches!(step, Step::Create(_)) {
                        self.membership.withdraw_claims();
                    }
                    self.attempt(step, &mut stopping).await
                }
            };
            if !is_running {
                break;
            }
        }
        let released = self.release().await;
        self.state.status.send_modify(|status| status.stopped = Some(released));
    }

    /// Waits until `until`, and reads the other leases or hands over keys in the meantime. Returns false if the member
    /// stops.
    async fn wait_until(&mut self, until: Instant, stopping: &mut watch::Receiver<bool>) -> bool {
        // The member stops acting on lost keys before the new view is published. Otherwise two members could own these
        // keys.
        if self.membership.must_change() && self.continue_hand_over() {
            self.hand_over = HandOver::None;
            self.membership.adopt_next_view();
            self.machine.step_now(self.now());
            return true;
        }
        if self.machine.term(self.now()).is_some() && self.next_group_read_at <= self.now() {
            return tokio::select! {
                biased;
                () = wait_for_stop(stopping) => false,
                () = self.read_group() => true,
            };
        }
        let wake_at = if self.next_group_read_at > self.now() { until.min(self.next_group_read_at) } else { until };
        let wake_at =
            // Guards drop without a notification, so their number is polled.
            if let HandOver::Draining(..) = self.hand_over { wake_at.min(self.now() + GUARD_CHECK_INTERVAL) } else { wake_at };
        self.pause(
            self.unanswered_requests.pending_until(self.now()).map_or(wake_at, |settled_at| settled_at.min(wake_at)),
            stopping,
        )
        .await
    }

    /// Continues a hand-over. Returns true if the new view may be written.
    fn continue_hand_over(&mut self) -> bool {
        if !self.membership.hands_over_keys() || inject!(self.timing.faults, sharding::EarlyRelease) {
            return true;
        }
        let now = self.now();
        match &self.hand_over {
            HandOver::None => {
                let Some((number, previous_term)) = self.term.take() else { return false };
                // Kept keys continue under the new term. Guards of the previous term keep their fence.
                self.start_term(number, now + previous_term.fence.remaining());
                self.hand_over = HandOver::Draining(previous_term, now + self.timing.acting_time());
                // From now on no caller obtains the previous term.
                self.publish();
                false
            }
            HandOver::Draining(previous_term, until) => {
                // A count of 1 means that no guard exists, because one reference is our own. Without guards, no
                // reconcile acts on the lost keys. The acting time bounds the wait for the guards.
                //
                // Guards of kept keys count too. All guards of a term share its client, and clones of the client may
                // outlive their guards. So only the closed fence ensures that nothing more is sent for a lost key. The
                // closed fence ends the requests for kept keys as well. The unanswered requests of a term cannot be
                // assigned to keys either. A wait for the lost keys alone would need a separate client for each guard.
                if Arc::strong_count(previous_term) == 1 || *until <= now || !previous_term.fence.is_open() {
                    let previous_term = previous_term.clone();
                    self.unanswered_requests.close(&previous_term, &self.timing);
                    self.hand_over = HandOver::Settling;
                }
                false
            }
            HandOver::Settling => self.unanswered_requests.pending_until(self.now()).is_none(),
        }
    }

    /// Reads all leases, and deletes an expired one.
    async fn read_group(&mut self) {
        let leases = self.group.read(self.last_request_failed[1]).await;
        let now = self.now();
        self.last_request_failed[1] = leases.is_err();
        let problem = match leases.map(|leases| self.membership.record_read(leases, now)) {
            Ok(true) => None,
            Ok(false) => {
                let reason = "the list is older than our own lease, or another client changed that lease";
                Some(self.group.request_info("list", None).no_response(reason))
            }
            Err(problem) => Some(problem),
        };
        let is_changing = self.membership.is_changing();
        self.next_group_read_at = now + if is_changing { self.timing.retry / 4 } else { self.timing.retry };
        self.publish();
        let MemberState { namespace, group, identity, .. } = &*self.state;
        if let Some(problem) = problem {
            if self.state.lease_errors.add(problem.clone()) {
                tracing::warn!(%namespace, %group, %identity, %problem, "cannot read the leases of the group; retrying");
            } else {
                tracing::debug!(%namespace, %group, %identity, %problem, "cannot read the leases of the group; retrying");
            }
            return;
        }
        self.state.lease_errors.end("list", RESOURCE);
        if let Some(expired) = self.membership.expired_lease(now) {
            match self.group.delete(&expired).await {
                Ok(true) => {
                    self.state.lease_errors.end("delete", RESOURCE);
                    tracing::info!(%namespace, %group, %identity, member = %expired.name, "deleted the expired lease of a \
                     member");
                    // The next read follows soon, but not immediately, because a finalizer may keep the deleted lease.
                    self.next_group_read_at = self.now() + self.timing.retry / 4;
                }
                // Another member deleted the lease, or it was renewed.
                Ok(false) => self.state.lease_errors.end("delete", RESOURCE),
                Err(problem) => {
                    if self.state.lease_errors.add(problem.clone()) {
                        tracing::warn!(%namespace, %group, %identity, member = %expired.name, %problem, "cannot delete the \
                         expired lease of a member; retrying");
                    }
                }
            }
        }
    }

    /// Sends one request about the member's lease. Returns false if the member stops first.
    async fn attempt(&mut self, mut step: Step, stopping: &mut watch::Receiver<bool>) -> bool {
        if let Step::Create(lease) | Step::Update(lease) = &mut step {
            self.membership.add_group_and_view(lease);
        }
        // Taken before sending, so that no other member can see this write before `sent_at`.
        let sent_at = self.now();
        let is_held = self.machine.term(sent_at).is_some();
        let (result, is_running) =
            send_until_stop(&self.leases, &step, self.last_request_failed[0], is_held, stopping).await;
        self.record_result(&step, sent_at, result);
        is_running
    }

    fn record_result(&mut self, step: &Step, sent_at: Instant, RequestResult { result, problem }: RequestResult) {
        let MemberState { namespace, group, identity, .. } = &*self.state;
        if let Some(problem) = problem {
            if self.state.lease_errors.add(problem.clone()) {
                tracing::warn!(%namespace, %group, %identity, %problem, "cannot renew the lease of the member; retrying");
            } else {
                tracing::debug!(%namespace, %group, %identity, %problem, "cannot renew the lease of the member; retrying");
            }
        } else {
            end_lease_errors(&self.state.lease_errors, step, &result);
        }
        let now = self.now();
        self.last_request_failed[0] = result == StepResult::Unknown;
        let jitter_fraction = self.state.environment.random() as f64 / u64::MAX as f64;
        if *step == Step::Get {
            self.machine.record_read(result, sent_at, now, jitter_fraction);
            return;
        }
        let written_lease = if let StepResult::Lease(lease) = &result { Some(lease.clone()) } else { None };
        self.machine.record_write(result, sent_at, now, jitter_fraction);
        // If the term has expired, `publish` ends it and clears its claims before the written lease is recorded.
        self.publish();
        if let Some(lease) = written_lease.filter(|_| self.machine.term(self.now()).is_some()) {
            self.membership.record_write(lease);
            self.next_group_read_at = if self.membership.is_changing() { now } else { self.next_group_read_at };
        }
    }

    /// Starts, extends and ends the published terms according to the election machine, and publishes the owned keys.
    fn publish(&mut self) {
        let now = self.now();
        let held = self.machine.term(now).map(|held| (held.number, held.until));
        if let Some((number, term)) = &self.term {
            let until = held.filter(|held| held.0 == *number).map(|(_, until)| until);
            let is_valid = until.is_some_and(|until| {
                if let HandOver::Draining(previous_term, _) = &self.hand_over {
                    // Both terms rest on one lease, so a renewal extends both.
                    previous_term.fence.extend(until);
                }
                term.fence.extend(until);
                term.fence.is_open()
            });
            if !is_valid {
                if until.is_some() {
                    // A reader has already seen the expired fence, so this term must not resume.
                    self.machine.resign(now);
                }
                self.end_term();
            }
        }
        if let Some(held) = self
            .machine
            .term(now)
            .filter(|_| self.term.is_none() && self.unanswered_requests.pending_until(self.now()).is_none())
        {
            let (number, until) = (held.number, held.until);
            self.start_term(number, until);
        }
        let (owned_keys, term) = (self.membership.owned_keys(), self.term.as_ref().map(|(_, term)| term));
        self.state.status.send_if_modified(|status| {
            let number = |term: Option<&Arc<Term>>| term.map(|term| term.number);
            if status.owned_keys.as_deref() == owned_keys.as_ref() && number(status.term.as_ref()) == number(term) {
                return false;
            }
            status.change(owned_keys, term.cloned());
            true
        });
    }

    fn start_term(&mut self, number: u64, until: Instant) {
        self.published_terms += 1;
        self.term =
            Some((number, Arc::new(Term::new(&self.connection, [self.published_terms; 2], until, &self.timing))));
    }

    /// Ends all terms.
    fn end_term(&mut self) {
        if let Some((_, term)) = self.term.take() {
            let MemberState { namespace, group, identity, .. } = &*self.state;
            tracing::info!(%namespace, %group, %identity, "no keys are owned: the lease may have expired, or is \
             being released");
            self.unanswered_requests.close(&term, &self.timing);
        }
        if let HandOver::Draining(previous_term, _) = std::mem::replace(&mut self.hand_over, HandOver::None) {
            self.unanswered_requests.close(&previous_term, &self.timing);
        }
        self.membership.clear_claims();
    }

    /// Releases the lease if held. Returns true on success.
    async fn release(&mut self) -> bool {
        let until = self.machine.term(self.now()).map(|held| held.until);
        if !inject!(self.timing.faults, sharding::EarlyRelease) {
            self.end_term();
            self.withdraw_publication();
        }
        let Some(until) = until else { return false };
        if let Some(settled_at) = self.unanswered_requests.pending_until(self.now()) {
            // The server may still process unanswered requests. No other member may start before these requests have
            // ended. If the lease expires first, a release would free no key earlier.
            if settled_at >= until {
                return false;
            }
            let environment = &self.state.environment;
            environment.sleep_until(environment.now() + settled_at.since(self.now())).await;
        }
        self.membership.withdraw_claims();
        // Sends at most four requests, for example two reads and two writes. After that the lease expires on its own.
        for _ in 0..4 {
            let Some(mut step) = self.machine.release(self.now(), (self.wall_clock)()) else { return false };
            if let Step::Update(lease) = &mut step {
                self.membership.add_group_and_view(lease);
            }
            let sent_at = self.now();
            let RequestResult { result, .. } = self.leases.send(&step, self.last_request_failed[0]).await;
            if step != Step::Get && matches!(result, StepResult::Lease(_)) {
                return true;
            }
            let (now, jitter_fraction) = (self.now(), 0.0);
            self.last_request_failed[0] = result == StepResult::Unknown;
            match step {
                Step::Get => self.machine.record_read(result, sent_at, now, jitter_fraction),
                _ => self.machine.record_write(result, sent_at, now, jitter_fraction),
            }
        }
        false
    }

    fn withdraw_publication(&self) {
        self.state.status.send_modify(|status| status.change(None, None));
    }

    /// Returns the time of the clock for lease durations, which includes suspend time.
    fn now(&self) -> Instant {
        self.state.environment.boot_time()
    }

    /// Waits until `until`. Returns false if the member stops first.
    async fn pause(&self, until: Instant, stopping: &mut watch::Receiver<bool>) -> bool {
        let environment = &self.state.environment;
        tokio::select! {
            biased;
            () = wait_for_stop(stopping) => false,
            () = environment.sleep_until(environment.now() + until.since(self.now())) => true,
        }
    }
}

impl Drop for Member {
    /// Also runs if the runtime ended before the task. No caller may wait forever.
    fn drop(&mut self) {
        self.state.status.send_if_modified(|status| {
            let is_new = status.stopped.is_none();
            if is_new {
                status.change(None, None);
                status.stopped = Some(false);
            }
            is_new
        });
    }
}
