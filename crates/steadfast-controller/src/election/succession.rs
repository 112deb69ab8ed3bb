//! Those who held a lease before us that a coordinator gives to one after the other, and until when they may act.
//!
//! The coordinator judges by its wall clock, and by times that holders have written by theirs. Neither is believed here: who is
//! given a lease takes it up at once, so that the coordinator sees him alive, and leads when by his own clock everybody is over whom
//! he has seen or may have missed.
//!
//! - Whoever else is seen to hold the lease may act for as long as it lasts, at most, from then on: he has renewed it before.
//! - Who gives it up writes an empty name, and only if he has led; then nobody acts.
//! - What happened between two looks is asked for. Where that is not known, somebody may have renewed it a moment before the second.
//! - A lease in which nobody has counted a transition was never held: holders write that, coordinators do not.

use std::time::Duration;

use steadfast::environment::Instant;
use steadfast::k8s_openapi::api::coordination::v1::Lease;
use steadfast::k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::breach::{Breaches, ElectionBreach};
use super::record;

/// Whose a lease is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It is ours, and we have taken it up.
    Ours,
    /// It is given to us.
    Given,
    /// No name is in it.
    Nobodys,
    /// Another holds it, or is to.
    Anothers,
}

/// Those who held a lease before us.
#[derive(Debug)]
pub(super) struct Succession {
    identity: String,
    /// The lease that we took up last, and since when, as we have written there. A coordinator removes that when it gives the lease.
    taken: Option<(String, Option<MicroTime>)>,
    over: Instant,
    breaches: Breaches,
}

impl Succession {
    /// Nobody was seen yet.
    pub(super) fn new(identity: &str, now: Instant, breaches: Breaches) -> Self {
        Self { identity: identity.to_owned(), taken: None, over: now, breaches }
    }

    /// Whether somebody else may act at `now`; until when.
    pub(super) fn goes_on(&self, now: Instant) -> Option<Instant> {
        let led_at_once = self.breaches.commit(ElectionBreach::AtOnce);
        (self.over > now && !led_at_once).then_some(self.over)
    }

    /// Whether what was between two looks is to be asked for.
    pub(super) fn asks(&self) -> bool {
        !self.breaches.commit(ElectionBreach::Overlooked)
    }

    /// Whether the lease may be given up by who does not lead.
    pub(super) fn gives_up_for_others(&self) -> bool {
        self.breaches.commit(ElectionBreach::EmptyName)
    }

    /// Whose `lease` is.
    pub(super) fn place(&self, lease: &Lease) -> Place {
        let is_taken = |(uid, acquired): &(String, Option<MicroTime>)| {
            uid == record::uid(lease) && acquired.is_some() && acquired.as_ref() == record::acquired(lease)
        };
        match record::holder(lease) {
            None => Place::Nobodys,
            Some(holder) if holder != self.identity => Place::Anothers,
            Some(_) if self.taken.as_ref().is_some_and(is_taken) => Place::Ours,
            Some(_) => Place::Given,
        }
    }

    /// `lease` is what we write to take it up.
    pub(super) fn take_up(&mut self, lease: &Lease) {
        self.taken = Some((record::uid(lease).to_owned(), record::acquired(lease).cloned()));
    }

    /// Somebody may act until then.
    pub(super) fn wait_for(&mut self, over: Instant) {
        self.over = self.over.max(over);
    }

    /// The lease was seen in a state that differs from the one `before`, if there was one: the `next` one, or one after any others.
    /// The `longest` that it was ever seen to last is how long a holder may act who was not seen.
    pub(super) fn see(&mut self, lease: &Lease, before: Option<&Lease>, next: bool, now: Instant, longest: Duration) {
        let same = before.is_some_and(|before| record::uid(before) == record::uid(lease));
        // Another lease of that name says nothing of who held the one before after we had looked, whosever it was then.
        let is_another = before.is_some() && !same;
        let was_never_held = !record::was_held(lease) && !is_another;
        match self.place(lease) {
            Place::Nobodys if record::is_released(lease) && same => self.over = now,
            Place::Nobodys if record::is_released(lease) && !is_another => {}
            Place::Nobodys | Place::Given if was_never_held => {}
            Place::Given if same && (next || !self.asks()) => {}
            Place::Ours => {}
            Place::Nobodys | Place::Given | Place::Anothers => self.wait_for(now + longest),
        }
    }
}
