//! The parts of a scenario: a name, a summary, its bounds, a function.

use std::fmt;
use std::time::Duration;

use futures::future::BoxFuture;

use super::fault::Fault;
use super::findings::Findings;
use super::target::Target;
use crate::Error;

/// Result of a scenario's function.
pub(super) type ScenarioFuture = BoxFuture<'static, Result<Findings, Error>>;

/// A failure and the expected behaviour.
pub struct Scenario {
    /// Name on the command line.
    pub name: &'static str,
    /// Faults of the catalog that the scenario covers with the default times. Empty for other scenarios.
    pub faults: &'static [Fault],
    /// Source of the scenario.
    pub source: Source,
    /// Two sentences: the events, and the expected result.
    pub summary: &'static str,
    /// Clauses and bounds of the contract that it covers.
    pub clauses: &'static str,
    /// Bounds beyond the contract's clauses.
    pub bounds: Bounds,
    /// Approximate duration in real time, in seconds.
    pub seconds: u64,
    pub(super) run: fn(Target) -> ScenarioFuture,
}

/// Bounds of a scenario.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum time from the fault to the first doubt. `None` if no doubt is required.
    pub notice: Option<Duration>,
    /// Maximum time from the end of the fault until every object is present and fresh.
    pub recover: Option<Duration>,
    /// Maximum number of full transfers from the first fault on. `None` if other checks of the scenario count them.
    pub lists: Option<usize>,
}

/// Source of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// One of five scenarios that were run against client-go, by number.
    FailureScenarios(u8),
    /// A watch with a channel that closed permanently.
    WatchPitfalls,
    /// Informers that failed permanently after a server restart.
    InformerCacheLoss,
    /// The catalog of faults, collected from public issues.
    FaultCatalog,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FailureScenarios(number) => write!(f, "client-go-failure-scenarios {number}"),
            Self::WatchPitfalls => f.write_str("client-go-watch-pitfalls"),
            Self::InformerCacheLoss => f.write_str("informer-cache-loss"),
            Self::FaultCatalog => f.write_str("catalog"),
        }
    }
}

impl Bounds {
    /// No bounds beyond the contract's clauses and the scenario's own checks.
    pub(super) const NONE: Self = Self { notice: None, recover: None, lists: None };

    /// Requires a doubt within this number of seconds.
    pub(super) const fn notice(mut self, seconds: u64) -> Self {
        self.notice = Some(Duration::from_secs(seconds));
        self
    }

    /// Requires that every object is present and fresh within this number of seconds.
    pub(super) const fn recover(mut self, seconds: u64) -> Self {
        self.recover = Some(Duration::from_secs(seconds));
        self
    }

    /// Allows at most this number of full transfers.
    pub(super) const fn lists(mut self, lists: usize) -> Self {
        self.lists = Some(lists);
        self
    }

    /// Returns the bounds that `findings` exceeds.
    fn unmet(&self, findings: &Findings) -> Vec<String> {
        let mut checks = super::checks::Checks::default();
        if let Some(limit) = self.notice {
            checks.within("the first doubt", findings.notice, limit);
        }
        if let Some(limit) = self.recover {
            checks.within("the recovery", findings.recover, limit);
        }
        if let Some(limit) = self.lists {
            checks.at_most("full transfers from the fault on", findings.cost.lists, limit);
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
    pub async fn run(&self, target: Target) -> Result<Findings, Error> {
        let mut findings = (self.run)(target).await?;
        // The bounds are checked on the combined findings, after all runs of the scenario.
        findings.unmet.extend(self.bounds.unmet(&findings));
        Ok(findings)
    }
}

/// Selects the function of a scenario for the form that the target sets.
macro_rules! in_form {
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
pub(super) use in_form;

impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scenario").field("name", &self.name).field("faults", &self.faults).finish_non_exhaustive()
    }
}
