//! State machine of one candidate, without I/O or a clock: chooses when to acquire and renew the lease, and until when
//! the candidate may act.
//!
//! All instants come from one monotonic clock, independent of wall clocks. Times in the lease are written for readers
//! only, and never trusted.

#[cfg(test)]
mod coordinated;
#[cfg(test)]
mod tests;

use std::time::Duration;

use steadfast::environment::Instant;
use steadfast::k8s_openapi::api::coordination::v1::Lease;
use steadfast::k8s_openapi::jiff::Timestamp;

use super::earlier_holders::{EarlierHolders, Ownership};
use super::record;
use super::timing::{JITTER, Timing};

/// Next action of the candidate.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Wait until this instant.
    Wait(Instant),
    /// Read the lease.
    Get,
    /// Create the lease.
    Create(Box<Lease>),
    /// Replace the lease at exactly this version.
    Update(Box<Lease>),
    /// Read all states of the lease after one version, up to and including another.
    ReadHistory {
        /// The known version.
        after: String,
        /// The last version.
        until: String,
    },
}

/// Result of an action.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum StepResult {
    /// Current lease at the server.
    Lease(Box<Lease>),
    /// All requested states.
    States(Vec<Lease>),
    /// The lease does not exist.
    Missing,
    /// The lease has another version, or already exists.
    Conflict,
    /// No usable response. The server may have processed the request.
    Unknown,
}

/// One term of holding the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeaseTerm {
    /// Number of the term, counted by this candidate.
    pub(super) number: u64,
    /// End of the term without a further renewal.
    pub(super) until: Instant,
    /// Version of the write that acquired the lease. Increases with each holder.
    pub(super) token: u64,
    /// UID of the held lease. A recreated lease of the same name is a different lease.
    pub(super) uid: String,
}

/// State machine of one candidate.
#[derive(Debug)]
pub(super) struct ElectionMachine {
    namespace: String,
    name: String,
    /// Unique among all processes, including earlier ones, so a lease with this holder is our lease.
    identity: String,
    timing: Timing,
    /// Earlier holders. Present in a coordinated election.
    earlier_holders: Option<EarlierHolders>,
    /// Maximum duration of the lease ever seen, including our own.
    max_duration: Duration,
    /// State that assigned the lease to us between two of our reads. The states between the last read and this state
    /// must be read before this state is evaluated.
    unverified_assignment: Option<Box<Lease>>,
    knowledge: LeaseKnowledge,
    /// True if the known version may be outdated, so that a read must precede any write.
    is_version_unconfirmed: bool,
    /// True if the last attempt immediately followed a conflict.
    retried_immediately: bool,
    term: Option<LeaseTerm>,
    term_count: u64,
    next_step_at: Instant,
}

/// Knowledge about the lease.
#[derive(Debug)]
enum LeaseKnowledge {
    Unread,
    Lease(Observed),
    /// The lease does not exist. Earlier holders may act until `free_at`.
    Missing {
        free_at: Instant,
    },
}

/// State of the lease at the last read.
#[derive(Debug)]
struct Observed {
    lease: Box<Lease>,
    /// Time of the first read of this record. The record was written earlier.
    since: Instant,
}

