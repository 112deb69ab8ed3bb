//! What a scenario is: a name, a summary, its bounds, a function.

use std::fmt;
use std::time::Duration;

use futures::future::BoxFuture;

use super::fault::Fault;
use super::findings::Findings;
use super::ground::Ground;

/// Why a scenario could not be played to its end; it has failed.
pub type Trouble = crate::Error;

/// What playing a scenario gives.
pub(super) type Play = BoxFuture<'static, Result<Findings, Trouble>>;

/// Something that goes wrong, and what must come of it.
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// The faults of the menu that it is the scenario of; none where its times are not the defaults.
    pub faults: &'static [Fault],
    /// Where it was seen.
    pub source: Source,
    /// What happens, and what must come of it: two sentences.
    pub summary: &'static str,
    /// The clauses and bounds of the contract that it is about.
    pub clauses: &'static str,
    /// What it is held to beside the contract's clauses.
    pub bounds: Bounds,
    /// How long it takes in real time, in about so many seconds.
    pub seconds: u64,
    pub(super) play: fn(Ground) -> Play,
}

/// What a scenario is held to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The time from the fault to the first doubt, at most; none where no doubt has to arise.
    pub notice: Option<Duration>,
    /// The time from the end of the fault until everything is there and fresh, at most.
    pub recover: Option<Duration>,
    /// Full transfers from the first fault on, at most; none where other checks of the scenario count them.
    pub lists: Option<usize>,
}

/// Where a scenario was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Five scenarios run against client-go, by number.
    FailureScenarios(u8),
    /// A watch whose channel closed for good.
    WatchPitfalls,
    /// Informers that failed for ever after a server's restart.
    InformerCacheLoss,
    /// The menu of faults, gathered from public issues.
    Menu,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FailureScenarios(number) => write!(f, "client-go-failure-scenarios {number}"),
            Self::WatchPitfalls => f.write_str("client-go-watch-pitfalls"),
            Self::InformerCacheLoss => f.write_str("informer-cache-loss"),
            Self::Menu => f.write_str("menu"),
        }
    }
}

impl Bounds {
    /// Nothing beside the contract's clauses and what the scenario itself checks.
    pub(super) const NONE: Self = Self { notice: None, recover: None, lists: None };

    /// A doubt must arise within so many seconds.
    pub(super) const fn notice(mut self, seconds: u64) -> Self {
        self.notice = Some(Duration::from_secs(seconds));
        self
    }

    /// Everything must be there and fresh within so many seconds.
    pub(super) const fn recover(mut self, seconds: u64) -> Self {
        self.recover = Some(Duration::from_secs(seconds));
        self
    }

    /// At most so many full transfers.
    pub(super) const fn lists(mut self, lists: usize) -> Self {
        self.lists = Some(lists);
        self
    }

    /// What of `findings` is beyond them.
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
    /// Plays it on `ground`, to its end.
    ///
    /// # Errors
    ///
    /// Where it could not go on. What it found to be wrong is among the findings.
    pub async fn play(&self, ground: Ground) -> Result<Findings, Trouble> {
        let mut findings = (self.play)(ground).await?;
        findings.unmet.extend(self.bounds.unmet(&findings));
        Ok(findings)
    }
}

/// The function that plays a scenario, with what the ground says that informers keep.
macro_rules! in_form {
    ($play:ident $(, $argument:expr)*) => {
        |ground| {
            if ground.form.lazy {
                Box::pin($play::<steadfast::Lazy<k8s_openapi::api::core::v1::ConfigMap>>(ground $(, $argument)*))
            } else {
                Box::pin($play::<k8s_openapi::api::core::v1::ConfigMap>(ground $(, $argument)*))
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
