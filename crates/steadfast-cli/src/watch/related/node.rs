//! One object of the tree: its identity, its owners and its readiness.

use serde_json::Value;

use crate::changes::phrases::{at, find_condition, list, number, text};
use crate::changes::text::escape;

/// Object of the tree.
#[derive(Clone, Debug)]
pub(super) struct TreeNode {
    pub(super) uid: String,
    /// Resource with its group.
    pub(super) resource: String,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    /// UIDs of the owners.
    pub(super) owners: Vec<String>,
    /// UIDs of the pods that an `EndpointSlice` lists.
    pub(super) targets: Vec<String>,
    /// Readiness of the object; `None` for kinds without readiness.
    is_ready: Option<bool>,
    /// State, worded for the kind of the object, and escaped.
    state: String,
}

impl TreeNode {
    /// Returns the node of `object`; `None` for an object without a UID.
    pub(super) fn of(resource: &str, object: &Value, state: String) -> Option<Self> {
        let metadata = object.get("metadata")?;
        let text = |field: &str| metadata.get(field).and_then(Value::as_str).map(str::to_owned);
        Some(Self {
            uid: text("uid")?,
            resource: resource.to_owned(),
            namespace: text("namespace"),
            name: text("name")?,
            owners: uids(metadata.get("ownerReferences"), "/uid"),
            targets: uids(object.get("endpoints"), "/targetRef/uid"),
            is_ready: is_ready(resource, object),
            state,
        })
    }

    /// Returns the order of children: by resource, then by name.
    pub(super) fn sort_key(&self) -> (String, String) {
        (self.resource.clone(), self.name.clone())
    }

    /// Formats the readiness, the name and the state.
    pub(super) fn line(&self) -> String {
        let mark = match self.is_ready {
            Some(true) => '✓',
            Some(false) => '✗',
            None => '·',
        };
        let namespace =
            self.namespace.as_deref().map(|namespace| format!("{}/", escape(namespace))).unwrap_or_default();
        format!("{mark} {} {namespace}{} {}", self.resource, escape(&self.name), self.state)
    }
}

/// Returns the UIDs at `pointer` of each element of `list`.
fn uids(list: Option<&Value>, pointer: &str) -> Vec<String> {
    let elements = list.and_then(Value::as_array).into_iter().flatten();
    elements.filter_map(|element| element.pointer(pointer)?.as_str().map(str::to_owned)).collect()
}

/// Returns the UID of the object that an Event is about.
pub(super) fn event_subject(event: &Value) -> Option<&str> {
    event.pointer("/involvedObject/uid").or_else(|| event.pointer("/regarding/uid"))?.as_str()
}

fn is_ready(resource: &str, object: &Value) -> Option<bool> {
    match resource {
        "deployments.apps" | "replicasets.apps" | "statefulsets.apps" => {
            // The server's default is one replica.
            let replicas = at(object, "spec/replicas").and_then(Value::as_i64).unwrap_or(1);
            Some(number(object, "status/readyReplicas") >= replicas)
        }
        // API servers send both numbers, also zeros.
        "daemonsets.apps" => {
            Some(number(object, "status/numberReady") >= number(object, "status/desiredNumberScheduled"))
        }
        "pods" if text(object, "status/phase") == "Succeeded" => Some(true),
        "pods" => Some(condition(object, "Ready").unwrap_or(false)),
        "jobs.batch" => condition(object, "Complete").or_else(|| condition(object, "Failed").map(|failed| !failed)),
        "endpointslices.discovery.k8s.io" => {
            let endpoints = object.get("endpoints")?.as_array()?;
            // A missing condition counts as ready, as in kube-proxy.
            let is_ready = |endpoint: &Value| endpoint.pointer("/conditions/ready") != Some(&Value::Bool(false));
            Some(endpoints.iter().any(is_ready)).filter(|_| !endpoints.is_empty())
        }
        _ => condition(object, "Ready").or_else(|| condition(object, "Available")),
    }
}

/// Returns whether the condition is true; `None` without the condition.
fn condition(object: &Value, name: &str) -> Option<bool> {
    find_condition(list(object, "status/conditions"), name).map(|condition| text(condition, "status") == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn readiness_depends_on_kind() {
        let conditions =
            |name: &str, status: &str| json!({"status": {"conditions": [{"type": name, "status": status}]}});
        for (resource, object, expected) in [
            ("deployments.apps", json!({"spec": {"replicas": 3}, "status": {"readyReplicas": 2}}), Some(false)),
            ("replicasets.apps", json!({"spec": {"replicas": 0}}), Some(true)),
            ("pods", conditions("Ready", "True"), Some(true)),
            ("pods", json!({"status": {"phase": "Succeeded"}}), Some(true)),
            ("pods", json!({}), Some(false)),
            ("jobs.batch", conditions("Failed", "True"), Some(false)),
            ("jobs.batch", json!({}), None),
            ("endpointslices.discovery.k8s.io", json!({"endpoints": [{"conditions": {"ready": false}}]}), Some(false)),
            ("widgets.example.com", conditions("Ready", "False"), Some(false)),
            ("services", json!({}), None),
        ] {
            assert_eq!(is_ready(resource, &object), expected, "{resource} {object}");
        }
    }

    #[test]
    fn hostile_name_is_escaped() {
        let object = json!({"metadata": {"uid": "u", "name": "a\u{1b}[2J"}});
        let line = TreeNode::of("pods", &object, String::new()).expect("a node").line();
        assert_eq!(line, "✗ pods a\\u{1b}[2J ");
    }
}
