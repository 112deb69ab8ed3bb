//! One member's view of its group, without I/O or a clock: by which members it acts, and which keys are provably its own.
//!
//! Each member has a lease of its own, and writes into it the members by which it acts, its *view*. A member *claims* a key
//! by a view that contains the member itself and by which the key is its own. What a server has is what is written, so at any
//! moment it is known there who claims what.
//!
//! **A member acts on a key only while all of this holds:**
//!
//! 1. Its lease has it claim the key: the server has said so, and whatever was sent since claims it too.
//! 2. After that was said, it has read the leases of all members, and in what it read last nobody else claims the key.
//! 3. Its lease has not lapsed, by its own clock from before the last renewal was sent (as in an election, by the fence).
//!
//! **A claim is taken back only once it is not acted on:** before anything is sent that does not claim a key any more, what may
//! act on it has ended, or its fence is closed, and what has no answer had the time to be acted on. The same holds before a
//! lease is released. And a member's lease is deleted by others only when its record has not changed for as long as it lasts,
//! in the version that had not changed: a renewal that is still on its way conflicts then, and all that was sent by
//! the last one has arrived, as in an election.
//!
//! **So two members never act on one key at once.** Say that `a` and `b` both do. Both claims were written before, and both
//! stand: none is taken back, nor a lease deleted, while it is acted on. One was written first, say that of `a`. Then
//! `b` has read all leases after its own claim was written, so after that of `a` was, and found `a` claiming the key; so it does
//! not act. That is all: it needs no order among the views, no agreement about them, and no clocks that are alike, but for the one thing
//! that an election needs as well: that durations are the same everywhere.
//!
//! **And in the end each key has somebody:** when no member comes or goes, all read the same leases, so all views become the same, by
//! which exactly one claims each key. Until then nobody may have it.
//!
//! A lease that was deleted by somebody else says nothing of whether its member still acts. Those that have seen it take its claims
//! to stand until it would have lapsed.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use steadfast::ObjectKey;
use steadfast::environment::Instant;
use steadfast::k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};

use super::super::record;
use super::super::timing::Timing;
use super::breach::{Breaches, ShardingBreach};
use super::rendezvous::{View, owner};

/// In a member's lease: of which group it is.
pub(super) const GROUP: &str = "steadfast/shares-of";

/// In a member's lease: the members by which it acts.
const VIEW: &str = "steadfast/acts-by";

/// One member's view of its group.
#[derive(Debug)]
pub(super) struct Membership {
    group: String,
    /// The name of its lease.
    me: Arc<str>,
    timing: Timing,
    /// The view that is written with each renewal.
    attempt: View,
    /// The view that is to come next, where that is another one.
    wanted: View,
    /// The attempt, once the server has it.
    published: Option<View>,
    /// Its own lease, as the server has it then.
    own: Option<Box<Lease>>,
    /// What was published when all leases were read last.
    cleared: Option<View>,
    peers: BTreeMap<Arc<str>, Peer>,
    breaches: Breaches,
}

/// Another member, as its lease was seen last.
#[derive(Debug)]
struct Peer {
    uid: String,
    version: String,
    spec: Option<LeaseSpec>,
    /// When this record was first seen: later than it was written.
    since: Instant,
    /// When it has lapsed if it does not change.
    lapses: Instant,
    released: bool,
    /// Whether it was there when all were read last.
    there: bool,
    view: View,
}

/// A lease that is to be deleted, in this version and no other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lapsed {
    pub(super) name: Arc<str>,
    pub(super) uid: String,
    pub(super) version: String,
}

/// The keys that are provably a member's own, as long as its lease has not lapsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    me: Arc<str>,
    /// A key has to be its own by each of these.
    views: Vec<View>,
    /// What others claim by, where that is none of ours: by the same view there is one owner.
    others: Vec<(Arc<str>, View)>,
}

impl Part {
    pub(super) fn owns(&self, key: &ObjectKey) -> bool {
        self.views.iter().all(|view| owner(view, key) == Some(&self.me))
            && !self.others.iter().any(|(other, view)| owner(view, key) == Some(other))
    }
}

impl Peer {
    /// Whether any keys are its own by the view that its lease has.
    fn claims(&self, name: &Arc<str>) -> bool {
        !self.released && self.view.contains(name)
    }
}

impl Membership {
    /// A member that claims nothing yet.
    pub(super) fn new(group: &str, me: &str, timing: Timing, breaches: Breaches) -> Self {
        Self {
            group: group.to_owned(),
            me: me.into(),
            timing,
            attempt: View::new(),
            wanted: View::new(),
            published: None,
            own: None,
            cleared: None,
            peers: BTreeMap::new(),
            breaches,
        }
    }

