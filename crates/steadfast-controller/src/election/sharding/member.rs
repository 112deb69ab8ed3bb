//! Background task of a member: maintains its own lease, reads the other leases, and hands over keys.

use std::sync::Arc;
use std::time::Duration;

use steadfast::Connection;
use steadfast::environment::Instant;
use tokio::sync::watch;

use super::super::fault_injection::inject;
use super::super::leases::{Answered, Leases, RESOURCE, end_troubles};
use super::super::machine::{Answer, ElectionMachine, Step};
use super::super::state::{Term, UnansweredRequests};
use super::super::task::stopped;
use super::super::timing::{Timing, WallClock};
use super::group::GroupLeases;
use super::membership::Membership;
use super::state::MemberState;

/// Interval between checks for the end of guards during a hand-over.
const GUARD_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// State of a hand-over of keys.
enum HandOver {
    None,
    /// Guards of the previous term may remain until this instant.
    Ending(Arc<Term>, Instant),
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
    wall: WallClock,
    machine: ElectionMachine,
    membership: Membership,
    /// The published term, with the term number of the machine. One machine term may have several published terms.
    term: Option<(u64, Arc<Term>)>,
    terms: u64,
    hand_over: HandOver,
    unsettled: UnansweredRequests,
    /// Time of the next read of all leases.
    next: Instant,
    /// True if the last request had no response: about the own lease, and about the group.
    unanswered: [bool; 2],
}

impl Member {
    pub(super) fn new(connection: Connection, state: Arc<MemberState>, timing: Timing, wall: WallClock) -> Self {
        let now = connection.environment().boot_time();
        let MemberState { namespace, group, name, identity, .. } = &*state;
        Self {
            leases: Leases::new(connection.clone(), namespace, name, timing.request_timeout()),
            // A request about the group must not delay the renewal of the own lease.
            group: GroupLeases::new(connection.clone(), namespace, group, timing.request_timeout() / 2),
            machine: ElectionMachine::new(namespace, name, identity.clone(), timing, now),
            membership: Membership::new(group, name, timing),
            connection,
            state,
            timing,
            wall,
            term: None,
            terms: 0,
            hand_over: HandOver::None,
            unsettled: UnansweredRequests::default(),
            next: now,
            unanswered: [false; 2],
        }
    }

    /// Runs until the stop, then releases the lease.
    pub(super) async fn run(mut self) {
        let mut stopping = self.state.stopping.subscribe();
        loop {
            let step = self.machine.step(self.now(), (self.wall)());
            self.tell();
            let goes_on = match (step, self.unsettled.until(self.now())) {
                (Step::Wait(until), _) => self.meanwhile(until, &mut stopping).await,
                // A new lease claims no keys, so all requests under the previous lease must have ended.
                (Step::Create(_), Some(settled)) => self.pause(settled, &mut stopping).await,
                (step, _) => {
                    if matches!(step, Step::Create(_)) {
                        self.membership.renounce();
                    }
                    self.attempt(step, &mut stopping).await
                }
            };
            if !goes_on {
                break;
            }
        }
        let released = self.release().await;
        self.state.standing.send_modify(|standing| standing.over = Some(released));
    }

    /// Waits until `until`, and reads the other leases or hands over keys in the meantime. Returns false at the stop.
    async fn meanwhile(&mut self, until: Instant, stopping: &mut watch::Receiver<bool>) -> bool {
        // Keys are given up before the new view is published, or two members could own them.
        if self.membership.is_to_change() && self.hands_over() {
            self.hand_over = HandOver::None;
            self.membership.change();
            self.machine.hurry(self.now());
            return true;
        }
        if self.machine.term(self.now()).is_some() && self.next <= self.now() {
            return tokio::select! {
                biased;
                () = stopped(stopping) => false,
                () = self.read() => true,
            };
        }
        let next = if self.next > self.now() { until.min(self.next) } else { until };
        let next =
            // Guards drop without a notification, so their number is polled.
            if let HandOver::Ending(..) = self.hand_over { next.min(self.now() + GUARD_CHECK_INTERVAL) } else { next };
        self.pause(self.unsettled.until(self.now()).map_or(next, |settled| settled.min(next)), stopping).await
    }