impl ElectionMachine {
    /// Builds a candidate without knowledge, which reads the lease immediately.
    pub(super) fn new(namespace: &str, name: &str, identity: String, timing: Timing, now: Instant) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity,
            timing,
            earlier_holders: None,
            max_duration: timing.lease,
            unverified_assignment: None,
            knowledge: LeaseKnowledge::Unread,
            is_version_unconfirmed: true,
            retried_immediately: false,
            term: None,
            term_count: 0,
            next_step_at: now,
        }
    }

    /// Builds a candidate that waits until a coordinator assigns the lease.
    pub(super) fn coordinated(namespace: &str, name: &str, identity: String, timing: Timing, now: Instant) -> Self {
        let earlier_holders = Some(EarlierHolders::new(&identity, now, timing.faults));
        Self { earlier_holders, ..Self::new(namespace, name, identity, timing, now) }
    }

    /// Returns true once the lease was read, even if missing.
    pub(super) fn has_read(&self) -> bool {
        !matches!(self.knowledge, LeaseKnowledge::Unread)
    }

    /// Returns true if we lead and the coordinator prefers another candidate.
    pub(super) fn must_yield(&self, now: Instant) -> bool {
        self.term(now).is_some()
            && matches!(&self.knowledge, LeaseKnowledge::Lease(observed) if self.prefers_another(observed))
    }

    /// Returns the current term at `now`.
    pub(super) fn term(&self, now: Instant) -> Option<&LeaseTerm> {
        self.term.as_ref().filter(|term| now < term.until)
    }

    /// Returns the last known holder.
    pub(super) fn holder(&self) -> Option<&str> {
        match &self.knowledge {
            LeaseKnowledge::Lease(observed) => record::holder(&observed.lease),
            LeaseKnowledge::Unread | LeaseKnowledge::Missing { .. } => None,
        }
    }

    /// Returns the next action at `now`. `wall_time` is the time for lease fields.
    pub(super) fn step(&mut self, now: Instant, wall_time: Timestamp) -> Step {
        self.end_expired_term(now);
        if now < self.next_step_at {
            // The end of the term must be announced in time, even if no request is due.
            let expiry = self.term.as_ref().map_or(self.next_step_at, |term| term.until);
            return Step::Wait(self.next_step_at.min(expiry));
        }
        if let (Some(assignment), LeaseKnowledge::Lease(observed)) = (&self.unverified_assignment, &self.knowledge) {
            // The states between the last read and this one show which other holder may have renewed.
            let [after, until] = [&observed.lease, assignment].map(|lease| record::version(lease).to_owned());
            return Step::ReadHistory { after, until };
        }
        match &self.knowledge {
            LeaseKnowledge::Lease(observed) if !self.is_version_unconfirmed && self.may_acquire(observed, now) => {
                Step::Update(Box::new(match &mut self.earlier_holders {
                    Some(earlier_holders) if earlier_holders.ownership(&observed.lease) == Ownership::Assigned => {
                        let lease = record::accepted(&observed.lease, &self.timing, wall_time);
                        earlier_holders.accept(&lease);
                        lease
                    }
                    // Renewal and takeover are one step: `held` distinguishes them by the holder.
                    _ => record::held(&observed.lease, &self.identity, &self.timing, wall_time),
                }))
            }
            // A coordinated candidate never creates the lease. Only the coordinator assigns it.
            LeaseKnowledge::Missing { free_at }
                if !self.is_version_unconfirmed && *free_at <= now && self.earlier_holders.is_none() =>
            {
                Step::Create(Box::new(record::created(
                    &self.namespace,
                    &self.name,
                    &self.identity,
                    &self.timing,
                    wall_time,
                )))
            }
            _ => Step::Get,
        }
    }

    /// Processes the result of a [`Step::Get`] sent at `sent_at`. `jitter_fraction`, between 0 and 1, chooses the
    /// jitter.
    pub(super) fn record_read(&mut self, result: StepResult, sent_at: Instant, now: Instant, jitter_fraction: f64) {
        self.end_expired_term(now);
        match result {
            StepResult::Lease(lease) if self.needs_history(&lease) => {
                self.is_version_unconfirmed = false;
                // The lease was reassigned in the meantime, so our term, if any, has ended.
                self.term = None;
                self.unverified_assignment = Some(lease);
                self.next_step_at = now;
            }
            StepResult::Lease(lease) => {
                self.observe(lease, now, false);
                let LeaseKnowledge::Lease(observed) = &self.knowledge else {
                    unreachable!("the lease was just observed")
                };
                let is_lost = self.term.as_ref().is_some_and(|term| {
                    record::uid(&observed.lease) != term.uid || !self.is_held_by_us(&observed.lease)
                });
                self.next_step_at = if self.may_acquire(observed, now) {
                    now
                } else if self.earlier_holders.is_some() {
                    now + self.timing.retry
                } else {
                    self.retried_immediately = false;
                    // A random delay after the expiry, so that waiting candidates do not send simultaneously.
                    let expired = self.expires_at(observed) + self.timing.retry.mul_f64(jitter_fraction / 4.0);
                    expired.min(now + self.retry_delay_with_jitter(jitter_fraction))
                };
                if is_lost {
                    self.term = None;
                }
            }
            StepResult::Missing => {
                self.record_missing(now);
                let LeaseKnowledge::Missing { free_at } = self.knowledge else {
                    unreachable!("the lease was just recorded as missing")
                };
                let next_step_at = now + self.retry_delay_with_jitter(jitter_fraction);
                self.next_step_at = if self.earlier_holders.is_some() {
                    now + self.timing.retry
                } else {
                    free_at.max(now).min(next_step_at)
                };
            }
            StepResult::States(_) | StepResult::Conflict | StepResult::Unknown => {
                self.record_failure(sent_at, now, jitter_fraction);
            }
        }
    }

    /// Processes the result of a [`Step::ReadHistory`].
    pub(super) fn record_history(&mut self, result: StepResult, now: Instant) {
        self.end_expired_term(now);
        let Some(assignment) = self.unverified_assignment.take() else { return };
        match result {
            StepResult::States(states)
                if states.last().is_some_and(|last| record::version(last) == record::version(&assignment)) =>
            {
                for state in states {
                    self.observe(Box::new(state), now, true);
                }
            }
            _ => self.observe(assignment, now, false),
        }
        self.next_step_at = now;
    }

    /// Processes the result of a [`Step::Create`] or a [`Step::Update`]. `sent_at` is an instant before the
    /// transmission.
    pub(super) fn record_write(&mut self, result: StepResult, sent_at: Instant, now: Instant, jitter_fraction: f64) {
        self.end_expired_term(now);
        match result {
            StepResult::Lease(lease) if self.is_held_by_us(&lease) => {
                let (uid, token) = (record::uid(&lease).to_owned(), record::token(&lease));
                self.observe(lease, now, true);
                self.retried_immediately = false;
                // The retry period counts from sending: a slow response must not delay the next renewal.
                self.next_step_at = now.max(sent_at + self.timing.retry);
                match self.earlier_holders.as_ref().and_then(|earlier_holders| earlier_holders.may_act_until(now)) {
                    // We hold the lease, but an earlier holder may still act.
                    Some(end) => self.next_step_at = self.next_step_at.min(end),
                    // The term counts from sending, because the server may have accepted the write at any time since.
                    None => self.start_or_extend_term(uid, token, sent_at + self.timing.acting_time(), now),
                }
            }
            // An admission plugin of the server changed our write.
            StepResult::Lease(lease) => {
                self.term = None;
                self.observe(lease, now, true);
                self.next_step_at = now + self.retry_delay_with_jitter(jitter_fraction);
            }
            StepResult::Missing => {
                self.record_missing(now);
                self.next_step_at = now;
            }
            StepResult::Conflict => {
                self.is_version_unconfirmed = true;
                // The first conflict is retried immediately. After a second conflict in a row the candidate waits, or
                // two candidates would loop.
                let is_first_conflict = !std::mem::replace(&mut self.retried_immediately, true);
                self.next_step_at = if is_first_conflict { now } else { now + self.retry_delay(jitter_fraction) };
            }
            StepResult::States(_) | StepResult::Unknown => self.record_failure(sent_at, now, jitter_fraction),
        }
    }

    /// Returns the write that releases the lease, or a read if the version is unknown. None if we do not hold the
    /// lease. The caller must first stop all actions in our name.
    pub(super) fn release(&mut self, now: Instant, wall_time: Timestamp) -> Option<Step> {
        let releases_unheld = self.releases_unheld_lease();
        let term = self.term(now);
        // After an unconfirmed write, a conditional release needs the current version first.
        if self.is_version_unconfirmed && term.is_some() {
            return Some(Step::Get);
        }
        let LeaseKnowledge::Lease(observed) = &self.knowledge else { return None };
        let is_ours = term.map_or(releases_unheld, |term| record::uid(&observed.lease) == term.uid)
            && record::holder(&observed.lease) == Some(&self.identity);
        is_ours.then(|| Step::Update(Box::new(record::released(&observed.lease, wall_time))))
    }

    /// Returns true if a candidate that does not lead releases the lease (injected fault).
    pub(super) fn releases_unheld_lease(&self) -> bool {
        self.earlier_holders.as_ref().is_some_and(EarlierHolders::releases_unheld_lease)
    }

    /// Ends the term early. The lease stays ours, so the next step may start another term.
    pub(super) fn resign(&mut self, now: Instant) {
        self.term = None;
        self.next_step_at = now;
    }

    /// Makes the next step due immediately, for a pending write.
    pub(super) fn step_now(&mut self, now: Instant) {
        self.next_step_at = self.next_step_at.min(now);
    }

    /// Ends an expired term.
    fn end_expired_term(&mut self, now: Instant) {
        // The end is exclusive: at `until` another candidate may already lead.
        if self.term.as_ref().is_some_and(|term| now >= term.until) {
            self.term = None;
        }
    }

    /// Starts or extends the term until `until`, unless that instant has already passed.
    fn start_or_extend_term(&mut self, uid: String, token: u64, until: Instant, now: Instant) {
        // The response took longer than the acting time. Another candidate may hold the lease by now.
        if now >= until {
            return;
        }
        match &mut self.term {
            // The term is never shortened: an earlier response that arrives late must not end it early.
            Some(term) if term.uid == uid => term.until = term.until.max(until),
            other => {
                self.term_count += 1;
                *other = Some(LeaseTerm { number: self.term_count, until, token, uid });
            }
        }
    }

    /// Returns true if we may write ourselves into the lease. Without a coordinator, we hold the lease, the lease is
    /// free, or its holder did not renew it for the lease duration. In a coordinated election, the lease must be
    /// assigned to us, and the coordinator must prefer no other candidate.
    fn may_acquire(&self, observed: &Observed, now: Instant) -> bool {
        if let Some(earlier_holders) = &self.earlier_holders {
            return match earlier_holders.ownership(&observed.lease) {
                Ownership::Ours | Ownership::Assigned => !self.prefers_another(observed),
                Ownership::Unheld | Ownership::Other => false,
            };
        }
        match record::holder(&observed.lease) {
            // A coordinator is about to assign this lease, so the candidate waits until the lease expires.
            None if record::is_coordinated(&observed.lease) => self.expires_at(observed) <= now,
            None => true,
            Some(holder) => holder == self.identity || self.expires_at(observed) <= now,
        }
    }

    fn is_held_by_us(&self, lease: &Lease) -> bool {
        match &self.earlier_holders {
            Some(earlier_holders) => earlier_holders.ownership(lease) == Ownership::Ours,
            None => record::holder(lease) == Some(&self.identity),
        }
    }

    fn prefers_another(&self, observed: &Observed) -> bool {
        self.earlier_holders.is_some() && record::preferred(&observed.lease).is_some_and(|name| name != self.identity)
    }

    /// Returns true if the lease was assigned to us, and other candidates may have held it since the known state.
    fn needs_history(&self, lease: &Lease) -> bool {
        let LeaseKnowledge::Lease(observed) = &self.knowledge else { return false };
        let is_assigned = self.earlier_holders.as_ref().is_some_and(|earlier_holders| {
            earlier_holders.needs_history() && earlier_holders.ownership(lease) == Ownership::Assigned
        });
        is_assigned
            && record::was_held(lease)
            && record::uid(&observed.lease) == record::uid(lease)
            && observed.lease.spec != lease.spec
    }

    fn expires_at(&self, observed: &Observed) -> Instant {
        // The coordinator writes the duration of its assignee, not of an earlier holder.
        let is_coordinated = record::is_coordinated(&observed.lease);
        // Counted by the local clock from the last observed change. Clocks of different hosts are never compared.
        observed.since
            + if is_coordinated { self.max_duration } else { record::duration(&observed.lease, &self.timing) }
    }

    /// Records a state of the lease seen at `now`. `directly_follows` is true if this state directly follows the known
    /// one. Only a change of the record restarts its expiry: a new label is not a renewal.
    fn observe(&mut self, lease: Box<Lease>, now: Instant, directly_follows: bool) {
        self.is_version_unconfirmed = false;
        // The longest duration ever seen bounds how long any earlier holder may act.
        self.max_duration = self.max_duration.max(record::duration(&lease, &self.timing));
        let previous = match &self.knowledge {
            LeaseKnowledge::Lease(previous) => Some(previous),
            LeaseKnowledge::Unread | LeaseKnowledge::Missing { .. } => None,
        };
        // Compared by content, not by version: a change of labels or managed fields does not renew the lease.
        let same_record = previous.filter(|previous| {
            record::uid(&previous.lease) == record::uid(&lease) && previous.lease.spec == lease.spec
        });
        let since = same_record.map_or(now, |previous| previous.since);
        if let Some(earlier_holders) = self.earlier_holders.as_mut().filter(|_| same_record.is_none()) {
            earlier_holders.observe(
                &lease,
                previous.map(|previous| &*previous.lease),
                directly_follows,
                now,
                self.max_duration,
            );
        }
        self.knowledge = LeaseKnowledge::Lease(Observed { lease, since });
    }

    /// Records that the lease does not exist. Unless we led, another candidate may have acquired or renewed the lease
    /// since our last read, and may not know of the deletion yet.
    fn record_missing(&mut self, now: Instant) {
        self.is_version_unconfirmed = false;
        let was_leading = self.term.take().is_some();
        let free_at = match &self.knowledge {
            LeaseKnowledge::Lease(_) if !was_leading => now + self.max_duration,
            LeaseKnowledge::Missing { free_at } => *free_at,
            LeaseKnowledge::Lease(_) | LeaseKnowledge::Unread => now,
        };
        if let Some(earlier_holders) = &mut self.earlier_holders {
            earlier_holders.wait_for(free_at);
        }
        self.knowledge = LeaseKnowledge::Missing { free_at };
    }

    /// Records a request with an unknown outcome.
    fn record_failure(&mut self, sent_at: Instant, now: Instant, jitter_fraction: f64) {
        self.is_version_unconfirmed = true;
        self.next_step_at = now.max(sent_at + self.retry_delay(jitter_fraction));
    }

    /// Returns the delay after a failure. A leader must retry soon, or its term ends; only other candidates wait longer
    /// by the jitter.
    fn retry_delay(&self, jitter_fraction: f64) -> Duration {
        if self.term.is_some() { self.timing.retry } else { self.retry_delay_with_jitter(jitter_fraction) }
    }

    fn retry_delay_with_jitter(&self, jitter_fraction: f64) -> Duration {
        self.timing.retry.mul_f64(1.0 + JITTER * jitter_fraction)
    }
}
