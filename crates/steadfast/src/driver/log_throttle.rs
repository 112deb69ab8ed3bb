//! Throttle for log lines about undecodable objects.

use std::time::Duration;

use steadfast_core::Instant;

/// Maximum number of log lines that name an undecodable object within a [`WINDOW`]. The others are counted in a
/// summary.
const MAX_NAMED_PER_WINDOW: u32 = 10;

const WINDOW: Duration = Duration::from_secs(60);

/// Number of log lines about undecodable objects in the current [`WINDOW`].
#[derive(Default)]
pub(super) struct LogThrottle {
    /// Start of the current window.
    window_start: Option<Instant>,
    /// Number of named objects in the window.
    named_count: u32,
    /// Number of unnamed objects since the last summary.
    unnamed_count: u64,
    /// True if the current window has a summary.
    has_summary: bool,
}

impl LogThrottle {
    /// Returns true if the log may name one more object at `now`.
    pub(super) fn names(&mut self, now: Instant) -> bool {
        self.start_interval(now);
        if self.named_count < MAX_NAMED_PER_WINDOW {
            self.named_count += 1;
            return true;
        }
        // Counted instead of named: a changed schema can make every object of a large cache undecodable at the same
        // time.
        self.unnamed_count += 1;
        false
    }

    /// Returns the number of unnamed objects if a summary is due.
    pub(super) fn sum(&mut self, now: Instant) -> Option<u64> {
        if self.unnamed_count == 0 {
            return None;
        }
        self.start_interval(now);
        let due = !std::mem::replace(&mut self.has_summary, true);
        due.then(|| std::mem::take(&mut self.unnamed_count))
    }

    fn start_interval(&mut self, now: Instant) {
        if self.window_start.is_none_or(|window_start| now.since(window_start) >= WINDOW) {
            (self.window_start, self.named_count, self.has_summary) = (Some(now), 0, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_throttle_names_few_and_counts_rest() {
        let at = |seconds| Instant::from_zero(Duration::from_secs(seconds));
        let mut log_throttle = LogThrottle::default();
        let first: usize = (0..500).map(|_| usize::from(log_throttle.names(at(1)))).sum();
        assert_eq!((first, log_throttle.sum(at(1)), log_throttle.sum(at(1))), (10, Some(490), None));
        let next = (2..50).filter(|second| log_throttle.names(at(*second)) || log_throttle.sum(at(*second)).is_some());
        assert_eq!(next.count(), 0, "a log has had enough for a minute");
        assert_eq!(log_throttle.sum(at(61)), Some(48), "the count of the other diagnostics follows");
        assert!(log_throttle.names(at(62)));
        assert_eq!(log_throttle.sum(at(63)), None);
    }
}
