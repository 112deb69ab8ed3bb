//! One request and its answer, under way.

use std::sync::Arc;

use crate::cluster::Cluster;
use crate::records::{RequestEntry, Verb};
use crate::storage::State;

/// One request and its answer, under way.
pub(super) struct Exchange {
    pub(super) cluster: Arc<Cluster>,
    pub(super) replica: usize,
    pub(super) entry: Arc<RequestEntry>,
    pub(super) entry_verb: Verb,
}

impl Exchange {
    /// Changes the state, in the name of this request.
    pub(super) fn write<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        self.cluster.store.write_for(self.entry.id(), change)
    }

    pub(super) fn gate(&self) -> Gate {
        Gate { cluster: Arc::clone(&self.cluster), replica: self.replica }
    }
}

/// A gate that a frozen replica keeps shut.
pub(super) struct Gate {
    cluster: Arc<Cluster>,
    replica: usize,
}

impl Gate {
    pub(super) async fn open(&self) {
        let conditions = &self.cluster.replicas[self.replica].conditions;
        self.cluster.changed.until(|| conditions.look(|now| !now.frozen)).await;
    }
}
