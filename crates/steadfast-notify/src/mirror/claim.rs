//! Entries and where they come from.

use std::sync::Arc;

use steadfast_outside::{ObjectId, Origin};

use super::entry::Entry;
use crate::change::Subject;

/// An entry and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Claim {
    pub(crate) entry: Entry,
    pub(crate) origin: Arc<Origin>,
}

/// The entries that a rule sends of an object.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sent {
    pub(super) object: ObjectId,
    /// The entries, or the reason why they are not known.
    pub(super) entries: Result<Vec<Claim>, String>,
}

/// The owner of the entries of an object: removals are counted for each owner alone, and a place belongs to one of them.
pub(super) fn group(Subject { cluster, namespace, .. }: &Subject) -> String {
    if namespace.is_empty() { cluster.clone() } else { format!("{cluster}/{namespace}") }
}
