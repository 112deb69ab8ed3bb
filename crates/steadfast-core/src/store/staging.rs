//! A relist in place: what a list brings, set beside what is held until the list is complete.

use std::cmp::Ordering;
use std::sync::Arc;

use super::entries::{Objects, Replacement, Tainted, adopt, entry, inherit, refuses};
use crate::event::Entry;
use crate::key::ObjectKey;
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
type Listed<K> = Vec<(ObjectKey, Arc<Entry<K>>)>;

/// A list on its way into the store.
///
/// Objects come in any order; of those with the same key the last counts. What is not staged when the list is
/// committed was not in it. An unchanged object costs two pointers.
pub struct Staging<K> {
    held: Objects<K>,
    /// What came, in the order in which it came; nothing for what was deleted while the list was on its way.
    staged: Vec<(ObjectKey, Option<Arc<Entry<K>>>)>,
}

impl<K> Staging<K> {
    pub(super) fn new(held: Objects<K>) -> Self {
        Self { held, staged: Vec::new() }
    }

    /// Stages an object that is held in the version listed; asks for any other.
    pub fn offer(&mut self, identity: &Identity) -> Offer {
        let held = self.held.get(&identity.key);
        match held {
            // A UID that was not known is to be kept.
            Some((key, held))
                if (held.uid == identity.uid || !identity.uid.is_given())
                    && held.version == identity.version
                    && !held.tainted =>
            {
                self.staged.push((key.clone(), Some(held.clone())));
                Offer::Unchanged
            }
            _ => Offer::Wanted,
        }
    }

    /// Stages a listed object.
    pub fn put(&mut self, identity: Identity, object: Result<Arc<K>, Tainted>) {
        let Identity { key, uid, version } = identity;
        self.staged.push((key, Some(Arc::new(entry(uid, version, object)))));
    }

    /// Takes back what was staged of an object: a streamed list may tell of its end before it is complete itself.
    pub fn remove(&mut self, identity: &Identity) {
        self.staged.push((identity.key.clone(), None));
    }

    /// What the store is to hold, in order, and how that differs from what it holds.
    pub(super) fn settle(self, held: &Objects<K>, any_age: bool) -> (Listed<K>, Vec<Replacement<K>>) {
        let mut staged = self.staged;
        // Stable, and linear for what is in order already.
        staged.sort_by(|(a, _), (b, _)| a.cmp(b));
        staged.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            if same {
                std::mem::swap(later, earlier);
            }
            same
        });
        let mut staged: Listed<K> = staged.into_iter().filter_map(|(key, entry)| Some((key, entry?))).collect();

        let mut replacements = Vec::new();
        let gone = |(key, old): (&ObjectKey, &Arc<Entry<K>>)| Replacement {
            key: key.clone(),
            old: Some(old.clone()),
            new: None,
        };
        let mut held = held.iter().peekable();
        for (key, entry) in &mut staged {
            while let Some(missing) = held.next_if(|(held, _)| *held < key) {
                replacements.push(gone(missing));
            }
            let old = match held.peek().map(|(held, _)| (*held).cmp(key)) {
                Some(Ordering::Equal) => held.next(),
                _ => None,
            };
            if let Some((held_key, old)) = old {
                if Arc::ptr_eq(old, entry) {
                    continue;
                }
                // One copy of the name is enough.
                key.clone_from(held_key);
                if let Some(entry) = Arc::get_mut(entry) {
                    adopt(entry, old);
                }
                if refuses(old, entry) && !any_age {
                    entry.clone_from(old);
                    continue;
                }
                if let Some(entry) = Arc::get_mut(entry) {
                    inherit(entry, old);
                }
            }
            let old = old.map(|(_, entry)| entry.clone());
            replacements.push(Replacement { key: key.clone(), old, new: Some(entry.clone()) });
        }
        replacements.extend(held.map(gone));
        (staged, replacements)
    }
}
