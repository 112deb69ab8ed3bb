//! Counters of a recorder.

/// Counters and current state of an [`EventRecorder`](crate::EventRecorder). Counters start at 0.
///
/// No recording is lost: `recorded` equals `waiting` + `delivered` + `filtered` + `dropped` + `failed`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventStats {
    /// Recorded events.
    pub recorded: u64,
    /// Recorded events that the server has not counted yet.
    pub waiting: u64,
    /// Recorded events that the server has counted.
    pub delivered: u64,
    /// Recorded events beyond the limit of their object.
    pub filtered: u64,
    /// Recorded events that exceeded the queue limit, or that were not sent before the recorder stopped.
    pub dropped: u64,
    /// Recorded events that the server rejected or failed to accept in all attempts, and invalid events.
    pub failed: u64,
    /// Recorded events that were combined with similar ones.
    pub combined: u64,
    /// Requests that created an event.
    pub creates: u64,
    /// Requests that updated a count.
    pub patches: u64,
    /// Failed requests that were or will be repeated.
    pub retries: u64,
    /// Events that wait for a request.
    pub queued: usize,
    /// Events that accept further recordings.
    pub series: usize,
}
