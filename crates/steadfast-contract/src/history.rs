//! The server's record of one resource type.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::seen::Key;

/// A change that the server made: an object's new state, or its tombstone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The epoch it belongs to; restores begin new ones, counted from 0.
    #[serde(default)]
    pub epoch: u32,
    /// The server's revision at which it was made.
    pub version: u64,
    /// The object's UID.
    pub uid: String,
    /// The object's namespace, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The object's name.
    pub name: String,
    /// The object from here on; `None` is a tombstone.
    pub object: Option<Value>,
    /// When it was made, on the clock of the trace.
    #[serde(with = "crate::nanos")]
    pub at: Duration,
}

impl Change {
    /// The object `name` is `object` from `version` on, at time zero of epoch 0.
    pub fn new(version: u64, uid: &str, namespace: Option<&str>, name: &str, object: Value) -> Self {
        Self { object: Some(object), ..Self::gone(version, uid, namespace, name) }
    }

    /// The object `name` is gone from `version` on, at time zero of epoch 0.
    pub fn gone(version: u64, uid: &str, namespace: Option<&str>, name: &str) -> Self {
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

    /// The same change, made at the moment `at`.
    #[must_use]
    pub fn at(self, at: Duration) -> Self {
        Self { at, ..self }
    }

    /// The same change, in `epoch`.
    #[must_use]
    pub fn in_epoch(self, epoch: u32) -> Self {
        Self { epoch, ..self }
    }

    /// Where the object lives.
    pub fn key(&self) -> Key {
        Key { namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

/// A restore of the server's data from a backup: the beginning of an epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restore {
    /// The epoch that begins.
    pub epoch: u32,
    /// The revision, of the epoch before, whose state is restored.
    pub to: u64,
    /// When.
    #[serde(with = "crate::nanos")]
    pub at: Duration,
}

/// The server's record of one resource type: its changes in the order in which it made them.
///
/// Whoever watches several resource types keeps one history for each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    changes: Vec<Change>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    restores: Vec<Restore>,
}

impl History {
    /// A history without a change.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a change.
    ///
    /// The first change of an epoch that no [`restore`](Self::restore) began counts as a restore to the state just
    /// before its version.
    pub fn push(&mut self, change: Change) {
        if change.epoch > self.epoch() {
            let to = change.version.saturating_sub(1);
            self.restores.push(Restore { epoch: change.epoch, to, at: change.at });
        }
        self.changes.push(change);
    }

    /// Begins a new epoch with the state that the present one had at version `to`; returns its number.
    pub fn restore(&mut self, at: Duration, to: u64) -> u32 {
        let epoch = self.epoch() + 1;
        self.restores.push(Restore { epoch, to, at });
        epoch
    }

    /// The present epoch.
    pub fn epoch(&self) -> u32 {
        self.restores.last().map_or(0, |restore| restore.epoch)
    }

    /// All changes, in order.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// All restores, in order.
    pub fn restores(&self) -> &[Restore] {
        &self.restores
    }

    /// The state that the change at `index` ended: `None` if the object was created by it.
    pub fn previous(&self, index: usize) -> Option<&Value> {
        let change = &self.changes[index];
        let same = |earlier: &&Change| {
            earlier.uid == change.uid && earlier.name == change.name && earlier.namespace == change.namespace
        };
        self.changes[..index].iter().rev().find(same)?.object.as_ref()
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
