//! Helper threads for CPU-bound work.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::blocking_pool::BlockingPool;
#[cfg(feature = "shuttle")]
use crate::injected_fault::InjectedExecutorFault;
use crate::injected_fault::inject;
use crate::sync::AtomicUsize;

/// Number of helpers for CPU-bound work such as decoding, and the threshold for their use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HelperThreads {
    /// Maximum number of concurrent helpers, in addition to the calling thread. 0 disables helpers.
    pub threads: usize,
    /// Minimum number of pending bytes for which a helper is worthwhile.
    pub min_bytes: usize,
}

/// Work of a helper thread: each call does one part, and returns false if no work is left.
pub type HelperWork = Box<dyn FnMut() -> bool + Send>;

/// Minimum number of pending bytes for which a helper is worthwhile. Waking a thread costs the caller about 5 µs, and
/// the thread starts 20 to 100 µs later. Decoding this many bytes takes at least 200 µs.
const MIN_HELPER_BYTES: usize = 64 * 1024;

/// Helper threads with a maximum shared by all callers.
pub struct HelperPool {
    pool: BlockingPool,
    limit: usize,
    busy: Arc<AtomicUsize>,
}

impl HelperPool {
    /// Creates a pool without threads. At most `limit` threads start on demand, and end after some idle time.
    pub fn new(limit: usize) -> Self {
        Self { pool: BlockingPool::named("steadfast-helper"), limit, busy: Arc::new(AtomicUsize::new(0)) }
    }

    /// Injects a fault into this pool.
    #[cfg(feature = "shuttle")]
    #[must_use]
    pub fn with_fault(mut self, fault: Option<InjectedExecutorFault>) -> Self {
        self.pool = self.pool.clone().with_fault(fault);
        self
    }

    /// Returns the limits of this pool.
    pub fn threads(&self) -> HelperThreads {
        HelperThreads { threads: self.limit, min_bytes: MIN_HELPER_BYTES }
    }

    /// Runs `work` on a helper thread. Drops `work` if all helpers are busy.
    pub fn run(&self, mut work: HelperWork) {
        // A guard, so that a panicking helper is counted as free again.
        let Some(busy) = self.claim_thread() else { return };
        self.pool.run(Box::new(move || {
            let _busy = busy;
            while work() {}
        }));
    }

    /// Counts one more helper as busy, unless all are.
    fn claim_thread(&self) -> Option<Busy> {
        if inject!(self.pool.fault(), HelperLimitUnchecked) {
            let busy = self.busy.load(Ordering::Relaxed);
            if busy >= self.limit {
                return None;
            }
            self.busy.store(busy + 1, Ordering::Relaxed);
            return Some(Busy(self.busy.clone()));
        }
        let more = |busy| (busy < self.limit).then_some(busy + 1);
        // Relaxed: the counter orders no other memory. The lock of the pool passes the work to the thread.
        self.busy.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Busy(self.busy.clone()))
    }
}

impl Drop for HelperPool {
    fn drop(&mut self) {
        self.pool.close();
    }
}

impl fmt::Debug for HelperPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HelperPool").field("limit", &self.limit).finish_non_exhaustive()
    }
}

/// Marks a helper thread as busy until it is dropped.
struct Busy(Arc<AtomicUsize>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(not(feature = "shuttle"))]
#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn helpers_stay_below_limit() {
        let pool = HelperPool::new(2);
        let (started, starts) = mpsc::channel();
        let gates: Vec<_> = (0..3)
            .map(|number| {
                let (open, gate) = mpsc::channel::<()>();
                let started = started.clone();
                pool.run(Box::new(move || {
                    started.send(number).expect("the test waits");
                    gate.recv().is_ok()
                }));
                open
            })
            .collect();
        let mut running = [starts.recv().expect("a helper runs"), starts.recv().expect("another helper runs")];
        running.sort_unstable();
        assert_eq!(running, [0, 1]);
        assert!(gates[2].send(()).is_err(), "the third work is dropped");
        drop(gates);
        while pool.busy.load(Ordering::Relaxed) > 0 {
            thread::yield_now();
        }
        pool.run(Box::new(move || {
            started.send(3).expect("the test waits");
            false
        }));
        assert_eq!(starts.recv(), Ok(3), "a free helper runs the next work");
    }
}
