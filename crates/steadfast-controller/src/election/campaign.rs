//! A candidate at work: does what the [`candidacy`](super::candidacy) says, and lets the term begin and end by it.

use std::sync::Arc;
use std::time::Duration;

use steadfast::Connection;
use steadfast::environment::Instant;
use steadfast::k8s_openapi::jiff::Timestamp;
use tokio::sync::watch;

use super::candidacy::{Answer, Candidacy, Step};
use super::leases::{Answered, Leases};
use super::office::{Office, Term, Unsettled};
use super::timing::Timing;

/// Says what the wall clock says.
pub(super) type WallClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A candidate at work.
pub(super) struct Campaign {
    connection: Connection,
    leases: Leases,
    office: Arc<Office>,
    timing: Timing,
    wall: WallClock,
    candidacy: Candidacy,
    /// The term that was told last, until it was told to be over.
    term: Option<Arc<Term>>,
    unsettled: Unsettled,
    /// The last request had no answer.
    unanswered: bool,
}

impl Campaign {
    /// A candidate for `office`, by requests on `connection`.
    pub(super) fn new(connection: Connection, office: Arc<Office>, timing: Timing, wall: WallClock) -> Self {
        let now = connection.environment().boot_time();
        let candidacy = Candidacy::new(&office.namespace, &office.name, office.identity.clone(), timing, now);
        let leases = Leases::new(connection.clone(), &office.namespace, &office.name, timing.patience());
        let unsettled = Unsettled::default();
        Self { connection, leases, office, timing, wall, candidacy, term: None, unsettled, unanswered: false }
    }

    /// Stands until the election is to stop, then gives up the lease.
    pub(super) async fn run(mut self) {
        let mut stopping = self.office.stopping.subscribe();
        loop {
            let step = self.candidacy.step(self.now(), (self.wall)());
            self.tell();
            if let Step::Wait(until) = step {
                let until = self.unsettled.until(self.now()).map_or(until, |settled| until.min(settled));
                tokio::select! {
                    biased;
                    () = stopped(&mut stopping) => break,
                    () = self.pause(until.since(self.now())) => {}
                }
            } else if !self.attempt(step, &mut stopping).await {
                break;
            }
        }
        let released = self.release().await;
        self.office.standing.send_modify(|standing| {
            standing.over = Some(released);
            if released {
                standing.holder = None;
            }
        });
    }

    /// Makes one request and takes in what comes of it; false if the election is to stop before that is known.
    async fn attempt(&mut self, step: Step, stopping: &mut watch::Receiver<bool>) -> bool {
        // Before anything leaves: whoever sees what was written sees it later.
        let sent = self.now();
        let answered = tokio::select! {
            biased;
            () = stopped(stopping) => None,
            answered = self.leases.send(&step, self.unanswered) => Some(answered),
        };
        let goes_on = answered.is_some();
        self.take(&step, sent, answered.unwrap_or(Answered { answer: Answer::None, problem: None }));
        self.tell();
        goes_on
    }

    fn take(&mut self, step: &Step, sent: Instant, Answered { answer, problem }: Answered) {
        let now = self.now();
        let is_leader = self.candidacy.term(now).is_some();
        let Office { namespace, name, identity, .. } = &*self.office;
        if let Some(problem) = problem {
            if is_leader {
                tracing::warn!(%namespace, %name, %identity, problem, "the lease was not renewed; again");
            } else {
                tracing::debug!(%namespace, %name, %identity, problem, "the lease is not known; again");
            }
        }
        self.unanswered = answer == Answer::None;
        let chance = self.office.environment.random() as f64 / u64::MAX as f64;
        if *step == Step::Get {
            self.candidacy.read(answer, sent, now, chance);
        } else {
            if is_leader && !matches!(answer, Answer::Lease(_)) {
                self.office.took_the_slow_path();
            }
            self.candidacy.written(answer, sent, now, chance);
        }
    }

    /// Lets the term of users begin, go on or end as that of the candidacy does, and tells them.
    fn tell(&mut self) {
        let now = self.now();
        let office = self.office.clone();
        let Office { namespace, name, identity, .. } = &*office;
        let held = self.candidacy.term(now).map(|held| (held.number, held.until));
        if let Some(term) = self.term.clone() {
            match held {
                Some((number, until)) if number == term.number => {
                    term.fence.extend(until);
                    if term.fence.is_open() {
                        return;
                    }
                    // Somebody has seen it lapse a moment before, and relies on that.
                    self.candidacy.resign(now);
                }
                _ => {}
            }
            self.unsettled.close(&term, &self.timing);
            tracing::warn!(%namespace, %name, %identity, "no longer the leader: the lease may have lapsed, or is another's");
            self.term = None;
        }
        let begins =
            self.candidacy.term(now).filter(|_| self.term.is_none() && self.unsettled.until(self.now()).is_none());
        if let Some((number, until)) = begins.map(|held| (held.number, held.until)) {
            tracing::info!(%namespace, %name, %identity, "the leader");
            self.term = Some(Arc::new(Term::new(&self.connection, number, until, &self.timing)));
        }
        let (term, holder) = (self.term.clone(), self.candidacy.holder());
        self.office.standing.send_if_modified(|standing| {
            let same = standing.term.as_ref().map(|term| term.number) == term.as_ref().map(|term| term.number)
                && standing.holder.as_deref() == holder;
            standing.term = term;
            standing.holder = holder.map(str::to_owned);
            !same
        });
    }

    /// Gives up the lease if it is ours; says whether it is free now.
    async fn release(&mut self) -> bool {
        let Some(term) = self.term.take() else { return false };
        let until = self.candidacy.term(self.now()).map(|held| held.until);
        self.unsettled.close(&term, &self.timing);
        self.office.standing.send_modify(|_| {});
        let Some(until) = until else { return false };
        if let Some(settled) = self.unsettled.until(self.now()) {
            // The server may still act on it, and another leader must not have begun by then.
            if settled >= until {
                return false;
            }
            self.pause(settled.since(self.now())).await;
        }
        // Two requests, and once more each: where that does not do, the lease runs out by itself.
        for _ in 0..4 {
            let Some(step) = self.candidacy.release(self.now(), (self.wall)()) else { return false };
            let sent = self.now();
            let answered = self.leases.send(&step, self.unanswered).await;
            if step != Step::Get && matches!(answered.answer, Answer::Lease(_)) {
                let Office { namespace, name, identity, .. } = &*self.office;
                tracing::info!(%namespace, %name, %identity, "the lease is released");
                return true;
            }
            self.take(&step, sent, answered);
        }
        false
    }

    /// The moment by which the lease is judged.
    fn now(&self) -> Instant {
        self.office.environment.boot_time()
    }

    async fn pause(&self, wait: Duration) {
        let environment = &self.office.environment;
        environment.sleep_until(environment.now() + wait).await;
    }
}

/// Waits until the election is to stop.
pub(super) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    if stopping.wait_for(|stopping| *stopping).await.is_err() {
        // The campaign itself holds the sender.
        std::future::pending::<()>().await;
    }
}
