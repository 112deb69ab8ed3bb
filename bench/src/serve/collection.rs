//! The collection: objects at their versions, and the changes since the beginning.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

use super::records::Records;
use crate::Trouble;

/// The version before all objects; as long as all versions are.
const BEGINNING: u64 = 1_000_000_000;

/// So far apart are objects that change one after the other.
const STRIDE: usize = 7919;

/// Objects, in both encodings, and their history.
pub(super) struct Collection {
    pub(super) json: Records,
    pub(super) protobuf: Records,
    count: usize,
    state: Mutex<State>,
    moved: watch::Sender<u64>,
    halts: AtomicU64,
}

struct State {
    versions: Vec<u64>,
    log: Vec<Change>,
    /// What happened before this version is forgotten.
    window: u64,
}

/// One change; its version follows from its place.
#[derive(Clone, Copy)]
pub(super) struct Change {
    pub(super) index: usize,
    pub(super) version: u64,
    /// When it was made, in nanoseconds since 1970; 0 where nobody asks.
    pub(super) sent: u64,
}

/// What follows a version.
pub(super) enum Following {
    Changes(Vec<Change>),
    Forgotten,
}

impl Collection {
    /// The first `count` objects of the generated data in `folder`.
    pub(super) fn load(folder: &Path, count: usize) -> Result<Self, Trouble> {
        let versions = (0..count as u64).map(|index| BEGINNING + 1 + index).collect();
        let first = BEGINNING + count as u64;
        Ok(Self {
            json: Records::load(&folder.join("pods.json"), count)?,
            protobuf: Records::load(&folder.join("pods.protobuf"), count)?,
            count,
            state: Mutex::new(State { versions, log: Vec::new(), window: first }),
            moved: watch::Sender::new(first),
            halts: AtomicU64::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn first(&self) -> u64 {
        BEGINNING + self.count as u64
    }

    /// The version of the newest change, and that of each object.
    pub(super) fn snapshot(&self) -> (u64, Vec<u64>) {
        let state = self.lock();
        (self.first() + state.log.len() as u64, state.versions.clone())
    }

    /// Up to `limit` changes after `version`.
    pub(super) fn after(&self, version: u64, limit: usize) -> Following {
        let state = self.lock();
        if version < state.window {
            return Following::Forgotten;
        }
        let from = ((version - self.first()) as usize).min(state.log.len());
        Following::Changes(state.log[from..].iter().take(limit).copied().collect())
    }

    /// Tells of each new version.
    pub(super) fn moved(&self) -> watch::Receiver<u64> {
        self.moved.subscribe()
    }

    /// Makes `count` changes at once; says the version of the last.
    pub(super) fn change(&self, count: usize, stamped: bool) -> u64 {
        let sent = if stamped { now() } else { 0 };
        let version = {
            let mut state = self.lock();
            for _ in 0..count {
                let place = state.log.len();
                let index = place * STRIDE % self.count;
                let version = self.first() + 1 + place as u64;
                state.versions[index] = version;
                state.log.push(Change { index, version, sent });
            }
            self.first() + state.log.len() as u64
        };
        self.moved.send_replace(version);
        version
    }

    /// Ends whatever makes changes bit by bit; says the version of the newest change.
    pub(super) fn halt(&self) -> u64 {
        self.halts.fetch_add(1, Ordering::Relaxed);
        self.change(0, false)
    }

    /// How often it was halted.
    pub(super) fn halts(&self) -> u64 {
        self.halts.load(Ordering::Relaxed)
    }

    /// Makes `count` changes that no watch is told of, and forgets all before them; says the version of the last.
    pub(super) fn expire(&self, count: usize) -> u64 {
        // The window moves first: a watch that runs sees no change, only that its own version is forgotten.
        self.lock().window = u64::MAX;
        let version = self.change(count, false);
        self.lock().window = version;
        version
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
