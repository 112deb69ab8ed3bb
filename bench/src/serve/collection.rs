//! The collection: objects with their versions, and their changes.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use k8s_openapi::api::core::v1::Pod;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use super::records::{self, ObjectValues, Records};
use super::served::Served;
use crate::BenchError;
use crate::checksum::Checksum;

/// Version before the first object. All versions have the same number of digits.
const INITIAL_VERSION: u64 = 1_000_000_000;

/// Distance between the indexes of two objects that change one after the other.
const INDEX_STRIDE: usize = 7919;

/// One of this number of changes is a deletion, if deletions are enabled.
const CHANGES_PER_DELETION: usize = 8;

/// Maximum number of recorded changes.
const MAX_RECORDED_CHANGES: usize = 1 << 20;

/// Objects in both encodings, with their history.
pub(super) struct Collection {
    pub(super) json: Records,
    pub(super) protobuf: Records,
    pub(super) served: Served,
    count: usize,
    state: Mutex<State>,
    newest_version: watch::Sender<u64>,
    cuts: watch::Sender<u64>,
    halt_count: AtomicU64,
}

struct State {
    objects: Vec<Object>,
    /// Recorded changes, the oldest first.
    log: VecDeque<Change>,
    /// Number of earlier changes that were dropped.
    dropped_count: usize,
    /// Changes before this version have expired.
    oldest_version: u64,
}

/// Current state of an object.
#[derive(Clone, Copy)]
pub(super) struct Object {
    version: u64,
    stay: u32,
    pub(super) exists: bool,
}

impl Object {
    /// Returns the values with which the object is listed.
    pub(super) fn values(self) -> ObjectValues {
        ObjectValues { version: self.version, sent: 0, stay: self.stay }
    }
}

/// One change. Its version follows from its position.
#[derive(Clone, Copy)]
pub(super) struct Change {
    pub(super) index: usize,
    /// Type of the watch event.
    pub(super) event_type: &'static str,
    pub(super) values: ObjectValues,
    /// Object before the change.
    before: Object,
}

/// Kind of the changes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ChangeKind {
    /// Objects are modified.
    Modified,
    /// Objects are modified, with the time of the change.
    ModifiedWithTime,
    /// Objects are modified, deleted and recreated.
    Churned,
}

/// Changes after a version.
pub(super) enum ChangesAfter {
    Changes(Vec<Change>),
    Expired,
}

