//! Chains of owners: `deploy/web › web-7d9f` for a pod of a Deployment.
//!
//! An object names its direct owner only. Further owners are known from watched objects, or from one request for each
//! owner. Requests run in a task, so that no line waits for them: until the response, a chain is shorter.

use std::collections::HashMap;
use std::sync::Arc;

use kube::Api;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta};
use parking_lot::Mutex;
use serde_json::Value;
use steadfast::Connection;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::built_in_groups::is_built_in_group;
use crate::changes::text::{escape, width};

/// Maximum number of owners in a chain. References can form a cycle.
const MAX_OWNERS: usize = 4;

/// Maximum number of remembered owners. Above this number, the owners are forgotten and requested again.
const MAX_REMEMBERED_OWNERS: usize = 50_000;

/// Maximum number of pending requests. Above this number, owners are requested with a later line.
const MAX_PENDING_REQUESTS: usize = 256;

/// Maximum part of the terminal's width for a chain with all owners.
const MAX_WIDTH_PERCENT: usize = 40;

/// Reference to an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OwnerRef {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
}

impl OwnerRef {
    /// Returns the controller of `object`, or else its first owner.
    fn from_object(object: &Value) -> Option<Self> {
        let owners = object.pointer("/metadata/ownerReferences")?.as_array()?;
        let is_controller = |owner: &&Value| owner["controller"] == true;
        let owner = owners.iter().find(is_controller).or_else(|| owners.first())?;
        let text = |field: &str| owner.get(field)?.as_str().map(str::to_owned);
        Some(Self { api_version: text("apiVersion")?, kind: text("kind")?, name: text("name")?, uid: text("uid")? })
    }

    fn api_resource(&self) -> ApiResource {
        let (group, version) = self.api_version.split_once('/').unwrap_or(("", &self.api_version));
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &self.kind))
    }
}

/// Knowledge about the owner of an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
enum NextOwner {
    /// The response is pending.
    Requested,
    /// The object has no owner, or its owner cannot be read.
    NoOwner,
    Owner(OwnerRef),
}

/// Owner to request.
#[derive(Debug)]
struct OwnerRequest {
    namespace: String,
    owner: OwnerRef,
}

/// The known owners of one cluster. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Owners {
    next_owners: Arc<Mutex<HashMap<String, NextOwner>>>,
    requests: Sender<OwnerRequest>,
}

impl Owners {
    /// Starts the task that requests unknown owners. The task ends with the last clone.
    pub(super) fn start(connection: &Connection) -> Self {
        let (owners, requests) = Self::new();
        tokio::spawn(answer_requests(owners.next_owners.clone(), requests, connection.client()));
        owners
    }

    fn new() -> (Self, Receiver<OwnerRequest>) {
        let (requests, pending) = channel(MAX_PENDING_REQUESTS);
        (Self { next_owners: Arc::default(), requests }, pending)
    }

    /// Records the owner of a watched object, which may own others.
    pub(super) fn record(&self, object: &Value) {
        // Pods are the most frequent objects, and seldom own others.
        if object["kind"] == "Pod" {
            return;
        }
        if let (Some(uid), Some(owner)) =
            (object.pointer("/metadata/uid").and_then(Value::as_str), OwnerRef::from_object(object))
        {
            insert_owner(&mut self.next_owners.lock(), uid, NextOwner::Owner(owner));
        }
    }

    /// Returns the known owners of `object`, the outermost first. Requests an unknown one.
    pub(super) fn chain(&self, object: &Value) -> OwnerChain {
        let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str);
        let mut owners: Vec<OwnerRef> = OwnerRef::from_object(object).into_iter().collect();
        let mut next_owners = self.next_owners.lock();
        while let Some(owner) = owners.last().filter(|_| owners.len() < MAX_OWNERS) {
            match (next_owners.get(&owner.uid), namespace) {
                (Some(NextOwner::Owner(next_owner)), _) => owners.push(next_owner.clone()),
                // An owner of a cluster-scoped object is not requested, because such an owner has no owner itself.
                // Neither is an owner of a kind without owners, such as a node, which can own pods.
                (None, Some(namespace)) if may_have_owner(owner) => {
                    let request = OwnerRequest { namespace: namespace.to_owned(), owner: owner.clone() };
                    if self.requests.try_send(request).is_ok() {
                        insert_owner(&mut next_owners, &owner.uid, NextOwner::Requested);
                    }
                    break;
                }
                _ => break,
            }
        }
        owners.reverse();
        OwnerChain(owners)
    }
}

/// Returns whether objects of the kind of `owner` usually have an owner. Others are not requested.
fn may_have_owner(owner: &OwnerRef) -> bool {
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    match (group, owner.kind.as_str()) {
        ("", "Node") | ("apps", "Deployment") | ("batch", "CronJob") => false,
        ("apps" | "batch", _) => true,
        // Custom resources can be owned by others.
        (group, _) => !is_built_in_group(group),
    }
}

fn insert_owner(next_owners: &mut HashMap<String, NextOwner>, uid: &str, next_owner: NextOwner) {
    if next_owners.len() >= MAX_REMEMBERED_OWNERS {
        next_owners.clear();
    }
    next_owners.insert(uid.to_owned(), next_owner);
}

