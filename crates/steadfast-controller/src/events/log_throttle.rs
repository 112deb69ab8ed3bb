//! Throttle of log lines.

use std::time::Duration;

use steadfast::environment::Instant;

/// Minimum interval between two log lines.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Throttle of a repeated log line.
#[derive(Debug, Default)]
pub(super) struct LogThrottle {
    count: u64,
    last_logged: Option<Instant>,
}

impl LogThrottle {
    /// Adds `more` occurrences. Returns the number since the last log line, if a line should be logged now.
    pub(super) fn add_and_take(&mut self, more: u64, now: Instant) -> Option<u64> {
        self.count += more;
        if self.last_logged.is_some_and(|last_logged| now.since(last_logged) < LOG_INTERVAL) {
            return None;
        }
        self.last_logged = Some(now);
        Some(std::mem::take(&mut self.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_is_logged_then_once_a_minute() {
        let at = |seconds| Instant::from_zero(Duration::from_secs(seconds));
        let mut throttle = LogThrottle::default();
        assert_eq!(throttle.add_and_take(1, at(0)), Some(1));
        assert_eq!(throttle.add_and_take(2, at(1)), None);
        assert_eq!(throttle.add_and_take(3, at(59)), None);
        assert_eq!(throttle.add_and_take(1, at(60)), Some(6));
    }
}
