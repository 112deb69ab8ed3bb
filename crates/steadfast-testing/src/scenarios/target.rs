//! The environment of a scenario: in memory with virtual time, or over TCP and TLS in real time.

use std::fmt;
use std::sync::Arc;

#[cfg(feature = "fault-injection")]
use steadfast::InjectedFault;
use steadfast::environment::HelperThreads;
use steadfast_apiserver::ApiServer;

use super::settings::ScenarioSettings;
use crate::CachedForm;

type SettingsAdjustment = dyn Fn(&mut ScenarioSettings) + Send + Sync;
type ServerFaultInjection = dyn Fn(&ApiServer) + Send + Sync;

/// Environment of a scenario, and the faults that are injected into library and server. Defaults to no injected faults.
#[derive(Clone)]
pub struct ScenarioTarget {
    /// Seed of all random decisions: UIDs, jitter, and the times and kinds of faults.
    pub(super) seed: u64,
    pub(super) in_memory: bool,
    pub(super) form: CachedForm,
    #[cfg(feature = "fault-injection")]
    pub(super) fault: Option<InjectedFault>,
    pub(super) helpers: HelperThreads,
    adjust: Arc<SettingsAdjustment>,
    pub(super) server_fault: Arc<ServerFaultInjection>,
}

impl ScenarioTarget {
    /// Uses pipes in memory. Everything runs on the current runtime and in its time. With paused time, all runs are
    /// equal.
    pub fn in_memory(seed: u64) -> Self {
        Self::new(seed, true)
    }

    /// Uses TCP and TLS on the loopback interface, in real time, on the library's own threads.
    pub fn over_tcp(seed: u64) -> Self {
        Self::new(seed, false)
    }

    fn new(seed: u64, in_memory: bool) -> Self {
        Self {
            seed,
            in_memory,
            form: CachedForm::default(),
            #[cfg(feature = "fault-injection")]
            fault: None,
            helpers: HelperThreads::default(),
            adjust: Arc::new(|_| {}),
            server_fault: Arc::new(|_| {}),
        }
    }

    /// Sets the form in which informers cache and request objects.
    #[must_use]
    pub fn with_form(mut self, form: CachedForm) -> Self {
        self.form = form;
        self
    }

    /// Adds helper tasks in memory that decode received data. The seed selects their order.
    #[must_use]
    pub fn with_helpers(mut self) -> Self {
        self.helpers = HelperThreads { threads: 3, min_bytes: 1 };
        self
    }

    /// Injects this fault into the informers, so that a test can show that the scenario fails.
    #[cfg(feature = "fault-injection")]
    #[must_use]
    pub fn with_injected_fault(mut self, fault: InjectedFault) -> Self {
        self.fault = Some(fault);
        self
    }

    /// Applies `adjust` to the settings of each scenario, for times and limits that differ from those of the contract.
    #[must_use]
    pub fn with_adjusted_settings(mut self, adjust: impl Fn(&mut ScenarioSettings) + Send + Sync + 'static) -> Self {
        self.adjust = Arc::new(adjust);
        self
    }

    /// Runs `server_fault` on each server after its start, so that a test can show that the scenario fails.
    #[must_use]
    pub fn with_server_fault(mut self, server_fault: impl Fn(&ApiServer) + Send + Sync + 'static) -> Self {
        self.server_fault = Arc::new(server_fault);
        self
    }

    /// Returns the minimum size of decoded objects that informers of a decoded type decode on demand. With odd seeds,
    /// the minimum is 0, because the objects of scenarios are small. With even seeds, no object is decoded on demand.
    pub(super) fn decode_on_demand_above(&self) -> Option<usize> {
        (!self.seed.is_multiple_of(2)).then_some(0)
    }

    /// Returns `true` if the time is real, so that the load of the machine affects durations.
    pub fn is_real(&self) -> bool {
        !self.in_memory
    }

    pub(super) fn adjust_settings(&self, mut settings: ScenarioSettings) -> ScenarioSettings {
        (self.adjust)(&mut settings);
        settings
    }
}

impl fmt::Debug for ScenarioTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let environment = if self.in_memory { "in_memory" } else { "over_tcp" };
        write!(f, "Target::{environment}({})", self.seed)
    }
}
