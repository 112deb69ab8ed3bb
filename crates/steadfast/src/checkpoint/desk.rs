//! Who writes to one checkpoint.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use steadfast_core::reflector::Note;
use tokio::sync::{Notify, watch};

use super::book::{Book, Fault, Step, Written};
use super::counts::CheckpointCounts;

/// One checkpoint, and all that is kept in it.
pub(super) struct Desk {
    /// Where it is, for people.
    place: String,
    pub(super) book: Book,
    claims: Mutex<BTreeMap<String, Weak<Holder>>>,
    state: Mutex<State>,
    /// Somebody new has something to write.
    pub(super) called: Notify,
    counts: Mutex<CheckpointCounts>,
}

#[derive(Default)]
struct State {
    newcomers: Vec<Arc<dyn Attached>>,
    has_writer: bool,
}

/// Someone who has something to write.
pub(super) trait Attached: Send + Sync {
    /// What is to be written now; nothing where all is.
    fn step(&self) -> Option<Step<'_>>;

    /// What was to be written is, or is not.
    fn settle(&self, written: bool);

    /// Whether nothing more is to come.
    fn is_over(&self) -> bool;

    /// Tells when there may be something.
    fn moved(&self) -> watch::Receiver<u64>;

    /// Says something to whoever follows the informer.
    fn tell(&self, note: &Note);
}

/// A part of the checkpoint that is somebody's, for as long as this is held.
pub(super) struct Claim {
    pub(super) name: String,
    holder: Arc<Holder>,
}

#[derive(Default)]
struct Holder {
    /// Somebody else has it now.
    is_retired: AtomicBool,
    is_over: OnceLock<Box<dyn Fn() -> bool + Send + Sync>>,
}

impl Claim {
    /// Whether somebody else has the part now.
    pub(super) fn is_lost(&self) -> bool {
        self.holder.is_retired.load(Ordering::Acquire)
    }

    /// From when on somebody else may have it: when `is_over` says so.
    pub(super) fn until(&self, is_over: impl Fn() -> bool + Send + Sync + 'static) {
        drop(self.holder.is_over.set(Box::new(is_over)));
    }
}

impl Desk {
    pub(super) fn new(place: String, book: Book) -> Arc<Self> {
        Arc::new(Self {
            place,
            book,
            claims: Mutex::default(),
            state: Mutex::default(),
            called: Notify::new(),
            counts: Mutex::default(),
        })
    }

    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// Takes the part called `name`, unless somebody has it who is not over. Whoever had it writes nothing to it any more.
    pub(super) fn claim(&self, name: &str) -> Option<Claim> {
        let mut claims = lock(&self.claims);
        if let Some(earlier) = claims.get(name).and_then(Weak::upgrade) {
            if !earlier.is_over.get().is_some_and(|is_over| is_over()) {
                return None;
            }
            // What is being written is written before what comes next is read.
            let _pause = self.book.pause();
            earlier.is_retired.store(true, Ordering::Release);
        }
        claims.retain(|_, holder| holder.strong_count() > 0);
        let holder = Arc::new(Holder::default());
        claims.insert(name.to_owned(), Arc::downgrade(&holder));
        Some(Claim { name: name.to_owned(), holder })
    }

    /// Has what `attached` comes to hold written; returns whether somebody has to begin to write.
    pub(super) fn attach(&self, attached: Arc<dyn Attached>) -> bool {
        let mut state = lock(&self.state);
        state.newcomers.push(attached);
        self.called.notify_one();
        !std::mem::replace(&mut state.has_writer, true)
    }

    /// Those that have come since the last call; or, where there is none and `others` has none either, nothing: then whoever
    /// asks writes no more.
    pub(super) fn newcomers(&self, others: usize) -> Option<Vec<Arc<dyn Attached>>> {
        let mut state = lock(&self.state);
        if state.newcomers.is_empty() && others == 0 {
            state.has_writer = false;
            return None;
        }
        Some(std::mem::take(&mut state.newcomers))
    }

    pub(super) fn counts(&self) -> CheckpointCounts {
        lock(&self.counts).clone()
    }

    /// Takes note of what became of a transaction; returns the fault, where it is the first one since one succeeded.
    pub(super) fn count(&self, written: &Result<Option<Written>, Fault>) -> Option<Arc<str>> {
        let mut counts = lock(&self.counts);
        match written {
            Ok(None) => None,
            Ok(Some(Written { rows, bytes })) => {
                counts.commits += 1;
                counts.rows += rows;
                counts.bytes += bytes;
                counts.failing = None;
                None
            }
            Err(Fault(why)) => {
                counts.failures += 1;
                counts.failing.replace(why.clone()).is_none().then(|| why.clone())
            }
        }
    }
}

/// No code that panics runs under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
