//! A relist in place: what a list brings, set beside what is held until the list is complete.

use super::entries::{Replacement, Tainted, entry, successor};
use super::objects::Objects;
use super::vacant::Vacant;
use crate::key::ObjectKey;
use crate::object::{Entry, Object, Weighed};
use crate::record::Identity;
use crate::slots::Slot;
use crate::version::ResourceVersion;

/// A list that is older than what the store holds in the same epoch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the list is of version {listed}, the store is at {held} already")]
pub struct OlderList {
    /// The version of the list.
    pub listed: ResourceVersion,
    /// The version of the store.
    pub held: ResourceVersion,
}

/// Whether a listed object needs to be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// It is held in this version; it is staged already.
    Unchanged,
    /// It is to be decoded and [put](Staging::put).
    Wanted,
}

/// A list on its way into the store.
///
/// Objects come in any order; of those with the same key the last counts. What is not staged when the list is
/// committed was not in it. An unchanged object costs three pointers.
pub struct Staging<K> {
    held: Objects<K>,
    /// What came, in the order in which it came.
    staged: Vec<Staged<K>>,
    /// What all its objects take up, those among them that are held already.
    listed: usize,
}

enum Staged<K> {
    Listed(Entry<K>),
    /// Deleted while the list was on its way.
    Gone(ObjectKey),
}

impl<K> Staged<K> {
    fn key(&self) -> &ObjectKey {
        match self {
            Self::Listed(entry) => entry.key(),
            Self::Gone(key) => key,
        }
    }
}

impl<K> Staging<K> {
    pub(super) fn new(held: Objects<K>) -> Self {
        Self { held, staged: Vec::new(), listed: 0 }
    }

    /// Stages an object that is held in the version listed; asks for any other.
    pub fn offer(&mut self, identity: &Identity) -> Offer {
        // A UID that was not known is to be kept.
        self.offer_if(identity, |held| {
            (*held.uid() == identity.uid || !identity.uid.is_given()) && (!held.is_tainted() || held.is_unfit())
        })
    }

    /// The same of an object that is listed without its content: also one that could not be decoded stays what it is, since
    /// it would come as it did then.
    pub fn offer_unseen(&mut self, identity: &Identity) -> Offer {
        self.offer_if(identity, |held| *held.uid() == identity.uid)
    }

    fn offer_if(&mut self, identity: &Identity, is_same: impl FnOnce(&Entry<K>) -> bool) -> Offer {
        match self.held.get(&identity.key) {
            Some((_, held)) if *held.version() == identity.version && is_same(held) => {
                self.listed += held.footprint();
                self.staged.push(Staged::Listed(held.clone()));
                Offer::Unchanged
            }
            _ => Offer::Wanted,
        }
    }

    /// Stages a listed object.
    pub fn put(&mut self, identity: Identity, object: Result<impl Into<Weighed<K>>, Tainted>) {
        let entry = entry(identity, object);
        self.listed += entry.footprint();
        self.staged.push(Staged::Listed(entry));
    }

    /// Stages an object whose state could not be decoded, and the last one that could.
    pub fn put_tainted(&mut self, identity: Identity, last: Option<(Identity, Weighed<K>)>) {
        let last = last.map(|(identity, object)| Object::weighed(identity, object));
        let entry = Entry::tainted(identity, last);
        self.listed += entry.footprint();
        self.staged.push(Staged::Listed(entry));
    }

    /// What objects and entries take if the list is committed as it is, in bytes, with those that came twice.
    pub fn held_bytes(&self) -> usize {
        self.listed
    }

    /// Stages a listed object that is being decoded, and returns what to [fill](Self::fill) in when it is. Until then, and if
    /// that never comes, it is one that cannot be decoded.
    pub fn put_unfilled(&mut self, identity: Identity) -> usize {
        self.put(identity, Err::<Weighed<K>, _>(Tainted));
        self.staged.len() - 1
    }

    /// Fills in the object that was staged as `place`.
    pub fn fill(&mut self, place: usize, object: Weighed<K>) {
        if let Some(Staged::Listed(entry)) = self.staged.get_mut(place) {
            self.listed += object.bytes;
            entry.fill(object);
        }
    }

    /// Takes back what was staged of an object: a streamed list may tell of its end before it is complete itself.
    pub fn remove(&mut self, identity: &Identity) {
        self.staged.push(Staged::Gone(identity.key.clone()));
    }

    /// How what the store is to hold differs from what it holds, in the order of the keys, and the slots of all that it is
    /// to hold, in that order too. What is new is given slots that are `vacant`.
    pub(super) fn settle(
        self,
        held: &Objects<K>,
        vacant: &mut Vacant,
        any_age: bool,
    ) -> (Vec<Slot>, Vec<Replacement<K>>) {
        let mut staged = self.staged;
        // Stable, and linear for what is in order already.
        staged.sort_by(|a, b| a.key().cmp(b.key()));
        staged.dedup_by(|later, earlier| {
            let same = later.key() == earlier.key();
            if same {
                std::mem::swap(later, earlier);
            }
            same
        });

        let mut slots = Vec::with_capacity(staged.len());
        let mut replacements = Vec::new();
        let gone = |(slot, old): (Slot, &Entry<K>)| Replacement { slot, old: Some(old.clone()), new: None };
        let mut held = held.slots().map(|slot| (slot, held.at(slot))).peekable();
        for staged in staged {
            let Staged::Listed(came) = staged else { continue };
            while let Some(missing) = held.next_if(|(_, held)| held.key() < came.key()) {
                replacements.push(gone(missing));
            }
            let Some((slot, old)) = held.next_if(|(_, held)| held.key() == came.key()) else {
                let slot = vacant.take();
                slots.push(slot);
                replacements.push(Replacement { slot, old: None, new: Some(came) });
                continue;
            };
            slots.push(slot);
            if !old.is(&came)
                && let Some(new) = successor(old, came, any_age)
            {
                replacements.push(Replacement { slot, old: Some(old.clone()), new: Some(new) });
            }
        }
        replacements.extend(held.map(gone));
        (slots, replacements)
    }
}
