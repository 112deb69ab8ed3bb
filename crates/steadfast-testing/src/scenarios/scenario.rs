//! The parts of a scenario: a name, a summary, its bounds, a function.

use std::fmt;
use std::time::Duration;

use futures::future::BoxFuture;

use super::catalog_fault::CatalogFault;
use super::findings::ScenarioFindings;
use super::target::ScenarioTarget;
use crate::TestkitError;

/// Result of a scenario's function.
pub(super) type ScenarioFuture = BoxFuture<'static, Result<ScenarioFindings, TestkitError>>;

/// A failure and the expected behaviour.
pub struct Scenario {
    /// Name on the command line.
    pub name: &'static str,
    /// Faults of the catalog that the scenario covers with the library's default timeouts. Empty for other scenarios.
    pub faults: &'static [CatalogFault],
    /// Source of the scenario.
    pub source: ScenarioSource,
    /// The injected faults, and the expected result, in a few sentences.
    pub summary: &'static str,
    /// Clauses and bounds of the contract that the scenario covers.
    pub clauses: &'static str,
    /// Bounds beyond the contract's clauses.
    pub bounds: ScenarioBounds,
    /// Approximate duration in real time, in seconds.
    pub seconds: u64,
    pub(super) run: fn(ScenarioTarget) -> ScenarioFuture,
}

/// Bounds of a scenario.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScenarioBounds {
    /// Maximum time from the fault to the first doubt. `None` if no doubt is required.
    pub detection: Option<Duration>,
    /// Maximum time from the end of the fault until every object is present and fresh.
    pub recovery: Option<Duration>,
    /// Maximum number of full transfers from the first fault on. `None` if other checks of the scenario count them.
    pub lists: Option<usize>,
}

/// Source of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScenarioSource {
    /// Scenario of the collection `client-go-failure-scenarios`, with its number (1 to 5). The collection tests
    /// client-go.
    FailureScenarios(u8),
    /// Scenario of the collection `client-go-watch-pitfalls`: a watch whose channel closes permanently.
    WatchPitfalls,
    /// Scenario of `informer-cache-loss`: informers that fail permanently after a server restart.
    InformerCacheLoss,
    /// The catalog of faults, collected from public issues.
    FaultCatalog,
}

impl fmt::Display for ScenarioSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FailureScenarios(number) => write!(f, "client-go-failure-scenarios {number}"),
            Self::WatchPitfalls => f.write_str("client-go-watch-pitfalls"),
            Self::InformerCacheLoss => f.write_str("informer-cache-loss"),
            Self::FaultCatalog => f.write_str("catalog"),
        }
    }
}

impl ScenarioBounds {
    /// No bounds beyond the contract's clauses and the scenario's own checks.
    pub(super) const NONE: Self = Self { detection: None, recovery: None, lists: None };

    /// Requires a doubt within this number of seconds after the fault.
    pub(super) const fn detection(mut self, seconds: u64) -> Self {
        self.detection = Some(Duration::from_secs(seconds));
        self
    }

    /// Requires that every object is present and fresh within this number of seconds.
    pub(super) const fn recovery(mut self, seconds: u64) -> Self {
        self.recovery = Some(Duration::from_secs(seconds));
        self
    }

    /// Allows at most this number of full transfers.
    pub(super) const fn lists(mut self, lists: usize) -> Self {
        self.lists = Some(lists);
        self
    }

    /// Returns the bounds that `findings` exceeds.
    fn unmet(&self, findings: &ScenarioFindings) -> Vec<String> {
        let mut checks = super::checks::Checks::default();
        if let Some(limit) = self.detection {
            checks.expect_within("the first doubt", findings.detection, limit);
        }
        if let Some(limit) = self.recovery {
            checks.expect_within("the recovery", findings.recovery, limit);
        }
        if let Some(limit) = self.lists {
            checks.expect_at_most("full transfers from the fault on", findings.cost.lists, limit);
        }
        checks.into_unmet()
    }
}

impl Scenario {
    /// Runs the scenario on `target`, to its end.
    ///
    /// # Errors
    ///
    /// Returns an error if the scenario could not continue. Violations are part of the findings.
    pub async fn run(&self, target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
        let mut findings = (self.run)(target).await?;
        // A scenario may combine the findings of several runs, so the bounds are checked once, at its end.
        findings.unmet.extend(self.bounds.unmet(&findings));
        Ok(findings)
    }
}

/// Selects the function of a scenario for the form that the target sets.
macro_rules! for_form {
    ($run:ident $(, $argument:expr)*) => {
        |target| {
            if target.form.lazy {
                Box::pin($run::<steadfast::Lazy<k8s_openapi::api::core::v1::ConfigMap>>(target $(, $argument)*))
            } else {
                Box::pin($run::<k8s_openapi::api::core::v1::ConfigMap>(target $(, $argument)*))
            }
        }
    };
}
pub(super) use for_form;

impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scenario").field("name", &self.name).field("faults", &self.faults).finish_non_exhaustive()
    }
}
