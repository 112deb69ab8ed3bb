//! Edits of the store. All edits of one publication are applied together.

use steadfast_core::decode::Cacheable;
use steadfast_core::event::{Change, StateSource};
use steadfast_core::record::{Identity, RecordKind};
use steadfast_core::store::{Staging, Store, Tainted};
use steadfast_core::{ObjectKey, ResourceVersion, WithSize};

/// Edit of the store.
pub(super) enum Edit<K> {
    /// Applies a watch event of an object.
    Apply(RecordKind, Identity, Result<WithSize<K>, Tainted>),
    /// Marks a cached state as undecodable.
    Taint(ObjectKey, ResourceVersion),
    /// Replaces the contents of the store with a complete list.
    Commit { staging: Staging<K>, version: Option<ResourceVersion>, initial: bool, new_epoch: bool },
    /// Records that nothing up to this version is missing.
    Advance(ResourceVersion),
}

impl<K: Cacheable> Edit<K> {
    /// Applies the edit and appends its changes. Returns true if the store now is a complete list.
    pub(super) fn carry_out(self, store: &mut Store<K>, changes: &mut Vec<Change<K>>, informer: &str) -> bool {
        let on_change = |change| changes.push(change);
        match self {
            Self::Apply(RecordKind::Deleted, identity, _) => {
                // The `DELETED` record has the version of the deletion, not that of the last state.
                let source = StateSource::Watched { deletion: Some(identity.version.clone()) };
                store.remove(&identity.key, &identity.uid, &source, on_change);
                store.advance(identity.version);
                false
            }
            Self::Apply(_, identity, kept) => {
                let version = identity.version.clone();
                // `ADDED` and `MODIFIED` are equivalent: after a resumed watch, either can arrive for a cached object.
                store.apply(identity, kept, &StateSource::Watched { deletion: None }, on_change);
                store.advance(version);
                false
            }
            Self::Commit { staging, version, initial, new_epoch } => {
                let source = if new_epoch { StateSource::NewEpoch } else { StateSource::Listed { initial } };
                let committed = store.commit(staging, version, &source, new_epoch, on_change);
                if let Err(error) = &committed {
                    tracing::error!(%informer, %error, "the store rejected a list");
                }
                committed.is_ok()
            }
            Self::Taint(key, version) => {
                store.taint(&key, &version);
                false
            }
            Self::Advance(version) => {
                store.advance(version);
                false
            }
        }
    }
}
