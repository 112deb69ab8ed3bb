//! One member's view of its group, without I/O or a clock: the members it assumes, and its provably own keys.
//!
//! Each member has its own lease. Into the lease it writes its *view*: the members that it assumes in the group. A
//! member *claims* a key if its view contains the member itself and assigns the key to it. The leases at the server
//! therefore show all claims at any time.
//!
//! **A member acts on a key only while all of these conditions hold:**
//!
//! 1. Its lease claims the key: the server confirmed the claim, and all later writes claim the key too.
//! 2. After that confirmation the member read all leases, and in the last read no other member claims the key.
//! 3. Its lease has not expired by the member's own clock, counted from before the last renewal was sent. As in an
//!    election, the fence enforces this.
//!
//! **A claim is withdrawn only after the member stopped acting on the key.** Before the first write without the claim,
//! all guards of the key have ended or its fence is closed. The server has also processed or discarded all unanswered
//! requests by then. The same holds before a release. Other members delete a lease only if its record did not change
//! for its duration, and only at that version. A late renewal then conflicts, and all earlier requests have arrived, as
//! in an election.
//!
//! **So two members never act on one key at the same time.** Assume that `a` and `b` both act. Both claims were written
//! before, and both are valid, because no claim is withdrawn and no lease deleted during the action. One claim was
//! written first, say by `a`. Then `b` read all leases after its own claim, and therefore after the claim of `a`. It
//! saw that `a` claims the key, so `b` does not act. The proof needs no order or agreement of views, and no
//! synchronized clocks. Like an election, it needs only equal clock rates.
//!
//! **And each key finally has an owner.** When no member joins or leaves, all members read the same leases. All views
//! then become equal, and exactly one member claims each key. Until then a key may have no owner.
//!
//! A deletion of a lease by another client does not prove that its member stopped. Members that knew the lease respect its
//! claims until its expiry.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use steadfast::ObjectKey;
use steadfast::environment::Instant;
use steadfast::k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};

use super::super::fault_injection::inject;
use super::super::record;
use super::super::timing::Timing;
use super::rendezvous::{MemberSet, owner};

/// Label of a member's lease: its group.
pub(super) const GROUP: &str = "steadfast/shares-of";

/// Annotation of a member's lease: its view.
const VIEW: &str = "steadfast/acts-by";

/// One member's view of its group.
#[derive(Debug)]
pub(super) struct Membership {
    group: String,
    /// Name of its lease.
    me: Arc<str>,
    timing: Timing,
    /// View written with each renewal.
    attempt: MemberSet,
    /// Next view, if it differs.
    wanted: MemberSet,
    /// The attempted view, once the server has it.
    published: Option<MemberSet>,
    /// Own lease with that view, as the server returned it.
    own: Option<Box<Lease>>,
    /// View published at the last read of all leases.
    cleared: Option<MemberSet>,
    peers: BTreeMap<Arc<str>, Peer>,
}

/// Another member, by the last state of its lease.
#[derive(Debug)]
struct Peer {
    uid: String,
    version: String,
    spec: Option<LeaseSpec>,
    /// Time of the first read of this record. The record was written earlier.
    since: Instant,
    /// Expiry of the lease if its record stays unchanged.
    lapses: Instant,
    released: bool,
    /// True if the last read contained this lease.
    there: bool,
    view: MemberSet,
}

/// Lease to delete at exactly this version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lapsed {
    pub(super) name: Arc<str>,
    pub(super) uid: String,
    pub(super) version: String,
}

/// Provably own keys of a member while its lease is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwnedKeys {
    me: Arc<str>,
    /// A key must be assigned to the member by each of these views.
    views: Vec<MemberSet>,
    /// Views of other claiming members that differ from ours. Equal views assign each key once.
    others: Vec<(Arc<str>, MemberSet)>,
}

impl OwnedKeys {
    pub(super) fn owns(&self, key: &ObjectKey) -> bool {
        // Every view that this member published or may publish must assign the key to this member.
        self.views.iter().all(|view| owner(view, key) == Some(&self.me))
            // Another member may still act by its older view.
            && !self.others.iter().any(|(other, view)| owner(view, key) == Some(other))
    }
}

impl Peer {
    /// Returns true if the view in its lease contains the member itself.
    fn claims(&self, name: &Arc<str>) -> bool {
        !self.released && self.view.contains(name)
    }
}

impl Membership {
    /// Builds a member that claims nothing.
    pub(super) fn new(group: &str, me: &str, timing: Timing) -> Self {
        Self {
            group: group.to_owned(),
            me: me.into(),
            timing,
            attempt: MemberSet::new(),
            wanted: MemberSet::new(),
            published: None,
            own: None,
            cleared: None,
            peers: BTreeMap::new(),
        }
    }

    /// Writes group and view into a lease before sending.
    pub(super) fn sign(&self, lease: &mut Lease) {
        let view: Vec<&str> = self.attempt.iter().map(AsRef::as_ref).collect();
        let metadata = &mut lease.metadata;
        metadata.labels.get_or_insert_default().insert(GROUP.to_owned(), self.group.clone());
        metadata.annotations.get_or_insert_default().insert(VIEW.to_owned(), view.join(","));
    }

    /// Records the server's response `lease` to the last signed write.
    pub(super) fn written(&mut self, lease: Box<Lease>) {
        // An admission webhook can change the stored view, and only the stored view is visible to other members.
        if view(&lease) == self.attempt {
            self.published = Some(self.attempt.clone());
            self.own = Some(lease);
            if inject!(self.timing.faults, sharding::ReadFirst) {
                self.cleared.clone_from(&self.published);
            }
        }
    }

