//! Helper threads for CPU-bound work.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::blocking_pool::BlockingPool;

/// Number of helpers for CPU-bound work such as decoding, and the threshold for their use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Helpers {
    /// Maximum number of concurrent helpers, in addition to the calling thread. 0 disables helpers.
    pub threads: usize,
    /// Minimum number of pending bytes for which a helper is worthwhile.
    pub min_bytes: usize,
}

/// A helper's work: each call does one part, and returns false if no work is left.
pub type Help = Box<dyn FnMut() -> bool + Send>;

/// Minimum number of pending bytes for which a helper is worthwhile. Waking a thread costs the caller about 5 µs, and
/// the thread starts 20 to 100 µs later. Decoding this many bytes takes at least 200 µs.
const MIN_HELPER_BYTES: usize = 64 * 1024;

/// Helper threads with a maximum shared by all callers.
pub(super) struct HelpingThreads {
    pool: BlockingPool,
    most: usize,
    busy: Arc<AtomicUsize>,
}

impl HelpingThreads {
    /// Creates a pool without threads. Threads start on demand and end after some idle time.
    pub(super) fn new(most: usize) -> Self {
        Self { pool: BlockingPool::named("steadfast-helper"), most, busy: Arc::default() }
    }

    pub(super) fn offered(&self) -> Helpers {
        Helpers { threads: self.most, min_bytes: MIN_HELPER_BYTES }
    }

    /// Runs `help` on a helper thread, unless all are busy.
    pub(super) fn call(&self, mut help: Help) {
        let more = |busy| (busy < self.most).then_some(busy + 1);
        if self.busy.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            return;
        }
        // A guard, so that a panicking helper is counted as free again.
        let busy = Busy(self.busy.clone());
        self.pool.run(Box::new(move || {
            let _busy = busy;
            while help() {}
        }));
    }
}

impl Drop for HelpingThreads {
    fn drop(&mut self) {
        self.pool.close();
    }
}

/// Marks a helper thread as busy until it is dropped.
struct Busy(Arc<AtomicUsize>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn no_more_threads_help_than_may() {
        let helping = HelpingThreads::new(2);
        let (begun, beginnings) = mpsc::channel();
        let gates: Vec<_> = (0..3)
            .map(|number| {
                let (open, gate) = mpsc::channel::<()>();
                let begun = begun.clone();
                helping.call(Box::new(move || {
                    begun.send(number).expect("the test waits");
                    gate.recv().is_ok()
                }));
                open
            })
            .collect();
        let mut both = [beginnings.recv().expect("a helper runs"), beginnings.recv().expect("another helps")];
        both.sort_unstable();
        assert_eq!(both, [0, 1]);
        assert!(gates[2].send(()).is_err(), "the third is let go and not kept waiting");
        drop(gates);
        while helping.busy.load(Ordering::Relaxed) > 0 {
            thread::yield_now();
        }
        helping.call(Box::new(move || {
            begun.send(3).expect("the test waits");
            false
        }));
        assert_eq!(beginnings.recv(), Ok(3), "a released helper may help again");
    }
}
