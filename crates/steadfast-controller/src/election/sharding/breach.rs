//! Injected protocol faults, for tests that prove their detection by histories.
//!
//! Without the feature `breach` no fault is active.

/// Fault that a test can inject into a member.
#[cfg_attr(not(feature = "breach"), expect(unreachable_pub, reason = "only with the feature can it be asked for"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardingBreach {
    /// Claims of other members are read before the own claim is published, and not again.
    ReadFirst,
    /// The member acts by its published view, regardless of claims of other members.
    UnheardClaims,
    /// Keys and lease are released while reconciles still act on the keys.
    EarlyRelease,
}

/// Injected fault of a member. None by default.
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
