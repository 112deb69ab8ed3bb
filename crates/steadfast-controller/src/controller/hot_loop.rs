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
    consecutive_requeues: Mutex<HashMap<ObjectKey, u32>>,
    /// Number of counted keys, readable without the lock.
    count: AtomicUsize,
}

/// Requeue delay of a key, with an optional report.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LimitedDelay {
    /// Requeue delay after the penalty.
    pub(super) delay: Duration,
    /// Number of immediate requeues in a row, if they should be reported now.
    pub(super) reported_requeues: Option<u32>,
}

impl HotLoopLimiter {
    /// Returns the delay for `key`, which requested a requeue after `delay`.
    pub(super) fn limit(&self, key: &ObjectKey, delay: Duration) -> LimitedDelay {
        // A reconcile with a longer delay is not a hot loop: it paces itself.
        if delay >= SHORT_REQUEUE_DELAY {
            self.reset(key);
            return LimitedDelay { delay, reported_requeues: None };
        }
        let mut in_a_row = self.lock();
        let requeues = in_a_row.entry(key.clone()).or_default();
        *requeues = requeues.saturating_add(1);
        let beyond = requeues.saturating_sub(FREE_REQUEUES);
        let reported_requeues = (beyond == 1).then_some(*requeues);
        self.count.store(in_a_row.len(), Ordering::Relaxed);
        let min_delay = match beyond {
            0 => Duration::ZERO,
            // The penalty doubles from 1 ms with each further requeue.
            beyond => Duration::from_millis(1 << (beyond - 1).min(10)).min(MAX_PENALTY),
        };
        LimitedDelay { delay: delay.max(min_delay), reported_requeues }
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
        self.consecutive_requeues.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hot_key_is_delayed_and_reported_once() {
        let (hot_loops, key) = (HotLoopLimiter::default(), ObjectKey::cluster("a"));
        let slowed: Vec<LimitedDelay> = (0..30).map(|_| hot_loops.limit(&key, Duration::ZERO)).collect();
        assert!(slowed[..10].iter().all(|slowed| slowed.delay.is_zero() && slowed.reported_requeues.is_none()));
        assert_eq!(slowed[10], LimitedDelay { delay: Duration::from_millis(1), reported_requeues: Some(11) });
        assert!(slowed[11..].iter().all(|slowed| slowed.reported_requeues.is_none()));
        assert!(slowed.windows(2).all(|pair| pair[0].delay <= pair[1].delay));
        assert_eq!(slowed[29].delay, MAX_PENALTY);
        assert_eq!(hot_loops.slowed(), 1);
    }

    #[test]
    fn other_actions_reset_immediate_requeues() {
        let (hot_loops, key) = (HotLoopLimiter::default(), ObjectKey::cluster("a"));
        for _ in 0..30 {
            for _ in 0..10 {
                assert_eq!(hot_loops.limit(&key, Duration::ZERO).delay, Duration::ZERO);
            }
            assert_eq!(hot_loops.limit(&key, SHORT_REQUEUE_DELAY).delay, SHORT_REQUEUE_DELAY);
        }
        assert_eq!(hot_loops.slowed(), 0);
        assert!(hot_loops.lock().is_empty());
    }
}
