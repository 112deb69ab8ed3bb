//! What a handler has done and has before it, for its user and for a scrape.

#[cfg(feature = "metrics")]
use std::time::Duration;

/// The counts of a handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandlerCounts {
    /// Calls that returned.
    pub returned: u64,
    /// Calls that panicked.
    pub panicked: u64,
    /// Events given up after their retries.
    pub skipped: u64,
    /// Events merged into others though each was to be delivered: what came beyond the handler's bound.
    pub missed: u64,
    /// Entries that wait or are being delivered.
    pub entries: usize,
    /// Calls that have begun and are not over.
    pub running: usize,
}

/// A handler at the moment of a scrape.
#[cfg(feature = "metrics")]
pub(crate) struct HandlerReading {
    /// Tells it from the others of its informer; taken again once it is free.
    pub(crate) ordinal: usize,
    pub(crate) counts: HandlerCounts,
    pub(crate) synced: bool,
    /// How long the oldest change waits from whose call it has not returned.
    pub(crate) lag: Duration,
}
