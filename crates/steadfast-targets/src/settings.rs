//! Settings of a mirror.

use std::time::Duration;

use crate::guard::{GuardRules, Limits};
use crate::plan::{MarkOwnership, PlanSettings};
use crate::term::TermGate;

/// Settings of one mirror.
#[derive(Clone, Debug)]
pub struct MirrorSettings {
    /// Limits of removals without approval.
    pub limits: Limits,
    /// Maximum drain time of an entry in use. Defaults to 30 s.
    pub drain: Duration,
    /// Interval of reads if nothing changes. Defaults to 60 s.
    pub compare: Duration,
    /// Timeout of a read or a renewal; applying steps may take three times as long. Defaults to 10 s.
    pub deadline: Duration,
    /// Delay of the next read after steps or a failure. Doubles with each failure in a row, and for each step that has
    /// no effect, up to [`compare`](Self::compare). Defaults to 100 ms.
    pub retry_delay: Duration,
    /// Seed of the jitter that keeps many mirrors from reading at the same time. Random by default.
    pub seed: u64,
    /// Permits the removal of the last entry without approval. Defaults to false.
    pub allow_empty: bool,
    /// Makes the mirror add and change entries only, without removals. Defaults to false.
    pub upsert_only: bool,
    /// Permission to write to the target. Always open by default, for a process without replicas. Replicas also set
    /// [`DesiredState::term`](crate::DesiredState::term).
    pub gate: TermGate,
    /// Name of this process in the ownership record of the target ([`Target::claim`](crate::Target::claim)). A second
    /// process with another name and the same mark removes nothing. Replicas share one name. Defaults to the ID that
    /// [`MirrorMemory`](crate::MirrorMemory) keeps for this process.
    pub instance: Option<String>,
}

impl MirrorSettings {
    pub(crate) fn plan_settings(&self) -> PlanSettings {
        let rules = GuardRules { limits: self.limits, allow_empty: self.allow_empty };
        PlanSettings { rules, drain: self.drain, upsert_only: self.upsert_only, ownership: MarkOwnership::Exclusive }
    }
}

impl Default for MirrorSettings {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            drain: Duration::from_secs(30),
            compare: Duration::from_secs(60),
            deadline: Duration::from_secs(10),
            retry_delay: Duration::from_millis(100),
            seed: fastrand::u64(..),
            allow_empty: false,
            upsert_only: false,
            gate: TermGate::always(),
            instance: None,
        }
    }
}
