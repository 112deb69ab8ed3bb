//! A relist in place: what a list brings, set beside what is held until the list is complete.

use std::sync::Arc;

use super::entries::{Objects, Replacement, Tainted, entry, successor};
use crate::key::ObjectKey;
use crate::object::Entry;
use crate::record::Identity;
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

/// Listed entries by key.
type Listed<K> = Vec<(ObjectKey, Entry<K>)>;

/// A list on its way into the store.
///
/// Objects come in any order; of those with the same key the last counts. What is not staged when the list is
/// committed was not in it. An unchanged object costs three pointers.
pub struct Staging<K> {
    held: Objects<K>,
    /// What came, in the order in which it came.
    staged: Vec<Staged<K>>,
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
        Self { held, staged: Vec::new() }
    }

    /// Stages an object that is held in the version listed; asks for any other.
    pub fn offer(&mut self, identity: &Identity) -> Offer {
        match self.held.get(&identity.key) {
            // A UID that was not known is to be kept.
            Some((_, held))
                if (*held.uid() == identity.uid || !identity.uid.is_given())
                    && *held.version() == identity.version
                    && (!held.is_tainted() || held.is_unfit()) =>
            {
                self.staged.push(Staged::Listed(held.clone()));
                Offer::Unchanged
            }
            _ => Offer::Wanted,
        }
    }

    /// Stages a listed object.
    pub fn put(&mut self, identity: Identity, object: Result<Arc<K>, Tainted>) {
        self.staged.push(Staged::Listed(entry(identity, object)));
    }

    /// Stages a listed object that is being decoded, and returns what to [fill](Self::fill) in when it is. Until then, and if
    /// that never comes, it is one that cannot be decoded.
    pub fn put_unfilled(&mut self, identity: Identity) -> usize {
        self.put(identity, Err(Tainted));
        self.staged.len() - 1
    }

    /// Fills in the object that was staged as `place`.
    pub fn fill(&mut self, place: usize, object: Arc<K>) {
        if let Some(Staged::Listed(entry)) = self.staged.get_mut(place) {
            entry.fill(object);
        }
    }

    /// Takes back what was staged of an object: a streamed list may tell of its end before it is complete itself.
    pub fn remove(&mut self, identity: &Identity) {
        self.staged.push(Staged::Gone(identity.key.clone()));
    }

    /// What the store is to hold, in order, and how that differs from what it holds.
    pub(super) fn settle(self, held: &Objects<K>, any_age: bool) -> (Listed<K>, Vec<Replacement<K>>) {
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

        let mut listed = Vec::with_capacity(staged.len());
        let mut replacements = Vec::new();
        let gone = |old: &Entry<K>| Replacement { key: old.key().clone(), old: Some(old.clone()), new: None };
        let mut held = held.iter().map(|(_, entry)| entry).peekable();
        for staged in staged {
            let Staged::Listed(came) = staged else { continue };
            while let Some(missing) = held.next_if(|held| held.key() < came.key()) {
                replacements.push(gone(missing));
            }
            let old = held.next_if(|held| held.key() == came.key());
            let new = match old {
                None => came,
                Some(old) if old.is(&came) => {
                    listed.push((came.key().clone(), came));
                    continue;
                }
                Some(old) => {
                    let Some(new) = successor(old, came, any_age) else {
                        listed.push((old.key().clone(), old.clone()));
                        continue;
                    };
                    new
                }
            };
            listed.push((new.key().clone(), new.clone()));
            replacements.push(Replacement { key: new.key().clone(), old: old.cloned(), new: Some(new) });
        }
        replacements.extend(held.map(gone));
        (listed, replacements)
    }
}
