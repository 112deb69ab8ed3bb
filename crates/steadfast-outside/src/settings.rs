//! Settings of a mirror.

use std::time::Duration;

use crate::guard::{Limits, Rules};
use crate::plan::{Shared, Terms};
use crate::term::TermGate;

/// How a mirror works.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How much may be taken out at once.
    pub limits: Limits,
    /// How long what is to go is waited for while somebody still uses it: 30 s by default.
    pub drain: Duration,
    /// After so long it is looked again whether all is as it is wanted, though nothing has changed: a minute by default.
    pub compare: Duration,
    /// How long a look, or what is done at once, may take: 10 s by default.
    pub deadline: Duration,
    /// How long to wait before looking again after something was done, or failed. It doubles, up to the time of
    /// [`compare`](Self::compare), as long as no look finds all as it is wanted: 100 ms by default.
    pub again: Duration,
    /// Seed of the jitter that keeps many mirrors from looking at the same instant.
    pub seed: u64,
    /// Whether the last entry of the mirror may be removed without approval. Defaults to false.
    pub allow_empty: bool,
    /// Whether the mirror only adds and changes entries, and never removes any. Defaults to false.
    pub upsert_only: bool,
    /// Permission to write to the target. Always open by default: the process has no replicas.
    pub gate: TermGate,
    /// Name under which the mark is claimed, for replicas, which share one. By default each process has its own.
    pub instance: Option<String>,
}

impl Settings {
    pub(crate) fn terms(&self) -> Terms {
        let rules = Rules { limits: self.limits, allow_empty: self.allow_empty };
        Terms { rules, drain: self.drain, upsert_only: self.upsert_only, shared: Shared::No }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            drain: Duration::from_secs(30),
            compare: Duration::from_secs(60),
            deadline: Duration::from_secs(10),
            again: Duration::from_millis(100),
            seed: fastrand::u64(..),
            allow_empty: false,
            upsert_only: false,
            gate: TermGate::always(),
            instance: None,
        }
    }
}
