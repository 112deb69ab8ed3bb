//! Attribution of writes to the task that sent the request.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::{Outcome, ServerIdentity, Write, WriteTarget, Writes};

thread_local! {
    /// Recordings whose future is being polled on this thread, innermost last.
    static ACTIVE_RECORDINGS: RefCell<Vec<Arc<OpenRecording>>> = const { RefCell::new(Vec::new()) };
}

/// Recordings of one server.
#[derive(Default)]
pub(crate) struct Recordings {
    server: ServerIdentity,
    open: Mutex<BTreeMap<u64, Arc<OpenRecording>>>,
    /// Number of open recordings. With zero, requests skip all further checks.
    count: AtomicUsize,
}

/// An open recording.
struct OpenRecording {
    recordings: Arc<Recordings>,
    writes: Mutex<Writes>,
}

/// Recorder of a future's writes through the clients of a connection: see
/// [`Connection::record_writes`](crate::Connection::record_writes). The recording ends when this value is dropped.
pub struct WriteRecording {
    number: u64,
    open: Arc<OpenRecording>,
}

impl Recordings {
    /// Returns the server of the recordings.
    pub(crate) fn server(&self) -> &ServerIdentity {
        &self.server
    }

    /// Starts a recording.
    pub(crate) fn begin(self: &Arc<Self>) -> WriteRecording {
        let open = Arc::new(OpenRecording { recordings: self.clone(), writes: Mutex::default() });
        let mut all = self.open.lock();
        // A number is reused only after its recording has ended and was removed from the map.
        let number = all.last_key_value().map_or(0, |(last, _)| last + 1);
        all.insert(number, open.clone());
        self.count.store(all.len(), Ordering::Release);
        WriteRecording { number, open }
    }

    /// Records a write to `target` before it is sent, in the recording of the current future.
    ///
    /// Outside any recorded future, all open recordings record it. Returns `None` if no recording is open.
    pub(crate) fn write(&self, target: impl FnOnce() -> Option<WriteTarget>) -> Option<Arc<Write>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let write = Arc::new(Write::new(Some(self.server.clone()), target()?, Outcome::Pending));
        self.record(|writes| writes.push(write.clone()));
        Some(write)
    }

    /// Adds these writes to the recording of the current future, or to all open recordings outside any recorded future.
    pub(crate) fn add_external(&self, external: &Writes) {
        self.record(|writes| writes.extend(external.clone()));
    }

    fn record(&self, add: impl Fn(&mut Writes)) {
        let active = ACTIVE_RECORDINGS
            .with_borrow(|current| current.iter().rev().find(|open| open.recordings.server == self.server).cloned());
        match active {
            Some(open) => add(&mut open.writes.lock()),
            None => self.open.lock().values().for_each(|open| add(&mut open.writes.lock())),
        }
    }
}

impl WriteRecording {
    /// Wraps `work` and records its writes.
    ///
    /// Tasks that `work` spawns are not included. Writes outside any recorded future are added to all open recordings.
    pub fn scope<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        let open = self.open.clone();
        async move {
            let mut work = pin!(work);
            let polled = poll_fn(|context| {
                // Set for each poll, not for the whole future: between polls, other futures run on this thread.
                ACTIVE_RECORDINGS.with_borrow_mut(|current| current.push(open.clone()));
                let _current = PollGuard;
                work.as_mut().poll(context)
            });
            polled.await
        }
    }

    /// Returns the writes recorded so far.
    pub fn writes(&self) -> Writes {
        self.open.writes.lock().clone()
    }
}

impl Drop for WriteRecording {
    fn drop(&mut self) {
        let recordings = &self.open.recordings;
        let mut all = recordings.open.lock();
        all.remove(&self.number);
        recordings.count.store(all.len(), Ordering::Release);
    }
}

impl fmt::Debug for WriteRecording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WriteRecording").field(&self.writes()).finish()
    }
}

/// Scope guard of a poll, which also ends on a panic.
struct PollGuard;

impl Drop for PollGuard {
    fn drop(&mut self) {
        ACTIVE_RECORDINGS.with_borrow_mut(|current| drop(current.pop()));
    }
}
