//! A request in progress and its response.

use std::sync::Arc;

use crate::backend::Backend;
use crate::cluster::{Cluster, Replica};
use crate::records::{RequestEntry, Verb};
use crate::status::Status;
use crate::storage::{State, WriteTarget};

/// Number of attempts of a write while other writes change the object.
const MAX_WRITE_ATTEMPTS: usize = 20;

/// A request in progress and its response.
pub(super) struct Exchange {
    pub(super) cluster: Arc<Cluster>,
    pub(super) replica: usize,
    pub(super) entry: Arc<RequestEntry>,
    pub(super) recorded_verb: Verb,
}

impl Exchange {
    /// Returns the replica that received the request.
    pub(super) fn replica(&self) -> &Replica {
        &self.cluster.replicas[self.replica]
    }

    /// Returns the source of the objects.
    pub(super) fn backend(&self) -> &dyn Backend {
        &*self.replica().backend
    }

    /// Changes the state on behalf of this request. Returns `405` if the backend is read-only.
    pub(super) fn write<T>(&self, change: impl FnOnce(&mut State) -> Result<T, Status>) -> Result<T, Status> {
        self.backend().store()?.write_for(self.entry.id(), change)
    }

    /// Performs a write of one object. Rules in CEL are evaluated between attempts, without the lock of the store.
    pub(super) fn write_with_rules<T>(
        &self,
        target: &WriteTarget,
        write: impl Fn(&mut State) -> Result<T, Status>,
    ) -> Result<T, Status> {
        // Another write can change the object while the rules are evaluated. The result is then outdated, and the write
        // is repeated.
        for _ in 0..MAX_WRITE_ATTEMPTS {
            let outcome = self.write(&write);
            if !target.request.rule_results.decide() {
                return outcome;
            }
            // The next attempt repeats the warnings.
            target.request.warnings.take();
        }
        let detail = "the object was changed while its rules were evaluated; please try again";
        Err(Status::conflict(&target.resource.name, &target.name, detail))
    }

    pub(super) fn freeze_gate(&self) -> FreezeGate {
        FreezeGate { cluster: Arc::clone(&self.cluster), replica: self.replica }
    }
}

/// A gate that is closed while the replica is frozen.
pub(super) struct FreezeGate {
    cluster: Arc<Cluster>,
    replica: usize,
}

impl FreezeGate {
    pub(super) async fn wait_until_open(&self) {
        let active_faults = &self.cluster.replicas[self.replica].active_faults;
        self.cluster.changed.until(|| active_faults.read(|faults| !faults.is_frozen)).await;
    }
}
