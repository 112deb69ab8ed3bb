//! The disturbances of the scenario.

/// A disturbance. A run with all disturbances has each disturbance once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disturbance {
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

/// All disturbances.
pub(super) const DISTURBANCES: [Disturbance; 21] = [
    Disturbance::Restart,
    Disturbance::Away,
    Disturbance::BlackHole,
    Disturbance::Frozen,
    Disturbance::Stale,
    Disturbance::StaleAfterRestart,
    Disturbance::Expired,
    Disturbance::Resets,
    Disturbance::Errors,
    Disturbance::Forbidden,
    Disturbance::Restored,
    Disturbance::Killed,
    Disturbance::FarAway,
    Disturbance::RollingUpdate,
    Disturbance::ScaledDown,
    Disturbance::ScaledUp,
    Disturbance::Nonsense,
    Disturbance::BalancerRestart,
    Disturbance::ZoneRestored,
    Disturbance::LeaseRevoked,
    Disturbance::EtcdRestart,
];
