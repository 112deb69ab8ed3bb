//! One candidate's view of a lease, without I/O or a clock: when it may try to acquire it, when it renews it, and until when
//! it may act.
//!
//! All moments are those of one clock that never goes back and that no wall clock moves. What the lease says of time is
//! written for those who read it, and not believed.

#[cfg(test)]
mod coordinated;
#[cfg(test)]
mod tests;

use std::time::Duration;

use steadfast::environment::Instant;
use steadfast::k8s_openapi::api::coordination::v1::Lease;
use steadfast::k8s_openapi::jiff::Timestamp;

use super::breach::Breaches;
use super::record;
use super::succession::{Place, Succession};
use super::timing::{JITTER, Timing};

/// What is to be done next.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Nothing before this moment.
    Wait(Instant),
    /// The lease is to be read.
    Get,
    /// The lease is to be created.
    Create(Box<Lease>),
    /// The lease is to be replaced, in the version that this has and no other.
    Update(Box<Lease>),
    /// All states that it had after one version, up to and with another, are to be read.
    Follow {
        /// Known already.
        after: String,
        /// The last one.
        until: String,
    },
}

/// What came of a step.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer {
    /// The lease as it is at the server.
    Lease(Box<Lease>),
    /// The states that were asked for, none left out.
    States(Vec<Lease>),
    /// There is none.
    Missing,
    /// It has another version, or is there already.
    Conflict,
    /// None that can be relied on: it may have been done or not.
    None,
}

/// What an attempt to hold the lease comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Term {
    /// Counts the terms of this candidate.
    pub(super) number: u64,
    /// When acting ends, unless the lease is renewed.
    pub(super) until: Instant,
    /// Rises from each holder to the next: the version of the write by which the lease was acquired.
    pub(super) token: u64,
    /// The lease that is held: another one of its name is not.
    pub(super) uid: String,
}

/// One candidate's view of a lease.
#[derive(Debug)]
pub(super) struct Candidacy {
    namespace: String,
    name: String,
    /// Nobody else's, not that of an earlier process either: a lease with this holder is ours.
    identity: String,
    timing: Timing,
    /// Where a coordinator says who is to lead: those who were before us.
    succession: Option<Succession>,
    /// The longest that the lease was ever seen to last, or ours would.
    longest: Duration,
    /// The lease was given to us while we did not look: what was between is to be read.
    given: Option<Box<Lease>>,
    known: Known,
    /// Whether the server may have another version than the one known: it is read before it is written.
    doubted: bool,
    /// Whether the last attempt was made at once, after one that was overtaken.
    hurried: bool,
    term: Option<Term>,
    terms: u64,
    next: Instant,
}

/// What is known of the lease.
#[derive(Debug)]
enum Known {
    Nothing,
    Lease(Observed),
    /// It is not there. It was seen before, and whoever held it then or later may act until `free`.
    Missing {
        free: Instant,
    },
}

/// A lease, as it was last seen.
#[derive(Debug)]
struct Observed {
    lease: Box<Lease>,
    /// When this record was first seen: later than it was written.
    since: Instant,
}

