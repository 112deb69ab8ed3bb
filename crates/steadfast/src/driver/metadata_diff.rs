//! Comparison of the cache with a list of identities (R2, R12).

use std::collections::{BTreeMap, HashSet};

use steadfast_core::record::Identity;
use steadfast_core::reflector::{Diagnostic, Differences, RequestId};
use steadfast_core::store::Snapshot;
use steadfast_core::{ObjectKey, ResourceVersion, Uid};

use crate::connection::TransferSlot;

/// Maximum number of removals remembered during a list. Beyond this number, listed objects that are missing from the
/// cache are not reported as lost.
const MAX_REMEMBERED_REMOVALS: usize = 100_000;

/// Maximum number of lost objects that one comparison reports by name.
const MAX_REPORTED_OBJECTS: usize = 1000;

/// A list of identities in progress, stored as its differences from the cache. An equal object costs one pointer.
#[derive(Default)]
pub(super) struct MetadataDiff {
    /// Request of the current page.
    pub(super) id: Option<RequestId>,
    /// Slot among the concurrent transfers of a server, until the list is complete.
    pub(super) slot: Option<TransferSlot>,
    /// Version of the list.
    pub(super) version: Option<ResourceVersion>,
    /// True if the list is complete. The comparison is evaluated when all earlier records are in the store.
    pub(super) is_due: bool,
    /// UIDs of objects that were equal when they were listed.
    equal_uids: HashSet<Uid>,
    different_by_key: BTreeMap<ObjectKey, (Uid, ResourceVersion)>,
    /// UIDs of objects that the watch has removed since the list was requested.
    removed_uids: HashSet<Uid>,
    lost_diagnostics: Vec<Diagnostic>,
}

impl MetadataDiff {
    /// Processes a listed identity.
    pub(super) fn record_listed<K>(&mut self, cache: &Snapshot<K>, listed: &Identity) {
        let Identity { key, uid, version } = listed;
        match cache.entry(key.namespace(), key.name()) {
            Some(entry) if entry.uid().is_same(uid) && entry.version() == version => {
                self.equal_uids.insert(entry.uid().clone());
            }
            _ => {
                self.different_by_key.insert(key.clone(), (uid.clone(), version.clone()));
            }
        }
    }

    /// Records that the watch has removed an object.
    pub(super) fn removed(&mut self, uid: &Uid) {
        if self.removed_uids.len() < MAX_REMEMBERED_REMOVALS {
            self.removed_uids.insert(uid.clone());
        }
    }

    /// Returns the current differences, apart from cached objects with versions above the list's.
    pub(super) fn differences<K>(&mut self, cache: &Snapshot<K>) -> Differences {
        let mut found = Differences::default();
        self.lost_diagnostics.clear();
        let Some(list_version) = self.version.clone() else { return found };
        for (key, (uid, listed)) in &self.different_by_key {
            let entry = cache.entry(key.namespace(), key.name());
            let version = match entry {
                // Changes after the list prove nothing about the time of the list.
                Some(entry) if entry.version().is_newer_than(&list_version) => continue,
                Some(entry) if entry.uid().is_same(uid) && entry.version() == listed => continue,
                // The object was listed and then deleted by the watch. If the limit of remembered removals is reached,
                // no missing object is reported: a false report would be worse than a missed report.
                None if self.removed_uids.contains(uid) || self.removed_uids.len() >= MAX_REMEMBERED_REMOVALS => {
                    continue;
                }
                entry => entry.map(|entry| entry.version().clone()),
            };
            // The cache has a later state of the object than the list, although the list as a whole is newer. The
            // server therefore has an older history, for example after a restore of etcd.
            if let Some(version) = version.clone().filter(|version| version.is_newer_than(listed)) {
                found.backwards = Some((version, listed.clone()));
            }
            let (key, uid, listed) = (key.clone(), uid.clone(), Some(listed.clone()));
            self.lost_diagnostics.push(Diagnostic::Lost { key, uid, held: version, listed });
        }
        for entry in cache.iter() {
            // A cached object that the list lacks: its deletion was lost.
            let is_listed = self.equal_uids.contains(entry.uid()) || self.different_by_key.contains_key(entry.key());
            if !is_listed && !entry.version().is_newer_than(&list_version) {
                let Identity { key, uid, version } = entry.identity().clone();
                let held = Some(version);
                self.lost_diagnostics.push(Diagnostic::Lost { key, uid, held, listed: None });
            }
        }
        found.count = self.lost_diagnostics.len();
        found
    }

    /// Returns the lost objects of the last evaluation, at most 1,000.
    pub(super) fn take_lost(&mut self) -> impl Iterator<Item = Diagnostic> + use<> {
        std::mem::take(&mut self.lost_diagnostics).into_iter().take(MAX_REPORTED_OBJECTS)
    }
}
