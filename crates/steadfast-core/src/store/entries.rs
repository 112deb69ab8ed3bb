//! Entries of a store, and the rule for their replacement.

use std::any::Any;
use std::sync::Arc;

use crate::object::{Entry, Object, WithSize};
use crate::record::Identity;
use crate::slots::Slot;

/// Marker for an object whose newest state could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tainted;

/// Old and new entry of a slot; at least one of them exists.
pub(super) struct Replacement<K> {
    pub(super) slot: Slot,
    pub(super) old: Option<Entry<K>>,
    pub(super) new: Option<Entry<K>>,
    /// Decoded object of the new entry, if the entry contains only its encoded form.
    pub(super) decoded: Option<Arc<K>>,
    /// Values of the new entry for the first indexes of the store, if they were computed in advance.
    pub(super) values: Option<Box<[Values]>>,
}

/// Values of an object for one index: a `Vec` of them.
pub(super) type Values = Box<dyn Any + Send + Sync>;

/// Function that returns the values of an object for one index.
pub(super) type Extractor<K> = Arc<dyn Fn(&K) -> Values + Send + Sync>;

impl<K> Replacement<K> {
    /// Returns whether the slot keeps its key.
    pub(super) fn keeps_key(&self) -> bool {
        matches!((&self.old, &self.new), (Some(old), Some(new)) if old.key() == new.key())
    }
}

/// Creates the entry of a received state. Returns the decoded object too, if the entry contains only its encoded form.
pub(super) fn entry<K>(
    identity: Identity,
    object: Result<impl Into<WithSize<K>>, Tainted>,
) -> (Entry<K>, Option<Arc<K>>) {
    match object {
        Ok(object) => {
            let object = object.into();
            let decoded = object.uncached();
            (Entry::known(Object::with_size(identity, object)), decoded)
        }
        Err(Tainted) => (Entry::tainted(identity, None), None),
    }
}

/// Returns the entry that replaces `held` after the state `incoming`; `None` if the version of `incoming` is not newer.
/// If `any_version` is set, every version is accepted.
pub(super) fn successor<K>(held: &Entry<K>, mut incoming: Entry<K>, any_version: bool) -> Option<Entry<K>> {
    if let Some(identity) = incoming.identity_mut() {
        // A single copy of the name is sufficient.
        identity.key.clone_from(held.key());
        // A state without a UID counts as a state of the object with its name (C1).
        if !identity.uid.is_from_server() {
            identity.uid.clone_from(held.uid());
        }
    }
    if rejects(held, &incoming) && !any_version {
        return None;
    }
    // An undecodable entry keeps the last decodable state of the same object.
    let last = held.last().filter(|_| incoming.is_tainted() && incoming.uid().is_same(held.uid()));
    Some(match last {
        Some(last) => Entry::tainted(incoming.identity().clone(), Some(last.clone())),
        None => incoming,
    })
}

/// Returns true if `incoming` must not replace `held`: versions that can be compared must increase.
fn rejects<K>(held: &Entry<K>, incoming: &Entry<K>) -> bool {
    if held.uid() == incoming.uid() && held.version() == incoming.version() {
        // An equal state is rejected, unless it is decodable this time.
        return !held.is_tainted() || incoming.is_tainted() || held.is_delivered_undecodable();
    }
    incoming.version().is_older_than(held.version())
}
