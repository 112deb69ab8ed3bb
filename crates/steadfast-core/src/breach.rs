//! Deliberate breaches of the contract, for the tests that prove that the checker sees them.
//!
//! A [`Breaches`] value travels with an informer's rules. Without the feature `breach` it is always empty and every
//! question is answered by a constant.

/// A breach that a test can commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Breach {
    /// C1: a recreated object is delivered as an update.
    MergedIdentities,
    /// C2: a relist tells no deletions.
    LostDeletes,
    /// C3: records of a watch are applied whatever their version.
    RepeatedRecords,
    /// C4: a relist takes whatever a replica has, older states too.
    OlderList,
    /// C5: `old` is what the store held before, not what the handler saw.
    StoreAsOld,
    /// C6: handlers are called before the store shows the change.
    HandlerFirst,
    /// C7: calls for one name overlap.
    OverlappingCalls,
    /// C8: a handler's queue grows with the events.
    UnboundedQueue,
    /// C9: synced before the first list is there.
    SyncedTooEarly,
    /// C10: fresh, whatever happens.
    AlwaysFresh,
    /// C11: records are dropped in silence.
    DroppedRecords,
    /// C12: a wait ends before the store is there.
    ImpatientWait,
    /// R1, R2a: a silent connection is not pinged, and the server is not asked on it whether it is there.
    Unpinged,
    /// R4: a connection that failed is handed out again.
    DeadAgain,
    /// R4: a watch leaves its connection before it has another.
    BrokenBeforeMade,
    /// R7: ordinary requests wait behind watches.
    QueuedBehindWatches,
    /// R4: a watch that ended is followed by a list, and not by a watch from where it was.
    ForgottenPlace,
    /// R9: a relist decodes anew what has not changed.
    CopiedRelist,
    /// R11: the server is asked again at once, however long it asked us to wait.
    IgnoredPatience,
    /// R2: no proof is sought, however long the silence.
    NoSearch,
    /// R2: bookmarks that do not rise count as proofs.
    EqualBookmarks,
    /// R2: a probe's proof is dated when its answer came, not when it was sent.
    LateProof,
    /// C10: a list's proof is dated when the list was complete, not when it was requested.
    LateList,
    /// C10: a watch that is open again after one that broke counts as a proof.
    UnprovenResume,
    /// R12: an audit finds no difference.
    BlindAudit,
}

/// The breaches that an informer commits: none, outside of tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Breaches {
    #[cfg(feature = "breach")]
    committed: u32,
}

impl Breaches {
    /// None.
    pub const NONE: Self = Self {
        #[cfg(feature = "breach")]
        committed: 0,
    };

    /// Just `breach`.
    #[cfg(feature = "breach")]
    pub const fn only(breach: Breach) -> Self {
        Self { committed: 1 << breach as u8 }
    }

    /// Whether `breach` is among them.
    #[cfg(feature = "breach")]
    pub const fn commit(self, breach: Breach) -> bool {
        self.committed & (1 << breach as u8) != 0
    }

    /// Whether `breach` is among them: never, without the feature `breach`.
    #[cfg(not(feature = "breach"))]
    #[inline]
    pub const fn commit(self, _breach: Breach) -> bool {
        false
    }
}