impl Collection {
    /// Loads `count` objects from the generated data in `folder`. If the data have fewer objects, copies follow.
    pub(super) fn load(folder: &Path, count: usize) -> Result<Self, BenchError> {
        // Each object has its own version, as if all were created one after the other.
        let object = |index| Object { version: INITIAL_VERSION + 1 + index, stay: 0, exists: true };
        let objects = (0..count as u64).map(object).collect();
        let newest_version = INITIAL_VERSION + count as u64;
        let identity = |_, object: &[u8]| records::identity_in_json(object);
        let json = Records::load(&folder.join("pods.json"), count, identity, records::metadata_in_json)?;
        // Both encodings have the same objects.
        let identity = |index, _: &[u8]| records::identity_in_json(json.generated(index));
        let protobuf = Records::load(&folder.join("pods.protobuf"), count, identity, records::metadata_in_protobuf)?;
        Ok(Self {
            json,
            protobuf,
            served: Served::default(),
            count,
            // Nothing has expired: the window starts at the version of the initial state.
            state: Mutex::new(State {
                objects,
                log: VecDeque::new(),
                dropped_count: 0,
                oldest_version: newest_version,
            }),
            newest_version: watch::Sender::new(newest_version),
            cuts: watch::Sender::new(0),
            halt_count: AtomicU64::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Returns the number of objects, including deleted ones. All indexes are lower.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    fn initial_state_version(&self) -> u64 {
        INITIAL_VERSION + self.count as u64
    }

    /// Returns the version of the newest change, and all objects.
    pub(super) fn snapshot(&self) -> (u64, Vec<Object>) {
        let state = self.lock();
        (self.initial_state_version() + state.change_count() as u64, state.objects.clone())
    }

    /// Returns each object at `version`, or `None` if the version has expired.
    pub(super) fn objects_at(&self, version: u64) -> Option<Vec<Object>> {
        let state = self.lock();
        if version < state.oldest_version {
            return None;
        }
        let mut objects = state.objects.clone();
        // The changes are undone in reverse order. A copy of all states would be too large.
        for change in state.log.range(self.log_position(&state, version)..).rev() {
            objects[change.index] = change.before;
        }
        Some(objects)
    }

    /// Returns the index of the object with this name.
    pub(super) fn index_of_name(&self, name: &str) -> Option<usize> {
        self.json.index_of_name(name, self.count)
    }

    /// Returns the position in the log of the first change after `version`, which must be recorded.
    fn log_position(&self, state: &State, version: u64) -> usize {
        // Versions are consecutive, so that the distance to the first one is the position.
        ((version - self.initial_state_version()) as usize).saturating_sub(state.dropped_count).min(state.log.len())
    }

    /// Returns up to `limit` changes after `version`.
    pub(super) fn changes_after(&self, version: u64, limit: usize) -> ChangesAfter {
        let state = self.lock();
        if version < state.oldest_version {
            return ChangesAfter::Expired;
        }
        let position = self.log_position(&state, version);
        ChangesAfter::Changes(state.log.range(position..).take(limit).copied().collect())
    }

    /// Returns a receiver of the newest version. Versions between two reads of the receiver are skipped.
    pub(super) fn versions(&self) -> watch::Receiver<u64> {
        self.newest_version.subscribe()
    }

    /// Makes `count` changes in one step. The last change is not a deletion. Returns its version.
    pub(super) fn change(&self, count: usize, kind: ChangeKind) -> u64 {
        let sent = if kind == ChangeKind::ModifiedWithTime { now_nanos() } else { 0 };
        let version = {
            let mut state = self.lock();
            for number in 1..=count {
                let change_number = state.change_count();
                // Successive changes reach all objects before one repeats, unless the number of objects is a multiple
                // of `INDEX_STRIDE`, which is a prime.
                let index = change_number * INDEX_STRIDE % self.count;
                let version = self.initial_state_version() + 1 + change_number as u64;
                // The condition selects different objects in each round.
                let is_deletion_turn =
                    (change_number + change_number / self.count).is_multiple_of(CHANGES_PER_DELETION);
                let object = &mut state.objects[index];
                let before = *object;
                object.version = version;
                let event_type = if !object.exists {
                    // The next object of this name needs another UID.
                    object.stay += 1;
                    "ADDED"
                // The last change must leave an object, because clients wait for its version in an event.
                } else if kind == ChangeKind::Churned && is_deletion_turn && number < count {
                    "DELETED"
                } else {
                    "MODIFIED"
                };
                object.exists = event_type != "DELETED";
                let values = ObjectValues { version, sent, stay: object.stay };
                state.record(Change { index, event_type, values, before });
            }
            self.initial_state_version() + state.change_count() as u64
        };
        // The version is sent after the lock is released, so that followers can read the log immediately.
        self.newest_version.send_replace(version);
        version
    }

    /// Returns the number of objects and their checksum. serde alone decodes the objects, without code of Steadfast.
    pub(super) fn checksum(&self) -> Result<Checksum, BenchError> {
        let (_, objects) = self.snapshot();
        let mut checksum = Checksum::default();
        let mut text = Vec::new();
        for (index, object) in objects.iter().enumerate().filter(|(_, object)| object.exists) {
            text.clear();
            self.json.append(&mut text, index, 0, object.values());
            let mut pod: Pod = serde_json::from_slice(&text)?;
            // Steadfast drops `managedFields` before it caches an object, so both sides must ignore this field.
            pod.metadata.managed_fields = None;
            checksum.add(&pod)?;
        }
        Ok(checksum)
    }

    /// Closes all connections.
    pub(super) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Returns a receiver that is notified when all connections are closed.
    pub(super) fn cuts(&self) -> watch::Receiver<u64> {
        self.cuts.subscribe()
    }

    /// Stops the paced changes of [`control`](super::control), and returns the version of the newest change.
    pub(super) fn halt(&self) -> u64 {
        self.halt_count.fetch_add(1, Ordering::Relaxed);
        self.change(0, ChangeKind::Modified)
    }

    /// Returns the number of calls of [`halt`](Self::halt).
    pub(super) fn halt_count(&self) -> u64 {
        self.halt_count.load(Ordering::Relaxed)
    }

    /// Makes `count` changes that no watch receives, and expires all earlier changes. Returns the version of the last
    /// change.
    pub(super) fn expire(&self, count: usize, kind: ChangeKind) -> u64 {
        // The window moves first, so that an active watch sees no change, only the expiry of its version.
        self.lock().oldest_version = u64::MAX;
        let version = self.change(count, kind);
        self.lock().oldest_version = version;
        version
    }
}

impl State {
    /// Returns the number of changes.
    fn change_count(&self) -> usize {
        self.dropped_count + self.log.len()
    }

    fn record(&mut self, change: Change) {
        self.log.push_back(change);
        if self.log.len() > MAX_RECORDED_CHANGES
            && let Some(dropped) = self.log.pop_front()
        {
            self.dropped_count += 1;
            // Watches from dropped versions must receive an expiry instead of a gap.
            self.oldest_version = self.oldest_version.max(dropped.values.version);
        }
    }
}

fn now_nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
