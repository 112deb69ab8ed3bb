//! `--related`: the tree of owners and children of the named objects, and which further objects belong to it.
//!
//! The handlers of all informers record each object here. When all existing objects are known, the tree is printed once.
//! From then on, only the lines of related objects are printed. With `--since`, the history of the related objects is
//! printed between the tree and these lines.

mod node;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;

use crate::changes::text::{escape, plural};
use node::TreeNode;

/// Resources in which relatives are searched, besides the resources of the named objects.
pub(crate) const RELATED_RESOURCES: [&str; 10] = [
    "deployments.apps",
    "replicasets.apps",
    "statefulsets.apps",
    "daemonsets.apps",
    "jobs.batch",
    "cronjobs.batch",
    "pods",
    "services",
    "endpointslices.discovery.k8s.io",
    "events",
];

/// Maximum number of owners above an object that are followed. References can form a cycle.
const MAX_DEPTH: usize = 8;

/// Maximum number of deleted relatives whose later Events are shown.
const MAX_DELETED: usize = 10_000;

/// Maximum number of lines that wait for an unknown owner.
const MAX_WAITING_LINES: usize = 1_000;

/// A named object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    /// Resource with its group: `deployments.apps`.
    pub(crate) resource: String,
    pub(crate) name: String,
}

/// The relatives of the named objects of one cluster and namespace. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Related(Arc<Mutex<Relatives>>);

#[derive(Debug, Default)]
struct Relatives {
    roots: Vec<Root>,
    /// All known objects of the watched resources, by UID. Events are not recorded.
    nodes: HashMap<String, TreeNode>,
    /// UIDs of the existing named objects.
    root_uids: HashSet<String>,
    /// UIDs of deleted relatives, the oldest first.
    deleted: VecDeque<String>,
    /// UIDs of objects that are missing in the printed tree and in the history, because an owner was not known yet.
    undecided: HashSet<String>,
    /// UIDs of the `EndpointSlice`s and Services of relatives that have a line.
    shown_services: HashSet<String>,
    /// Lines of objects with an unknown owner at any level, with the UIDs of the objects, in order of arrival.
    waiting: VecDeque<(String, String)>,
    /// Number of resources whose existing objects are not all known.
    pending: usize,
    /// True after the tree was printed.
    printed: watch::Sender<bool>,
    /// True until the history was printed. False without `--since`.
    awaits_history: bool,
}

/// The relatives of the history: also those that no longer exist.
#[derive(Debug)]
pub(super) struct PastRelatives {
    related_uids: HashSet<String>,
    /// UIDs of relatives that were deleted before the history, for Events about them.
    deleted_uids: HashSet<String>,
}

/// Decision about the line of an event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The line is printed, followed by these lines of other objects, which have waited for an owner.
    Related(Vec<String>),
    /// The line is dropped.
    Unrelated,
    /// The object with this UID has an owner, at any level, that is not known yet.
    Unknown(String),
}

impl Related {
    /// Creates the relatives of `roots`. The tree is printed after `resources` calls of [`synced`](Self::synced).
    pub(crate) fn new(roots: Vec<Root>, resources: usize) -> Self {
        Self(Arc::new(Mutex::new(Relatives { roots, pending: resources, ..Relatives::default() })))
    }

    /// Returns whether the object is one of the named objects.
    pub(super) fn is_root(&self, resource: &str, name: &str) -> bool {
        self.0.lock().roots.iter().any(|root| root.resource == resource && root.name == name)
    }

    /// Returns whether the object with this UID belongs to the printed tree, and its history was printed if requested.
    pub(super) fn is_followed(&self, uid: &str) -> bool {
        let relatives = self.0.lock();
        relatives.is_printed() && !relatives.awaits_history && relatives.is_related(uid)
    }

    /// Records that a history follows the tree.
    pub(super) fn expect_history(&self) {
        self.0.lock().awaits_history = true;
    }

    /// Records that the history of `past` was printed.
    pub(super) fn history_printed(&self, past: &PastRelatives) {
        let mut relatives = self.0.lock();
        relatives.awaits_history = false;
        relatives.undecided.retain(|uid| !past.related_uids.contains(uid));
        relatives.shown_services.extend(past.related_uids.iter().cloned());
    }

