//! Injected faults of coordinated elections, for tests that prove their detection.
//!
//! Without the feature `breach` no fault is active.

/// Fault that a test can inject into a candidate.
#[cfg_attr(not(feature = "breach"), expect(unreachable_pub, reason = "only with the feature can it be asked for"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElectionBreach {
    /// The assigned candidate leads at once, even if an earlier holder may still act.
    AtOnce,
    /// States between two reads are not requested, and count as absent.
    Overlooked,
    /// A candidate that waits for the previous holder releases the lease as if that holder had stopped.
    EmptyName,
}

/// Injected fault of a candidate. None by default.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Breaches {
    pub(super) committed: Option<ElectionBreach>,
}

impl Breaches {
    /// Whether it commits `breach`.
    pub(super) fn commit(self, breach: ElectionBreach) -> bool {
        self.committed == Some(breach)
    }
}
