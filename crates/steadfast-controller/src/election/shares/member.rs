//! A member at work: keeps its own lease as a candidate does, reads those of the others, and hands over keys.

use std::sync::Arc;
use std::time::Duration;

use steadfast::Connection;
use steadfast::environment::Instant;
use tokio::sync::watch;

use super::super::campaign::stopped;
use super::super::candidacy::{Answer, Candidacy, Step};
use super::super::leases::{Answered, Leases, RESOURCE, end_troubles};
use super::super::office::{Term, Unsettled};
use super::super::timing::{Timing, WallClock};
use super::breach::{Breaches, ShardingBreach};
use super::group::Group;
use super::membership::Membership;
use super::office::Office;

/// How often is looked whether what acts on keys that are handed over has ended.
const LOOK: Duration = Duration::from_millis(50);

/// How a change of the view comes about that gives up keys.
enum HandOver {
    None,
    /// What acts in the term before may go on that long.
    Ending(Arc<Term>, Instant),
    /// The term before is over; what it has sent may still be acted on.
    Settling,
}

/// A member at work.
pub(super) struct Member {
    connection: Connection,
    leases: Leases,
    group: Group,
    office: Arc<Office>,
    timing: Timing,
    breaches: Breaches,
    wall: WallClock,
    candidacy: Candidacy,
    membership: Membership,
    /// In which keys are given out, and the number that the candidacy has for it: for one of its terms there may be several.
    term: Option<(u64, Arc<Term>)>,
    terms: u64,
    hand_over: HandOver,
    unsettled: Unsettled,
    /// When the others are read next.
    next: Instant,
    /// The last request about the own lease had no answer, and the last one about the others.
    unanswered: [bool; 2],
}

impl Member {
    pub(super) fn new(
        connection: Connection,
        office: Arc<Office>,
        timing: Timing,
        wall: WallClock,
        breaches: Breaches,
    ) -> Self {
        let now = connection.environment().boot_time();
        let Office { namespace, group, name, identity, .. } = &*office;
        Self {
            leases: Leases::new(connection.clone(), namespace, name, timing.patience()),
            // It must not keep the own lease from being renewed.
            group: Group::new(connection.clone(), namespace, group, timing.patience() / 2),
            candidacy: Candidacy::new(namespace, name, identity.clone(), timing, now),
            membership: Membership::new(group, name, timing, breaches),
            connection,
            office,
            timing,
            breaches,
            wall,
            term: None,
            terms: 0,
            hand_over: HandOver::None,
            unsettled: Unsettled::default(),
            next: now,
            unanswered: [false; 2],
        }
    }

