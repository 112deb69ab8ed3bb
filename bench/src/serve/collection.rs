//! The collection: objects at their versions, and the changes since the beginning.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use k8s_openapi::api::core::v1::Pod;
use tokio::sync::watch;

use super::records::{self, Records, Stamp};
use super::served::Served;
use crate::Trouble;
use crate::checksum::Checksum;

/// The version before all objects; as long as all versions are.
const BEGINNING: u64 = 1_000_000_000;

/// So far apart are objects that change one after the other.
const STRIDE: usize = 7919;

/// Where there are deletions, one change in so many is one.
const DELETIONS: usize = 8;

/// So many changes are remembered.
const REMEMBERED: usize = 1 << 20;

/// Objects, in both encodings, and their history.
pub(super) struct Collection {
    pub(super) json: Records,
    pub(super) protobuf: Records,
    pub(super) served: Served,
    count: usize,
    state: Mutex<State>,
    moved: watch::Sender<u64>,
    cuts: watch::Sender<u64>,
    halts: AtomicU64,
}

struct State {
    objects: Vec<Object>,
    /// The changes that are remembered, and how many were made before them.
    log: VecDeque<Change>,
    dropped: usize,
    /// What happened before this version is forgotten.
    window: u64,
}

/// An object as it is now.
#[derive(Clone, Copy)]
pub(super) struct Object {
    version: u64,
    stay: u32,
    pub(super) is_there: bool,
}

impl Object {
    /// Itself, as it is listed.
    pub(super) fn stamp(self) -> Stamp {
        Stamp { version: self.version, sent: 0, stay: self.stay }
    }
}

/// One change; its version follows from its place.
#[derive(Clone, Copy)]
pub(super) struct Change {
    pub(super) index: usize,
    /// What a watch calls it.
    pub(super) what: &'static str,
    pub(super) stamp: Stamp,
    /// The object until then.
    before: Object,
}

/// Which changes are made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    /// Objects are modified.
    Modified,
    /// The same, and each says when.
    Stamped,
    /// Some are deleted too, and created again when their turn comes.
    Churned,
}

/// What follows a version.
pub(super) enum Following {
    Changes(Vec<Change>),
    Forgotten,
}

