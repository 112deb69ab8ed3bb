//! What all plays of a sweep have in common.

use std::time::Duration;

use steadfast_apiserver::ApiServer;

use super::director::LEASES;
use crate::Error;

type Prepare = dyn Fn(&ApiServer) -> Result<(), Error> + Send + Sync;
type Invariant = dyn Fn(&ApiServer) -> Result<(), String> + Send + Sync;

/// What all plays of a sweep have in common.
pub(super) struct Setting<C, S> {
    pub(super) controller: C,
    pub(super) scenario: S,
    pub(super) prepare: Box<Prepare>,
    pub(super) invariants: Vec<(String, Box<Invariant>)>,
    pub(super) processes: usize,
    /// Resources that do not count, by their plural names.
    pub(super) ignored: Vec<String>,
    /// Fields that do not count, as JSON pointers.
    pub(super) unseen: Vec<String>,
    /// Without a write for so long, the controller is done.
    pub(super) quiet: Duration,
    /// A scenario takes this long at most.
    pub(super) limit: Duration,
    pub(super) seed: u64,
}

impl<C, S> Setting<C, S> {
    pub(super) fn new(controller: C, scenario: S) -> Self {
        Self {
            controller,
            scenario,
            prepare: Box::new(|_| Ok(())),
            invariants: Vec::new(),
            processes: 1,
            ignored: ["events", LEASES].map(str::to_owned).into(),
            unseen: Vec::new(),
            quiet: Duration::from_secs(60),
            limit: Duration::from_secs(6 * 3600),
            seed: 0,
        }
    }
}