    /// Waits until the tree was printed.
    pub(super) async fn until_printed(&self) {
        let mut printed = self.0.lock().printed.subscribe();
        // Cannot fail: `self` keeps the sender.
        let _ = printed.wait_for(|is_printed| *is_printed).await;
    }

    /// Returns the current relatives together with objects of the past, given with their resources. Of several states
    /// of an object, the first one counts.
    pub(super) fn with_past<'a>(&self, objects: impl IntoIterator<Item = (&'a str, &'a Value)>) -> PastRelatives {
        let mut past = {
            let relatives = self.0.lock();
            Relatives {
                roots: relatives.roots.clone(),
                nodes: relatives.nodes.clone(),
                root_uids: relatives.root_uids.clone(),
                deleted: relatives.deleted.clone(),
                ..Relatives::default()
            }
        };
        for (resource, object) in objects.into_iter().filter(|(resource, _)| !is_event(resource)) {
            if let Some(node) = TreeNode::of(resource, object, String::new())
                && !past.nodes.contains_key(&node.uid)
            {
                past.insert(node);
            }
        }
        let related_uids = past.nodes.keys().filter(|uid| past.is_related(uid)).cloned().collect();
        PastRelatives { related_uids, deleted_uids: past.deleted.into_iter().collect() }
    }

    /// Records an added or changed object, or its deletion, and decides about its line.
    pub(crate) fn record(&self, resource: &str, object: &Value, state: String, is_deleted: bool) -> Admission {
        let mut relatives = self.0.lock();
        let is_related = if is_event(resource) {
            node::event_subject(object).is_some_and(|uid| relatives.is_subject(uid))
        } else {
            let Some(node) = TreeNode::of(resource, object, state) else { return Admission::Unrelated };
            let (uid, has_targets) = (node.uid.clone(), !node.targets.is_empty());
            let has_new_owner = relatives.insert(node);
            // No line is printed before the tree, which shows each related object.
            if !relatives.is_printed() && !is_deleted {
                return Admission::Unrelated;
            }
            let is_related = relatives.is_related(&uid);
            if is_deleted {
                relatives.remove(&uid, is_related);
            } else if is_related {
                // A known object is checked too, because an update can add an owner.
                let mut released = if has_new_owner { relatives.release_undecided(&uid) } else { Vec::new() };
                // The slice of a pod may arrive before the pod, and then has no line. The same holds for its Service.
                if has_new_owner || has_targets {
                    relatives.shown_services.insert(uid);
                    released.extend(relatives.release_services());
                }
                released.extend(relatives.release_waiting());
                return Admission::Related(released);
            } else if relatives.has_unknown_owner(&uid, MAX_DEPTH) {
                return Admission::Unknown(uid);
            }
            is_related
        };
        // The tree replaces the lines of all changes before it.
        if is_related && relatives.is_printed() { Admission::Related(Vec::new()) } else { Admission::Unrelated }
    }

    /// Returns the lines of the current tree, escaped.
    pub(crate) fn tree(&self) -> Vec<String> {
        self.0.lock().tree()
    }

    /// Keeps the line of the object `uid` until its owners up to a named object are known. Returns the line if the
    /// object is known to be related.
    pub(super) fn keep(&self, uid: String, line: String) -> Option<String> {
        let mut relatives = self.0.lock();
        // The handler of another informer may have recorded the owner in the meantime.
        if relatives.is_related(&uid) {
            return Some(line);
        }
        relatives.undecided.remove(&uid);
        relatives.waiting.push_back((uid, line));
        if relatives.waiting.len() > MAX_WAITING_LINES {
            relatives.waiting.pop_front();
        }
        None
    }

    /// Records that all existing objects of a resource are known. After the last resource, passes the lines of the tree to
    /// `print`, which may block: later lines wait for it.
    pub(super) fn synced(&self, print: impl FnMut(String)) {
        let mut relatives = self.0.lock();
        relatives.pending = relatives.pending.saturating_sub(1);
        if relatives.pending == 0 {
            relatives.print_tree(print);
        }
    }

    /// Passes the lines of the tree to `print` although some resources are not listed. Does nothing if the tree was
    /// printed already.
    pub(super) fn print_incomplete(&self, mut print: impl FnMut(String)) {
        let mut relatives = self.0.lock();
        if !relatives.is_printed() {
            let pending = relatives.pending;
            print(format!("# the tree is incomplete: {} not listed yet", plural(pending, "resource")));
            relatives.print_tree(print);
        }
    }
}