impl Collection {
    /// `count` objects: the generated data in `folder`, and copies of them where there are fewer.
    pub(super) fn load(folder: &Path, count: usize) -> Result<Self, Trouble> {
        let object = |index| Object { version: BEGINNING + 1 + index, stay: 0, is_there: true };
        let objects = (0..count as u64).map(object).collect();
        let first = BEGINNING + count as u64;
        let whose = |_, object: &[u8]| records::whose_in_json(object);
        let json = Records::load(&folder.join("pods.json"), count, whose, records::metadata_in_json)?;
        // The same objects.
        let whose = |index, _: &[u8]| records::whose_in_json(json.generated(index));
        let protobuf = Records::load(&folder.join("pods.protobuf"), count, whose, records::metadata_in_protobuf)?;
        Ok(Self {
            json,
            protobuf,
            served: Served::default(),
            count,
            state: Mutex::new(State { objects, log: VecDeque::new(), dropped: 0, window: first }),
            moved: watch::Sender::new(first),
            cuts: watch::Sender::new(0),
            halts: AtomicU64::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many objects there may be: their numbers are lower.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    fn first(&self) -> u64 {
        BEGINNING + self.count as u64
    }

    /// The version of the newest change, and each object.
    pub(super) fn snapshot(&self) -> (u64, Vec<Object>) {
        let state = self.lock();
        (self.first() + state.made() as u64, state.objects.clone())
    }

    /// Each object as it was at `version`; nothing where that is forgotten.
    pub(super) fn at(&self, version: u64) -> Option<Vec<Object>> {
        let state = self.lock();
        if version < state.window {
            return None;
        }
        let mut objects = state.objects.clone();
        for change in state.log.range(self.place(&state, version)..).rev() {
            objects[change.index] = change.before;
        }
        Some(objects)
    }

    /// The number of the object of that name.
    pub(super) fn named(&self, name: &str) -> Option<usize> {
        self.json.named(name, self.count)
    }

    /// Where in the log the changes after `version` begin, which are remembered.
    fn place(&self, state: &State, version: u64) -> usize {
        ((version - self.first()) as usize).saturating_sub(state.dropped).min(state.log.len())
    }

    /// Up to `limit` changes after `version`.
    pub(super) fn after(&self, version: u64, limit: usize) -> Following {
        let state = self.lock();
        if version < state.window {
            return Following::Forgotten;
        }
        let from = self.place(&state, version);
        Following::Changes(state.log.range(from..).take(limit).copied().collect())
    }

    /// Tells of each new version.
    pub(super) fn moved(&self) -> watch::Receiver<u64> {
        self.moved.subscribe()
    }

    /// Makes `count` changes at once, of which the last is no deletion; says its version.
    pub(super) fn change(&self, count: usize, sort: Sort) -> u64 {
        let sent = if sort == Sort::Stamped { now() } else { 0 };
        let version = {
            let mut state = self.lock();
            for number in 1..=count {
                let place = state.made();
                let index = place * STRIDE % self.count;
                let version = self.first() + 1 + place as u64;
                // Another part of the objects in each round.
                let has_turn = (place + place / self.count).is_multiple_of(DELETIONS);
                let object = &mut state.objects[index];
                let before = *object;
                object.version = version;
                let what = if !object.is_there {
                    object.stay += 1;
                    "ADDED"
                } else if sort == Sort::Churned && has_turn && number < count {
                    "DELETED"
                } else {
                    "MODIFIED"
                };
                object.is_there = what != "DELETED";
                let stamp = Stamp { version, sent, stay: object.stay };
                state.remember(Change { index, what, stamp, before });
            }
            self.first() + state.made() as u64
        };
        self.moved.send_replace(version);
        version
    }

    /// How many objects there are, and what they come to, decoded by nobody but serde.
    pub(super) fn checksum(&self) -> Result<Checksum, Trouble> {
        let (_, objects) = self.snapshot();
        let mut checksum = Checksum::default();
        let mut text = Vec::new();
        for (index, object) in objects.iter().enumerate().filter(|(_, object)| object.is_there) {
            text.clear();
            self.json.append(&mut text, index, 0, object.stamp());
            let mut pod: Pod = serde_json::from_slice(&text)?;
            pod.metadata.managed_fields = None;
            checksum.add(&pod)?;
        }
        Ok(checksum)
    }

    /// Ends all connections.
    pub(super) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Tells of the next time when all connections end.
    pub(super) fn cuts(&self) -> watch::Receiver<u64> {
        self.cuts.subscribe()
    }

    /// Ends whatever makes changes bit by bit; says the version of the newest change.
    pub(super) fn halt(&self) -> u64 {
        self.halts.fetch_add(1, Ordering::Relaxed);
        self.change(0, Sort::Modified)
    }

    /// How often it was halted.
    pub(super) fn halts(&self) -> u64 {
        self.halts.load(Ordering::Relaxed)
    }

    /// Makes `count` changes that no watch is told of, and forgets all before them; says the version of the last.
    pub(super) fn expire(&self, count: usize, sort: Sort) -> u64 {
        // The window moves first: a watch that runs sees no change, only that its own version is forgotten.
        self.lock().window = u64::MAX;
        let version = self.change(count, sort);
        self.lock().window = version;
        version
    }
}

impl State {
    /// How many changes were made.
    fn made(&self) -> usize {
        self.dropped + self.log.len()
    }

    fn remember(&mut self, change: Change) {
        self.log.push_back(change);
        if self.log.len() > REMEMBERED
            && let Some(dropped) = self.log.pop_front()
        {
            self.dropped += 1;
            self.window = self.window.max(dropped.stamp.version);
        }
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