    /// Processes a list of all leases read after the last [written](Self::written) state and received at `now`.
    ///
    /// Returns false if the list is older, or our lease differs from the written state. Such a list proves nothing.
    pub(super) fn read(&mut self, leases: Vec<Lease>, now: Instant) -> bool {
        let Some(own) = self.own.as_ref().filter(|_| self.published.is_some()) else { return false };
        let is_own = |lease: &Lease| record::uid(lease) == record::uid(own) && lease.spec == own.spec;
        // A list without the own write may lack claims that other members made since.
        if !leases.iter().any(|lease| is_own(lease) && view(lease) == view(own)) {
            return false;
        }
        for peer in self.peers.values_mut() {
            peer.there = false;
        }
        for lease in leases {
            if let Some(name) = lease.metadata.name.clone().filter(|name| **name != *self.me) {
                self.see(name.into(), lease, now);
            }
        }
        // A present lease counts even after its expiry, because its member may still renew it. An absent lease counts
        // until its expiry, because its member may not know of the deletion.
        self.peers.retain(|_, peer| peer.there || !(peer.released || peer.lapses <= now));
        self.cleared.clone_from(&self.published);
        // One change at a time: the claims of the next view must be known before its lost keys are handed over.
        if self.is_settled() {
            // A member that claims nothing may never read the leases, for example without the permission `list`. No keys
            // are reserved for it.
            let live = self.peers.iter().filter(|(name, peer)| peer.there && peer.claims(name));
            self.wanted = live.map(|(name, _)| name.clone()).chain([self.me.clone()]).collect();
        }
        true
    }

    fn see(&mut self, name: Arc<str>, lease: Lease, now: Instant) {
        let (uid, view) = (record::uid(&lease).to_owned(), view(&lease));
        let released = record::holder(&lease).is_none();
        let lasts = record::duration(&lease, &self.timing);
        // A released lease states a duration of one second, which is too short for all members to see the release.
        let lasts = if released { lasts.max(self.timing.lease) } else { lasts };
        let since = match self.peers.get(&name) {
            // Only a change of the record restarts its expiry.
            Some(peer) if peer.uid == uid && peer.spec == lease.spec => peer.since,
            _ => now,
        };
        let version = lease.metadata.resource_version.unwrap_or_default();
        let (spec, lapses) = (lease.spec, since + lasts);
        self.peers.insert(name, Peer { uid, version, spec, since, lapses, released, there: true, view });
    }

    /// Returns a lease that has expired.
    pub(super) fn lapsed(&self, now: Instant) -> Option<Lapsed> {
        // Only one lease per pass: the list is read again before the next deletion.
        let (name, peer) = self.peers.iter().find(|(_, peer)| peer.there && peer.lapses <= now)?;
        Some(Lapsed { name: name.clone(), uid: peer.uid.clone(), version: peer.version.clone() })
    }

    /// Returns true if another view must be written. From now on [own keys](Self::part) must belong to both views.
    pub(super) fn is_to_change(&self) -> bool {
        self.wanted != self.attempt
    }

    /// Returns true if the change may hand over keys. If members only leave, each member keeps its keys.
    pub(super) fn gives_up(&self) -> bool {
        // Only a joining member can take keys from this member.
        !self.wanted.is_subset(&self.attempt)
    }

    /// Adopts the next view. The caller must first end all actions on lost keys.
    pub(super) fn change(&mut self) {
        self.attempt.clone_from(&self.wanted);
    }

    /// Forgets all claims, because the lease may have expired. They return after the next write and read.
    pub(super) fn end(&mut self) {
        self.wanted.clone_from(&self.attempt);
        self.published = None;
        self.own = None;
        self.cleared = None;
    }

    /// Withdraws all claims. The caller must first end all actions.
    pub(super) fn renounce(&mut self) {
        self.attempt.clear();
        self.end();
    }

    /// Returns the own keys if the claims are confirmed.
    pub(super) fn part(&self) -> Option<OwnedKeys> {
        let is_deaf = inject!(self.timing.faults, sharding::IgnoredClaims);
        let mut views = Vec::new();
        // Other members may know any of these views: the view at the last read, the published view, the view being
        // written, or the next view.
        for view in [
            if is_deaf { &self.published } else { &self.cleared }.as_ref()?,
            self.published.as_ref()?,
            &self.attempt,
            &self.wanted,
        ] {
            if !views.contains(view) {
                views.push(view.clone());
            }
        }
        let claim = self.peers.iter().filter(|(name, peer)| peer.claims(name) && !is_deaf);
        let others = claim.filter(|(_, peer)| !views.contains(&peer.view));
        let others = others.map(|(name, peer)| (name.clone(), peer.view.clone())).collect();
        Some(OwnedKeys { me: self.me.clone(), views, others })
    }

    /// Returns true during changes, when leases are read more often.
    pub(super) fn is_in_motion(&self) -> bool {
        !self.is_settled() || self.part().is_none_or(|part| part.views.len() > 1 || !part.others.is_empty())
    }

    fn is_settled(&self) -> bool {
        self.wanted == self.attempt && self.published.as_ref() == Some(&self.attempt)
    }
}

/// Returns the view in a lease.
fn view(lease: &Lease) -> MemberSet {
    let said = lease.metadata.annotations.as_ref().and_then(|annotations| annotations.get(VIEW));
    let said = said.map(String::as_str).unwrap_or_default();
    said.split(',').filter(|name| !name.is_empty()).map(Arc::from).collect()
}
