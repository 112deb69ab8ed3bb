//! Injected faults of coordinated elections, for tests that prove their detection.
//!
//! Without the feature `fault-injection` no fault is active.

/// Fault that a test can inject into a candidate.
#[cfg_attr(not(feature = "fault-injection"), expect(unreachable_pub, reason = "public with the feature only"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedElectionFault {
    /// The assigned candidate leads at once, even if an earlier holder may still act.
    ImmediateLead,
    /// States between two reads are not requested, and count as absent.
    SkippedReads,
    /// A candidate that waits for the previous holder releases the lease as if that holder had stopped.
    UnownedRelease,
}

/// Injected fault of a candidate. None by default.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ElectionFaultInjection {
    pub(super) injected: Option<InjectedElectionFault>,
}

impl ElectionFaultInjection {
    /// Returns true if `fault` is injected.
    pub(super) fn is_injected(self, fault: InjectedElectionFault) -> bool {
        self.injected == Some(fault)
    }
}
