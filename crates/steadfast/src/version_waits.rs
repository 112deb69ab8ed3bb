//! Waits for a version of a cache. Each waiter is woken once at its version, not at every change before it.
//!
//! If a controller's watch lags, each key with a write has a waiter. A plain notification at each publication would
//! wake all of them.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use parking_lot::{Mutex, MutexGuard};
use steadfast_core::ResourceVersion;

/// Waiters by target version.
#[derive(Default)]
pub(crate) struct VersionWaits {
    waiters: Mutex<Waiters>,
}

#[derive(Default)]
struct Waiters {
    next: u64,
    /// Epoch of the cache. In another epoch a target may never be reached.
    epoch: u64,
    /// `None` until the first poll.
    wakers: BTreeMap<WaiterKey, Option<Waker>>,
}

/// Key of a waiter: the awaited version, which is ordered, and the number of the waiter.
#[derive(Clone, Debug, PartialEq, Eq)]
struct WaiterKey {
    version: ResourceVersion,
    number: u64,
}

impl Ord for WaiterKey {
    fn cmp(&self, other: &Self) -> Ordering {
        let versions = self.version.order(&other.version).expect("only ordered versions are stored");
        versions.then(self.number.cmp(&other.number))
    }
}

impl PartialOrd for WaiterKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl VersionWaits {
    /// Adds a waiter for `version`, or returns `None` if the version cannot be ordered.
    ///
    /// The caller must then check whether the cache has already reached the version.
    pub(crate) fn add_waiter(&self, version: &ResourceVersion) -> Option<VersionWaiter<'_>> {
        version.is_ordered().then(|| {
            let mut waiters = self.lock();
            let waiter_key = WaiterKey { version: version.clone(), number: waiters.next };
            waiters.next += 1;
            waiters.wakers.insert(waiter_key.clone(), None);
            VersionWaiter { version_waits: self, waiter_key }
        })
    }

    /// Records that the cache has reached `version` of `epoch`, and wakes the waiters up to this version. Wakes all
    /// waiters after a change of epoch, or if the version cannot be ordered.
    pub(crate) fn record_version(&self, version: &ResourceVersion, epoch: u64) {
        let reached = {
            let mut waiters = self.lock();
            let is_new_epoch = std::mem::replace(&mut waiters.epoch, epoch) != epoch;
            let Some((first, _)) = waiters.wakers.first_key_value() else { return };
            if is_new_epoch || !version.is_ordered() {
                std::mem::take(&mut waiters.wakers)
            } else if first.version.is_newer_than(version) {
                return;
            } else {
                // Waiter numbers increase and never reach the maximum.
                let still_waiting = waiters.wakers.split_off(&WaiterKey { version: version.clone(), number: u64::MAX });
                std::mem::replace(&mut waiters.wakers, still_waiting)
            }
        };
        wake(reached);
    }

    /// Wakes all waiters, because their versions may never be reached.
    pub(crate) fn wake_all(&self) {
        let reached = std::mem::take(&mut self.lock().wakers);
        wake(reached);
    }

    fn lock(&self) -> MutexGuard<'_, Waiters> {
        // Wakers are called and dropped without the lock.
        self.waiters.lock()
    }
}

fn wake(reached: BTreeMap<WaiterKey, Option<Waker>>) {
    reached.into_values().flatten().for_each(Waker::wake);
}

/// Future that completes when the cache has reached the awaited version, or when the version may never be reached.
pub(crate) struct VersionWaiter<'a> {
    version_waits: &'a VersionWaits,
    waiter_key: WaiterKey,
}

impl Future for VersionWaiter<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let replaced = match self.version_waits.lock().wakers.get_mut(&self.waiter_key) {
            None => return Poll::Ready(()),
            Some(Some(waker)) if waker.will_wake(context.waker()) => None,
            // The replaced waker is dropped after the lock is released: its `Drop` may be user code.
            Some(waker) => waker.replace(context.waker().clone()),
        };
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for VersionWaiter<'_> {
    fn drop(&mut self) {
        let waker = self.version_waits.lock().wakers.remove(&self.waiter_key);
        drop(waker);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn version(number: u64) -> ResourceVersion {
        number.to_string().as_str().into()
    }

    #[test]
    fn waiter_is_woken_only_at_its_version() {
        let version_waits = VersionWaits::default();
        let woken: Vec<_> = (0..3).map(|_| Arc::new(Woken::default())).collect();
        // Versions are compared as numbers; as text the last would be the smallest.
        let wanted = [8, 9, 10].map(version);
        let mut waiters: Vec<_> =
            wanted.iter().filter_map(|version| version_waits.add_waiter(version).map(Box::pin)).collect();
        assert_eq!(waiters.len(), 3);
        let mut poll = |at: usize| {
            let waker = Waker::from(woken[at].clone());
            waiters[at].as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
        };
        assert!(!poll(0) && !poll(1) && !poll(2));
        let seen = || [0, 1, 2].map(|at: usize| woken[at].0.load(Ordering::Relaxed));
        (1..8).for_each(|at| version_waits.record_version(&version(at), 0));
        assert_eq!(seen(), [0, 0, 0]);
        version_waits.record_version(&version(9), 0);
        assert_eq!(seen(), [1, 1, 0]);
        assert!(poll(0) && poll(1) && !poll(2));
        version_waits.record_version(&version(3), 1);
        assert_eq!(seen(), [1, 1, 1], "another epoch may never reach this version");
        assert!(poll(2));
    }

    #[test]
    fn late_waiter_ignores_earlier_versions() {
        let version_waits = VersionWaits::default();
        version_waits.record_version(&version(5), 0);
        let mut waiter = pin!(version_waits.add_waiter(&version(5)).expect("a comparable version"));
        // Reached versions are not stored: the caller checks the cache after it has added the waiter.
        assert!(waiter.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        version_waits.record_version(&version(5), 0);
        assert!(waiter.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
        assert!(version_waits.add_waiter(&ResourceVersion::from("0x5")).is_none(), "the version is not comparable");
    }

    #[test]
    fn cancelled_waiter_leaves_no_entry() {
        let version_waits = VersionWaits::default();
        for _ in 0..3 {
            drop(version_waits.add_waiter(&version(7)));
        }
        assert!(version_waits.lock().wakers.is_empty());
    }
}
