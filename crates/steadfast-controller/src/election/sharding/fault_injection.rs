//! Injected protocol faults, for tests that prove their detection by histories.
//!
//! Without the feature `fault-injection` no fault is active.

/// Fault that a test can inject into a member.
#[cfg_attr(not(feature = "fault-injection"), expect(unreachable_pub, reason = "public with the feature only"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedShardingFault {
    /// Claims of other members are read before the own claim is published, and not again.
    ReadFirst,
    /// The member acts by its published view, regardless of claims of other members.
    IgnoredClaims,
    /// Keys and lease are released while reconciles still act on the keys.
    EarlyRelease,
}

/// Injected fault of a member. None by default.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ShardingFaultInjection {
    pub(super) injected: Option<InjectedShardingFault>,
}

impl ShardingFaultInjection {
    /// Returns true if `fault` is injected.
    pub(super) fn is_injected(self, fault: InjectedShardingFault) -> bool {
        self.injected == Some(fault)
    }
}
