//! The server's record of one resource type.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::objects::Key;

/// A change on the server: a new state of an object, or its deletion (the tombstone).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Epoch of the change, from 0. Each restore starts a new epoch.
    #[serde(default)]
    pub epoch: u32,
    /// Server's revision of the change.
    pub version: u64,
    /// UID of the object.
    pub uid: String,
    /// Namespace of the object, if the resource has namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the object.
    pub name: String,
    /// New state of the object; `None` for a tombstone.
    pub object: Option<Value>,
    /// Time of the change, on the clock of the trace.
    #[serde(with = "crate::nanos")]
    pub at: Duration,
}

impl Change {
    /// Creates a change to the state `object` of `name` at `version`, at time zero of epoch 0.
    pub fn new(version: u64, uid: &str, namespace: Option<&str>, name: &str, object: Value) -> Self {
        Self { object: Some(object), ..Self::deleted(version, uid, namespace, name) }
    }

    /// Creates a tombstone of `name` at `version`, at time zero of epoch 0.
    pub fn deleted(version: u64, uid: &str, namespace: Option<&str>, name: &str) -> Self {
        Self {
            epoch: 0,
            version,
            uid: uid.to_owned(),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
            object: None,
            at: Duration::ZERO,
        }
    }

    /// Sets the time of the change.
    #[must_use]
    pub fn at(self, at: Duration) -> Self {
        Self { at, ..self }
    }

    /// Sets the epoch of the change.
    #[must_use]
    pub fn in_epoch(self, epoch: u32) -> Self {
        Self { epoch, ..self }
    }

    /// Returns the object's namespace and name.
    pub fn key(&self) -> Key {
        Key { namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

/// A restore of the server's data from a backup. Starts an epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restore {
    /// The new epoch.
    pub epoch: u32,
    /// Restored revision of the previous epoch.
    pub to: u64,
    /// Time of the restore, on the clock of the trace.
    #[serde(with = "crate::nanos")]
    pub at: Duration,
}

/// The server's record of one resource type: its changes in order.
///
/// A caller that watches several resource types keeps one history per type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    changes: Vec<Change>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    restores: Vec<Restore>,
}

impl History {
    /// Creates a history without changes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a change.
    ///
    /// If no [`restore`](Self::restore) started the change's epoch, the history first restores the state just before
    /// the change's version.
    pub fn push(&mut self, change: Change) {
        if change.epoch > self.epoch() {
            // The exact version of the backup is unknown. The state right before the change is the latest possible.
            let to = change.version.saturating_sub(1);
            self.restores.push(Restore { epoch: change.epoch, to, at: change.at });
        }
        self.changes.push(change);
    }

    /// Starts a new epoch with the state of the current epoch at version `to`. Returns the number of the new epoch.
    pub fn restore(&mut self, at: Duration, to: u64) -> u32 {
        let epoch = self.epoch() + 1;
        self.restores.push(Restore { epoch, to, at });
        epoch
    }

    /// Returns the current epoch.
    pub fn epoch(&self) -> u32 {
        self.restores.last().map_or(0, |restore| restore.epoch)
    }

    /// Returns all changes, in order.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Returns all restores, in order.
    pub fn restores(&self) -> &[Restore] {
        &self.restores
    }

    /// Returns the state before the change at `index`; `None` if the change created the object.
    pub fn previous(&self, index: usize) -> Option<&Value> {
        let change = &self.changes[index];
        let is_same_object = |earlier: &&Change| {
            earlier.uid == change.uid && earlier.name == change.name && earlier.namespace == change.namespace
        };
        self.changes[..index].iter().rev().find(is_same_object)?.object.as_ref()
    }
}

impl FromIterator<Change> for History {
    fn from_iter<I: IntoIterator<Item = Change>>(changes: I) -> Self {
        let mut history = Self::new();
        history.extend(changes);
        history
    }
}

impl Extend<Change> for History {
    fn extend<I: IntoIterator<Item = Change>>(&mut self, changes: I) {
        for change in changes {
            self.push(change);
        }
    }
}
