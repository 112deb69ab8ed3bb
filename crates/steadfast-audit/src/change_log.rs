//! Recent changes of a resource, with the endpoints that have delivered each.

use std::collections::VecDeque;

use steadfast::environment::Instant;

use crate::version_table::NameHash;

/// Maximum number of changes that wait for an endpoint. Later changes are not compared until there is space.
const MAX_CHANGES: usize = 4096;

/// Set of endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndpointSet(u32);

impl EndpointSet {
    /// Maximum number of endpoints.
    pub(crate) const MAX: usize = 32;

    pub(crate) fn insert(&mut self, endpoint: usize) {
        self.0 |= 1 << endpoint;
    }

    pub(crate) fn contains(self, endpoint: usize) -> bool {
        self.0 & (1 << endpoint) != 0
    }
}

/// Change of an object.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) version: u64,
    pub(crate) key: NameHash,
    /// Namespace and name, for evidence.
    pub(crate) name: Box<str>,
    /// Time of the first delivery of the change by any source, or of the last [`ChangeLog::restart_ages`].
    pub(crate) first_seen: Instant,
    pub(crate) is_deletion: bool,
    /// Endpoints whose watch has delivered the change, or need not deliver the change.
    pub(crate) settled: EndpointSet,
    /// Endpoints whose watch has delivered a later deletion of the object.
    pub(crate) superseded: EndpointSet,
}

/// Changes in the order of their versions.
#[derive(Debug, Default)]
pub(crate) struct ChangeLog {
    changes: VecDeque<Change>,
}

impl ChangeLog {
    /// Returns the change with this version and key.
    pub(crate) fn find(&mut self, version: u64, key: NameHash) -> Option<&mut Change> {
        let at = self.changes.binary_search_by_key(&(version, key), |change| (change.version, change.key)).ok()?;
        self.changes.get_mut(at)
    }

    /// Adds a change that is not in the log.
    pub(crate) fn insert(&mut self, change: Change) {
        let at = self.changes.partition_point(|other| (other.version, other.key) < (change.version, change.key));
        if self.changes.len() < MAX_CHANGES {
            self.changes.insert(at, change);
        }
    }

    /// Marks all changes up to `version` as settled for an endpoint.
    pub(crate) fn settle_until(&mut self, endpoint: usize, version: u64) {
        for change in self.changes.iter_mut().take_while(|change| change.version <= version) {
            change.settled.insert(endpoint);
        }
    }

    /// Records a deletion of the object that the watch of `endpoint` delivered.
    pub(crate) fn supersede(&mut self, endpoint: usize, key: NameHash, version: u64) {
        for change in self.changes.iter_mut().take_while(|change| change.version < version) {
            if change.key == key {
                change.superseded.insert(endpoint);
            }
        }
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Change> {
        self.changes.iter_mut()
    }

    /// Returns the oldest change that an endpoint has not settled.
    pub(crate) fn oldest_pending(&self, endpoint: usize) -> Option<&Change> {
        self.changes.iter().find(|change| !change.settled.contains(endpoint))
    }

    /// Removes the changes for which `is_needed` returns false.
    pub(crate) fn retain(&mut self, is_needed: impl FnMut(&Change) -> bool) {
        self.changes.retain(is_needed);
    }

    pub(crate) fn clear(&mut self) {
        self.changes.clear();
    }

    /// Restarts the ages of all changes.
    pub(crate) fn restart_ages(&mut self, now: Instant) {
        for change in &mut self.changes {
            change.first_seen = now;
        }
    }
}
