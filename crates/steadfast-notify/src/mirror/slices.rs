//! Entries of a rule that mirrors endpoints of Services, merged from all `EndpointSlice`s of an input.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};
use steadfast::ObjectKey;
use steadfast_targets::{ObjectId, Origin};

use super::claim::{ClaimedEntry, ObjectEntries};
use super::entry::{Entry, entries};
use super::grouping::Grouping;
use crate::change::EventSubject;
use crate::endpoints::{EndpointEntries, EndpointSlice, EndpointSource};
use crate::entry_fields::EntryFields;

/// Namespace, name and UID of endpoints that are not terminating.
pub(super) type LiveObjects = BTreeSet<(String, String, String)>;

/// Returns the entries of an object with origins. Entries of one group share the origin.
pub(super) fn claims(
    entries: Vec<Entry>,
    grouping: &Grouping,
    subject: &EventSubject,
    object: &Value,
    id: &ObjectId,
) -> Result<Vec<ClaimedEntry>, String> {
    let groups = grouping.group_entries(subject, object, &entries)?;
    let mut origins: BTreeMap<String, Arc<Origin>> = BTreeMap::new();
    let claims = entries.into_iter().zip(groups).map(|(entry, group)| {
        let origin = origins
            .entry(group.clone())
            .or_insert_with(|| Arc::new(Origin { group, object: id.clone(), uid: subject.uid.clone() }));
        ClaimedEntry { entry, origin: origin.clone() }
    });
    Ok(claims.collect())
}

/// `EndpointSlice`s of an input, and the entries of their endpoints.
#[derive(Default)]
pub(super) struct SliceSet {
    slices: BTreeMap<ObjectKey, Result<EndpointSlice, String>>,
    object_entries: Vec<ObjectEntries>,
    live_objects: Arc<LiveObjects>,
}

impl SliceSet {
    pub(super) fn remove(&mut self, key: &ObjectKey) {
        self.slices.remove(key);
    }

    pub(super) fn insert(&mut self, key: ObjectKey, slice: Result<EndpointSlice, String>) {
        self.slices.insert(key, slice);
    }

    /// Returns the entries of each endpoint.
    pub(super) fn object_entries(&self) -> &[ObjectEntries] {
        &self.object_entries
    }

    /// Returns the endpoints that are not terminating. `None` if any slice is malformed, since its endpoints are
    /// unknown.
    pub(super) fn live_objects(&self) -> Option<Arc<LiveObjects>> {
        // An unreadable slice may contain any endpoint, so no endpoint is known to be deleted.
        self.slices.values().all(Result::is_ok).then(|| self.live_objects.clone())
    }

    /// Recomputes the entries. `source_id` identifies the rule, the cluster and the selection; its namespace and name
    /// are empty.
    pub(super) fn resolve(
        &mut self,
        source: &EndpointSource,
        source_id: &ObjectId,
        entry_fields: EntryFields,
        grouping: &Grouping,
    ) {
        let object = |namespace: &str, name: &str| ObjectId {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..source_id.clone()
        };
        let unreadable = self.slices.iter().filter_map(|(key, slice)| {
            let reason = slice.as_ref().err()?.clone();
            Some(ObjectEntries {
                object: object(key.namespace().unwrap_or_default(), key.name()),
                entries: Err(reason),
            })
        });
        let mut object_entries: Vec<ObjectEntries> = unreadable.collect();
        let mut live_objects = LiveObjects::new();
        let slices = self.slices.values().filter_map(|slice| slice.as_ref().ok());
        for endpoint in source.resolve(&source_id.cluster, slices, entry_fields) {
            let EndpointEntries { namespace, name, uid, is_terminating, entries: values } = endpoint;
            // A terminating endpoint counts as deleted: its removal needs no approval.
            if !is_terminating {
                live_objects.insert((namespace.clone(), name.clone(), uid.clone()));
            }
            let object = object(&namespace, &name);
            let subject = EventSubject {
                cluster: source_id.cluster.clone(),
                resource: "endpoints".to_owned(),
                namespace,
                name,
                uid: uid.clone(),
            };
            let parsed =
                values.and_then(|values| entries(&Value::from(values), entry_fields, &Value::Null, &subject.name));
            let metadata = json!({"namespace": subject.namespace, "name": subject.name, "uid": uid});
            let pod = json!({"metadata": metadata});
            let claims = parsed.and_then(|parsed| claims(parsed, grouping, &subject, &pod, &object));
            object_entries.push(ObjectEntries { object, entries: claims });
        }
        self.object_entries = object_entries;
        self.live_objects = Arc::new(live_objects);
    }
}
