//! What objects own, by a server's own history.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use steadfast_apiserver::ApiServer;

/// The objects of one resource that others own, by the UIDs of their first owners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Children {
    /// The names of those that there are now.
    pub live: BTreeMap<String, BTreeSet<String>>,
    /// The most that there ever were at once.
    pub most: BTreeMap<String, usize>,
}

impl Children {
    /// Those of the resource `plural` in `group`, which is empty for the oldest one, by the history of `server`.
    pub fn of(server: &ApiServer, group: &str, plural: &str) -> Self {
        let (history, mut all) = (server.history(), Self::default());
        for change in history.of(group, plural) {
            let state = change.object.as_deref().or(change.previous.as_deref());
            let owner =
                state.and_then(|child| child.pointer("/metadata/ownerReferences/0/uid")).and_then(Value::as_str);
            let Some(owner) = owner else { continue };
            let live = all.live.entry(owner.to_owned()).or_default();
            if change.object.is_some() {
                live.insert(change.name.clone());
            } else {
                live.remove(&change.name);
            }
            let most = all.most.entry(owner.to_owned()).or_default();
            *most = live.len().max(*most);
        }
        all
    }
}
