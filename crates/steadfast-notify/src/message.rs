//! Messages: the result of one rule for one change.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::change::{EventSubject, ObjectChange};

/// Result of one rule for one change, a JSON object. All sinks receive the same content.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Message {
    /// Stable ID of change and rule. Receivers can use the ID to recognise duplicates.
    pub id: String,
    /// Time of the change.
    pub time: Timestamp,
    /// Kind of change: `Added`, `Updated`, `Deleted`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Name of the rule.
    pub rule: String,
    /// Name of the cluster.
    pub cluster: String,
    /// Resource of the object.
    pub resource: String,
    /// Namespace of the object. Empty for cluster-scoped objects.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// UID of the object.
    pub uid: String,
    /// Result of `send`.
    pub data: Value,
}

/// Key of ordered delivery: messages about objects of the same name are delivered in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OrderingKey {
    cluster: String,
    resource: String,
    namespace: String,
    name: String,
}

impl Message {
    /// Creates the message of `rule` for `change`.
    pub(crate) fn new(rule: &str, change: &ObjectChange, data: Value) -> Self {
        let EventSubject { cluster, resource, namespace, name, uid } = change.subject.clone();
        let lookup_suffix = change.lookups.as_ref().and_then(|lookups| lookups.fingerprint());
        let lookup_suffix = lookup_suffix.map(|fingerprint| format!("+{fingerprint}")).unwrap_or_default();
        Self {
            // Receivers may drop messages with a known ID. A change that is evaluated again with other looked-up
            // objects is a new message, so its ID differs.
            id: format!("{}{lookup_suffix}/{rule}", change.id),
            time: change.at,
            kind: change.kind.name().to_owned(),
            rule: rule.to_owned(),
            cluster,
            resource,
            namespace,
            name,
            uid,
            data,
        }
    }

    /// Returns the ordering key.
    pub(crate) fn ordering_key(&self) -> OrderingKey {
        OrderingKey {
            cluster: self.cluster.clone(),
            resource: self.resource.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }

    /// Returns the message as one line of JSON, without newline.
    pub fn line(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|_| unreachable!("texts and values are JSON"))
    }
}

/// Fields of `message` in the body of a request.
pub(crate) const BODY_FIELDS: [&str; 12] = [
    "id",
    "time",
    "type",
    "rule",
    "cluster",
    "resource",
    "namespace",
    "name",
    "uid",
    "data",
    "unix_seconds",
    "unix_nanos",
];

/// Cluster and namespace.
pub type ClusterNamespace = (String, String);

impl OrderingKey {
    /// Returns cluster and namespace.
    pub(crate) fn cluster_namespace(&self) -> ClusterNamespace {
        (self.cluster.clone(), self.namespace.clone())
    }
}
