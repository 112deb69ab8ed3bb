//! The bounds that a trace is held to.

use std::time::Duration;

/// The bounds that a trace is held to; the defaults are those of the contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// R2: how long a stream may go without a proof before one is sought. `Fresh` may be two of these old.
    pub period: Duration,
    /// How far the clocks of history and trace may be apart.
    pub slack: Duration,
    /// How far behind the newest change a stream may run while it still delivers: a lagging replica, a backlog.
    pub lag: Duration,
    /// C11: how soon after `Quiet` the store must equal the history, where the recorder does not say `Settled`.
    pub convergence: Duration,
    /// The audit period, where the server is known to lose events: convergence may take that long, and a handler may
    /// not have been shown what the server never sent.
    pub audit: Option<Duration>,
}

impl Default for Terms {
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