impl PastRelatives {
    /// Returns whether the object is one of the relatives, or an Event about one of them.
    pub(super) fn contain(&self, resource: &str, object: &Value) -> bool {
        if is_event(resource) {
            let is_subject = |uid: &str| self.related_uids.contains(uid) || self.deleted_uids.contains(uid);
            return node::event_subject(object).is_some_and(is_subject);
        }
        object.pointer("/metadata/uid").and_then(Value::as_str).is_some_and(|uid| self.related_uids.contains(uid))
    }
}

/// Returns whether this is the resource of Events, in one of its two groups.
fn is_event(resource: &str) -> bool {
    resource == "events" || resource.starts_with("events.")
}

impl Relatives {
    /// Adds or replaces an object. Returns whether the object is new, or has other owners than before.
    fn insert(&mut self, node: TreeNode) -> bool {
        if self.is_root(&node) {
            self.root_uids.insert(node.uid.clone());
        }
        let owners = node.owners.clone();
        self.nodes.insert(node.uid.clone(), node).is_none_or(|old| old.owners != owners)
    }

    fn remove(&mut self, uid: &str, is_related: bool) {
        self.nodes.remove(uid);
        self.root_uids.remove(uid);
        self.undecided.remove(uid);
        self.shown_services.remove(uid);
        if is_related {
            self.deleted.push_back(uid.to_owned());
            if self.deleted.len() > MAX_DELETED {
                self.deleted.pop_front();
            }
        }
    }

    fn print_tree(&mut self, print: impl FnMut(String)) {
        if !self.is_printed() {
            self.tree().into_iter().for_each(print);
            let is_undecided = |uid: &&String| !self.is_related(uid) && self.has_unknown_owner(uid, MAX_DEPTH);
            self.undecided = self.nodes.keys().filter(is_undecided).cloned().collect();
            self.shown_services = self.services().into_iter().map(|node| node.uid.clone()).collect();
            self.printed.send_replace(true);
        }
    }

    fn is_printed(&self) -> bool {
        *self.printed.borrow()
    }

    fn is_root(&self, node: &TreeNode) -> bool {
        self.roots.iter().any(|root| root.resource == node.resource && root.name == node.name)
    }

    /// Returns whether the object is a root, is below or above a root in the tree of owners, or serves pods below a
    /// root.
    fn is_related(&self, uid: &str) -> bool {
        self.is_below_root(uid, MAX_DEPTH) || self.is_above_root(uid) || self.serves_relatives(uid)
    }

    fn is_below_root(&self, uid: &str, depth: usize) -> bool {
        let Some(node) = self.nodes.get(uid).filter(|_| depth > 0) else { return false };
        self.is_root(node) || node.owners.iter().any(|owner| self.is_below_root(owner, depth - 1))
    }

    /// Returns whether the object or one of its owners is not known. References to unwatched resources stay unknown.
    fn has_unknown_owner(&self, uid: &str, depth: usize) -> bool {
        self.nodes
            .get(uid)
            .is_none_or(|node| depth > 0 && node.owners.iter().any(|owner| self.has_unknown_owner(owner, depth - 1)))
    }

    fn is_above_root(&self, uid: &str) -> bool {
        let mut roots = self.root_uids.iter().filter_map(|root| self.nodes.get(root));
        roots.any(|root| self.has_owner(root, uid, MAX_DEPTH))
    }

    fn has_owner(&self, node: &TreeNode, uid: &str, depth: usize) -> bool {
        let above = |owner: &String| self.nodes.get(owner).is_some_and(|owner| self.has_owner(owner, uid, depth - 1));
        depth > 0 && node.owners.iter().any(|owner| owner == uid || above(owner))
    }

