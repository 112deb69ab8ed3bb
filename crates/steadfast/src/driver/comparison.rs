//! What is held, beside a list of identities (R2, R12).

use std::collections::{BTreeMap, HashSet};

use steadfast_core::record::Identity;
use steadfast_core::reflector::{Differences, Note, RequestId};
use steadfast_core::store::Snapshot;
use steadfast_core::{ObjectKey, ResourceVersion, Uid};

use crate::connection::Place;

/// How many removals are remembered while a list is on its way. Beyond that, what is listed and not held is not judged.
const MOST_REMOVALS: usize = 100_000;

/// How many lost objects are named.
const MOST_NAMED: usize = 1000;

/// A list of identities on its way, as far as it is not what is held: what is equal costs one pointer to its UID.
#[derive(Default)]
pub(super) struct Comparison {
    /// The request of the page under way.
    pub(super) id: Option<RequestId>,
    /// A place among the transfers requested of a server at once, until the list is there.
    pub(super) place: Option<Place>,
    /// The version of the list.
    pub(super) version: Option<ResourceVersion>,
    /// Whether it is to be judged, when all that came before is in the store.
    pub(super) is_due: bool,
    /// The UIDs of what was held as it is listed, when it was seen.
    equal: HashSet<Uid>,
    different: BTreeMap<ObjectKey, (Uid, ResourceVersion)>,
    /// The UIDs of what our watch has removed since the list was requested.
    removed: HashSet<Uid>,
    lost: Vec<Note>,
}

impl Comparison {
    /// Takes in an identity that is listed.
    pub(super) fn see<K>(&mut self, held: &Snapshot<K>, listed: &Identity) {
        let Identity { key, uid, version } = listed;
        match held.entry(key.namespace(), key.name()) {
            Some(entry) if entry.uid().is_same(uid) && entry.version() == version => {
                self.equal.insert(entry.uid().clone());
            }
            _ => {
                self.different.insert(key.clone(), (uid.clone(), version.clone()));
            }
        }
    }

    /// Takes note that our watch has reported the end of an object.
    pub(super) fn removed(&mut self, uid: &Uid) {
        if self.removed.len() < MOST_REMOVALS {
            self.removed.insert(uid.clone());
        }
    }

    /// Finds what differs now, what is held at versions above the list's aside.
    pub(super) fn judge<K>(&mut self, held: &Snapshot<K>) -> Differences {
        let mut found = Differences::default();
        self.lost.clear();
        let Some(at) = self.version.clone() else { return found };
        for (key, (uid, listed)) in &self.different {
            let entry = held.entry(key.namespace(), key.name());
            let version = match entry {
                Some(entry) if entry.version().is_newer_than(&at) => continue,
                Some(entry) if entry.uid().is_same(uid) && entry.version() == listed => continue,
                None if self.removed.contains(uid) || self.removed.len() >= MOST_REMOVALS => continue,
                entry => entry.map(|entry| entry.version().clone()),
            };
            if let Some(version) = version.clone().filter(|version| version.is_newer_than(listed)) {
                found.backwards = Some((version, listed.clone()));
            }
            let (key, uid, listed) = (key.clone(), uid.clone(), Some(listed.clone()));
            self.lost.push(Note::Lost { key, uid, held: version, listed });
        }
        for entry in held.iter() {
            let judged = self.equal.contains(entry.uid()) || self.different.contains_key(entry.key());
            if !judged && !entry.version().is_newer_than(&at) {
                let Identity { key, uid, version } = entry.identity().clone();
                let held = Some(version);
                self.lost.push(Note::Lost { key, uid, held, listed: None });
            }
        }
        found.count = self.lost.len();
        found
    }

    /// What the last judgement found, the first thousand of it.
    pub(super) fn take_lost(&mut self) -> impl Iterator<Item = Note> + use<> {
        std::mem::take(&mut self.lost).into_iter().take(MOST_NAMED)
    }
}
