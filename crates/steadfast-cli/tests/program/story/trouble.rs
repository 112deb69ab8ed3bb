//! The troubles of the scenario.

/// A trouble, which happens once in a run with all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    Restart,
    Away,
    BlackHole,
    Frozen,
    Stale,
    StaleAfterRestart,
    Expired,
    Resets,
    Errors,
    Forbidden,
    Restored,
    Killed,
    FarAway,
    RollingUpdate,
    ScaledDown,
    ScaledUp,
    Nonsense,
    BalancerRestart,
    ZoneRestored,
    LeaseRevoked,
    EtcdRestart,
}

/// All troubles.
pub(super) const TROUBLES: [Trouble; 21] = [
    Trouble::Restart,
    Trouble::Away,
    Trouble::BlackHole,
    Trouble::Frozen,
    Trouble::Stale,
    Trouble::StaleAfterRestart,
    Trouble::Expired,
    Trouble::Resets,
    Trouble::Errors,
    Trouble::Forbidden,
    Trouble::Restored,
    Trouble::Killed,
    Trouble::FarAway,
    Trouble::RollingUpdate,
    Trouble::ScaledDown,
    Trouble::ScaledUp,
    Trouble::Nonsense,
    Trouble::BalancerRestart,
    Trouble::ZoneRestored,
    Trouble::LeaseRevoked,
    Trouble::EtcdRestart,
];
