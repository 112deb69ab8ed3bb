//! Deadlines that leave time to read received data after a freeze of the process.

use std::time::Duration;

use steadfast_core::Instant;

use crate::environment::SharedEnvironment;

/// Delay of a timer that indicates a freeze of the process instead of a silent peer. Also the time in which received
/// data is then read.
pub(super) const MAX_TIMER_DELAY: Duration = Duration::from_secs(1);

/// Waits until `deadline`. After a freeze beyond the deadline, the wait is longer: the response may have been in the
/// buffer of the socket since the freeze.
pub(super) async fn reached(environment: &SharedEnvironment, deadline: Instant) {
    environment.sleep_until(deadline).await;
    let now = environment.now();
    if now.since(deadline) > MAX_TIMER_DELAY {
        environment.sleep_until(now + MAX_TIMER_DELAY).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::environment::local::LocalEnvironment;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn deadline_after_freeze_has_grace_period() {
        let environment: SharedEnvironment = Arc::new(LocalEnvironment::over_tcp(1));
        let started_at = environment.now();
        reached(&environment, started_at + Duration::from_secs(5)).await;
        assert_eq!(environment.now().since(started_at), Duration::from_secs(5));
        tokio::time::advance(Duration::from_secs(25)).await;
        reached(&environment, started_at + Duration::from_secs(10)).await;
        assert_eq!(environment.now().since(started_at), Duration::from_secs(31));
    }
}
