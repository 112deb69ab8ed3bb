//! What is counted, as client-go's `util/workqueue` counts it.

use std::time::Duration;

/// How long something took, each time.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Durations {
    /// How often it was measured.
    pub count: u64,
    /// All of it together.
    pub sum: Duration,
    /// How many took at most 10 ns, 100 ns and so on to 1,000 s, none of them counted twice; and how many took longer.
    pub classes: [u64; Self::BOUNDS.len() + 1],
}

impl Durations {
    /// The upper bounds of all classes but the last, in seconds: client-go's, which are powers of ten.
    pub const BOUNDS: [f64; 12] = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3];

    pub(crate) fn add(&mut self, took: Duration) {
        self.count += 1;
        self.sum = self.sum.saturating_add(took);
        let seconds = took.as_secs_f64();
        self.classes[Self::BOUNDS.partition_point(|bound| *bound < seconds)] += 1;
    }
}

/// What a queue has done, and how it is.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct WorkqueueStats {
    /// Keys that are ready, or worked on and to be worked on again (`workqueue_depth`).
    pub depth: usize,
    /// Keys that wait for their time.
    pub delayed: usize,
    /// Keys that are worked on.
    pub running: usize,
    /// Additions of keys that were not ready already (`workqueue_adds_total`).
    pub adds: u64,
    /// Additions for later, retries among them (`workqueue_retries_total`).
    pub retries: u64,
    /// From an addition until the work on it began (`workqueue_queue_duration_seconds`).
    pub queued: Durations,
    /// Work on keys that has ended (`workqueue_work_duration_seconds`).
    pub worked: Durations,
    /// How long all the work together that has not ended has taken so far (`workqueue_unfinished_work_seconds`).
    pub unfinished: Duration,
    /// How long the longest of it has taken so far (`workqueue_longest_running_processor_seconds`).
    pub longest_running: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_as_long_as_a_bound_is_below_it() {
        let mut durations = Durations::default();
        for took in [Duration::ZERO, Duration::from_millis(1), Duration::from_millis(2), Duration::from_secs(1001)] {
            durations.add(took);
        }
        assert_eq!(durations.classes, [1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1]);
        assert_eq!((durations.count, durations.sum), (4, Duration::from_millis(1_001_003)));
    }
}
