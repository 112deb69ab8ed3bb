//! Histogram of the durations of a handler's calls.

use std::time::Duration;

use super::informer_counters::Counter;

/// Upper bounds of the buckets in seconds: from a change of a map in memory to a slow request.
pub(crate) const CALL_BOUNDS: [f64; 12] = [0.0001, 0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];

/// Durations of the finished calls of one handler. An addition takes two relaxed atomic operations.
#[derive(Debug, Default)]
pub(crate) struct CallDurations {
    /// Number of calls by [`CALL_BOUNDS`], each call in its first matching bucket. The last bucket counts longer calls.
    counts: [Counter; CALL_BOUNDS.len() + 1],
    nanos: Counter,
}

/// Values of [`CallDurations`] at a scrape.
pub(crate) struct CallHistogram {
    pub(crate) counts: [u64; CALL_BOUNDS.len() + 1],
    /// Sum of the durations in seconds.
    pub(crate) sum: f64,
}

impl CallDurations {
    /// Counts a call.
    pub(crate) fn add(&self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        self.counts[CALL_BOUNDS.partition_point(|bound| *bound < seconds)].count();
        self.nanos.add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Returns the current values.
    pub(crate) fn read(&self) -> CallHistogram {
        let counts = self.counts.each_ref().map(Counter::get);
        CallHistogram { counts, sum: Duration::from_nanos(self.nanos.get()).as_secs_f64() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_equal_to_bound_counts_below() {
        let durations = CallDurations::default();
        for duration in [Duration::ZERO, Duration::from_millis(1), Duration::from_millis(2), Duration::from_secs(61)] {
            durations.add(duration);
        }
        let CallHistogram { counts, sum } = durations.read();
        assert_eq!(counts, [1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert!((sum - 61.003).abs() < 1e-9, "{sum}");
    }
}
