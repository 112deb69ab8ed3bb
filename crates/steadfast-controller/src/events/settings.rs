//! How much is recorded, kept and sent.

use std::time::Duration;

/// How much an [`EventRecorder`](crate::EventRecorder) records, keeps and sends. The defaults are client-go's where it has
/// such a figure.
///
/// Of what has to be at least one to make sense, zero is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventSettings {
    /// How many events may wait to be sent; what is new beyond that is dropped. 1,000, as client-go's `maxQueuedEvents`.
    pub queue: usize,
    /// How many events it is remembered of that they were recorded, so that they can be counted when they come again. 4,096,
    /// as client-go's `maxLruCacheEntries`.
    pub series: usize,
    /// After how long without a further one a series is over. 6 min, as client-go's `finishTime`.
    pub finish: Duration,
    /// How long the server's count of a series may be behind while it goes on; events are forgotten by the server an hour after
    /// their last change. 30 min, as client-go's `refreshTime`.
    pub refresh: Duration,
    /// How many events that are alike but for their notes make one of them and all further ones be combined. 10, as
    /// client-go's `defaultAggregateMaxEvents`.
    pub similar: usize,
    /// After how long without a similar one they are counted anew. 600 s, as client-go's `defaultAggregateIntervalInSeconds`.
    pub similar_within: Duration,
    /// How many new events of one type there may be about one object at once. 25, as client-go's `defaultSpamBurst`.
    pub burst: u32,
    /// After how long there may be one more; zero for as many as come. 300 s, as client-go's `defaultSpamQPS`.
    pub refill: Duration,
    /// How often it is tried to send an event. 12, as client-go's `maxTriesPerEvent`.
    pub tries: u32,
    /// The longest wait after the first failure; after each further one it is twice as long, and the least is half of it. 1 s.
    pub first_wait: Duration,
    /// The longest wait of all, also where the server asks for a longer one. 60 s.
    pub longest_wait: Duration,
    /// How many requests are under way at once while the server is well. 8; client-go 0.37 has as many as events.
    pub concurrency: usize,
}

impl Default for EventSettings {
    fn default() -> Self {
        Self {
            queue: 1000,
            series: 4096,
            finish: Duration::from_secs(6 * 60),
            refresh: Duration::from_secs(30 * 60),
            similar: 10,
            similar_within: Duration::from_secs(600),
            burst: 25,
            refill: Duration::from_secs(300),
            tries: 12,
            first_wait: Duration::from_secs(1),
            longest_wait: Duration::from_secs(60),
            concurrency: 8,
        }
    }
}

impl EventSettings {
    /// With at least one of what has to be at least one.
    pub(super) fn sane(self) -> Self {
        Self {
            queue: self.queue.max(1),
            series: self.series.max(1),
            similar: self.similar.max(1),
            burst: self.burst.max(1),
            tries: self.tries.max(1),
            concurrency: self.concurrency.max(1),
            ..self
        }
    }
}
