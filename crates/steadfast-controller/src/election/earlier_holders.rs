//! Earlier holders of a coordinated lease, and the time until they must have stopped.
//!
//! The coordinator trusts its wall clock and the holders' wall clocks. This module trusts neither. An assigned
//! candidate accepts the lease immediately, so that the coordinator considers the candidate alive. The candidate does
//! not lead until, by its own clock, all earlier holders must have stopped. These include holders that it may have
//! missed.
//!
//! - If a read shows another holder, that holder may act for at most the lease duration after the read. Its last
//!   renewal was earlier.
//! - A holder releases the lease by writing an empty name, and only after it stopped leading. From then on no candidate
//!   acts.
//! - The states between two reads are requested. If they are unavailable, a holder may have renewed just before the
//!   second read.
//! - A lease without counted transitions was never held, because holders count transitions and coordinators do not.

use std::time::Duration;

use steadfast::environment::Instant;
use steadfast::k8s_openapi::api::coordination::v1::Lease;
use steadfast::k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::fault_injection::{ElectionFaults, inject};
use super::record;

/// Ownership of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ownership {
    /// Ours, and accepted.
    Ours,
    /// Assigned to us, not accepted yet.
    Assigned,
    /// No holder.
    Unheld,
    /// Held by or assigned to another candidate.
    Other,
}

/// Earlier holders of a lease.
#[derive(Debug)]
pub(super) struct EarlierHolders {
    identity: String,
    /// UID and acquire time of the lease that we accepted last. The coordinator clears the acquire time when it assigns
    /// the lease.
    accepted: Option<(String, Option<MicroTime>)>,
    stopped_at: Instant,
    faults: ElectionFaults,
}

impl EarlierHolders {
    /// Starts without a known holder.
    pub(super) fn new(identity: &str, now: Instant, faults: ElectionFaults) -> Self {
        Self { identity: identity.to_owned(), accepted: None, stopped_at: now, faults }
    }

    /// Returns the instant until which another holder may act, if it is later than `now`.
    pub(super) fn may_act_until(&self, now: Instant) -> Option<Instant> {
        let leads_immediately = inject!(self.faults, election::ImmediateLead);
        (self.stopped_at > now && !leads_immediately).then_some(self.stopped_at)
    }

    /// Returns true if the states between two reads must be requested.
    pub(super) fn needs_history(&self) -> bool {
        !inject!(self.faults, election::SkippedReads)
    }

    /// Returns true if a candidate that does not lead releases the lease (injected fault).
    pub(super) fn releases_unheld_lease(&self) -> bool {
        inject!(self.faults, election::UnownedRelease)
    }

    /// Returns the ownership of `lease`.
    pub(super) fn ownership(&self, lease: &Lease) -> Ownership {
        let is_accepted = |(uid, acquired): &(String, Option<MicroTime>)| {
            // The acquire time identifies the assignment that this process accepted. A later assignment has another
            // time.
            uid == record::uid(lease) && acquired.is_some() && acquired.as_ref() == record::acquired(lease)
        };
        match record::holder(lease) {
            None => Ownership::Unheld,
            Some(holder) if holder != self.identity => Ownership::Other,
            Some(_) if self.accepted.as_ref().is_some_and(is_accepted) => Ownership::Ours,
            Some(_) => Ownership::Assigned,
        }
    }

    /// Records our write that accepts `lease`.
    pub(super) fn accept(&mut self, lease: &Lease) {
        self.accepted = Some((record::uid(lease).to_owned(), record::acquired(lease).cloned()));
    }

    /// Records that another holder may act until `stopped_at`.
    pub(super) fn wait_for(&mut self, stopped_at: Instant) {
        // The instant never moves back, because several earlier holders may still act.
        self.stopped_at = self.stopped_at.max(stopped_at);
    }

    /// Records a state of the lease that differs from the state `previous`. `directly_follows` is true if no state is
    /// missing in between. `max_duration` is the maximum lease duration ever seen, and limits unseen holders.
    pub(super) fn observe(
        &mut self,
        lease: &Lease,
        previous: Option<&Lease>,
        directly_follows: bool,
        now: Instant,
        max_duration: Duration,
    ) {
        let is_same_lease = previous.is_some_and(|previous| record::uid(previous) == record::uid(lease));
        // A recreated lease proves nothing about holders of the deleted lease since our last read.
        let was_recreated = previous.is_some() && !is_same_lease;
        let was_never_held = !record::was_held(lease) && !was_recreated;
        match self.ownership(lease) {
            // A release in the same lease proves that its last holder stopped.
            Ownership::Unheld if record::is_released(lease) && is_same_lease => self.stopped_at = now,
            Ownership::Unheld if record::is_released(lease) && !was_recreated => {}
            Ownership::Unheld | Ownership::Assigned if was_never_held => {}
            // Consecutive states show that no other holder renewed in between.
            Ownership::Assigned if is_same_lease && (directly_follows || !self.needs_history()) => {}
            Ownership::Ours => {}
            Ownership::Unheld | Ownership::Assigned | Ownership::Other => self.wait_for(now + max_duration),
        }
    }
}