    /// Writes into `lease`, which is to be sent, what makes it that of a member.
    pub(super) fn sign(&self, lease: &mut Lease) {
        let view: Vec<&str> = self.attempt.iter().map(AsRef::as_ref).collect();
        let metadata = &mut lease.metadata;
        metadata.labels.get_or_insert_default().insert(GROUP.to_owned(), self.group.clone());
        metadata.annotations.get_or_insert_default().insert(VIEW.to_owned(), view.join(","));
    }

    /// The server has written what was signed last, and has answered with `lease`.
    pub(super) fn written(&mut self, lease: Box<Lease>) {
        if view(&lease) == self.attempt {
            self.published = Some(self.attempt.clone());
            self.own = Some(lease);
            if self.breaches.commit(ShardingBreach::ReadFirst) {
                self.cleared.clone_from(&self.published);
            }
        }
    }

    /// All leases of the group, read at the server after all that was [written](Self::written); come to be known at `now`.
    ///
    /// False if they are older than that, or our own is not as it was written: then they say nothing.
    pub(super) fn read(&mut self, leases: Vec<Lease>, now: Instant) -> bool {
        let Some(own) = self.own.as_ref().filter(|_| self.published.is_some()) else { return false };
        let is_own = |lease: &Lease| record::uid(lease) == record::uid(own) && lease.spec == own.spec;
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
        self.peers.retain(|_, peer| peer.there || !(peer.released || peer.lapses <= now));
        self.cleared.clone_from(&self.published);
        // One change at a time: what is claimed by the next view has to be known when the keys are given up that it lacks.
        if self.is_settled() {
            // Who claims nothing has not read anything yet, and may never: a role without `list`. Nothing is kept free for it.
            let live = self.peers.iter().filter(|(name, peer)| peer.there && peer.claims(name));
            self.wanted = live.map(|(name, _)| name.clone()).chain([self.me.clone()]).collect();
        }
        true
    }

    fn see(&mut self, name: Arc<str>, lease: Lease, now: Instant) {
        let (uid, view) = (record::uid(&lease).to_owned(), view(&lease));
        let released = record::holder(&lease).is_none();
        let lasts = record::duration(&lease, &self.timing);
        // That of a released one says a second, and all are to see that it was released.
        let lasts = if released { lasts.max(self.timing.lease) } else { lasts };
        let since = match self.peers.get(&name) {
            // Only another record begins another time.
            Some(peer) if peer.uid == uid && peer.spec == lease.spec => peer.since,
            _ => now,
        };
        let version = lease.metadata.resource_version.unwrap_or_default();
        let (spec, lapses) = (lease.spec, since + lasts);
        self.peers.insert(name, Peer { uid, version, spec, since, lapses, released, there: true, view });
    }

    /// A lease that is not its member's any more.
    pub(super) fn lapsed(&self, now: Instant) -> Option<Lapsed> {
        let (name, peer) = self.peers.iter().find(|(_, peer)| peer.there && peer.lapses <= now)?;
        Some(Lapsed { name: name.clone(), uid: peer.uid.clone(), version: peer.version.clone() })
    }

    /// Whether another view is to be written. From now on nothing is [its own](Self::part) that is not by that one too.
    pub(super) fn is_to_change(&self) -> bool {
        self.wanted != self.attempt
    }

    /// Whether keys may be given up with the change. Where members only go, each keeps what it has.
    pub(super) fn gives_up(&self) -> bool {
        !self.wanted.is_subset(&self.attempt)
    }

    /// The next view is to be written: what it gives up is acted on by nobody any more.
    pub(super) fn change(&mut self) {
        self.attempt.clone_from(&self.wanted);
    }

    /// The lease may have lapsed: nothing is known of it until it is written again.
    pub(super) fn end(&mut self) {
        self.wanted.clone_from(&self.attempt);
        self.published = None;
        self.own = None;
        self.cleared = None;
    }

    /// Nothing is claimed any more: what was is acted on by nobody.
    pub(super) fn renounce(&mut self) {
        self.attempt.clear();
        self.end();
    }

    /// What is its own, where something is known.
    pub(super) fn part(&self) -> Option<Part> {
        let is_deaf = self.breaches.commit(ShardingBreach::UnheardClaims);
        let mut views = Vec::new();
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
        Some(Part { me: self.me.clone(), views, others })
    }

    /// Whether something is under way: then the others are looked at more often.
    pub(super) fn is_in_motion(&self) -> bool {
        !self.is_settled() || self.part().is_none_or(|part| part.views.len() > 1 || !part.others.is_empty())
    }

    fn is_settled(&self) -> bool {
        self.wanted == self.attempt && self.published.as_ref() == Some(&self.attempt)
    }
}

/// The members by which the one acts whose lease it is.
fn view(lease: &Lease) -> View {
    let said = lease.metadata.annotations.as_ref().and_then(|annotations| annotations.get(VIEW));
    let said = said.map(String::as_str).unwrap_or_default();
    said.split(',').filter(|name| !name.is_empty()).map(Arc::from).collect()
}
