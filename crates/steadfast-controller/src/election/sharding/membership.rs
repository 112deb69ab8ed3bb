//! One member's view of its group, without I/O or a clock: the members it assumes, and the keys it provably owns.
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
//! all guards of the key have ended or its fence is closed. The server has also processed or discarded all requests
//! without a response by then. The same holds before a release. Other members delete a lease only if its record did not
//! change for its duration, and only at that version. A late renewal then conflicts, and all earlier requests have
//! arrived, as in an election.
//!
//! **So two members never act on one key at the same time.** Assume that `a` and `b` both act. Both claims were written
//! before, and both are valid, because no claim is withdrawn and no lease deleted during the action. One claim was
//! written first, say by `a`. Then `b` read all leases after its own claim, and therefore after the claim of `a`. `b`
//! saw that `a` claims the key, so `b` does not act. The proof needs no order or agreement of views, and no
//! synchronized clocks. Like an election, the proof needs only equal clock rates.
//!
//! **And each key finally has an owner.** When no member joins or leaves, all members read the same leases. All views
//! then become equal, and exactly one member claims each key. Until then a key may have no owner.
//!
//! A deletion of a lease by another client does not prove that its member stopped. Members that knew the lease respect
//! its claims until its expiry.

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
pub(super) const GROUP_LABEL: &str = "steadfast/shares-of";

/// Annotation of a member's lease: its view.
const VIEW_ANNOTATION: &str = "steadfast/acts-by";

/// One member's view of its group.
#[derive(Debug)]
pub(super) struct Membership {
    group: String,
    /// Name of the member's own lease.
    own_name: Arc<str>,
    timing: Timing,
    /// View written with each renewal.
    written_view: MemberSet,
    /// View that replaces `written_view`. Equal to `written_view` if no change is due.
    next_view: MemberSet,
    /// The last written view, once the server has confirmed it.
    published_view: Option<MemberSet>,
    /// Own lease with the published view, as the server returned it.
    own_lease: Option<Box<Lease>>,
    /// View published at the last read of all leases.
    view_at_last_read: Option<MemberSet>,
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
    expires_at: Instant,
    released: bool,
    /// True if the last read contained this lease.
    is_listed: bool,
    view: MemberSet,
}

/// Lease to delete at exactly this version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExpiredLease {
    pub(super) name: Arc<str>,
    pub(super) uid: String,
    pub(super) version: String,
}

/// Keys that a member provably owns while its lease is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwnedKeys {
    own_name: Arc<str>,
    /// A key must be assigned to the member by each of these views.
    views: Vec<MemberSet>,
    /// Views of other claiming members that differ from ours. Equal views assign each key once.
    other_views: Vec<(Arc<str>, MemberSet)>,
}

