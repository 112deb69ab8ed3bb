//! Timers of a reflector.

/// Timer of a reflector. Each variant names the instant at which it expires.
#[derive(Clone, Copy, Debug)]
pub(super) enum Timer {
    /// End of the delay before the next attempt.
    Delay,
    /// Longest stall of a list, or longest duration of its initial events.
    ListStall,
    /// End of a delay, longest stall, or deadline of a delta relist.
    DeltaList,
    /// Deadline of the probe that distinguishes a lagging replica from another history.
    EpochProbe,
    /// Deadline of a watch's response head.
    WatchHead,
    /// Age at which an open watch resets the backoffs and ends polling. Set only while failures are counted or lists
    /// replace watches.
    WatchHealth,
    /// Start of the list that resolves unidentified records.
    UnidentifiedList,
    /// Next request for a proof, or the deadline of the current one.
    Proof,
    /// Start of a move to another connection, deadline of the successor, or end of the move.
    WatchMove,
    /// Next audit, deadline of a page of identities, or end of the wait for differences.
    Comparison,
}

impl Timer {
    /// Timers of the phases.
    pub(super) const OF_PHASES: [Self; 7] = [
        Self::Delay,
        Self::ListStall,
        Self::DeltaList,
        Self::EpochProbe,
        Self::WatchHead,
        Self::WatchHealth,
        Self::UnidentifiedList,
    ];

    /// Timers of the activities alongside a watch.
    pub(super) const OF_ACTIVITIES: [Self; 3] = [Self::Proof, Self::WatchMove, Self::Comparison];
}
