//! Durations of a handler's calls. Without the feature `metrics`, no clock is read.

#[cfg(feature = "metrics")]
use steadfast_core::Instant;

use crate::environment::SharedEnvironment;
#[cfg(feature = "metrics")]
use crate::metrics::call_durations::{CallDurations, CallHistogram};

/// Durations of the calls of one handler.
#[derive(Debug, Default)]
pub(super) struct CallTimes {
    #[cfg(feature = "metrics")]
    durations: CallDurations,
}

/// Timer of one call. Its drop records the duration.
#[must_use = "the drop of the timer ends the call"]
pub(super) struct CallTimer<'a> {
    #[cfg_attr(not(feature = "metrics"), expect(dead_code))]
    times: &'a CallTimes,
    #[cfg(feature = "metrics")]
    started_at: Instant,
    #[cfg_attr(not(feature = "metrics"), expect(dead_code))]
    environment: &'a SharedEnvironment,
}

impl CallTimes {
    /// Starts the timer of a call, by the clock of `environment`.
    pub(super) fn start<'a>(&'a self, environment: &'a SharedEnvironment) -> CallTimer<'a> {
        CallTimer {
            times: self,
            #[cfg(feature = "metrics")]
            started_at: environment.now(),
            environment,
        }
    }

    /// Returns the durations of the finished calls.
    #[cfg(feature = "metrics")]
    pub(super) fn read(&self) -> CallHistogram {
        self.durations.read()
    }
}

impl Drop for CallTimer<'_> {
    fn drop(&mut self) {
        #[cfg(feature = "metrics")]
        self.times.durations.add(self.environment.now().since(self.started_at));
    }
}
