//! Injected faults of elections and sharding, for tests that prove their detection.
//!
//! Without the feature `fault-injection`, [`ElectionFaults`] has no size and [`inject`] is the constant `false`.

/// Fault that a test can inject into a candidate of a coordinated election.
#[cfg(feature = "fault-injection")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedElectionFault {
    /// The assigned candidate leads at once, even if an earlier holder may still act.
    ImmediateLead,
    /// States between two reads are not requested, and count as absent.
    SkippedReads,
    /// A candidate that waits for the previous holder releases the lease as if that holder had stopped.
    UnownedRelease,
}

/// Fault that a test can inject into a member of a sharded group.
#[cfg(feature = "fault-injection")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedShardingFault {
    /// Claims of other members are read before the own claim is published, and not again.
    ReadFirst,
    /// The member acts by its published view, regardless of claims of other members.
    IgnoredClaims,
    /// Keys and lease are released while reconciles still act on the keys.
    EarlyRelease,
}

/// Injected faults of one replica. None by default.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ElectionFaults {
    #[cfg(feature = "fault-injection")]
    pub(super) election: Option<InjectedElectionFault>,
    #[cfg(feature = "fault-injection")]
    pub(super) sharding: Option<InjectedShardingFault>,
}

/// Returns true if a test injected the named fault into the given [`ElectionFaults`].
#[cfg(feature = "fault-injection")]
macro_rules! inject {
    ($faults:expr, election::$fault:ident) => {
        $faults.election == Some($crate::election::InjectedElectionFault::$fault)
    };
    ($faults:expr, sharding::$fault:ident) => {
        $faults.sharding == Some($crate::election::InjectedShardingFault::$fault)
    };
}

/// Returns false. The first argument is not evaluated.
#[cfg(not(feature = "fault-injection"))]
macro_rules! inject {
    ($faults:expr, $kind:ident::$fault:ident) => {{
        let _ = || $faults;
        false
    }};
}

pub(super) use inject;
