//! A candidate at work: does what the [`candidacy`](super::candidacy) says, and lets the term begin and end by it.

use std::sync::Arc;
use std::time::Duration;

use steadfast::Connection;
use steadfast::environment::Instant;
use steadfast::k8s_openapi::api::core::v1::ObjectReference;
use steadfast::k8s_openapi::jiff::Timestamp;
use tokio::sync::watch;

use super::breach::Breaches;
use super::candidacy::{Answer, Candidacy, Step};
use super::leases::{Answered, Leases, end_troubles};
use super::office::{Office, Term, Unsettled};
use super::registration::Registration;
use super::timing::{Timing, WallClock};
use crate::events::{EventDraft, EventRecorder};

/// A candidate at work.
pub(super) struct Campaign {
    connection: Connection,
    leases: Leases,
    office: Arc<Office>,
    timing: Timing,
    wall: WallClock,
    /// Records the start and the end of each term.
    events: Option<EventRecorder>,
    /// UID of the lease of the last term.
    uid: Option<String>,
    candidacy: Candidacy,
    /// Where a coordinator says who leads: by what it knows of us.
    registration: Option<Registration>,
    /// The term that was told last, until it was told to be over.
    term: Option<Arc<Term>>,
    unsettled: Unsettled,
    /// The last request had no answer.
    unanswered: bool,
}

impl Campaign {
    /// A candidate for `office`, by requests on `connection`; where a coordinator says who leads, known to it by `registration`.
    pub(super) fn new(
        connection: Connection,
        office: Arc<Office>,
        timing: Timing,
        (wall, events): (WallClock, Option<EventRecorder>),
        registration: Option<Registration>,
        breaches: Breaches,
    ) -> Self {
        let now = connection.environment().boot_time();
        let (namespace, name, identity) = (&office.namespace, &office.name, office.identity.clone());
        let candidacy = if registration.is_some() {
            Candidacy::coordinated(namespace, name, identity, timing, now, breaches)
        } else {
            Candidacy::new(namespace, name, identity, timing, now)
        };
        let leases = Leases::new(connection.clone(), &office.namespace, &office.name, timing.patience());
        Self {
            connection,
            leases,
            office,
            timing,
            wall,
            events,
            uid: None,
            candidacy,
            registration,
            term: None,
            unsettled: Unsettled::default(),
            unanswered: false,
        }
    }

    /// Stands until the election is to stop, then gives up the lease.
    pub(super) async fn run(mut self) {
        let mut stopping = self.office.stopping.subscribe();
        loop {
            if self.candidacy.is_to_yield(self.now()) {
                self.make_way().await;
            }
            let step = self.candidacy.step(self.now(), self.wall());
            self.tell();
            let goes_on = match step {
                Step::Wait(until) => self.meanwhile(until, &mut stopping).await,
                step => self.attempt(step, &mut stopping).await,
            };
            if !goes_on {
                break;
            }
        }
        self.withdraw().await;
        let released = self.release().await;
        self.office.standing.send_modify(|standing| {
            standing.over = Some(released);
            if released {
                standing.holder = None;
            }
        });
    }

    /// What there is to be done while the lease needs nothing; false if the election is to stop.
    async fn meanwhile(&mut self, until: Instant, stopping: &mut watch::Receiver<bool>) -> bool {
        let now = self.now();
        let until = self.unsettled.until(now).map_or(until, |settled| until.min(settled));
        // Who has not looked at the lease before he can be given it does not know whom he follows.
        let registration = self.registration.as_mut().filter(|_| self.candidacy.has_looked());
        let until = match registration {
            Some(registration) if registration.due() <= now => {
                return tokio::select! {
                    biased;
                    () = stopped(stopping) => false,
                    () = registration.keep(&self.wall) => true,
                };
            }
            Some(registration) => until.min(registration.due()),
            None => until,
        };
        tokio::select! {
            biased;
            () = stopped(stopping) => false,
            () = self.pause(until.since(now)) => true,
        }
    }

    /// Ends the term, and gives up the lease so that the one whom the coordinator prefers can have it.
    async fn make_way(&mut self) {
        let Office { namespace, name, identity, .. } = &*self.office;
        tracing::info!(%namespace, %name, %identity, "makes way for the one that the coordinator prefers");
        self.release().await;
        self.candidacy.resign(self.now());
    }

