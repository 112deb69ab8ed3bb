//! Deliberate breaches of the protocol, for the tests that prove that histories find them.
//!
//! Without the feature `breach` none is ever committed.

/// A breach that a test can have a member commit.
#[cfg_attr(not(feature = "breach"), expect(unreachable_pub, reason = "only with the feature can it be asked for"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardingBreach {
    /// What the others claim is read before the own claim is published, and not again.
    ReadFirst,
    /// What is published is acted on, whatever others claim.
    UnheardClaims,
    /// Keys are given up, and the lease is released, while what acts on them goes on.
    EarlyRelease,
}

/// What a member commits: nothing, unless a test asks for it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Breaches {
    pub(super) committed: Option<ShardingBreach>,
}

impl Breaches {
    /// Whether it commits `breach`.
    pub(super) fn commit(self, breach: ShardingBreach) -> bool {
        self.committed == Some(breach)
    }
}
