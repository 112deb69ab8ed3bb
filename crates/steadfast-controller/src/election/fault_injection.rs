//! Injected faults of elections and sharding. Tests use them to prove that such faults are detected.
//!
//! Without the feature `fault-injection`, [`ElectionFaults`] has no size and [`inject`] is the constant `false`.

/// Fault that a test can inject into a candidate of a coordinated election.
#[cfg(feature = "fault-injection")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedElectionFault {
    /// Fault: the assigned candidate leads immediately, although an earlier holder may still act.
    ImmediateLead,
    /// Fault: states between two reads are not requested, and count as absent.
    SkippedReads,
    /// Fault: a candidate that waits for the previous holder releases the lease as if that holder had stopped.
    UnownedRelease,
}

/// Fault that a test can inject into a member of a sharded group.
#[cfg(feature = "fault-injection")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedShardingFault {
    /// Fault: the member reads the claims of other members only before it publishes its own claim.
    ReadFirst,
    /// Fault: the member acts by its published view, regardless of claims of other members.
    IgnoredClaims,
    /// Fault: keys and lease are released while reconciles still act on the keys.
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
