//! Statistics of a handler, for users and for scrapes.

#[cfg(feature = "metrics")]
use std::sync::Arc;
#[cfg(feature = "metrics")]
use std::time::Duration;

#[cfg(feature = "metrics")]
use crate::metrics::call_durations::CallHistogram;

/// Statistics of a handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandlerStats {
    /// Calls that returned.
    pub returned: u64,
    /// Calls that panicked.
    pub panicked: u64,
    /// Events dropped after their retries.
    pub skipped: u64,
    /// Events merged by a [`deliver_each`](crate::HandlerBuilder::deliver_each) handler because its queue was full.
    pub missed: u64,
    /// Entries in the queue or in delivery.
    pub entries: usize,
    /// Calls in progress.
    pub running: usize,
}

/// State of a handler at a scrape.
#[cfg(feature = "metrics")]
pub(crate) struct HandlerReading {
    /// Distinguishes the handlers of an informer; reused after a handler has ended.
    pub(crate) ordinal: usize,
    /// Name from the handler's builder.
    pub(crate) name: Option<Arc<str>>,
    pub(crate) counts: HandlerStats,
    pub(crate) synced: bool,
    /// Age of the oldest change that the handler has not finished.
    pub(crate) lag: Duration,
    /// Durations of the finished calls.
    pub(crate) durations: CallHistogram,
}