    /// Returns whether the object is an `EndpointSlice` with a pod below a root, or the Service of such a slice.
    fn serves_relatives(&self, uid: &str) -> bool {
        let Some(node) = self.nodes.get(uid) else { return false };
        let is_slice_of_service =
            |slice: &TreeNode| slice.owners.iter().any(|owner| owner == uid) && self.lists_relatives(slice);
        self.lists_relatives(node) || (node.resource == "services" && self.nodes.values().any(is_slice_of_service))
    }

    /// Returns whether the object is an `EndpointSlice` with a pod below a root.
    fn lists_relatives(&self, node: &TreeNode) -> bool {
        node.targets.iter().any(|target| self.is_below_root(target, MAX_DEPTH))
    }

    /// Returns the `EndpointSlice`s with pods below a root, and the Services of these slices.
    fn services(&self) -> Vec<&TreeNode> {
        let mut services: Vec<&TreeNode> = self.nodes.values().filter(|node| self.lists_relatives(node)).collect();
        let owners: HashSet<&String> = services.iter().flat_map(|slice| &slice.owners).collect();
        let owners = owners.into_iter().filter_map(|owner| self.nodes.get(owner));
        services.extend(owners.filter(|owner| owner.resource == "services"));
        services
    }

    /// Returns the lines of `EndpointSlice`s and Services that became related and have no line yet.
    fn release_services(&mut self) -> Vec<String> {
        let mut released = self.services();
        released.retain(|node| !self.shown_services.contains(&node.uid));
        released.sort_by_key(|node| node.sort_key());
        let (uids, lines): (Vec<_>, Vec<_>) =
            released.into_iter().map(|node| (node.uid.clone(), node.line().trim_end().to_owned())).unzip();
        self.shown_services.extend(uids);
        lines
    }

    fn is_subject(&self, uid: &str) -> bool {
        self.is_related(uid) || self.deleted.iter().any(|deleted| deleted == uid)
    }

    /// Removes the undecided objects below a root, and returns their lines as in the tree. The line of `printed` follows
    /// anyway.
    fn release_undecided(&mut self, printed: &str) -> Vec<String> {
        self.undecided.remove(printed);
        let undecided = std::mem::take(&mut self.undecided);
        let (released, left): (HashSet<_>, HashSet<_>) =
            undecided.into_iter().partition(|uid| self.is_below_root(uid, MAX_DEPTH));
        self.undecided = left;
        let mut released: Vec<&TreeNode> = released.iter().filter_map(|uid| self.nodes.get(uid)).collect();
        released.sort_by_key(|node| node.sort_key());
        released.into_iter().map(|node| node.line().trim_end().to_owned()).collect()
    }

    /// Removes and returns the waiting lines of objects below a root, in order of arrival.
    fn release_waiting(&mut self) -> Vec<String> {
        let waiting = std::mem::take(&mut self.waiting);
        let (released, left): (VecDeque<_>, VecDeque<_>) =
            waiting.into_iter().partition(|(uid, _)| self.is_below_root(uid, MAX_DEPTH));
        self.waiting = left;
        released.into_iter().map(|(_, line)| line).collect()
    }

    /// Returns the lines of the tree: objects without a known owner first, each followed by its children.
    fn tree(&self) -> Vec<String> {
        let related: Vec<&TreeNode> = self.nodes.values().filter(|node| self.is_related(&node.uid)).collect();
        let known: HashSet<&str> = related.iter().map(|node| node.uid.as_str()).collect();
        let mut children: HashMap<&str, Vec<&TreeNode>> = HashMap::new();
        let mut tops = Vec::new();
        for node in &related {
            match node.owners.iter().find(|owner| known.contains(owner.as_str())) {
                Some(owner) => children.entry(owner).or_default().push(node),
                None => tops.push(*node),
            }
        }
        let mut lines = Vec::new();
        // The tree of the named objects comes before the services of their pods.
        tops.sort_by_key(|node| (!node.targets.is_empty() || node.resource == "services", node.sort_key()));
        for top in tops {
            add_subtree(&mut lines, &children, top, "", "");
        }
        for root in &self.roots {
            if !related.iter().any(|node| node.resource == root.resource && node.name == root.name) {
                lines.push(format!("? {} {}: does not exist; waiting for it", root.resource, escape(&root.name)));
            }
        }
        lines
    }
}

