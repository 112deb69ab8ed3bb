//! Entries with origins.

use std::sync::Arc;

use steadfast_targets::{ObjectId, Origin};

use super::entry::Entry;
use crate::change::EventSubject;

/// An entry with its origin: the group, and the object for which the entry is desired.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClaimedEntry {
    pub(crate) entry: Entry,
    pub(crate) origin: Arc<Origin>,
}

/// Entries of a rule for one object.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ObjectEntries {
    pub(super) object: ObjectId,
    /// The entries, or the reason why the entries are unknown.
    pub(super) entries: Result<Vec<ClaimedEntry>, String>,
}

/// Returns the default group of an object's entries. A group owns keys, and removals are limited for each group.
pub(super) fn default_group(EventSubject { cluster, namespace, .. }: &EventSubject) -> String {
    if namespace.is_empty() { cluster.clone() } else { format!("{cluster}/{namespace}") }
}
