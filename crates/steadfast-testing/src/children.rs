//! Owned objects, taken from the server's own history.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use steadfast_apiserver::ApiServer;

/// Objects of one resource that have an owner, grouped by the UID of their first owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Children {
    /// Names of the existing objects, by the UID of their owner.
    pub live: BTreeMap<String, BTreeSet<String>>,
    /// Highest number of objects that existed at the same time, by the UID of their owner.
    pub max_at_once: BTreeMap<String, usize>,
}

impl Children {
    /// Collects the objects of the resource `plural` in `group` from the history of `server`. The core group is the
    /// empty string.
    pub fn of(server: &ApiServer, group: &str, plural: &str) -> Self {
        let (history, mut children) = (server.history(), Self::default());
        for change in history.changes_of(group, plural) {
            let state = change.object.as_deref().or(change.previous.as_deref());
            // Only the first owner reference counts: an object with several owners would be counted once for each
            // owner.
            let owner =
                state.and_then(|child| child.pointer("/metadata/ownerReferences/0/uid")).and_then(Value::as_str);
            let Some(owner) = owner else { continue };
            let live_names = children.live.entry(owner.to_owned()).or_default();
            if change.object.is_some() {
                live_names.insert(change.name.clone());
            } else {
                live_names.remove(&change.name);
            }
            // The number is taken after each change, so that two objects that exist together only for an instant are
            // counted.
            let max_at_once = children.max_at_once.entry(owner.to_owned()).or_default();
            *max_at_once = live_names.len().max(*max_at_once);
        }
        children
    }
}
