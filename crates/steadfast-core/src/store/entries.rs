//! What is held under a name, and which state may take the place of which.

use std::sync::Arc;

use crate::event::Entry;
use crate::key::ObjectKey;
use crate::ordmap::OrdMap;
use crate::uid::Uid;
use crate::version::ResourceVersion;

/// The newest state of an object could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tainted;

/// The entries of a store by key.
pub(super) type Objects<K> = OrdMap<ObjectKey, Arc<Entry<K>>>;

/// What the entry of a key was and what it is to be.
pub(super) struct Replacement<K> {
    pub(super) key: ObjectKey,
    pub(super) old: Option<Arc<Entry<K>>>,
    pub(super) new: Option<Arc<Entry<K>>>,
}

/// Whether what came in is no step forward from `held`, so far as their versions tell.
pub(super) fn refuses<K>(held: &Entry<K>, came: &Entry<K>) -> bool {
    if held.uid == came.uid && held.version == came.version {
        // The same state again, unless this time it could be decoded.
        return !held.tainted || came.tainted;
    }
    came.version.is_older_than(&held.version)
}

/// The entry of a state as it came in.
pub(super) fn entry<K>(uid: Uid, version: ResourceVersion, object: Result<Arc<K>, Tainted>) -> Entry<K> {
    Entry { uid, version, tainted: object.is_err(), object: object.ok() }
}

/// Takes a state without a UID for one of the object that is held under its name: nothing says that it is another (C1).
pub(super) fn adopt<K>(came: &mut Entry<K>, held: &Entry<K>) {
    if !came.uid.is_given() {
        came.uid.clone_from(&held.uid);
    }
}

/// Lets a tainted state keep the last one of the same object that could be decoded.
pub(super) fn inherit<K>(came: &mut Entry<K>, held: &Entry<K>) {
    if came.tainted && came.uid.is_same(&held.uid) {
        came.object.clone_from(&held.object);
    }
}