    /// Continues a hand-over. Returns true if the new view may be written.
    fn hands_over(&mut self) -> bool {
        if !self.membership.gives_up() || inject!(self.timing.faults, sharding::EarlyRelease) {
            return true;
        }
        let now = self.now();
        match &self.hand_over {
            HandOver::None => {
                let Some((number, before)) = self.term.take() else { return false };
                // Kept keys continue under the new term. Guards of the previous term keep their fence.
                self.begin(number, now + before.fence.remaining());
                self.hand_over = HandOver::Ending(before, now + self.timing.acting_time());
                // From now on no caller obtains the previous term.
                self.tell();
                false
            }
            HandOver::Ending(before, until) => {
                // A count of 1 means that no guard exists, because one reference is our own. Without guards, no
                // reconcile acts on the lost keys. The acting time bounds the wait for the guards.
                if Arc::strong_count(before) == 1 || *until <= now || !before.fence.is_open() {
                    let before = before.clone();
                    self.unsettled.close(&before, &self.timing);
                    self.hand_over = HandOver::Settling;
                }
                false
            }
            HandOver::Settling => self.unsettled.until(self.now()).is_none(),
        }
    }

    /// Reads all leases, and deletes an expired one.
    async fn read(&mut self) {
        let all = self.group.read(self.unanswered[1]).await;
        let now = self.now();
        self.unanswered[1] = all.is_err();
        let problem = match all.map(|leases| self.membership.read(leases, now)) {
            Ok(true) => None,
            Ok(false) => {
                let why = "the list is older than our own lease, or another client changed that lease";
                Some(self.group.asked("list", None).failed(why))
            }
            Err(problem) => Some(problem),
        };
        let often = self.membership.is_in_motion();
        self.next = now + if often { self.timing.retry / 4 } else { self.timing.retry };
        self.tell();
        let MemberState { namespace, group, identity, .. } = &*self.state;
        if let Some(problem) = problem {
            if self.state.troubles.add(problem.clone()) {
                tracing::warn!(%namespace, %group, %identity, %problem, "cannot read the leases of the group; retrying");
            } else {
                tracing::debug!(%namespace, %group, %identity, %problem, "cannot read the leases of the group; retrying");
            }
            return;
        }
        self.state.troubles.end("list", RESOURCE);
        if let Some(lapsed) = self.membership.lapsed(now) {
            match self.group.delete(&lapsed).await {
                Ok(true) => {
                    self.state.troubles.end("delete", RESOURCE);
                    tracing::info!(%namespace, %group, %identity, member = %lapsed.name, "deleted the expired lease of a \
                     member");
                    // The next read is delayed, because a finalizer may keep the deleted lease.
                    self.next = self.now() + self.timing.retry / 4;
                }
                // Another member deleted the lease, or it was renewed.
                Ok(false) => self.state.troubles.end("delete", RESOURCE),
                Err(problem) => {
                    if self.state.troubles.add(problem.clone()) {
                        tracing::warn!(%namespace, %group, %identity, member = %lapsed.name, %problem, "cannot delete the \
                         expired lease of a member; retrying");
                    }
                }
            }
        }
    }

    /// Sends one request about the own lease. Returns false if the member stops first.
    async fn attempt(&mut self, mut step: Step, stopping: &mut watch::Receiver<bool>) -> bool {
        if let Step::Create(lease) | Step::Update(lease) = &mut step {
            self.membership.sign(lease);
        }
        // Taken before sending, so that other members see this write after `sent`.
        let sent = self.now();
        let answered = tokio::select! {
            biased;
            () = stopped(stopping) => None,
            answered = self.leases.send(&step, self.unanswered[0]) => Some(answered),
        };
        let goes_on = answered.is_some();
        self.take(&step, sent, answered.unwrap_or(Answered { answer: Answer::None, problem: None }));
        goes_on
    }

    fn take(&mut self, step: &Step, sent: Instant, Answered { answer, problem }: Answered) {
        let MemberState { namespace, group, identity, .. } = &*self.state;
        if let Some(problem) = problem {
            if self.state.troubles.add(problem.clone()) {
                tracing::warn!(%namespace, %group, %identity, %problem, "cannot renew the lease of the member; retrying");
            } else {
                tracing::debug!(%namespace, %group, %identity, %problem, "cannot renew the lease of the member; retrying");
            }
        } else {
            end_troubles(&self.state.troubles, step, &answer);
        }
        let now = self.now();
        self.unanswered[0] = answer == Answer::None;
        let chance = self.state.environment.random() as f64 / u64::MAX as f64;
        if *step == Step::Get {
            self.machine.read(answer, sent, now, chance);
            return;
        }
        let written = if let Answer::Lease(lease) = &answer { Some(lease.clone()) } else { None };
        self.machine.written(answer, sent, now, chance);
        // An expired term ends first, together with its claims.
        self.tell();
        if let Some(lease) = written.filter(|_| self.machine.term(self.now()).is_some()) {
            self.membership.written(lease);
            self.next = if self.membership.is_in_motion() { now } else { self.next };
        }
    }