    /// Is no candidate any more, so that it is not given the lease again which it gives up.
    async fn withdraw(&mut self) {
        if let Some(registration) = self.registration.take() {
            if let Some(term) = &self.term {
                term.fence.close();
            }
            registration.withdraw().await;
            self.registration = Some(registration);
        }
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
            let is_news = self.office.troubles.add(problem.clone());
            if is_leader {
                tracing::warn!(%namespace, %name, %identity, %problem, "the lease was not renewed; again");
            } else if is_news {
                tracing::warn!(%namespace, %name, %identity, %problem, "the candidate cannot use the lease; again");
            } else {
                tracing::debug!(%namespace, %name, %identity, %problem, "the candidate cannot use the lease; again");
            }
        } else {
            end_troubles(&self.office.troubles, step, &answer);
        }
        self.unanswered = answer == Answer::None;
        let chance = self.office.environment.random() as f64 / u64::MAX as f64;
        match step {
            Step::Get => self.candidacy.read(answer, sent, now, chance),
            Step::Follow { .. } => self.candidacy.followed(answer, now),
            _ => {
                if is_leader && !matches!(answer, Answer::Lease(_)) {
                    self.office.took_the_slow_path();
                }
                self.candidacy.written(answer, sent, now, chance);
            }
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
            self.record("stopped leading");
        }
        let begins =
            self.candidacy.term(now).filter(|_| self.term.is_none() && self.unsettled.until(self.now()).is_none());
        let begins = begins.map(|held| ([held.number, held.token], held.until, held.uid.clone()));
        if let Some((numbers, until, uid)) = begins {
            tracing::info!(%namespace, %name, %identity, "the leader");
            office.troubles.clear();
            self.term = Some(Arc::new(Term::new(&self.connection, numbers, until, &self.timing)));
            self.uid = Some(uid).filter(|uid| !uid.is_empty());
            self.record("became leader");
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

    /// Records an event about the lease.
    fn record(&self, what: &str) {
        let Some(events) = &self.events else { return };
        let Office { namespace, name, identity, .. } = &*self.office;
        let lease = ObjectReference {
            api_version: Some("coordination.k8s.io/v1".to_owned()),
            kind: Some("Lease".to_owned()),
            namespace: Some(namespace.clone()),
            name: Some(name.clone()),
            uid: self.uid.clone(),
            ..ObjectReference::default()
        };
        events.publish(&lease, EventDraft::normal("LeaderElection", "Electing").note(format!("{identity} {what}")));
    }

    /// Gives up the lease if it is ours; says whether it is free now.
    async fn release(&mut self) -> bool {
        let Some(term) = self.term.take() else {
            // Who does not lead gives up nothing, unless a test has it break that rule.
            return self.candidacy.gives_up_for_others() && self.give_up().await;
        };
        let until = self.candidacy.term(self.now()).map(|held| held.until);
        self.unsettled.close(&term, &self.timing);
        self.office.standing.send_modify(|_| {});
        self.record("stopped leading");
        let Some(until) = until else { return false };
        if let Some(settled) = self.unsettled.until(self.now()) {
            // The server may still act on it, and another leader must not have begun by then.
            if settled >= until {
                return false;
            }
            self.pause(settled.since(self.now())).await;
        }
        self.give_up().await
    }

    /// Writes into the lease that nobody holds it, if it is ours; says whether that is so now.
    async fn give_up(&mut self) -> bool {
        // Two requests, and once more each: where that does not do, the lease runs out by itself.
        for _ in 0..4 {
            let Some(step) = self.candidacy.release(self.now(), self.wall()) else { return false };
            let sent = self.now();
            let answered = self.leases.send(&step, self.unanswered).await;
            if step != Step::Get && matches!(answered.answer, Answer::Lease(_)) {
                let Office { namespace, name, identity, .. } = &*self.office;
                tracing::info!(%namespace, %name, %identity, "the lease is released");
                self.take(&step, sent, answered);
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

    /// What is written as the time: by the clock of the server, where a coordinator judges by it.
    fn wall(&self) -> Timestamp {
        let wall = (self.wall)();
        self.registration.as_ref().map_or(wall, |registration| registration.wall(wall))
    }

    async fn pause(&self, wait: Duration) {
        let environment = &self.office.environment;
        environment.sleep_until(environment.now() + wait).await;
    }
}

impl Drop for Campaign {
    /// Also where it could not come to its end, since the runtime is gone that it ran on: nobody is to wait for it.
    fn drop(&mut self) {
        self.office.standing.send_if_modified(|standing| {
            let is_news = standing.over.is_none();
            if is_news {
                standing.term = None;
                standing.over = Some(false);
            }
            is_news
        });
    }
}

/// Waits until the election is to stop.
pub(super) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    if stopping.wait_for(|stopping| *stopping).await.is_err() {
        // The campaign itself holds the sender.
        std::future::pending::<()>().await;
    }
}
