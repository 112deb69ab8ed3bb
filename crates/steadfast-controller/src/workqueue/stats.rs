//! Counters of a queue, like those of client-go's `util/workqueue`.

use std::time::Duration;

/// Histogram of durations.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Durations {
    /// Number of measurements.
    pub count: u64,
    /// Sum of all measurements.
    pub sum: Duration,
    /// Number of measurements in each bucket: up to 10 ns, up to 100 ns and so on to 1,000 s. Each measurement is
    /// counted once, in the lowest bucket that fits. The last entry counts longer measurements.
    pub buckets: [u64; Self::BOUNDS.len() + 1],
}

impl Durations {
    /// Upper bounds of all buckets but the last, in seconds: powers of ten, like client-go's.
    pub const BOUNDS: [f64; 12] = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3];

    pub(crate) fn add(&mut self, duration: Duration) {
        self.count += 1;
        self.sum = self.sum.saturating_add(duration);
        let seconds = duration.as_secs_f64();
        self.buckets[Self::BOUNDS.partition_point(|bound| *bound < seconds)] += 1;
    }
}

/// Counters and current state of a queue. Counters start at 0.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct WorkqueueStats {
    /// Ready keys, and running keys with a pending requeue (`workqueue_depth`).
    pub depth: usize,
    /// Delayed keys.
    pub delayed: usize,
    /// Running keys.
    pub running: usize,
    /// Additions of keys that were not already ready (`workqueue_adds_total`).
    pub adds: u64,
    /// Delayed additions, including retries (`workqueue_retries_total`).
    pub retries: u64,
    /// Times from addition to the start of processing (`workqueue_queue_duration_seconds`).
    pub queue_duration: Durations,
    /// Processing times of finished runs (`workqueue_work_duration_seconds`).
    pub work_duration: Durations,
    /// Total time of all unfinished runs so far (`workqueue_unfinished_work_seconds`).
    pub unfinished_work: Duration,
    /// Time of the longest unfinished run so far (`workqueue_longest_running_processor_seconds`).
    pub longest_running: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_equal_to_bound_counts_below() {
        let mut durations = Durations::default();
        for duration in [Duration::ZERO, Duration::from_millis(1), Duration::from_millis(2), Duration::from_secs(1001)]
        {
            durations.add(duration);
        }
        assert_eq!(durations.buckets, [1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1]);
        assert_eq!((durations.count, durations.sum), (4, Duration::from_millis(1_001_003)));
    }
}
