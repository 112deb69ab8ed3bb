//! Bounds for a trace.

use std::time::Duration;

/// Bounds for a trace. The defaults are the bounds of the contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// R2: time without a proof after which the informer requests a proof of freshness. The age of `Fresh` may be two
    /// periods.
    pub period: Duration,
    /// Maximum difference between the clocks of the history and the trace.
    pub slack: Duration,
    /// Maximum lag of a delivering stream behind the newest change, due to a lagging replica or a backlog.
    pub lag: Duration,
    /// C11: time from `Quiet` until the cache must equal the history, if the recorder does not record `Settled`.
    pub convergence: Duration,
    /// Audit period, for a server that loses events. Convergence may take one period. Events that the server never sent
    /// are not violations.
    pub audit: Option<Duration>,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            period: Duration::from_secs(60),
            slack: Duration::from_millis(250),
            lag: Duration::from_secs(2),
            convergence: Duration::from_secs(150),
            audit: None,
        }
    }
}