async fn answer_requests(
    next_owners: Arc<Mutex<HashMap<String, NextOwner>>>,
    mut requests: Receiver<OwnerRequest>,
    client: kube::Client,
) {
    while let Some(OwnerRequest { namespace, owner }) = requests.recv().await {
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &owner.api_resource());
        let response: kube::Result<PartialObjectMeta<DynamicObject>> = api.get_metadata(&owner.name).await;
        // Without the permission, or after the deletion of the owner, the chain stays short.
        let metadata = response.ok().and_then(|object| serde_json::to_value(object.metadata).ok());
        let next_owner =
            metadata.and_then(|metadata| OwnerRef::from_object(&Value::from_iter([("metadata", metadata)])));
        insert_owner(&mut next_owners.lock(), &owner.uid, next_owner.map_or(NextOwner::NoOwner, NextOwner::Owner));
    }
}

/// Owners of an object, the outermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OwnerChain(Vec<OwnerRef>);

impl OwnerChain {
    /// Returns the chain before the name of the object: `deploy/web › web-7d9f › `; empty without owners.
    ///
    /// If the chain and the name take more than 40 % of `columns`, the chain omits each inner owner whose name is a
    /// prefix of the object's name. The outermost owner always stays.
    pub(super) fn prefix(&self, name: &str, columns: Option<usize>) -> String {
        let full_chain = self.joined(|_| true);
        let is_wide =
            columns.is_some_and(|columns| width(&full_chain) + width(name) > columns * MAX_WIDTH_PERCENT / 100);
        if is_wide { self.joined(|owner| !name.starts_with(&format!("{}-", owner.name))) } else { full_chain }
    }

    fn joined(&self, is_shown: impl Fn(&OwnerRef) -> bool) -> String {
        let mut text = String::new();
        for (index, owner) in self.0.iter().enumerate() {
            if index == 0 {
                text.extend([&*short_kind(&owner.kind), "/", &escape(&owner.name), " › "]);
            } else if is_shown(owner) {
                text.extend([&*escape(&owner.name), " › "]);
            }
        }
        text
    }
}

/// Returns the short name of a built-in kind, or the kind in lower case.
fn short_kind(kind: &str) -> String {
    let short = match kind {
        "Deployment" => "deploy",
        "ReplicaSet" => "rs",
        "StatefulSet" => "sts",
        "DaemonSet" => "ds",
        "CronJob" => "cj",
        "ReplicationController" => "rc",
        _ => return escape(&kind.to_lowercase()).into_owned(),
    };
    short.to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(kind: &str, name: &str, owner: Option<(&str, &str, &str)>) -> Value {
        let references: Vec<Value> = owner
            .iter()
            .map(|(api_version, kind, name)| {
                json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": format!("u-{name}"), "controller": true})
            })
            .collect();
        let metadata =
            json!({"namespace": "shop", "name": name, "uid": format!("u-{name}"), "ownerReferences": references});
        json!({"kind": kind, "metadata": metadata})
    }

    fn pod() -> Value {
        object("Pod", "web-7d9f-x2x4z", Some(("apps/v1", "ReplicaSet", "web-7d9f")))
    }

    #[test]
    fn chain_follows_watched_owners() {
        let (owners, _requests) = Owners::new();
        assert_eq!(owners.chain(&pod()).prefix("web-7d9f-x2x4z", None), "rs/web-7d9f › ");
        owners.record(&object("ReplicaSet", "web-7d9f", Some(("apps/v1", "Deployment", "web"))));
        let chain = owners.chain(&pod());
        assert_eq!(chain.prefix("web-7d9f-x2x4z", None), "deploy/web › web-7d9f › ");
        assert_eq!(chain.prefix("web-7d9f-x2x4z", Some(80)), "deploy/web › ");
        assert_eq!(chain.prefix("web-7d9f-x2x4z", Some(200)), "deploy/web › web-7d9f › ");
        assert_eq!(owners.chain(&object("Pod", "alone", None)).prefix("alone", None), "");
    }

    #[test]
    fn unknown_owner_is_requested_once() {
        let (owners, mut requests) = Owners::new();
        owners.chain(&pod());
        owners.chain(&pod());
        let OwnerRequest { namespace, owner } = requests.try_recv().expect("a request");
        assert_eq!((namespace.as_str(), owner.name.as_str()), ("shop", "web-7d9f"));
        assert_eq!(owner.api_resource().plural, "replicasets");
        assert!(requests.try_recv().is_err());
        owners.chain(&object("ReplicaSet", "web-7d9f", Some(("apps/v1", "Deployment", "web"))));
        owners.chain(&object("Pod", "static", Some(("v1", "Node", "node-1"))));
        assert!(requests.try_recv().is_err(), "deployments and nodes have no owner");
    }

    #[test]
    fn owner_in_custom_group_of_kubernetes_is_requested() {
        let (owners, mut requests) = Owners::new();
        owners.chain(&object("Pod", "p", Some(("gateway.networking.k8s.io/v1", "Gateway", "edge"))));
        assert_eq!(requests.try_recv().expect("a request").owner.name, "edge");
        owners.chain(&object("Pod", "p", Some(("networking.k8s.io/v1", "Ingress", "edge"))));
        assert!(requests.try_recv().is_err(), "an ingress has no owner");
    }

    #[test]
    fn cycle_of_owners_is_bounded() {
        let (owners, _requests) = Owners::new();
        owners.record(&object("A", "a", Some(("x.io/v1", "B", "b"))));
        owners.record(&object("B", "b", Some(("x.io/v1", "A", "a"))));
        assert_eq!(owners.chain(&object("C", "c", Some(("x.io/v1", "A", "a")))).0.len(), MAX_OWNERS);
    }

    #[test]
    fn hostile_owner_name_is_escaped() {
        let (owners, _requests) = Owners::new();
        let chain = owners.chain(&object("Pod", "p", Some(("v1", "Node\u{7}", "n\u{1b}[2J"))));
        assert_eq!(chain.prefix("p", None), "node\\u{7}/n\\u{1b}[2J › ");
    }
}
