//! Snapshots of the history: the live objects, and their load into a new history.

use std::sync::Arc;

use super::{ObjectKey, State};
use crate::metadata;
use crate::resources::DEFINITIONS;
use crate::snapshot::{ChangeMark, Snapshot, StoredObject};
use crate::storage::Change;

impl State {
    /// Returns the live objects with the revisions of their last changes.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut objects = Vec::new();
        for (resource, history) in &self.resources {
            for change in history.live.values() {
                objects.extend(change.object.clone().map(|object| StoredObject {
                    resource: resource.clone(),
                    revision: change.revision,
                    object,
                }));
            }
        }
        // The revisions of an abandoned epoch are in use too: clients may still have them.
        Snapshot::new(self.highest_revision, objects, self.change_mark())
    }

    /// Returns a mark that differs after each change and each restore.
    pub(crate) fn change_mark(&self) -> ChangeMark {
        ChangeMark { changes: self.recorded_count(), epoch: self.epoch() }
    }

    /// Loads the objects of a snapshot into this empty history. Revisions continue from the snapshot's start revision.
    pub(crate) fn load(&mut self, snapshot: &Snapshot) {
        self.revision = snapshot.start_revision();
        self.highest_revision = self.revision;
        self.first_revision = self.revision;
        // The earlier states of the objects are unknown, as after a compaction.
        self.compacted_revision = self.revision;
        let (definitions, others): (Vec<_>, Vec<_>) =
            snapshot.objects().iter().partition(|stored| stored.resource == *DEFINITIONS);
        for stored in definitions {
            self.load_object(stored);
        }
        // Changes of custom resources refer to their definitions, which therefore come first.
        self.define_resources();
        for stored in others {
            self.load_object(stored);
        }
        self.all_changes.sort_by_key(|change| change.revision);
        self.restart_namespace_termination_delay();
    }

    /// Adds an object as if it had been created in its current state.
    fn load_object(&mut self, stored: &StoredObject) {
        let key = ObjectKey::new(metadata::text(&stored.object, "namespace"), metadata::text(&stored.object, "name"));
        let object = Some(Arc::clone(&stored.object));
        let definition = self.definition_for(&stored.resource, object.as_ref());
        let names = (key.namespace.as_str(), key.name.as_str());
        let mut change = Change::new(stored.revision, stored.resource.clone(), names, object, None);
        change.definition = definition;
        let change = Arc::new(change);
        self.all_changes.push(Arc::clone(&change));
        self.resources.entry(stored.resource.clone()).or_default().push(key, change);
    }
}
