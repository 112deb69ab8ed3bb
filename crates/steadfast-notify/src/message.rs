//! What is sent: one change as one rule tells it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::change::{Change, Subject};

/// One change as one rule tells it; written as one object of JSON, to every sink the same.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Message {
    /// The same whenever the same change is told by the same rule: whoever gets it twice can tell.
    pub id: String,
    /// When the change became known.
    pub time: Timestamp,
    /// What happened: `Added`, `Updated`, `Deleted`.
    #[serde(rename = "type")]
    pub kind: String,
    /// By which rule.
    pub rule: String,
    /// In which cluster.
    pub cluster: String,
    /// To an object of which resource.
    pub resource: String,
    /// In which namespace; empty for what is in none.
    pub namespace: String,
    /// What the object is called.
    pub name: String,
    /// Who it is, whatever its name.
    pub uid: String,
    /// What the rule sends.
    pub data: Value,
}

/// Messages with equal keys keep their order: those about the objects that have one name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OrderingKey {
    cluster: String,
    resource: String,
    namespace: String,
    name: String,
}

impl Message {
    /// What `rule` tells of `change`.
    pub(crate) fn new(rule: &str, change: &Change, data: Value) -> Self {
        let Subject { cluster, resource, namespace, name, uid } = change.subject.clone();
        let looked_up = change.lookups.as_ref().and_then(|lookups| lookups.fingerprint());
        let looked_up = looked_up.map(|fingerprint| format!("+{fingerprint}")).unwrap_or_default();
        Self {
            id: format!("{}{looked_up}/{rule}", change.id),
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

    /// The key by which the message keeps its order.
    pub(crate) fn ordering_key(&self) -> OrderingKey {
        OrderingKey {
            cluster: self.cluster.clone(),
            resource: self.resource.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }

    /// The message as one line, without its end.
    pub fn line(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|_| unreachable!("texts and values are JSON"))
    }
}

/// Fields of a message in the body of a request.
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

impl OrderingKey {
    /// The namespace and its cluster.
    pub(crate) fn tenant(&self) -> (String, String) {
        (self.cluster.clone(), self.namespace.clone())
    }
}
