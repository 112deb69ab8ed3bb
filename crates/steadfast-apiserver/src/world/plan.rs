//! Planned writes, and their application to the history.

use std::time::Duration;

use serde_json::{Value, json};

use super::view::Key;
use crate::cluster::Cluster;
use crate::direct;
use crate::metadata;
use crate::status::Status;
use crate::storage::{Deletion, Dependents, Patch};
use crate::types;

/// A write of a controller.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Write {
    Create(Value),
    /// Merge patch. It names the version that the controller has read, so that it overwrites no other change.
    Patch(Key, Value),
    /// Deletion of the object with this UID.
    Delete(Key, String, Dependents),
}

/// Result of one reconcile.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) writes: Vec<Write>,
    /// Time of the server's clock at which the controller must run again, even without a change.
    pub(super) again_at: Option<Duration>,
}

impl Plan {
    pub(super) fn create(&mut self, object: Value) {
        self.writes.push(Write::Create(object));
    }

    /// Plans a merge patch of `object`, unless the object already has all its values.
    pub(super) fn patch(&mut self, key: &Key, object: &Value, mut patch: Value) {
        if contains(object, &patch) {
            return;
        }
        patch["metadata"]["resourceVersion"] = metadata::text(object, "resourceVersion").into();
        self.writes.push(Write::Patch(key.clone(), patch));
    }

    /// Plans a change of some fields of the status. Like the controllers of a real cluster, it omits most counts that
    /// are zero.
    pub(super) fn patch_status(&mut self, key: &Key, object: &Value, mut status: Value) {
        if let Some(kind) = key.kind() {
            types::null_omitted_counts(&kind.api_version(), kind.name(), &mut status);
        }
        self.patch(key, object, json!({"status": status}));
    }

    pub(super) fn delete(&mut self, key: &Key, object: &Value) {
        self.delete_with(key, object, Dependents::Background);
    }

    pub(super) fn delete_with(&mut self, key: &Key, object: &Value, dependents: Dependents) {
        // Deletion of a terminating object changes nothing.
        if !metadata::is_terminating(object) {
            let uid = metadata::text(object, "uid").to_owned();
            self.writes.push(Write::Delete(key.clone(), uid, dependents));
        }
    }

    /// Requests another run after a delay, or earlier. The sum saturates, since a delay in an object's spec can be
    /// huge.
    pub(super) fn run_again_after(&mut self, now: Duration, delay: Duration) {
        self.run_again_at(now.saturating_add(delay));
    }

    /// Requests another run at `time`, or earlier.
    pub(super) fn run_again_at(&mut self, time: Duration) {
        self.again_at = Some(self.again_at.map_or(time, |earlier| earlier.min(time)));
    }
}

impl Write {
    /// Applies the write. For a patch or deletion, a conflict or an object that no longer exists is not an error: the
    /// change that caused the failure starts another reconcile.
    pub(super) fn apply(self, cluster: &Cluster) -> Result<(), Status> {
        let result = match self {
            Self::Create(object) => return direct::create(cluster, &object).map(drop),
            Self::Patch(key, patch) => {
                direct::patch(cluster, &key.resource.to_string(), &key.namespace, &key.name, Patch::Merge(patch))
            }
            Self::Delete(key, uid, dependents) => {
                let deletion = Deletion { uid, dependents, ..Deletion::default() };
                direct::delete_with(cluster, &key.resource.to_string(), &key.namespace, &key.name, &deletion)
            }
        };
        match result {
            Err(status) if matches!(status.code, 404 | 409) => Ok(()),
            result => result.map(drop),
        }
    }
}

/// Returns whether a merge patch would change nothing.
fn contains(object: &Value, patch: &Value) -> bool {
    match (object, patch) {
        (Value::Object(fields), Value::Object(changes)) => {
            changes.iter().all(|(name, change)| match fields.get(name) {
                Some(field) => contains(field, change),
                // The patch removes an absent field.
                None => change.is_null(),
            })
        }
        _ => object == patch,
    }
}
