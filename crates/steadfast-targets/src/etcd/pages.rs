//! Number of keys in one response of a read: fewer if values are large, or if etcd is too slow to respond in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::gateway::ATTEMPT_TIMEOUT;

/// Maximum number of keys per response.
const MAX_PAGE_KEYS: usize = 1000;

/// Divisor of the page size after a read without a response. The gateway sends a response only when it is complete.
/// So a large response can miss the timeout each time.
const FAILURE_DIVISOR: usize = 4;

/// Maximum response time of a fast read. A slower read does not enlarge the pages of the next read.
const FAST_RESPONSE: Duration = Duration::from_millis(ATTEMPT_TIMEOUT.as_millis() as u64 / 6);

/// Size of the pages of the next read. Clones share the size.
#[derive(Clone, Debug)]
pub(super) struct PageSizes(Arc<AtomicUsize>);

impl Default for PageSizes {
    fn default() -> Self {
        Self(Arc::new(AtomicUsize::new(MAX_PAGE_KEYS)))
    }
}

/// Size of the pages of one read.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageSize {
    keys: usize,
    /// Longest time of a response.
    slowest: Duration,
}

impl PageSizes {
    pub(super) fn start(&self) -> PageSize {
        PageSize { keys: self.0.load(Ordering::Relaxed), slowest: Duration::ZERO }
    }

    /// Makes the pages of the next read smaller, because this read had no response.
    pub(super) fn record_failure(&self, size: &PageSize) {
        self.0.store((size.keys / FAILURE_DIVISOR).max(1), Ordering::Relaxed);
    }

    /// Makes the pages of the next read larger if all responses of this read were fast.
    pub(super) fn record_success(&self, size: &PageSize) {
        let keys = if size.slowest < FAST_RESPONSE { size.keys * 2 } else { size.keys };
        self.0.store(keys.min(MAX_PAGE_KEYS), Ordering::Relaxed);
    }
}

impl PageSize {
    pub(super) fn keys(&self) -> usize {
        self.keys
    }

    /// Halves the pages, because a response was too large. Returns false for a page of one key.
    pub(super) fn halve(&mut self) -> bool {
        self.keys /= 2;
        self.keys > 0
    }

    /// Records the time of a response.
    pub(super) fn record_duration(&mut self, time: Duration) {
        self.slowest = self.slowest.max(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_shrink_without_response_and_grow_again() {
        let pages = PageSizes::default();
        let sizes = |fail: bool, time: u64| {
            let mut size = pages.start();
            size.record_duration(Duration::from_millis(time));
            if fail {
                pages.record_failure(&size);
            } else {
                pages.record_success(&size);
            }
            pages.start().keys()
        };
        assert_eq!([true, true].map(|fail| sizes(fail, 0)), [250, 62]);
        // A response that is slow but in time does not enlarge the pages.
        assert_eq!([2_000, 2_000, 100, 100].map(|time| sizes(false, time)), [62, 62, 124, 248]);
        assert_eq!([true; 6].map(|fail| sizes(fail, 0)), [62, 15, 3, 1, 1, 1]);
        assert_eq!([10; 11].map(|time| sizes(false, time)).last(), Some(&1000));
    }

    #[test]
    fn page_of_one_key_cannot_be_halved() {
        let mut size = PageSizes::default().start();
        assert_eq!(std::iter::from_fn(|| size.halve().then(|| size.keys())).last(), Some(1));
    }
}
