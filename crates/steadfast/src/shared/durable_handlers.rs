//! Durable handlers of an informer with a checkpoint.

#![cfg(feature = "checkpoint")]

use std::sync::Arc;

use steadfast_core::freshness::Evidence;
use steadfast_core::store::Snapshot;

use super::{Shared, initial_objects};
use crate::durable::{Calls, Durable, Rejected};
use crate::error::HandlerError;

impl<K: Send + Sync + 'static> Shared<K> {
    /// Returns the snapshot, its evidence and the result of `also`, all of one publication.
    pub(crate) fn with_publication<T>(
        &self,
        also: impl FnOnce(&Snapshot<K>, &Evidence) -> T,
    ) -> (Arc<Snapshot<K>>, Arc<Evidence>, T) {
        let _publication = self.handlers.lock();
        let (snapshot, evidence) = (self.snapshot(), self.evidence.load_full());
        let also = also(&snapshot, &evidence);
        (snapshot, evidence, also)
    }

    /// Records that all durable handlers of the checkpoint are restored.
    pub(crate) fn durables_restored(&self) {
        let _publication = self.handlers.lock();
        self.durable_handlers.restored();
    }

    /// Copies the pending deliveries of the durable handler `name` to `successors`, and removes the handler.
    pub(crate) fn replace_durable(&self, name: &str, successors: &[&str]) {
        let _publication = self.handlers.lock();
        self.durable_handlers.replace(&self.name, name, successors, &self.environment);
    }

    /// Adds a durable handler. A new handler first gets all objects as pending deliveries.
    ///
    /// # Errors
    ///
    /// Returns an error if the informer has no checkpoint or has ended, or if a handler of this name exists.
    pub(crate) fn add_durable(&self, name: &str, calls: Calls<K>) -> Result<Arc<Durable<K>>, HandlerError> {
        let resource = self.name.clone();
        let durable = {
            let _publication = self.handlers.lock();
            if self.is_stopped() {
                return Err(HandlerError::Stopped { resource });
            }
            let attached = self.durable_handlers.attach(&self.name, name, calls, &self.environment);
            let durable = attached.map_err(|refused| match refused {
                Rejected::CheckpointUnsupported => HandlerError::NoCheckpoint { resource },
                Rejected::NameTaken => HandlerError::Taken { resource, name: name.to_owned() },
            })?;
            if self.is_visible_to_handlers() {
                durable.open(initial_objects(&self.snapshot()));
            }
            durable
        };
        self.notify_changed();
        durable.start();
        Ok(durable)
    }
}
