//! What is counted.

/// What an [`EventRecorder`](crate::EventRecorder) has done, and how it is.
///
/// What was recorded is somewhere: `recorded` is always `waiting` + `delivered` + `filtered` + `dropped` + `failed`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventStats {
    /// Events that the program has recorded.
    pub recorded: u64,
    /// Of these, those that the server's counts do not have yet.
    pub waiting: u64,
    /// Those that they have.
    pub delivered: u64,
    /// Those that were too many about one object.
    pub filtered: u64,
    /// Those for which there was no room, or no time at the stop.
    pub dropped: u64,
    /// Those that the server refused or did not take after all tries, and such that it could only have refused.
    pub failed: u64,
    /// Of all these, those that were combined with similar ones.
    pub combined: u64,
    /// Requests that made an event.
    pub creates: u64,
    /// Requests that changed the count of one.
    pub patches: u64,
    /// Requests that were made in vain, and were or will be made again.
    pub retries: u64,
    /// Events that wait for a request to be made.
    pub queued: usize,
    /// Events that further ones can be counted in.
    pub series: usize,
}
