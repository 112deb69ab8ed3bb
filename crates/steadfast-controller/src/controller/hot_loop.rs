//! Delay for keys that request an immediate requeue many times in a row.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use steadfast::ObjectKey;

/// Shorter requeue delays count as immediate.
const SHORT_REQUEUE_DELAY: Duration = Duration::from_millis(100);

/// Number of immediate requeues in a row without a penalty.
const FREE_REQUEUES: u32 = 10;

/// Maximum penalty delay.
const MAX_PENALTY: Duration = Duration::from_secs(1);

/// Counts immediate requeues in a row, by key.
#[derive(Default)]
pub(super) struct HotLoopLimiter {
    in_a_row: Mutex<HashMap<ObjectKey, u32>>,
    /// Number of counted keys, readable without the lock.
    count: AtomicUsize,
}

/// Requeue delay of a key, with an optional report.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LimitedDelay {
    /// Requeue delay after the penalty.
    pub(super) wait: Duration,
    /// Number of immediate requeues in a row, if they should be reported now.
    pub(super) report: Option<u32>,
}

impl HotLoopLimiter {
    /// Returns the delay for `key`, which requested a requeue after `wait`.
    pub(super) fn limit(&self, key: &ObjectKey, wait: Duration) -> LimitedDelay {
        // A longer delay is no hot loop: the reconcile paces itself.
        if wait >= SHORT_REQUEUE_DELAY {
            self.reset(key);
            return LimitedDelay { wait, report: None };
        }
        let mut in_a_row = self.lock();
        let times = in_a_row.entry(key.clone()).or_default();
        *times = times.saturating_add(1);
        let beyond = times.saturating_sub(FREE_REQUEUES);
        let report = (beyond == 1).then_some(*times);
        self.count.store(in_a_row.len(), Ordering::Relaxed);
        let least = match beyond {
            0 => Duration::ZERO,
            // The penalty doubles from 1 ms with each further requeue.
            beyond => Duration::from_millis(1 << (beyond - 1).min(10)).min(MAX_PENALTY),
        };
        LimitedDelay { wait: wait.max(least), report }
    }

    /// Resets the count of `key`.
    pub(super) fn reset(&self, key: &ObjectKey) {
        // The counter avoids the lock in the normal case of a controller without hot loops.
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut in_a_row = self.lock();
        in_a_row.remove(key);
        self.count.store(in_a_row.len(), Ordering::Relaxed);
    }

    /// Returns the number of delayed keys.
    pub(super) fn slowed(&self) -> usize {
        if self.count.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        self.lock().values().filter(|times| **times > FREE_REQUEUES).count()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectKey, u32>> {
        self.in_a_row.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hot_key_is_delayed_and_reported_once() {
        let (hot_loops, key) = (HotLoopLimiter::default(), ObjectKey::cluster("a"));
        let slowed: Vec<LimitedDelay> = (0..30).map(|_| hot_loops.limit(&key, Duration::ZERO)).collect();
        assert!(slowed[..10].iter().all(|slowed| slowed.wait.is_zero() && slowed.report.is_none()));
        assert_eq!(slowed[10], LimitedDelay { wait: Duration::from_millis(1), report: Some(11) });
        assert!(slowed[11..].iter().all(|slowed| slowed.report.is_none()));
        assert!(slowed.windows(2).all(|pair| pair[0].wait <= pair[1].wait));
        assert_eq!(slowed[29].wait, MAX_PENALTY);
        assert_eq!(hot_loops.slowed(), 1);
    }

    #[test]
    fn other_actions_reset_immediate_requeues() {
        let (hot_loops, key) = (HotLoopLimiter::default(), ObjectKey::cluster("a"));
        for _ in 0..30 {
            for _ in 0..10 {
                assert_eq!(hot_loops.limit(&key, Duration::ZERO).wait, Duration::ZERO);
            }
            assert_eq!(hot_loops.limit(&key, SHORT_REQUEUE_DELAY).wait, SHORT_REQUEUE_DELAY);
        }
        assert_eq!(hot_loops.slowed(), 0);
        assert!(hot_loops.lock().is_empty());
    }
}
