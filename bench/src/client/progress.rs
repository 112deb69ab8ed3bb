//! Events that a handler has seen.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};

/// Annotation with the time at which the server sent an object, in nanoseconds since 1970.
pub(super) const SENT: &str = "bench.steadfast.dev/sent";

/// Maximum number of recorded delays.
const MAX_RECORDED_DELAYS: usize = 1 << 16;

/// Events that a handler has seen since the last reset.
#[derive(Clone, Default)]
pub(super) struct Progress {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    version: AtomicU64,
    seen: AtomicU64,
    /// Time of the first event, in nanoseconds since 1970.
    first: AtomicU64,
    /// Delay of each event from the server, in nanoseconds.
    delays: Mutex<Vec<u64>>,
    /// True while the handler must block.
    stalled: AtomicBool,
    /// Lock of `resumed`.
    stall: Mutex<()>,
    /// Wakes the blocked handler.
    resumed: Condvar,
}

impl Progress {
    /// Records an event of an object with this version. `sent` returns the time at which the server sent the event.
    pub(super) fn record(&self, version: &str, sent: impl FnOnce() -> Option<u64>) {
        let now = now();
        let inner = &*self.inner;
        // A relaxed load suffices on the fast path. The condition is checked again under the lock.
        if inner.stalled.load(Ordering::Relaxed) {
            let mut stall = inner.stall.lock();
            inner.resumed.wait_while(&mut stall, |()| inner.stalled.load(Ordering::Relaxed));
        }
        // Only the first event of a phase sets the time; the exchange fails for all others.
        let _ = inner.first.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        // The annotation is zero in lists, and clocks may differ slightly. Both cases have no valid delay.
        if let Some(sent) = sent().filter(|sent| (1..now).contains(sent)) {
            let mut delays = inner.delays.lock();
            if delays.len() < MAX_RECORDED_DELAYS {
                delays.push(now - sent);
            }
        }
        inner.seen.fetch_add(1, Ordering::Relaxed);
        if let Ok(version) = version.parse() {
            // The maximum is kept, because the initial list is not in the order of versions.
            inner.version.fetch_max(version, Ordering::Relaxed);
        }
    }

    /// Returns the highest version so far.
    pub(super) fn version(&self) -> u64 {
        self.inner.version.load(Ordering::Relaxed)
    }

    /// Blocks or unblocks the handler.
    pub(super) fn stall(&self, stalled: bool) {
        // The lock prevents a lost wakeup between the check and the wait of the handler.
        let _stall = self.inner.stall.lock();
        self.inner.stalled.store(stalled, Ordering::Relaxed);
        self.inner.resumed.notify_all();
    }

    /// Resets the counters.
    pub(super) fn reset(&self) {
        self.inner.seen.store(0, Ordering::Relaxed);
        self.inner.first.store(0, Ordering::Relaxed);
        self.inner.delays.lock().clear();
    }

    /// Returns the counts and the delays since the last reset. Removes the delays, so a second call has no percentiles.
    pub(super) fn take_report(&self, phase: &str) -> Value {
        let inner = &*self.inner;
        let seconds = (now() - inner.first.load(Ordering::Relaxed)) as f64 / 1e9;
        let mut report = json!({ "phase": phase, "seconds": seconds, "seen": inner.seen.load(Ordering::Relaxed) });
        let mut delays = std::mem::take(&mut *inner.delays.lock());
        delays.sort_unstable();
        if !delays.is_empty() {
            report["p50_us"] = json!(delays[delays.len() / 2] as f64 / 1e3);
            report["p99_us"] = json!(delays[delays.len() * 99 / 100] as f64 / 1e3);
        }
        report
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
