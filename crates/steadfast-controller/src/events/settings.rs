//! Limits of a recorder.

use std::time::Duration;

/// Limits of an [`EventRecorder`](crate::EventRecorder). The defaults are client-go's if it has the same limit.
///
/// A value of 0 counts as 1, except for durations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventSettings {
    /// Maximum number of queued events; further new events are dropped. Defaults to 1,000, like client-go's
    /// `maxQueuedEvents`.
    pub queue: usize,
    /// Maximum number of series that count repeated events. Defaults to 4,096, like client-go's `maxLruCacheEntries`.
    pub series: usize,
    /// Time without a recording after which a series ends. Defaults to 6 min, like client-go's `finishTime`.
    pub series_timeout: Duration,
    /// Maximum age of the server's count while a series continues. The server deletes events an hour after their last
    /// change. Defaults to 30 min, like client-go's `refreshTime`.
    pub refresh_interval: Duration,
    /// Number from which on similar events are combined. Similar events differ only in their notes. Defaults to 10,
    /// like client-go's `defaultAggregateMaxEvents`.
    pub max_separate_similar: usize,
    /// Time without a similar event after which counting restarts. Defaults to 600 s, like client-go's
    /// `defaultAggregateIntervalInSeconds`.
    pub similar_within: Duration,
    /// Maximum burst of new events per object and type. Defaults to 25, like client-go's `defaultSpamBurst`.
    pub burst: u32,
    /// Interval after which an object may have one more new event. Zero disables the limit. Defaults to 300 s, like
    /// client-go's `defaultSpamQPS`.
    pub refill: Duration,
    /// Maximum number of attempts per event. Defaults to 12, like client-go's `maxTriesPerEvent`.
    pub max_attempts: u32,
    /// Maximum pause after the first failure. Doubles with each further failure; the minimum is half of the maximum.
    /// Defaults to 1 s.
    pub initial_pause: Duration,
    /// Maximum pause, even if the server requests a longer one. Up to 10 % of jitter is added to a requested pause.
    /// Defaults to 60 s.
    pub max_pause: Duration,
    /// Maximum number of concurrent requests while the server is healthy. Defaults to 8; client-go 0.37 has no limit.
    pub concurrency: usize,
}

impl Default for EventSettings {
    fn default() -> Self {
        Self {
            queue: 1000,
            series: 4096,
            series_timeout: Duration::from_secs(6 * 60),
            refresh_interval: Duration::from_secs(30 * 60),
            max_separate_similar: 10,
            similar_within: Duration::from_secs(600),
            burst: 25,
            refill: Duration::from_secs(300),
            max_attempts: 12,
            initial_pause: Duration::from_secs(1),
            max_pause: Duration::from_secs(60),
            concurrency: 8,
        }
    }
}

impl EventSettings {
    /// Raises zero limits to 1.
    pub(super) fn normalized(self) -> Self {
        Self {
            queue: self.queue.max(1),
            series: self.series.max(1),
            max_separate_similar: self.max_separate_similar.max(1),
            burst: self.burst.max(1),
            max_attempts: self.max_attempts.max(1),
            concurrency: self.concurrency.max(1),
            ..self
        }
    }
}
