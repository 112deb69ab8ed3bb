//! The disturbances of the scenario.

/// A disturbance. A run with all disturbances has each disturbance once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disturbance {
    /// The API server of the first cluster restarts.
    Restart,
    /// The API server rejects connections for some time.
    ConnectionsRefused,
    /// The network delivers no packets.
    BlackHole,
    /// The API server accepts connections and does not respond.
    Frozen,
    /// The program is connected to an API server that no longer follows etcd.
    CacheLagging,
    /// As [`CacheLagging`](Self::CacheLagging), and then all connections are reset.
    CacheLaggingThenReset,
    /// The network is disconnected until the server no longer has the version of the watches.
    VersionExpired,
    /// All connections are reset.
    ConnectionsReset,
    /// Requests for pods fail: with a status 503, or because etcd is frozen.
    ServiceUnavailable,
    /// The program loses its permission to read pods.
    Forbidden,
    /// The cluster is restored from a backup.
    Restored,
    /// The program is killed and started again.
    Killed,
    /// The second cluster is unreachable.
    SecondClusterUnreachable,
    /// Each pod is replaced by a new one.
    RollingUpdate,
    /// The number of pods decreases to three.
    ScaledDown,
    /// The number of pods increases to fourteen.
    ScaledUp,
    /// A tenant creates, replaces and deletes invalid and misleading objects.
    InvalidObjects,
    /// The load balancer restarts and loses its contents.
    BalancerRestart,
    /// The DNS zone is restored from an old copy.
    ZoneRestored,
    /// The etcd of the service registry revokes the leases of all keys.
    LeaseRevoked,
    /// The etcd of the service registry restarts.
    EtcdRestart,
}

/// All disturbances.
pub(super) const DISTURBANCES: [Disturbance; 21] = [
    Disturbance::Restart,
    Disturbance::ConnectionsRefused,
    Disturbance::BlackHole,
    Disturbance::Frozen,
    Disturbance::CacheLagging,
    Disturbance::CacheLaggingThenReset,
    Disturbance::VersionExpired,
    Disturbance::ConnectionsReset,
    Disturbance::ServiceUnavailable,
    Disturbance::Forbidden,
    Disturbance::Restored,
    Disturbance::Killed,
    Disturbance::SecondClusterUnreachable,
    Disturbance::RollingUpdate,
    Disturbance::ScaledDown,
    Disturbance::ScaledUp,
    Disturbance::InvalidObjects,
    Disturbance::BalancerRestart,
    Disturbance::ZoneRestored,
    Disturbance::LeaseRevoked,
    Disturbance::EtcdRestart,
];
