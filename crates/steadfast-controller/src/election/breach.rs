//! Deliberate breaches of the rules by which a lease is led that a coordinator gives, for the tests that prove that they
//! are found.
//!
//! Without the feature `breach` none is ever committed.

/// A breach that a test can have a candidate commit.
#[cfg_attr(not(feature = "breach"), expect(unreachable_pub, reason = "only with the feature can it be asked for"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElectionBreach {
    /// Who is given the lease leads, whoever may act still.
    AtOnce,
    /// What was between two looks is not asked for, and taken to be nothing.
    Overlooked,
    /// Who waits for the one before gives the lease up as if that one were over.
    EmptyName,
}

/// What a candidate commits: nothing, unless a test asks for it.
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
