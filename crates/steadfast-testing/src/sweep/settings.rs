//! The settings of a sweep.

use std::time::Duration;

use steadfast_apiserver::ApiServer;

use super::injector::LEASES;
use crate::TestkitError;

type Prepare = dyn Fn(&ApiServer) -> Result<(), TestkitError> + Send + Sync;
type Invariant = dyn Fn(&ApiServer) -> Result<(), String> + Send + Sync;

/// Settings that all runs of a sweep share.
pub(super) struct SweepSettings<C, S> {
    pub(super) controller: C,
    pub(super) scenario: S,
    pub(super) prepare: Box<Prepare>,
    pub(super) invariants: Vec<(String, Box<Invariant>)>,
    pub(super) processes: usize,
    /// Ignored resources, by their plural names.
    pub(super) ignored_resources: Vec<String>,
    /// Ignored fields, as JSON pointers.
    pub(super) ignored_fields: Vec<String>,
    /// Time without a write after which the controller counts as finished.
    pub(super) quiet: Duration,
    /// Maximum duration of a scenario, in virtual time.
    pub(super) limit: Duration,
    pub(super) seed: u64,
}

impl<C, S> SweepSettings<C, S> {
    pub(super) fn new(controller: C, scenario: S) -> Self {
        Self {
            controller,
            scenario,
            prepare: Box::new(|_| Ok(())),
            invariants: Vec::new(),
            processes: 1,
            // Both resources are written periodically without a change of the desired state.
            ignored_resources: ["events", LEASES].map(str::to_owned).into(),
            ignored_fields: Vec::new(),
            quiet: Duration::from_secs(60),
            limit: Duration::from_secs(6 * 3600),
            seed: 0,
        }
    }
}