    /// Takes part until it is to stop, then gives up the lease.
    pub(super) async fn run(mut self) {
        let mut stopping = self.office.stopping.subscribe();
        loop {
            let step = self.candidacy.step(self.now(), (self.wall)());
            self.tell();
            let goes_on = match (step, self.unsettled.until(self.now())) {
                (Step::Wait(until), _) => self.meanwhile(until, &mut stopping).await,
                // A new lease claims nothing: what was sent under the one before has to be over.
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
        self.office.standing.send_modify(|standing| standing.over = Some(released));
    }

    /// What there is to be done while the own lease needs nothing; false if it is to stop.
    async fn meanwhile(&mut self, until: Instant, stopping: &mut watch::Receiver<bool>) -> bool {
        if self.membership.is_to_change() && self.hands_over() {
            self.hand_over = HandOver::None;
            self.membership.change();
            self.candidacy.hurry(self.now());
            return true;
        }
        if self.candidacy.term(self.now()).is_some() && self.next <= self.now() {
            return tokio::select! {
                biased;
                () = stopped(stopping) => false,
                () = self.read() => true,
            };
        }
        let next = if self.next > self.now() { until.min(self.next) } else { until };
        let next = if let HandOver::Ending(..) = self.hand_over { next.min(self.now() + LOOK) } else { next };
        self.pause(self.unsettled.until(self.now()).map_or(next, |settled| settled.min(next)), stopping).await
    }

    /// Goes on with a change of the view; true when it may be written.
    fn hands_over(&mut self) -> bool {
        if !self.membership.gives_up() || self.breaches.commit(ShardingBreach::EarlyRelease) {
            return true;
        }
        let now = self.now();
        match &self.hand_over {
            HandOver::None => {
                let Some((number, before)) = self.term.take() else { return false };
                self.begin(number, now + before.fence.remaining());
                self.hand_over = HandOver::Ending(before, now + self.timing.acting());
                // From here on nobody takes up the term before.
                self.tell();
                false
            }
            HandOver::Ending(before, until) => {
                // One of them is here.
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

    /// Reads the leases of all, and has one deleted that has lapsed.
    async fn read(&mut self) {
        let all = self.group.read(self.unanswered[1]).await;
        let now = self.now();
        self.unanswered[1] = all.is_err();
        let problem = match all.map(|leases| self.membership.read(leases, now)) {
            Ok(true) => None,
            Ok(false) => {
                let why = "what was read is older than our own lease, or somebody has changed that";
                Some(self.group.asked("list", None).failed(why))
            }
            Err(problem) => Some(problem),
        };
        let often = self.membership.is_in_motion();
        self.next = now + if often { self.timing.retry / 4 } else { self.timing.retry };
        self.tell();
        let Office { namespace, group, identity, .. } = &*self.office;
        if let Some(problem) = problem {
            if self.office.troubles.add(problem.clone()) {
                tracing::warn!(%namespace, %group, %identity, %problem, "the others are not known; again");
            } else {
                tracing::debug!(%namespace, %group, %identity, %problem, "the others are not known; again");
            }
            return;
        }
        self.office.troubles.end("list", RESOURCE);
        if let Some(lapsed) = self.membership.lapsed(now) {
            match self.group.delete(&lapsed).await {
                Ok(true) => {
                    self.office.troubles.end("delete", RESOURCE);
                    tracing::info!(%namespace, %group, %identity, member = %lapsed.name, "its lease has lapsed, and is deleted");
                    // Not at once: one that is said to be deleted may be held by a finalizer.
                    self.next = self.now() + self.timing.retry / 4;
                }
                // Another has deleted it, or it was renewed after all.
                Ok(false) => self.office.troubles.end("delete", RESOURCE),
                Err(problem) => {
                    if self.office.troubles.add(problem.clone()) {
                        tracing::warn!(%namespace, %group, %identity, member = %lapsed.name, %problem, "a lapsed lease is not deleted; again");
                    }
                }
            }
        }
    }

    /// Makes one request about the own lease; false if it is to stop before the answer.
    async fn attempt(&mut self, mut step: Step, stopping: &mut watch::Receiver<bool>) -> bool {
        if let Step::Create(lease) | Step::Update(lease) = &mut step {
            self.membership.sign(lease);
        }
        // Before anything leaves: whoever sees what was written sees it later.
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
        let Office { namespace, group, identity, .. } = &*self.office;
        if let Some(problem) = problem {
            if self.office.troubles.add(problem.clone()) {
                tracing::warn!(%namespace, %group, %identity, %problem, "the member's lease was not renewed; again");
            } else {
                tracing::debug!(%namespace, %group, %identity, %problem, "the member's lease was not renewed; again");
            }
        } else {
            end_troubles(&self.office.troubles, step, &answer);
        }
        let now = self.now();
        self.unanswered[0] = answer == Answer::None;
        let chance = self.office.environment.random() as f64 / u64::MAX as f64;
        if *step == Step::Get {
            self.candidacy.read(answer, sent, now, chance);
            return;
        }
        let written = if let Answer::Lease(lease) = &answer { Some(lease.clone()) } else { None };
        self.candidacy.written(answer, sent, now, chance);
        // A term that is over ends first, and takes with it what was known.
        self.tell();
        if let Some(lease) = written.filter(|_| self.candidacy.term(self.now()).is_some()) {
            self.membership.written(lease);
            self.next = if self.membership.is_in_motion() { now } else { self.next };
        }
    }

    /// Lets the terms begin, go on and end as that of the candidacy does, and tells what is our own.
    fn tell(&mut self) {
        let now = self.now();
        let held = self.candidacy.term(now).map(|held| (held.number, held.until));
        if let Some((number, term)) = &self.term {
            let until = held.filter(|held| held.0 == *number).map(|(_, until)| until);
            let goes_on = until.is_some_and(|until| {
                if let HandOver::Ending(before, _) = &self.hand_over {
                    before.fence.extend(until);
                }
                term.fence.extend(until);
                term.fence.is_open()
            });
            if !goes_on {
                if until.is_some() {
                    // Somebody has seen it lapse a moment before, and relies on that.
                    self.candidacy.resign(now);
                }
                self.end();
            }
        }
        if let Some(held) =
            self.candidacy.term(now).filter(|_| self.term.is_none() && self.unsettled.until(self.now()).is_none())
        {
            let (number, until) = (held.number, held.until);
            self.begin(number, until);
        }
        let (part, term) = (self.membership.part(), self.term.as_ref().map(|(_, term)| term));
        self.office.standing.send_if_modified(|standing| {
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
            let Office { namespace, group, identity, .. } = &*self.office;
            tracing::info!(%namespace, %group, %identity, "no key is our own: the lease may have lapsed, or is given up");
            self.unsettled.close(&term, &self.timing);
        }
        if let HandOver::Ending(before, _) = std::mem::replace(&mut self.hand_over, HandOver::None) {
            self.unsettled.close(&before, &self.timing);
        }
        self.membership.end();
    }

    /// Gives up the lease if it is ours; says whether it is.
    async fn release(&mut self) -> bool {
        let until = self.candidacy.term(self.now()).map(|held| held.until);
        if !self.breaches.commit(ShardingBreach::EarlyRelease) {
            self.end();
            self.tell_nothing();
        }
        let Some(until) = until else { return false };
        if let Some(settled) = self.unsettled.until(self.now()) {
            // The server may still act on it, and others must not have begun by then.
            if settled >= until {
                return false;
            }
            let environment = &self.office.environment;
            environment.sleep_until(environment.now() + settled.since(self.now())).await;
        }
        self.membership.renounce();
        // As in an election: where two requests, once more each, do not do, the lease runs out by itself.
        for _ in 0..4 {
            let Some(mut step) = self.candidacy.release(self.now(), (self.wall)()) else { return false };
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
                Step::Get => self.candidacy.read(answer, sent, now, chance),
                _ => self.candidacy.written(answer, sent, now, chance),
            }
        }
        false
    }

    fn tell_nothing(&self) {
        self.office.standing.send_modify(|standing| standing.turn(None, None));
    }

    /// The moment by which leases are judged.
    fn now(&self) -> Instant {
        self.office.environment.boot_time()
    }

    /// Waits until then; false if it is to stop.
    async fn pause(&self, until: Instant, stopping: &mut watch::Receiver<bool>) -> bool {
        let environment = &self.office.environment;
        tokio::select! {
            biased;
            () = stopped(stopping) => false,
            () = environment.sleep_until(environment.now() + until.since(self.now())) => true,
        }
    }
}

impl Drop for Member {
    /// Also where it could not come to its end, since the runtime is gone that it ran on: nobody is to wait for it.
    fn drop(&mut self) {
        self.office.standing.send_if_modified(|standing| {
            let is_news = standing.over.is_none();
            if is_news {
                standing.turn(None, None);
                standing.over = Some(false);
            }
            is_news
        });
    }
}