impl OwnedKeys {
    pub(super) fn owns(&self, key: &ObjectKey) -> bool {
        // Every view that this member published or may publish must assign the key to this member.
        self.views.iter().all(|view| owner(view, key) == Some(&self.own_name))
            // Another member may still act by its older view.
            && !self.other_views.iter().any(|(other, view)| owner(view, key) == Some(other))
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
            own_name: me.into(),
            timing,
            written_view: MemberSet::new(),
            next_view: MemberSet::new(),
            published_view: None,
            own_lease: None,
            view_at_last_read: None,
            peers: BTreeMap::new(),
        }
    }

    /// Writes group and view into a lease before sending.
    pub(super) fn add_group_and_view(&self, lease: &mut Lease) {
        let view: Vec<&str> = self.written_view.iter().map(AsRef::as_ref).collect();
        let metadata = &mut lease.metadata;
        metadata.labels.get_or_insert_default().insert(GROUP_LABEL.to_owned(), self.group.clone());
        metadata.annotations.get_or_insert_default().insert(VIEW_ANNOTATION.to_owned(), view.join(","));
    }

    /// Records the server's response `lease` to the last write of the member's lease.
    pub(super) fn record_write(&mut self, lease: Box<Lease>) {
        // An admission webhook can change the stored view, and only the stored view is visible to other members.
        if view(&lease) == self.written_view {
            self.published_view = Some(self.written_view.clone());
            self.own_lease = Some(lease);
            if inject!(self.timing.faults, sharding::ReadFirst) {
                self.view_at_last_read.clone_from(&self.published_view);
            }
        }
    }

    /// Processes a list of all leases, read after the last confirmed write of the member's lease and received at `now`.
    ///
    /// Returns false if the list is older, or our lease differs from the written state. Such a list proves nothing.
    pub(super) fn record_read(&mut self, leases: Vec<Lease>, now: Instant) -> bool {
        let Some(own) = self.own_lease.as_ref().filter(|_| self.published_view.is_some()) else { return false };
        let is_own = |lease: &Lease| record::uid(lease) == record::uid(own) && lease.spec == own.spec;
        // A list without the member's last write may lack claims that other members have made since.
        if !leases.iter().any(|lease| is_own(lease) && view(lease) == view(own)) {
            return false;
        }
        for peer in self.peers.values_mut() {
            peer.is_listed = false;
        }
        for lease in leases {
            if let Some(name) = lease.metadata.name.clone().filter(|name| **name != *self.own_name) {
                self.observe(name.into(), lease, now);
            }
        }
        // A present lease counts even after its expiry, because its member may still renew it. An absent lease counts
        // until its expiry, because its member may not know of the deletion.
        self.peers.retain(|_, peer| peer.is_listed || !(peer.released || peer.expires_at <= now));
        self.view_at_last_read.clone_from(&self.published_view);
        // Only one change runs at a time: the claims of the next view must be known before lost keys are handed over.
        if self.is_settled() {
            // A member that claims nothing may never read the leases, for example without the permission `list`. No
            // keys are reserved for it.
            let live = self.peers.iter().filter(|(name, peer)| peer.is_listed && peer.claims(name));
            self.next_view = live.map(|(name, _)| name.clone()).chain([self.own_name.clone()]).collect();
        }
        true
    }

    fn observe(&mut self, name: Arc<str>, lease: Lease, now: Instant) {
        let (uid, view) = (record::uid(&lease).to_owned(), view(&lease));
        let released = record::holder(&lease).is_none();
        let duration = record::duration(&lease, &self.timing);
        // A released lease states a duration of one second, which is too short for all members to see the release.
        let duration = if released { duration.max(self.timing.lease) } else { duration };
        let since = match self.peers.get(&name) {
            // Only a change of the record restarts its expiry.
            Some(peer) if peer.uid == uid && peer.spec == lease.spec => peer.since,
            _ => now,
        };
        let version = lease.metadata.resource_version.unwrap_or_default();
        let (spec, expires_at) = (lease.spec, since + duration);
        self.peers.insert(name, Peer { uid, version, spec, since, expires_at, released, is_listed: true, view });
    }

    /// Returns a lease that has expired.
    pub(super) fn expired_lease(&self, now: Instant) -> Option<ExpiredLease> {
        // Only one lease per pass: the list is read again before the next deletion.
        let (name, peer) = self.peers.iter().find(|(_, peer)| peer.is_listed && peer.expires_at <= now)?;
        Some(ExpiredLease { name: name.clone(), uid: peer.uid.clone(), version: peer.version.clone() })
    }

    /// Returns true if another view must be written. From now on, an [owned key](Self::owned_keys) must belong to this
    /// member in both views.
    pub(super) fn must_change(&self) -> bool {
        self.next_view != self.written_view
    }

    /// Returns true if the change may hand over keys. If members only leave, each member keeps its keys.
    pub(super) fn hands_over_keys(&self) -> bool {
        // Only a joining member can take keys from this member.
        !self.next_view.is_subset(&self.written_view)
    }

    /// Adopts the next view. The caller must first end all actions on lost keys.
    pub(super) fn adopt_next_view(&mut self) {
        self.written_view.clone_from(&self.next_view);
    }

    /// Forgets all claims, because the lease may have expired. They return after the next write and read.
    pub(super) fn clear_claims(&mut self) {
        self.next_view.clone_from(&self.written_view);
        self.published_view = None;
        self.own_lease = None;
        self.view_at_last_read = None;
    }

    /// Withdraws all claims. The caller must first end all actions.
    pub(super) fn withdraw_claims(&mut self) {
        self.written_view.clear();
        self.clear_claims();
    }

    /// Returns the owned keys if the claims are confirmed.
    pub(super) fn owned_keys(&self) -> Option<OwnedKeys> {
        let ignores_claims = inject!(self.timing.faults, sharding::IgnoredClaims);
        let mut views = Vec::new();
        // Other members may know any of these views: the view at the last read, the published view, the view being
        // written, or the next view.
        for view in [
            if ignores_claims { &self.published_view } else { &self.view_at_last_read }.as_ref()?,
            self.published_view.as_ref()?,
            &self.written_view,
            &self.next_view,
        ] {
            if !views.contains(view) {
                views.push(view.clone());
            }
        }
        let claim = self.peers.iter().filter(|(name, peer)| peer.claims(name) && !ignores_claims);
        let other_views = claim.filter(|(_, peer)| !views.contains(&peer.view));
        let other_views = other_views.map(|(name, peer)| (name.clone(), peer.view.clone())).collect();
        Some(OwnedKeys { own_name: self.own_name.clone(), views, other_views })
    }

    /// Returns true during changes, when leases are read more often.
    pub(super) fn is_changing(&self) -> bool {
        !self.is_settled() || self.owned_keys().is_none_or(|part| part.views.len() > 1 || !part.other_views.is_empty())
    }

    fn is_settled(&self) -> bool {
        self.next_view == self.written_view && self.published_view.as_ref() == Some(&self.written_view)
    }
}

/// Returns the view in a lease.
fn view(lease: &Lease) -> MemberSet {
    let text = lease.metadata.annotations.as_ref().and_then(|annotations| annotations.get(VIEW_ANNOTATION));
    let text = text.map(String::as_str).unwrap_or_default();
    text.split(',').filter(|name| !name.is_empty()).map(Arc::from).collect()
}
