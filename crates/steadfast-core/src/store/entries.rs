//! What is held under a name, and which state may take the place of which.

use crate::object::{Entry, Object, Weighed};
use crate::record::Identity;
use crate::slots::Slot;

/// The newest state of an object could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tainted;

/// What a slot had and what it is to have: at least one of them is something.
pub(super) struct Replacement<K> {
    pub(super) slot: Slot,
    pub(super) old: Option<Entry<K>>,
    pub(super) new: Option<Entry<K>>,
}

impl<K> Replacement<K> {
    /// Whether the slot stays that of the same key.
    pub(super) fn keeps_key(&self) -> bool {
        matches!((&self.old, &self.new), (Some(old), Some(new)) if old.key() == new.key())
    }
}

/// The entry of a state as it came in.
pub(super) fn entry<K>(identity: Identity, object: Result<impl Into<Weighed<K>>, Tainted>) -> Entry<K> {
    match object {
        Ok(object) => Entry::known(Object::weighed(identity, object.into())),
        Err(Tainted) => Entry::tainted(identity, None),
    }
}

/// What `came` is in the place of `held`; none where it is no step forward, so far as their versions tell, and not
/// `any` will do.
pub(super) fn successor<K>(held: &Entry<K>, mut came: Entry<K>, any: bool) -> Option<Entry<K>> {
    if let Some(identity) = came.identity_mut() {
        // One copy of the name is enough.
        identity.key.clone_from(held.key());
        // Nothing says that a state without a UID is of another object than the one of its name (C1).
        if !identity.uid.is_given() {
            identity.uid.clone_from(held.uid());
        }
    }
    if refuses(held, &came) && !any {
        return None;
    }
    // What cannot be decoded keeps the last state of the same object that could.
    let last = held.last().filter(|_| came.is_tainted() && came.uid().is_same(held.uid()));
    Some(match last {
        Some(last) => Entry::tainted(came.identity().clone(), Some(last.clone())),
        None => came,
    })
}

/// Whether what came in is no step forward from `held`, so far as their versions tell.
fn refuses<K>(held: &Entry<K>, came: &Entry<K>) -> bool {
    if held.uid() == came.uid() && held.version() == came.version() {
        // The same state again, unless this time it could be decoded.
        return !held.is_tainted() || came.is_tainted() || held.is_unfit();
    }
    came.version().is_older_than(held.version())
}
