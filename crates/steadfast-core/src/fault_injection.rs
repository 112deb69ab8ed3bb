//! Faults that a test injects into an informer, to prove that the checker detects each violation of the contract.
//!
//! The settings of an informer contain a [`FaultInjection`] value, and [`inject!`](crate::inject) checks it. Without the
//! feature `fault-injection` the value has no size, and each check is a constant.

/// Fault that a test can inject into an informer.
#[cfg(feature = "fault-injection")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum InjectedFault {
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
    EarlyWaitEnd,
    /// R1, R2a: a silent connection receives neither pings nor other requests that test the server.
    Unpinged,
    /// R4: a failed connection is used again.
    ReusedDeadConnection,
    /// R4: a watch drops its connection before another is open.
    BreakBeforeMake,
    /// R7: ordinary requests wait behind watches.
    QueuedBehindWatches,
    /// R4: a list follows a watch that ended, instead of a watch from its last version.
    ForgottenVersion,
    /// R9: a relist decodes unchanged objects again.
    CopiedRelist,
    /// R11: requests are retried immediately, independent of the requested delay.
    IgnoredRetryAfter,
    /// R2: no proof is requested after a silence of any duration.
    NoSilenceProbe,
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

/// Injected faults of an informer; empty outside of tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultInjection {
    #[cfg(feature = "fault-injection")]
    injected: u32,
}

impl FaultInjection {
    /// No injected fault.
    pub const NONE: Self = Self {
        #[cfg(feature = "fault-injection")]
        injected: 0,
    };

    /// Creates a value with a single injected fault.
    #[cfg(feature = "fault-injection")]
    pub const fn only(fault: InjectedFault) -> Self {
        Self { injected: 1 << fault as u8 }
    }

    /// Returns true if `fault` is injected. [`inject!`](crate::inject) calls this method.
    #[cfg(feature = "fault-injection")]
    pub const fn is_injected(self, fault: InjectedFault) -> bool {
        self.injected & (1 << fault as u8) != 0
    }
}

/// Returns true if the named [`InjectedFault`] is injected into a [`FaultInjection`] value.
///
/// Without the feature `fault-injection` the macro is the constant `false`, and the value is not evaluated.
#[cfg(feature = "fault-injection")]
#[macro_export]
macro_rules! inject {
    ($faults:expr, $fault:ident) => {
        $faults.is_injected($crate::fault_injection::InjectedFault::$fault)
    };
}

/// Returns false, since faults need the feature `fault-injection`. The first argument is not evaluated.
#[cfg(not(feature = "fault-injection"))]
#[macro_export]
macro_rules! inject {
    ($faults:expr, $fault:ident) => {{
        let _ = || $faults;
        false
    }};
}

pub use inject;
