//! Events that a handler has seen.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};

/// Annotation with the time at which the server sent an object, in nanoseconds since 1970.
pub(super) const SENT_ANNOTATION: &str = "bench.steadfast.dev/sent";

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
    event_count: AtomicU64,
    /// Time of the first event, in nanoseconds since 1970.
    first_event_nanos: AtomicU64,
    /// Delay of each event from the server, in nanoseconds.
    delays: Mutex<Vec<u64>>,
    /// True while the handler must block.
    is_stalled: AtomicBool,
    /// Lock of `resumed`.
    stall_lock: Mutex<()>,
    /// Wakes the blocked handler.
    resumed: Condvar,
}

impl Progress {
    /// Records an event of an object with this version. `sent_nanos` returns the time at which the server sent it.
    pub(super) fn record(&self, version: &str, sent_nanos: impl FnOnce() -> Option<u64>) {
        let now = now_nanos();
        let inner = &*self.inner;
        // A relaxed load suffices on the fast path. The condition is checked again under the lock.
        if inner.is_stalled.load(Ordering::Relaxed) {
            let mut stall = inner.stall_lock.lock();
            inner.resumed.wait_while(&mut stall, |()| inner.is_stalled.load(Ordering::Relaxed));
        }
        // Only the first event of a phase sets the time; the exchange fails for all others.
        let _ = inner.first_event_nanos.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        // The annotation is zero in lists, and clocks may differ slightly. Both cases have no valid delay.
        if let Some(sent_nanos) = sent_nanos().filter(|sent_nanos| (1..now).contains(sent_nanos)) {
            let mut delays = inner.delays.lock();
            if delays.len() < MAX_RECORDED_DELAYS {
                delays.push(now - sent_nanos);
            }
        }
        inner.event_count.fetch_add(1, Ordering::Relaxed);
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
    pub(super) fn set_stalled(&self, is_stalled: bool) {
        // The lock prevents a lost wakeup between the check and the wait of the handler.
        let _guard = self.inner.stall_lock.lock();
        self.inner.is_stalled.store(is_stalled, Ordering::Relaxed);
        self.inner.resumed.notify_all();
    }

    /// Resets the counters.
    pub(super) fn reset(&self) {
        self.inner.event_count.store(0, Ordering::Relaxed);
        self.inner.first_event_nanos.store(0, Ordering::Relaxed);
        self.inner.delays.lock().clear();
    }

    /// Returns the counts and the delays since the last reset. Removes the delays, so a second call has no percentiles.
    pub(super) fn take_report(&self, phase: &str) -> Value {
        let inner = &*self.inner;
        let first_event_nanos = inner.first_event_nanos.load(Ordering::Relaxed);
        // A phase without events has no duration, and the wall clock may step back.
        let nanos = if first_event_nanos == 0 { 0 } else { now_nanos().saturating_sub(first_event_nanos) };
        let seconds = nanos as f64 / 1e9;
        let mut report =
            json!({ "phase": phase, "seconds": seconds, "seen": inner.event_count.load(Ordering::Relaxed) });
        let mut delays = std::mem::take(&mut *inner.delays.lock());
        delays.sort_unstable();
        if !delays.is_empty() {
            report["p50_us"] = json!(delays[delays.len() / 2] as f64 / 1e3);
            report["p99_us"] = json!(delays[delays.len() * 99 / 100] as f64 / 1e3);
        }
        report
    }
}

fn now_nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
