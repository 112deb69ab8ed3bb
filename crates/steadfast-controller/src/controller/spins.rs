//! Keys that want to be called again at once, time after time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use steadfast::ObjectKey;

/// A wait that is shorter counts as none.
const SHORT: Duration = Duration::from_millis(100);

/// So often in a row it is nobody's business.
const FREE: u32 = 10;

/// The longest wait in place of a short one.
const LONGEST: Duration = Duration::from_secs(1);

/// How often keys wanted to be called at once, in a row.
#[derive(Default)]
pub(super) struct Spins {
    in_a_row: Mutex<HashMap<ObjectKey, u32>>,
    /// How many keys that are.
    count: AtomicUsize,
}

/// What becomes of a wait.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Slowed {
    /// How long it is.
    pub(super) wait: Duration,
    /// How often it was short, where that is to be told.
    pub(super) told: Option<u32>,
}

impl Spins {
    /// `key` wants to be called again after `wait`.
    pub(super) fn again(&self, key: &ObjectKey, wait: Duration) -> Slowed {
        if wait >= SHORT {
            self.calm(key);
            return Slowed { wait, told: None };
        }
        let mut in_a_row = self.lock();
        let times = in_a_row.entry(key.clone()).or_default();
        *times = times.saturating_add(1);
        let beyond = times.saturating_sub(FREE);
        let told = (beyond == 1).then_some(*times);
        self.count.store(in_a_row.len(), Ordering::Relaxed);
        let least = match beyond {
            0 => Duration::ZERO,
            beyond => Duration::from_millis(1 << (beyond - 1).min(10)).min(LONGEST),
        };
        Slowed { wait: wait.max(least), told }
    }

    /// `key` wants something else.
    pub(super) fn calm(&self, key: &ObjectKey) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut in_a_row = self.lock();
        in_a_row.remove(key);
        self.count.store(in_a_row.len(), Ordering::Relaxed);
    }

    /// How many keys are slowed down.
    pub(super) fn slowed(&self) -> usize {
        if self.count.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        self.lock().values().filter(|times| **times > FREE).count()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectKey, u32>> {
        self.in_a_row.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_wants_to_be_called_at_once_waits_longer_and_longer_and_is_told_of_once() {
        let (spins, key) = (Spins::default(), ObjectKey::cluster("a"));
        let slowed: Vec<Slowed> = (0..30).map(|_| spins.again(&key, Duration::ZERO)).collect();
        assert!(slowed[..10].iter().all(|slowed| slowed.wait.is_zero() && slowed.told.is_none()));
        assert_eq!(slowed[10], Slowed { wait: Duration::from_millis(1), told: Some(11) });
        assert!(slowed[11..].iter().all(|slowed| slowed.told.is_none()));
        assert!(slowed.windows(2).all(|pair| pair[0].wait <= pair[1].wait));
        assert_eq!(slowed[29].wait, LONGEST);
        assert_eq!(spins.slowed(), 1);
    }

    #[test]
    fn who_wants_something_else_in_between_is_not_slowed_down() {
        let (spins, key) = (Spins::default(), ObjectKey::cluster("a"));
        for _ in 0..30 {
            for _ in 0..10 {
                assert_eq!(spins.again(&key, Duration::ZERO).wait, Duration::ZERO);
            }
            assert_eq!(spins.again(&key, SHORT).wait, SHORT);
        }
        assert_eq!(spins.slowed(), 0);
        assert!(spins.lock().is_empty());
    }
}
