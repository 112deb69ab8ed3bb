//! Injected violations of the contract, for tests that prove that the checker detects them.
//!
//! The rules of an informer contain a [`Breaches`] value. Without the feature `breach` the value is always empty, and
//! every check is a constant.

/// Injected violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Breach {
    /// C1: a recreated object is delivered as an update.
    MergedIdentities,
    /// C2: a relist reports no deletions.
    LostDeletes,
    /// C3: records of a watch are applied at any version.
    RepeatedRecords,
    /// C4: a relist accepts older states from a lagging replica.
    OlderList,
    /// C5: `old` is the previous state of the store, not of the handler.
    StoreAsOld,
    /// C6: handlers run before the store publishes the change.
    HandlerFirst,
    /// C7: calls for one name overlap.
    OverlappingCalls,
    /// C8: a handler's queue grows with the number of events.
    UnboundedQueue,
    /// C9: synced is reported before the first list is complete.
    SyncedTooEarly,
    /// C10: the cache is always reported as fresh.
    AlwaysFresh,
    /// C11: records are dropped silently.
    DroppedRecords,
    /// C12: a wait ends before the store has reached the version.
    ImpatientWait,
    /// R1, R2a: a silent connection receives neither pings nor other requests that test the server.
    Unpinged,
    /// R4: a failed connection is used again.
    DeadAgain,
    /// R4: a watch drops its connection before another is open.
    BrokenBeforeMade,
    /// R7: ordinary requests wait behind watches.
    QueuedBehindWatches,
    /// R4: a list follows a watch that ended, instead of a watch from its last version.
    ForgottenPlace,
    /// R9: a relist decodes unchanged objects again.
    CopiedRelist,
    /// R11: requests are retried at once, independent of the requested delay.
    IgnoredPatience,
    /// R2: no proof is requested after a silence of any duration.
    NoSearch,
    /// R2: bookmarks that do not rise count as proofs.
    EqualBookmarks,
    /// R2: a probe's proof has the time of its response, not of its request.
    LateProof,
    /// C10: a list's proof has the time of its end, not of its request.
    LateList,
    /// C10: a watch that reopens after a break counts as a proof.
    UnprovenResume,
    /// R12: an audit detects no difference.
    BlindAudit,
}

/// Injected violations of an informer; empty outside of tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Breaches {
    #[cfg(feature = "breach")]
    committed: u32,
}

impl Breaches {
    /// No violation.
    pub const NONE: Self = Self {
        #[cfg(feature = "breach")]
        committed: 0,
    };

    /// Creates a value with a single violation.
    #[cfg(feature = "breach")]
    pub const fn only(breach: Breach) -> Self {
        Self { committed: 1 << breach as u8 }
    }

    /// Returns whether `breach` is injected.
    #[cfg(feature = "breach")]
    pub const fn commit(self, breach: Breach) -> bool {
        self.committed & (1 << breach as u8) != 0
    }

    /// Returns whether `breach` is injected: always `false` without the feature `breach`.
    #[cfg(not(feature = "breach"))]
    #[inline]
    pub const fn commit(self, _breach: Breach) -> bool {
        false
    }
}