    /// Starts, extends and ends the published terms by the term of the machine, and publishes the own keys.
    fn tell(&mut self) {
        let now = self.now();
        let held = self.machine.term(now).map(|held| (held.number, held.until));
        if let Some((number, term)) = &self.term {
            let until = held.filter(|held| held.0 == *number).map(|(_, until)| until);
            let goes_on = until.is_some_and(|until| {
                if let HandOver::Ending(before, _) = &self.hand_over {
                    // Both terms rest on one lease, so a renewal extends both.
                    before.fence.extend(until);
                }
                term.fence.extend(until);
                term.fence.is_open()
            });
            if !goes_on {
                if until.is_some() {
                    // A reader has already seen the expired fence, so this term must not resume.
                    self.machine.resign(now);
                }
                self.end();
            }
        }
        if let Some(held) =
            self.machine.term(now).filter(|_| self.term.is_none() && self.unsettled.until(self.now()).is_none())
        {
            let (number, until) = (held.number, held.until);
            self.begin(number, until);
        }
        let (part, term) = (self.membership.part(), self.term.as_ref().map(|(_, term)| term));
        self.state.standing.send_if_modified(|standing| {
            let number = |term: Option<&Arc<Term>>| term.map(|term| term.number);
            if standing.part.as_deref() == part.as_ref() && number(standing.term.as_ref()) == number(term) {
                return false;
            }
            standing.turn(part, term.cloned());
            true
        });
    }

    fn begin(&mut self, number: u64, until: Instant) {
        self.terms += 1;
        self.term = Some((number, Arc::new(Term::new(&self.connection, [self.terms; 2], until, &self.timing))));
    }

    /// Ends all terms.
    fn end(&mut self) {
        if let Some((_, term)) = self.term.take() {
            let MemberState { namespace, group, identity, .. } = &*self.state;
            tracing::info!(%namespace, %group, %identity, "no own keys: the lease may have expired, or is being released");
            self.unsettled.close(&term, &self.timing);
        }
        if let HandOver::Ending(before, _) = std::mem::replace(&mut self.hand_over, HandOver::None) {
            self.unsettled.close(&before, &self.timing);
        }
        self.membership.end();
    }

    /// Releases the lease if held. Returns true on success.
    async fn release(&mut self) -> bool {
        let until = self.machine.term(self.now()).map(|held| held.until);
        if !inject!(self.timing.faults, sharding::EarlyRelease) {
            self.end();
            self.tell_nothing();
        }
        let Some(until) = until else { return false };
        if let Some(settled) = self.unsettled.until(self.now()) {
            // The server may still process unanswered requests, so no other member may start before then.
            // The lease expires before the requests settle, so a release would free nothing earlier.
            if settled >= until {
                return false;
            }
            let environment = &self.state.environment;
            environment.sleep_until(environment.now() + settled.since(self.now())).await;
        }
        self.membership.renounce();
        // Makes at most two reads and two writes. After that the lease expires on its own.
        for _ in 0..4 {
            let Some(mut step) = self.machine.release(self.now(), (self.wall)()) else { return false };
            if let Step::Update(lease) = &mut step {
                self.membership.sign(lease);
            }
            let sent = self.now();
            let Answered { answer, .. } = self.leases.send(&step, self.unanswered[0]).await;
            if step != Step::Get && matches!(answer, Answer::Lease(_)) {
                return true;
            }
            let (now, chance) = (self.now(), 0.0);
            self.unanswered[0] = answer == Answer::None;
            match step {
                Step::Get => self.machine.read(answer, sent, now, chance),
                _ => self.machine.written(answer, sent, now, chance),
            }
        }
        false
    }

    fn tell_nothing(&self) {
        self.state.standing.send_modify(|standing| standing.turn(None, None));
    }

    /// Returns the time of the clock for lease durations, which includes suspend time.
    fn now(&self) -> Instant {
        self.state.environment.boot_time()
    }

    /// Waits until `until`. Returns false at the stop.
    async fn pause(&self, until: Instant, stopping: &mut watch::Receiver<bool>) -> bool {
        let environment = &self.state.environment;
        tokio::select! {
            biased;
            () = stopped(stopping) => false,
            () = environment.sleep_until(environment.now() + until.since(self.now())) => true,
        }
    }
}

impl Drop for Member {
    /// Also runs if the runtime ended before the task. No caller may wait forever.
    fn drop(&mut self) {
        self.state.standing.send_if_modified(|standing| {
            let is_news = standing.over.is_none();
            if is_news {
                standing.turn(None, None);
                standing.over = Some(false);
            }
            is_news
        });
    }
}
