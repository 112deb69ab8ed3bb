//! Staging of a relist: the listed objects are compared with the store, and kept separate until the list is complete.

use super::entries::{Extractor, Replacement, Tainted, Values, entry, successor};
use super::objects::Objects;
use super::vacant::Vacant;
use crate::key::ObjectKey;
use crate::object::{Entry, Object, WithSize};
use crate::record::Identity;
use crate::slots::Slot;
use crate::version::ResourceVersion;

/// Error for a list that is older than the store in the same epoch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the list has version {listed}, but the store is already at {held}")]
pub struct OlderList {
    /// Version of the list.
    pub listed: ResourceVersion,
    /// Version of the store.
    pub held: ResourceVersion,
}

/// Decision whether a listed object must be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferResult {
    /// The store has this version; the object is already staged.
    Unchanged,
    /// The object must be decoded and [put](Staging::put).
    Requested,
}

/// List that is being staged.
///
/// Objects arrive in any order. If several have one key, the last counts. Objects that are not staged at the commit
/// count as missing from the list. An unchanged object takes the memory of three pointers.
pub struct Staging<K> {
    held: Objects<K>,
    /// Functions of the store's indexes.
    extractors: Box<[Extractor<K>]>,
    /// Staged objects, in the order of their arrival.
    staged: Vec<Staged<K>>,
    /// Memory of all listed objects in bytes, including those that the store already has.
    listed: usize,
    /// Memory of the decoded forms that are kept in addition to encoded ones, in bytes.
    decoded: usize,
}

/// Maximum memory of the decoded forms of a list that are kept in addition to the encoded ones, in bytes.
const MAX_DECODED_BYTES: usize = 32 * 1024 * 1024;

enum Staged<K> {
    Listed(Entry<K>, Option<Box<[Values]>>),
    /// Deleted while the list was running.
    Gone(ObjectKey),
}

impl<K> Staged<K> {
    fn key(&self) -> &ObjectKey {
        match self {
            Self::Listed(entry, _) => entry.key(),
            Self::Gone(key) => key,
        }
    }
}

impl<K> Staging<K> {
    pub(super) fn new(held: Objects<K>, extractors: Box<[Extractor<K>]>) -> Self {
        Self { held, extractors, staged: Vec::new(), listed: 0, decoded: 0 }
    }

    /// Stages the object if the store has its listed version; otherwise requests it.
    pub fn offer(&mut self, identity: &Identity) -> OfferResult {
        // If the cached entry lacks a UID, the listed UID must be stored.
        self.offer_if(identity, |held| {
            (*held.uid() == identity.uid || !identity.uid.is_from_server())
                && (!held.is_tainted() || held.is_delivered_undecodable())
        })
    }

    /// Stages the object if the store has its listed version, for lists of metadata. An undecodable object is not
    /// requested, since another transfer of the same version would not decode either.
    pub fn offer_unseen(&mut self, identity: &Identity) -> OfferResult {
        self.offer_if(identity, |held| *held.uid() == identity.uid)
    }

    fn offer_if(&mut self, identity: &Identity, is_same: impl FnOnce(&Entry<K>) -> bool) -> OfferResult {
        match self.held.get(&identity.key) {
            Some((_, held)) if *held.version() == identity.version && is_same(held) => {
                self.listed += held.footprint();
                self.staged.push(Staged::Listed(held.clone(), None));
                OfferResult::Unchanged
            }
            _ => OfferResult::Requested,
        }
    }

    /// Stages a listed object.
    pub fn put(&mut self, identity: Identity, object: Result<impl Into<WithSize<K>>, Tainted>) {
        let (object, values) = match object.map(Into::into) {
            Ok(object) => {
                let values = self.prepare(&object);
                (Ok(object), values)
            }
            Err(tainted) => (Err(tainted), None),
        };
        let (entry, _) = entry(identity, object);
        self.listed += entry.footprint();
        self.staged.push(Staged::Listed(entry, values));
    }

