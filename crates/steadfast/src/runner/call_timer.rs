//! Timer of one call of a handler, for the histogram of durations. Without metrics, no clock is read.

#[cfg(feature = "metrics")]
use steadfast_core::Instant;

use super::Runner;

/// Records the time until the drop as the duration of a call.
#[cfg(feature = "metrics")]
pub(super) struct CallTimer<'a, K: Send + Sync + 'static> {
    runner: &'a Runner<K>,
    begun: Instant,
}

/// Records nothing without metrics.
#[cfg(not(feature = "metrics"))]
pub(super) struct CallTimer;

#[cfg(feature = "metrics")]
impl<'a, K: Send + Sync + 'static> CallTimer<'a, K> {
    /// Starts the timer of a call of `runner`.
    pub(super) fn start(runner: &'a Runner<K>) -> Self {
        Self { runner, begun: runner.environment.now() }
    }
}

#[cfg(not(feature = "metrics"))]
impl CallTimer {
    /// Creates a timer that records nothing.
    pub(super) fn start<K: Send + Sync + 'static>(_: &Runner<K>) -> Self {
        Self
    }
}

#[cfg(feature = "metrics")]
impl<K: Send + Sync + 'static> Drop for CallTimer<'_, K> {
    fn drop(&mut self) {
        self.runner.durations.add(self.runner.environment.now().since(self.begun));
    }
}

#[cfg(not(feature = "metrics"))]
impl Drop for CallTimer {
    fn drop(&mut self) {}
}
