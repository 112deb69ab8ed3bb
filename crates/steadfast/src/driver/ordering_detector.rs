//! Detection of unordered versions, as returned by some aggregated API servers.
//!
//! If one counter produces all versions, a watch record below the cache's version is a repetition. If each object has
//! its own counter, the record may be the only notification of a change. Such a record is therefore compared with the
//! cache. A record of a known state is a repetition. For an unknown state, a list decides, and also corrects the cache.
//!
//! A list confirms a record if the list shows that the record was current. The versions are unordered (C12) if the
//! stream of a confirmed record had reached a higher version before the record. Without the higher version, three lists
//! in a row must confirm records.

use std::collections::{HashSet, VecDeque};

use steadfast_core::record::{Identity, RecordKind};
use steadfast_core::store::Snapshot;
use steadfast_core::{ResourceVersion, Uid};

/// Number of remembered deleted objects, whose repeated records are ignored.
const MAX_REMEMBERED_DELETIONS: usize = 4096;

/// Maximum number of records that wait for the list.
const MAX_PENDING_RECORDS: usize = 64;

/// Number of consecutive lists that must confirm records if no stream had reached a higher version. A single such
/// record may be a lost event that is repeated when a watch resumes.
const MIN_CONFIRMING_LISTS: u32 = 3;

/// Observations about the order of versions.
#[derive(Default)]
pub(super) struct OrderingDetector {
    /// UIDs of deleted objects, oldest first.
    deleted_uids: VecDeque<Uid>,
    deleted_uid_set: HashSet<Uid>,
    /// Records below the cache's version with an unknown state. The flag is true if the record's own stream had reached
    /// a higher version.
    pending_records: Vec<(RecordKind, Identity, bool)>,
    /// Number of consecutive lists that confirmed such records.
    consecutive_confirmations: u32,
    /// True if versions are known to be unordered.
    pub(super) is_known: bool,
}

impl OrderingDetector {
    /// Records the deletion of an object. An object without a UID is not recorded, because another object may reuse its
    /// name.
    pub(super) fn ended(&mut self, uid: &Uid) {
        if !uid.is_from_server() || !self.deleted_uid_set.insert(uid.clone()) {
            return;
        }
        self.deleted_uids.push_back(uid.clone());
        if self.deleted_uids.len() > MAX_REMEMBERED_DELETIONS
            && let Some(oldest) = self.deleted_uids.pop_front()
        {
            self.deleted_uid_set.remove(&oldest);
        }
    }

    /// Returns true if a record below the cache's version has an unknown state. `cached` is the UID and version of the
    /// cached object of this name. `is_deleted` returns whether an object is deleted, but its deletion is not recorded
    /// here yet.
    pub(super) fn is_new_state(
        &self,
        kind: RecordKind,
        record: &Identity,
        cached: Option<(&Uid, &ResourceVersion)>,
        is_deleted: impl FnOnce(&Uid) -> bool,
    ) -> bool {
        match (kind, cached.filter(|(uid, _)| uid.is_same(&record.uid))) {
            // The cache still contains an older state of the object. The deletion, or the end of the match, is
            // therefore unknown.
            (RecordKind::Deleted, Some((_, version))) => !version.is_newer_than(&record.version),
            (RecordKind::Deleted, None) => false,
            (_, Some((_, version))) => record.version.is_newer_than(version),
            // A resumed watch can repeat events of an object that was deleted since. Another object may have its name.
            (_, None) => !self.deleted_uid_set.contains(&record.uid) && !is_deleted(&record.uid),
        }
    }

    /// Stores a record until a list decides. `reached_higher` is true if the record's own stream had reached a higher
    /// version.
    pub(super) fn defer(&mut self, kind: RecordKind, record: &Identity, reached_higher: bool) {
        if self.pending_records.len() < MAX_PENDING_RECORDS {
            self.pending_records.push((kind, record.clone(), reached_higher));
        }
    }

    /// Returns true if the new list confirms an out-of-order record. A list of another history proves nothing.
    pub(super) fn is_proven<K>(&mut self, listed: &Snapshot<K>, new_epoch: bool) -> bool {
        let pending_records = std::mem::take(&mut self.pending_records);
        if new_epoch || self.is_known {
            return false;
        }
        let mut confirmed = pending_records.iter().filter(|(kind, record, _)| {
            let entry = listed.entry(record.key.namespace(), record.key.name());
            let same_object = entry.filter(|entry| entry.uid().is_same(&record.uid));
            match kind {
                RecordKind::Deleted => same_object.is_none(),
                RecordKind::Added | RecordKind::Modified => {
                    same_object.is_some_and(|entry| *entry.version() == record.version)
                }
            }
        });
        // One confirmed record is a proof if its own stream had reached a higher version. Otherwise several lists in a
        // row must agree.
        let Some((.., first_reached_higher)) = confirmed.next() else {
            self.consecutive_confirmations = 0;
            return false;
        };
        self.consecutive_confirmations += 1;
        *first_reached_higher
            || confirmed.any(|(.., reached_higher)| *reached_higher)
            || self.consecutive_confirmations >= MIN_CONFIRMING_LISTS
    }

    /// Marks the version as unordered, if versions are known to be unordered.
    pub(super) fn count(&self, version: &mut ResourceVersion) {
        if self.is_known && version.is_ordered() {
            *version = version.unordered();
        }
    }
}

#[cfg(test)]
mod tests {
    use steadfast_core::ObjectKey;

    use super::*;

    fn identity(uid: &str, version: &str) -> Identity {
        Identity { key: ObjectKey::namespaced("shop", "web"), uid: uid.into(), version: version.into() }
    }

    #[test]
    fn state_of_deleted_predecessor_is_known() {
        let mut detector = OrderingDetector::default();
        let (record, successor) = (identity("a", "19"), identity("b", "21"));
        let cached = Some((&successor.uid, &successor.version));
        let is_new = |detector: &OrderingDetector, is_deleted: bool| {
            detector.is_new_state(RecordKind::Modified, &record, cached, |_| is_deleted)
        };
        assert!(is_new(&detector, false), "versions may be unordered");
        assert!(!is_new(&detector, true), "the deletion is not recorded yet");
        detector.ended(&record.uid);
        assert!(!is_new(&detector, false));
    }
}