    /// Prepares an object whose decoded form is not cached. The first decoded forms are kept, up to a limit: handlers
    /// and indexes then read a short list without another decode. Beyond the limit, the index values of the object are
    /// returned.
    fn prepare(&mut self, object: &WithSize<K>) -> Option<Box<[Values]>> {
        let decoded = object.uncached()?;
        if self.decoded + object.bytes <= MAX_DECODED_BYTES {
            self.decoded += object.bytes;
            object.keep_decoded();
            return None;
        }
        (!self.extractors.is_empty()).then(|| self.extractors.iter().map(|extract| extract(&decoded)).collect())
    }

    /// Returns whether decoded forms are kept in addition to encoded ones.
    pub(super) fn keeps_decoded(&self) -> bool {
        self.decoded > 0
    }

    /// Stages an object whose state could not be decoded, with its last decodable state.
    pub fn put_tainted(&mut self, identity: Identity, last: Option<(Identity, WithSize<K>)>) {
        let last = last.map(|(identity, object)| Object::with_size(identity, object));
        let entry = Entry::tainted(identity, last);
        self.listed += entry.footprint();
        self.staged.push(Staged::Listed(entry, None));
    }

    /// Returns the memory in bytes that objects and entries would have after a commit of the current list, including
    /// duplicates.
    pub fn held_bytes(&self) -> usize {
        self.listed
    }

    /// Stages a listed object that is still being decoded, and returns its index for [`fill`](Self::fill). Until then
    /// the object counts as undecodable.
    pub fn put_unfilled(&mut self, identity: Identity) -> usize {
        self.put(identity, Err::<WithSize<K>, _>(Tainted));
        self.staged.len() - 1
    }

    /// Sets the decoded object of the index `place`.
    pub fn fill(&mut self, place: usize, object: WithSize<K>) {
        let prepared = self.prepare(&object);
        if let Some(Staged::Listed(entry, values)) = self.staged.get_mut(place) {
            let before = entry.bytes();
            entry.fill(object);
            self.listed += entry.bytes() - before;
            *values = prepared;
        }
    }

    /// Removes a staged object: a streamed list may report its deletion before the list is complete.
    pub fn remove(&mut self, identity: &Identity) {
        self.staged.push(Staged::Gone(identity.key.clone()));
    }

    /// Returns the replacements that turn the store into the list, and the slots of the resulting entries. Both are in
    /// the order of the keys. New entries occupy slots from `vacant`.
    pub(super) fn settle(
        self,
        held: &Objects<K>,
        vacant: &mut Vacant,
        any_age: bool,
    ) -> (Vec<Slot>, Vec<Replacement<K>>) {
        let mut staged = self.staged;
        // The sort is stable, and linear for entries that are already in order.
        staged.sort_by(|a, b| a.key().cmp(b.key()));
        // `dedup_by` keeps the first of equal elements. The swap keeps the last arrival instead.
        staged.dedup_by(|later, earlier| {
            let same = later.key() == earlier.key();
            if same {
                std::mem::swap(later, earlier);
            }
            same
        });

        let mut slots = Vec::with_capacity(staged.len());
        let mut replacements = Vec::new();
        let removal = |(slot, old): (Slot, &Entry<K>)| Replacement {
            slot,
            old: Some(old.clone()),
            new: None,
            decoded: None,
            values: None,
        };
        let mut held = held.slots().map(|slot| (slot, held.at(slot))).peekable();
        // Both sequences are in key order: one merge pass finds missing, new and changed entries.
        for staged in staged {
            // `Staged::Gone` has replaced the listed object, so the cached entry counts as missing from the list.
            let Staged::Listed(incoming, values) = staged else { continue };
            while let Some(missing) = held.next_if(|(_, held)| held.key() < incoming.key()) {
                replacements.push(removal(missing));
            }
            let Some((slot, old)) = held.next_if(|(_, held)| held.key() == incoming.key()) else {
                let slot = vacant.take();
                slots.push(slot);
                replacements.push(Replacement { slot, old: None, new: Some(incoming), decoded: None, values });
                continue;
            };
            slots.push(slot);
            // Unchanged entries share memory with the cache and need no replacement.
            if !old.is(&incoming)
                && let Some(new) = successor(old, incoming, any_age)
            {
                replacements.push(Replacement { slot, old: Some(old.clone()), new: Some(new), decoded: None, values });
            }
        }
        replacements.extend(held.map(removal));
        (slots, replacements)
    }
}
