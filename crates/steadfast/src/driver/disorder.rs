//! Versions that do not come from one counter, as some aggregated servers give them.
//!
//! A watch's record below the version that is held says nothing new, where one counter gives the versions: it is an old one
//! that comes again. Where each object has its own, it may be all that is ever said of a change. So such a record is
//! compared with what is held. What is known already is a repetition. What is not, nobody can tell from here, and a list
//! decides: it puts the cache right in any case, and where it shows that the record was true, though its stream had been at
//! a higher version before it, the versions are in no order (C12).

use std::collections::{HashSet, VecDeque};

use steadfast_core::record::{Identity, RecordKind};
use steadfast_core::store::Snapshot;
use steadfast_core::{ResourceVersion, Uid};

/// How many objects that ended are remembered: that they come again is no news.
const ENDED: usize = 4096;

/// How many records wait for the list that decides.
const MOST_DOUBTED: usize = 64;

/// So many lists in a row have to show a record that was true though it came below the version that its stream began at. One
/// may be an event that was lost, and comes again where a watch is resumed.
const OFTEN: u32 = 3;

/// What has been seen of the order of versions.
#[derive(Default)]
pub(super) struct Disorder {
    /// The UIDs of what has ended, the oldest first.
    ended: VecDeque<Uid>,
    known_to_have_ended: HashSet<Uid>,
    /// What came below the version held and was not known, and whether its own stream had brought that version.
    doubted: Vec<(RecordKind, Identity, bool)>,
    /// How many lists in a row have shown that some of it was true.
    true_again: u32,
    /// Whether it is known that there is no order.
    pub(super) is_known: bool,
}

impl Disorder {
    /// Takes note that an object has ended. Of one that is known by its name nothing can be kept: another may have it.
    pub(super) fn ended(&mut self, uid: &Uid) {
        if !uid.is_given() || !self.known_to_have_ended.insert(uid.clone()) {
            return;
        }
        self.ended.push_back(uid.clone());
        if self.ended.len() > ENDED
            && let Some(oldest) = self.ended.pop_front()
        {
            self.known_to_have_ended.remove(&oldest);
        }
    }

    /// Whether a record that is below the version held says what is not known; `held` are UID and version of what is held
    /// under its name.
    pub(super) fn is_news(&self, kind: RecordKind, record: &Identity, held: Option<(&Uid, &ResourceVersion)>) -> bool {
        match (kind, held.filter(|(uid, _)| uid.is_same(&record.uid))) {
            // An object that was deleted, or left, after this state of it, is not held in an older one.
            (RecordKind::Deleted, Some((_, version))) => !version.is_newer_than(&record.version),
            (RecordKind::Deleted, None) => false,
            (_, Some((_, version))) => record.version.is_newer_than(version),
            (_, None) => !self.known_to_have_ended.contains(&record.uid),
        }
    }

    /// Keeps a record for the list that is to decide; `unbroken` says that its own stream had been at a higher version.
    pub(super) fn doubt(&mut self, kind: RecordKind, record: &Identity, unbroken: bool) {
        if self.doubted.len() < MOST_DOUBTED {
            self.doubted.push((kind, record.clone(), unbroken));
        }
    }

    /// Whether the list that is held now says that a record was true that came out of order. A list of another history
    /// says nothing of it.
    pub(super) fn is_proven<K>(&mut self, listed: &Snapshot<K>, new_epoch: bool) -> bool {
        let doubted = std::mem::take(&mut self.doubted);
        if new_epoch || self.is_known {
            return false;
        }
        let mut was_true = doubted.iter().filter(|(kind, record, _)| {
            let entry = listed.entry(record.key.namespace(), record.key.name());
            let same = entry.filter(|entry| entry.uid().is_same(&record.uid));
            match kind {
                RecordKind::Deleted => same.is_none(),
                RecordKind::Added | RecordKind::Modified => {
                    same.is_some_and(|entry| *entry.version() == record.version)
                }
            }
        });
        let Some((.., first)) = was_true.next() else {
            self.true_again = 0;
            return false;
        };
        self.true_again += 1;
        *first || was_true.any(|(.., unbroken)| *unbroken) || self.true_again >= OFTEN
    }

    /// The version as it counts here: without order, where there is known to be none.
    pub(super) fn count(&self, version: &mut ResourceVersion) {
        if self.is_known && version.is_ordered() {
            *version = version.unordered();
        }
    }
}