/// Adds the line of `node` with the branch `first`, and the lines of its children with the indentation `rest`.
fn add_subtree(
    lines: &mut Vec<String>,
    children: &HashMap<&str, Vec<&TreeNode>>,
    node: &TreeNode,
    first: &str,
    rest: &str,
) {
    let line = format!("{first}{}", node.line());
    lines.push(line.trim_end().to_owned());
    // The recursion ends, because it starts at objects without an owner: no object of a cycle is reached from there.
    let mut below = children.get(node.uid.as_str()).cloned().unwrap_or_default();
    below.sort_by_key(|child| child.sort_key());
    let last = below.len().saturating_sub(1);
    for (number, child) in below.into_iter().enumerate() {
        let (branch, indentation) = if number == last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        add_subtree(lines, children, child, &format!("{rest}{branch}"), &format!("{rest}{indentation}"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, owner: Option<&str>) -> Value {
        let owners: Vec<Value> = owner.iter().map(|owner| json!({"uid": format!("u-{owner}")})).collect();
        json!({"metadata": {"namespace": "shop", "name": name, "uid": format!("u-{name}"), "ownerReferences": owners}})
    }

    fn related() -> Related {
        Related::new(vec![Root { resource: "deployments.apps".to_owned(), name: "web".to_owned() }], 1)
    }

    /// Returns the lines of the tree, if it is printed now.
    fn tree(related: &Related) -> Vec<String> {
        let mut lines = Vec::new();
        related.synced(|line| lines.push(line));
        lines
    }

    fn add(related: &Related, resource: &str, object: &Value) -> Admission {
        related.record(resource, object, "state".to_owned(), false)
    }

    #[test]
    fn tree_shows_owners_children_and_services() {
        let related = related();
        // Children arrive before their owners.
        add(&related, "pods", &object("web-1-b", Some("web-1")));
        add(&related, "pods", &object("web-1-a", Some("web-1")));
        add(&related, "pods", &object("other", None));
        add(&related, "replicasets.apps", &object("web-1", Some("web")));
        add(&related, "deployments.apps", &object("web", None));
        add(&related, "services", &object("front", None));
        let mut slice = object("front-x", Some("front"));
        slice["endpoints"] = json!([{"targetRef": {"uid": "u-web-1-a"}}]);
        add(&related, "endpointslices.discovery.k8s.io", &slice);
        let tree = tree(&related);
        // Objects without a status are not ready; a slice without conditions is.
        let expected = [
            "✗ deployments.apps shop/web state",
            "└─ ✗ replicasets.apps shop/web-1 state",
            "   ├─ ✗ pods shop/web-1-a state",
            "   └─ ✗ pods shop/web-1-b state",
            "· services shop/front state",
            "└─ ✓ endpointslices.discovery.k8s.io shop/front-x state",
        ];
        assert_eq!(tree, expected);
        related.synced(|line| panic!("the tree is printed twice: {line}"));
    }

    #[test]
    fn named_child_shows_its_owners_without_siblings() {
        let roots = vec![Root { resource: "pods".to_owned(), name: "web-1-a".to_owned() }];
        let related = Related::new(roots, 1);
        add(&related, "deployments.apps", &object("web", None));
        add(&related, "replicasets.apps", &object("web-1", Some("web")));
        add(&related, "pods", &object("web-1-a", Some("web-1")));
        add(&related, "pods", &object("web-1-b", Some("web-1")));
        let tree = tree(&related);
        assert_eq!(tree.len(), 3, "{tree:?}");
        assert_eq!(tree[2], "   └─ ✗ pods shop/web-1-a state");
    }

    /// Adds an object with an unknown owner, and keeps its line.
    fn keep(related: &Related, resource: &str, object: &Value, line: &str) {
        let Admission::Unknown(uid) = add(related, resource, object) else { panic!("the owner is known") };
        assert_eq!(Some(uid.as_str()), object["metadata"]["uid"].as_str());
        assert_eq!(related.keep(uid, line.to_owned()), None);
    }

    #[test]
    fn line_waits_for_unknown_owner() {
        let related = related();
        add(&related, "deployments.apps", &object("web", None));
        tree(&related);
        keep(&related, "pods", &object("web-2-a", Some("web-2")), "pod line");
        assert_eq!(
            add(&related, "replicasets.apps", &object("other-1", Some("web-2"))),
            Admission::Unknown("u-other-1".to_owned())
        );
        let admission = add(&related, "replicasets.apps", &object("web-2", Some("web")));
        assert_eq!(admission, Admission::Related(vec!["pod line".to_owned()]));
        assert_eq!(add(&related, "pods", &object("web-2-a", Some("web-2"))), Admission::Related(Vec::new()));
        assert_eq!(add(&related, "pods", &object("stranger", None)), Admission::Unrelated);
    }

    #[test]
    fn late_owner_releases_objects_before_tree() {
        let related = related();
        add(&related, "deployments.apps", &object("web", None));
        add(&related, "pods", &object("web-2-b", Some("web-2")));
        add(&related, "pods", &object("web-2-a", Some("web-2")));
        add(&related, "pods", &object("stranger", Some("unwatched")));
        assert_eq!(tree(&related).len(), 1);
        // The line of an event replaces that of the state.
        keep(&related, "pods", &object("web-2-b", Some("web-2")), "pod line");
        let admission = add(&related, "replicasets.apps", &object("web-2", Some("web")));
        let expected = ["✗ pods shop/web-2-a state", "pod line"].map(str::to_owned).to_vec();
        assert_eq!(admission, Admission::Related(expected));
        let admission = add(&related, "replicasets.apps", &object("web-2", Some("web")));
        assert_eq!(admission, Admission::Related(Vec::new()), "each object is shown once");
    }

    #[test]
    fn slice_before_its_pod_is_released() {
        let related = related();
        add(&related, "deployments.apps", &object("web", None));
        tree(&related);
        let slice = |name: &str, pods: &[&str]| {
            let targets: Vec<Value> =
                pods.iter().map(|pod| json!({"targetRef": {"uid": format!("u-{pod}")}})).collect();
            let mut slice = object(name, Some("front"));
            slice["endpoints"] = json!(targets);
            slice
        };
        let slices = "endpointslices.discovery.k8s.io";
        assert_eq!(add(&related, "services", &object("front", None)), Admission::Unrelated);
        assert_eq!(add(&related, slices, &slice("front-x", &["web-1"])), Admission::Unrelated);
        let admission = add(&related, "pods", &object("web-1", Some("web")));
        let expected = ["✓ endpointslices.discovery.k8s.io shop/front-x state", "· services shop/front state"];
        assert_eq!(admission, Admission::Related(expected.map(str::to_owned).to_vec()));
        // Each object is released once.
        assert_eq!(add(&related, "pods", &object("web-2", Some("web"))), Admission::Related(Vec::new()));
        assert_eq!(add(&related, slices, &slice("front-y", &["web-2"])), Admission::Related(Vec::new()));
    }

    #[test]
    fn service_is_released_by_its_slice() {
        let related = related();
        add(&related, "deployments.apps", &object("web", None));
        add(&related, "pods", &object("web-1", Some("web")));
        add(&related, "services", &object("front", None));
        let mut slice = object("front-x", Some("front"));
        add(&related, "endpointslices.discovery.k8s.io", &slice);
        assert_eq!(tree(&related).len(), 2);
        slice["endpoints"] = json!([{"targetRef": {"uid": "u-web-1"}}]);
        // The caller prints the line of the slice itself.
        let admission = add(&related, "endpointslices.discovery.k8s.io", &slice);
        assert_eq!(admission, Admission::Related(vec!["· services shop/front state".to_owned()]));
    }

    #[test]
    fn objects_in_history_are_not_repeated() {
        let related = related();
        related.expect_history();
        add(&related, "deployments.apps", &object("web", None));
        add(&related, "pods", &object("web-2-a", Some("web-2")));
        tree(&related);
        // The list of the history is newer than the events.
        let set = object("web-2", Some("web"));
        related.history_printed(&related.with_past([("replicasets.apps", &set)]));
        assert_eq!(add(&related, "replicasets.apps", &set), Admission::Related(Vec::new()));
    }

    #[test]
    fn line_waits_for_owner_of_known_owner() {
        let related = related();
        add(&related, "replicasets.apps", &object("web-1", Some("web")));
        tree(&related);
        keep(&related, "pods", &object("web-1-a", Some("web-1")), "pod line");
        let admission = add(&related, "deployments.apps", &object("web", None));
        // The tree had no line of the replica set.
        let expected = ["✗ replicasets.apps shop/web-1 state", "pod line"].map(str::to_owned).to_vec();
        assert_eq!(admission, Admission::Related(expected));
    }

    #[test]
    fn lines_are_released_in_arrival_order() {
        let related = related();
        tree(&related);
        keep(&related, "pods", &object("web-1-a", Some("web-1")), "pod line");
        keep(&related, "replicasets.apps", &object("web-1", Some("web")), "replica set line");
        let admission = add(&related, "deployments.apps", &object("web", None));
        assert_eq!(admission, Admission::Related(vec!["pod line".to_owned(), "replica set line".to_owned()]));
        // Each line is released once.
        let admission = add(&related, "deployments.apps", &object("web", None));
        assert_eq!(admission, Admission::Related(Vec::new()));
    }

    #[test]
    fn events_of_deleted_relatives_are_related() {
        let related = related();
        add(&related, "deployments.apps", &object("web", None));
        add(&related, "pods", &object("web-1-a", Some("web")));
        tree(&related);
        let event = |about: &str| json!({"involvedObject": {"uid": format!("u-{about}")}, "metadata": {"name": "e"}});
        assert_eq!(
            related.record("pods", &object("web-1-a", Some("web")), String::new(), true),
            Admission::Related(Vec::new())
        );
        assert_eq!(add(&related, "events", &event("web-1-a")), Admission::Related(Vec::new()));
        assert_eq!(add(&related, "events", &event("other")), Admission::Unrelated);
    }

    #[test]
    fn past_relatives_have_deleted_objects() {
        let related = related();
        add(&related, "deployments.apps", &object("web", None));
        let (set, pod) = (object("web-0", Some("web")), object("web-0-a", Some("web-0")));
        // The newest state of an object counts.
        let (adopted, orphaned) = (object("orphan", Some("web-0")), object("orphan", None));
        let past = [
            ("pods", &pod),
            ("replicasets.apps", &set),
            ("pods", &orphaned),
            ("pods", &adopted),
            ("pods", &object("stranger", None)),
        ];
        let past = related.with_past(past);
        let names = |resource: &str, objects: &[&Value]| {
            objects.iter().map(|object| past.contain(resource, object)).collect::<Vec<_>>()
        };
        assert_eq!(names("replicasets.apps", &[&set]), [true]);
        assert_eq!(names("pods", &[&pod, &adopted, &object("stranger", None)]), [true, false, false]);
        let event = |about: &str| json!({"involvedObject": {"uid": format!("u-{about}")}, "metadata": {"name": "e"}});
        assert_eq!(names("events", &[&event("web-0-a"), &event("stranger")]), [true, false]);
        assert!(!related.is_followed("u-web-0"), "the history changes no current relatives");
    }

    #[tokio::test]
    async fn history_precedes_following() {
        let related = related();
        related.expect_history();
        add(&related, "deployments.apps", &object("web", None));
        let mut printed = std::pin::pin!(related.until_printed());
        assert!(futures::poll!(&mut printed).is_pending());
        tree(&related);
        printed.await;
        assert!(!related.is_followed("u-web"));
        related.history_printed(&related.with_past([]));
        assert!(related.is_followed("u-web"));
    }

    #[test]
    fn missing_root_and_cycle_are_bounded() {
        let related = related();
        add(&related, "pods", &object("a", Some("b")));
        add(&related, "pods", &object("b", Some("a")));
        assert_eq!(tree(&related), ["? deployments.apps web: does not exist; waiting for it"]);
    }
}
