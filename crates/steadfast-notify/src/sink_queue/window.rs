//! Number of concurrent attempts while a receiver is overloaded.
//!
//! A receiver that has just recovered must not get the full concurrency again after its first response: it would fail
//! again. Each success adds one attempt, which doubles the number in each round.

use std::time::Duration;

/// Lower limit after failures other than a rejection of too many requests. Such a failure may concern one message only,
/// which must not occupy the only slot.
const MIN_AFTER_FAILURES: usize = 2;

/// Limit of the concurrent attempts of a sink.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    /// Reduced limit. `None` for the configured concurrency.
    limit: Option<usize>,
    reduced_at: Option<Duration>,
    succeeded_at: Option<Duration>,
}

impl Window {
    /// Returns the maximum number of batches in flight; `concurrency` is the configured maximum.
    pub(super) fn limit(&self, concurrency: usize) -> usize {
        self.limit.map_or(concurrency, |limit| limit.min(concurrency))
    }

    /// Records a rejection of too many requests: one attempt at a time until the next success.
    pub(super) fn record_rejection(&mut self, now: Duration) {
        (self.limit, self.reduced_at) = (Some(1), Some(now));
    }

    /// Records a failed attempt. Halves the limit if no attempt has succeeded since `started_at`, once for all attempts
    /// that started before the reduction.
    pub(super) fn record_failure(&mut self, started_at: Duration, now: Duration, concurrency: usize) {
        // Other messages are accepted, so the failure concerns only this message.
        let is_accepting = self.succeeded_at.is_some_and(|succeeded_at| succeeded_at >= started_at);
        let is_counted = self.reduced_at.is_some_and(|reduced_at| reduced_at > started_at);
        if is_accepting || is_counted {
            return;
        }
        let limit = self.limit(concurrency);
        (self.limit, self.reduced_at) = (Some((limit / 2).max(MIN_AFTER_FAILURES).min(limit)), Some(now));
    }

    /// Records a response to an attempt: the receiver processes messages.
    pub(super) fn record_success(&mut self, now: Duration, concurrency: usize) {
        self.succeeded_at = Some(now);
        self.limit = self.limit.map(|limit| limit + 1).filter(|limit| *limit < concurrency);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONCURRENCY: usize = 10;

    fn second(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    #[test]
    fn recovery_doubles_the_window_each_round() {
        let mut window = Window::default();
        assert_eq!(window.limit(CONCURRENCY), CONCURRENCY);
        window.record_rejection(second(1));
        let mut limits = Vec::new();
        for round in 2..7 {
            let limit = window.limit(CONCURRENCY);
            limits.push(limit);
            for _ in 0..limit {
                window.record_success(second(round), CONCURRENCY);
            }
        }
        assert_eq!(limits, [1, 2, 4, 8, 10]);
    }

    #[test]
    fn only_total_failure_reduces_the_window() {
        let mut window = Window::default();
        // The first of ten attempts that started together succeeds.
        window.record_success(second(1), CONCURRENCY);
        window.record_failure(second(0), second(2), CONCURRENCY);
        assert_eq!(window.limit(CONCURRENCY), CONCURRENCY);
        for (started_at, limit) in [(3, 5), (3, 5), (5, 2), (7, 2)] {
            window.record_failure(second(started_at), second(started_at + 1), CONCURRENCY);
            assert_eq!(window.limit(CONCURRENCY), limit, "an attempt from {started_at} s");
        }
        window.record_rejection(second(9));
        window.record_failure(second(10), second(11), CONCURRENCY);
        assert_eq!((window.limit(CONCURRENCY), window.limit(1)), (1, 1));
    }
}
