//! Queue of the writers of one checkpoint.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use steadfast_core::reflector::Diagnostic;
use tokio::sync::{Notify, watch};

use super::counts::CheckpointStats;
use super::database::{CheckpointDatabase, CheckpointFileError, PartitionChange, Written};

/// One checkpoint file and its writers.
pub(super) struct WriteQueue {
    /// Path of the file, for display.
    display_path: String,
    pub(super) database: CheckpointDatabase,
    claims: Mutex<BTreeMap<String, Weak<ClaimState>>>,
    state: Mutex<State>,
    /// Notified when an informer attaches, and when a durable handler has rows to write.
    pub(super) wake_writer: Notify,
    counts: Mutex<CheckpointStats>,
    /// Notifies its receivers when the queue is dropped. The last field, so that the file is unlocked before.
    released: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    new_writers: Vec<Arc<dyn PartitionWriter>>,
    has_writer: bool,
}

/// An informer with changes to write.
pub(super) trait PartitionWriter: Send + Sync {
    /// Returns the pending changes, or `None` if all are written.
    fn step(&self) -> Option<PartitionChange<'_>>;

    /// Records the result of the last step: written or uncertain.
    fn finish_write(&self, written: bool);

    /// Returns true if no further changes can follow.
    fn is_finished(&self) -> bool;

    /// Returns a receiver that is notified of possible changes.
    fn changes(&self) -> watch::Receiver<u64>;

    /// Reports a diagnostic to the informer's callbacks.
    fn report(&self, diagnostic: &Diagnostic);
}

/// Exclusive claim of a partition.
pub(super) struct Claim {
    pub(super) name: String,
    holder: Arc<ClaimState>,
}

#[derive(Default)]
struct ClaimState {
    /// True after another informer has taken over the partition.
    is_retired: AtomicBool,
    is_finished: OnceLock<Box<dyn Fn() -> bool + Send + Sync>>,
}

impl Claim {
    /// Returns true if another informer has taken over the partition.
    pub(super) fn is_lost(&self) -> bool {
        self.holder.is_retired.load(Ordering::Acquire)
    }

    /// Allows a takeover of the partition as soon as `is_finished` returns true.
    pub(super) fn allow_takeover_when(&self, is_finished: impl Fn() -> bool + Send + Sync + 'static) {
        drop(self.holder.is_finished.set(Box::new(is_finished)));
    }
}

impl WriteQueue {
    pub(super) fn new(display_path: String, database: CheckpointDatabase) -> Arc<Self> {
        Arc::new(Self {
            display_path,
            database,
            claims: Mutex::default(),
            state: Mutex::default(),
            wake_writer: Notify::new(),
            counts: Mutex::default(),
            released: watch::Sender::new(()),
        })
    }

    /// Returns a receiver that is closed when the queue is dropped.
    pub(super) fn released(&self) -> watch::Receiver<()> {
        self.released.subscribe()
    }

    pub(super) fn display_path(&self) -> &str {
        &self.display_path
    }

    /// Claims the partition `name`, unless an active informer holds it. A previous holder can no longer write to it.
    pub(super) fn claim(&self, name: &str) -> Option<Claim> {
        let mut claims = self.claims.lock();
        // A stopped informer may still be in the writer's list. Its partition can be taken over.
        if let Some(previous) = claims.get(name).and_then(Weak::upgrade) {
            if !previous.is_finished.get().is_some_and(|is_finished| is_finished()) {
                return None;
            }
            // Waits for the write in progress, so that the new holder reads its result.
            let _pause = self.database.pause();
            previous.is_retired.store(true, Ordering::Release);
        }
        claims.retain(|_, holder| holder.strong_count() > 0);
        let holder = Arc::new(ClaimState::default());
        claims.insert(name.to_owned(), Arc::downgrade(&holder));
        Some(Claim { name: name.to_owned(), holder })
    }

    /// Attaches an informer. Returns true if the caller must start the writer task.
    pub(super) fn attach(&self, writer: Arc<dyn PartitionWriter>) -> bool {
        let mut state = self.state.lock();
        state.new_writers.push(writer);
        self.wake_writer.notify_one();
        !std::mem::replace(&mut state.has_writer, true)
    }

    /// Returns the informers attached since the last call. If there are none, and `followed_count` is zero,
    /// returns `None`. The writer task must then end.
    pub(super) fn take_new_writers(&self, followed_count: usize) -> Option<Vec<Arc<dyn PartitionWriter>>> {
        let mut state = self.state.lock();
        // Decided under the lock of `attach`: an informer either finds the running writer, or starts a new one.
        if state.new_writers.is_empty() && followed_count == 0 {
            state.has_writer = false;
            return None;
        }
        Some(std::mem::take(&mut state.new_writers))
    }

    pub(super) fn stats(&self) -> CheckpointStats {
        self.counts.lock().clone()
    }

    /// Counts the result of a transaction. Returns the error if it is the first since the last success.
    pub(super) fn record_result(&self, written: &Result<Option<Written>, CheckpointFileError>) -> Option<Arc<str>> {
        let mut counts = self.counts.lock();
        match written {
            Ok(None) => None,
            Ok(Some(Written { rows, bytes })) => {
                counts.commits += 1;
                counts.rows += rows;
                counts.bytes += bytes;
                counts.failing = None;
                None
            }
            Err(CheckpointFileError(reason)) => {
                counts.failures += 1;
                counts.failing.replace(reason.clone()).is_none().then(|| reason.clone())
            }
        }
    }
}