impl Candidacy {
    /// A candidate that has seen nothing yet, and asks at once.
    pub(super) fn new(namespace: &str, name: &str, identity: String, timing: Timing, now: Instant) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity,
            timing,
            succession: None,
            longest: timing.lease,
            given: None,
            known: Known::Nothing,
            doubted: true,
            hurried: false,
            term: None,
            terms: 0,
            next: now,
        }
    }

    /// The same, but it takes no lease: a coordinator gives it.
    pub(super) fn coordinated(
        namespace: &str,
        name: &str,
        identity: String,
        timing: Timing,
        now: Instant,
        breaches: Breaches,
    ) -> Self {
        let succession = Some(Succession::new(&identity, now, breaches));
        Self { succession, ..Self::new(namespace, name, identity, timing, now) }
    }

    /// Whether it is known how the lease is, or was.
    pub(super) fn has_looked(&self) -> bool {
        !matches!(self.known, Known::Nothing)
    }

    /// Whether the coordinator wants another one to lead, and we do.
    pub(super) fn is_to_yield(&self, now: Instant) -> bool {
        self.term(now).is_some() && matches!(&self.known, Known::Lease(observed) if self.is_wanted_by_another(observed))
    }

    /// The term in which we may act, if there is one at `now`.
    pub(super) fn term(&self, now: Instant) -> Option<&Term> {
        self.term.as_ref().filter(|term| now < term.until)
    }

    /// Who holds the lease, by what was last seen of it.
    pub(super) fn holder(&self) -> Option<&str> {
        match &self.known {
            Known::Lease(observed) => record::holder(&observed.lease),
            Known::Nothing | Known::Missing { .. } => None,
        }
    }

    /// What is to be done at `now`, when the wall clock says `wall`.
    pub(super) fn step(&mut self, now: Instant, wall: Timestamp) -> Step {
        self.lapse(now);
        if now < self.next {
            let lapse = self.term.as_ref().map_or(self.next, |term| term.until);
            return Step::Wait(self.next.min(lapse));
        }
        if let (Some(given), Known::Lease(observed)) = (&self.given, &self.known) {
            let [after, until] = [&observed.lease, given].map(|lease| record::version(lease).to_owned());
            return Step::Follow { after, until };
        }
        match &self.known {
            Known::Lease(observed) if !self.doubted && self.may_hold(observed, now) => {
                Step::Update(Box::new(match &mut self.succession {
                    Some(succession) if succession.place(&observed.lease) == Place::Given => {
                        let lease = record::taken_up(&observed.lease, &self.timing, wall);
                        succession.take_up(&lease);
                        lease
                    }
                    _ => record::held(&observed.lease, &self.identity, &self.timing, wall),
                }))
            }
            Known::Missing { free } if !self.doubted && *free <= now && self.succession.is_none() => {
                Step::Create(Box::new(record::created(&self.namespace, &self.name, &self.identity, &self.timing, wall)))
            }
            _ => Step::Get,
        }
    }

    /// Takes in the answer to a [`Step::Get`] that was sent at `sent`. `chance`, between 0 and 1, draws a wait out.
    pub(super) fn read(&mut self, answer: Answer, sent: Instant, now: Instant, chance: f64) {
        self.lapse(now);
        match answer {
            Answer::Lease(lease) if self.has_to_follow(&lease) => {
                self.doubted = false;
                self.term = None;
                self.given = Some(lease);
                self.next = now;
            }
            Answer::Lease(lease) => {
                self.observe(lease, now, false);
                let Known::Lease(observed) = &self.known else { unreachable!("it has just been observed") };
                let lost = self.term.as_ref().is_some_and(|term| {
                    record::uid(&observed.lease) != term.uid || !self.is_held_by_us(&observed.lease)
                });
                self.next = if self.may_hold(observed, now) {
                    now
                } else if self.succession.is_some() {
                    now + self.timing.retry
                } else {
                    self.hurried = false;
                    // A little after it expires, so that not all who wait for it ask at once.
                    let expired = self.expires(observed) + self.timing.retry.mul_f64(chance / 4.0);
                    expired.min(now + self.drawn_out(chance))
                };
                if lost {
                    self.term = None;
                }
            }
            Answer::Missing => {
                self.missing(now);
                let Known::Missing { free } = self.known else { unreachable!("it is known to be missing") };
                let again = now + self.drawn_out(chance);
                self.next = if self.succession.is_some() { now + self.timing.retry } else { free.max(now).min(again) };
            }
            Answer::States(_) | Answer::Conflict | Answer::None => self.fail(sent, now, chance),
        }
    }

    /// Takes in the answer to a [`Step::Follow`].
    pub(super) fn followed(&mut self, answer: Answer, now: Instant) {
        self.lapse(now);
        let Some(given) = self.given.take() else { return };
        match answer {
            Answer::States(states)
                if states.last().is_some_and(|last| record::version(last) == record::version(&given)) =>
            {
                for state in states {
                    self.observe(Box::new(state), now, true);
                }
            }
            _ => self.observe(given, now, false),
        }
        self.next = now;
    }

    /// Takes in the answer to a [`Step::Create`] or a [`Step::Update`] that was sent at `sent`, a moment before anything of it
    /// left.
    pub(super) fn written(&mut self, answer: Answer, sent: Instant, now: Instant, chance: f64) {
        self.lapse(now);
        match answer {
            Answer::Lease(lease) if self.is_held_by_us(&lease) => {
                let (uid, token) = (record::uid(&lease).to_owned(), record::token(&lease));
                self.observe(lease, now, true);
                self.hurried = false;
                self.next = now.max(sent + self.timing.retry);
                match self.succession.as_ref().and_then(|succession| succession.goes_on(now)) {
                    // It is ours, and somebody before us may act still.
                    Some(over) => self.next = self.next.min(over),
                    None => self.hold(uid, token, sent + self.timing.acting(), now),
                }
            }
            // Something at the server has changed what we wrote.
            Answer::Lease(lease) => {
                self.term = None;
                self.observe(lease, now, true);
                self.next = now + self.drawn_out(chance);
            }
            Answer::Missing => {
                self.missing(now);
                self.next = now;
            }
            Answer::Conflict => {
                self.doubted = true;
                let hurry = !std::mem::replace(&mut self.hurried, true);
                self.next = if hurry { now } else { now + self.drawn_out(chance) };
            }
            Answer::States(_) | Answer::None => self.fail(sent, now, chance),
        }
    }

    /// The lease without a holder, to be written once nothing is done any more in our name; what is to be read first, if it is
    /// not known; or nothing, where it is not ours.
    pub(super) fn release(&mut self, now: Instant, wall: Timestamp) -> Option<Step> {
        let unled = self.gives_up_for_others();
        let term = self.term(now);
        if self.doubted && term.is_some() {
            return Some(Step::Get);
        }
        let Known::Lease(observed) = &self.known else { return None };
        let ours = term.map_or(unled, |term| record::uid(&observed.lease) == term.uid)
            && record::holder(&observed.lease) == Some(&self.identity);
        ours.then(|| Step::Update(Box::new(record::released(&observed.lease, wall))))
    }

    /// Whether the lease may be given up by who does not lead.
    pub(super) fn gives_up_for_others(&self) -> bool {
        self.succession.as_ref().is_some_and(Succession::gives_up_for_others)
    }

    /// Ends the term, whatever is left of it; the lease is still ours, and another may begin.
    pub(super) fn resign(&mut self, now: Instant) {
        self.term = None;
        self.next = now;
    }

    /// Does what there is to be done next at once: there is something to be written.
    pub(super) fn hurry(&mut self, now: Instant) {
        self.next = self.next.min(now);
    }

    /// Ends the term whose time is over.
    fn lapse(&mut self, now: Instant) {
        if self.term.as_ref().is_some_and(|term| now >= term.until) {
            self.term = None;
        }
    }

    /// The lease is ours until then, if it is not too late already.
    fn hold(&mut self, uid: String, token: u64, until: Instant, now: Instant) {
        if now >= until {
            return;
        }
        match &mut self.term {
            Some(term) if term.uid == uid => term.until = term.until.max(until),
            other => {
                self.terms += 1;
                *other = Some(Term { number: self.terms, until, token, uid });
            }
        }
    }

    /// Whether we may write ourselves into the lease: it is ours, nobody's, or its holder has not been seen to renew it for
    /// as long as it lasts. Where a coordinator gives it: it is given to us, and nobody else is to have it.
    fn may_hold(&self, observed: &Observed, now: Instant) -> bool {
        if let Some(succession) = &self.succession {
            return match succession.place(&observed.lease) {
                Place::Ours | Place::Given => !self.is_wanted_by_another(observed),
                Place::Nobodys | Place::Anothers => false,
            };
        }
        match record::holder(&observed.lease) {
            // A coordinator is about to give it to somebody.
            None if record::is_coordinated(&observed.lease) => self.expires(observed) <= now,
            None => true,
            Some(holder) => holder == self.identity || self.expires(observed) <= now,
        }
    }

    fn is_held_by_us(&self, lease: &Lease) -> bool {
        match &self.succession {
            Some(succession) => succession.place(lease) == Place::Ours,
            None => record::holder(lease) == Some(&self.identity),
        }
    }

    fn is_wanted_by_another(&self, observed: &Observed) -> bool {
        self.succession.is_some() && record::preferred(&observed.lease).is_some_and(|name| name != self.identity)
    }

    /// Whether the lease was given to us after the state that is known, with others between that may have held it.
    fn has_to_follow(&self, lease: &Lease) -> bool {
        let Known::Lease(observed) = &self.known else { return false };
        let is_given = self
            .succession
            .as_ref()
            .is_some_and(|succession| succession.asks() && succession.place(lease) == Place::Given);
        is_given
            && record::was_held(lease)
            && record::uid(&observed.lease) == record::uid(lease)
            && observed.lease.spec != lease.spec
    }

    fn expires(&self, observed: &Observed) -> Instant {
        // A coordinator says how long he lasts to whom it gives the lease, and not who was before.
        let is_coordinated = record::is_coordinated(&observed.lease);
        observed.since + if is_coordinated { self.longest } else { record::duration(&observed.lease, &self.timing) }
    }

    /// The lease was seen at `now`; in the state `next` to the one that is known, or after any others. Only another record begins
    /// another time: that somebody else has labelled it is no renewal.
    fn observe(&mut self, lease: Box<Lease>, now: Instant, next: bool) {
        self.doubted = false;
        self.longest = self.longest.max(record::duration(&lease, &self.timing));
        let before = match &self.known {
            Known::Lease(before) => Some(before),
            Known::Nothing | Known::Missing { .. } => None,
        };
        let same = before
            .filter(|before| record::uid(&before.lease) == record::uid(&lease) && before.lease.spec == lease.spec);
        let since = same.map_or(now, |before| before.since);
        if let Some(succession) = self.succession.as_mut().filter(|_| same.is_none()) {
            succession.see(&lease, before.map(|before| &*before.lease), next, now, self.longest);
        }
        self.known = Known::Lease(Observed { lease, since });
    }

    /// The lease was seen to be gone. Whoever else held it does not know that yet, and may have acquired or renewed it since we looked,
    /// unless we lead.
    fn missing(&mut self, now: Instant) {
        self.doubted = false;
        let leads = self.term.take().is_some();
        let free = match &self.known {
            Known::Lease(_) if !leads => now + self.longest,
            Known::Missing { free } => *free,
            Known::Lease(_) | Known::Nothing => now,
        };
        if let Some(succession) = &mut self.succession {
            succession.wait_for(free);
        }
        self.known = Known::Missing { free };
    }

    /// Nobody knows what came of it.
    fn fail(&mut self, sent: Instant, now: Instant, chance: f64) {
        self.doubted = true;
        // Who holds the lease has no time to lose.
        let wait = if self.term.is_some() { self.timing.retry } else { self.drawn_out(chance) };
        self.next = now.max(sent + wait);
    }

    fn drawn_out(&self, chance: f64) -> Duration {
        self.timing.retry.mul_f64(1.0 + JITTER * chance)
    }
}
