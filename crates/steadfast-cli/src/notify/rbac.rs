//! `rbac`: manifests with the minimum permissions for a configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

use steadfast_notify::config::ReplicasConfig;
use steadfast_notify::{Plan, RuleSource};

use super::connections::{connect_all, sources};
use super::shared::shared_secret_name;
use crate::console::print;
use crate::failure::Failure;
use crate::fleet::Fleet;

/// Name of the service account, the roles and the bindings.
const ACCOUNT_NAME: &str = "steadfast-notify";

/// Resources of each role, by API group. The key is the namespace, or `None` for a cluster role.
type Roles = BTreeMap<Option<String>, BTreeMap<String, BTreeSet<String>>>;

/// Prints the permissions of a service account in `namespace`, for each watched cluster.
pub(super) async fn rbac(file: &Path, namespace: &str, embedded: bool) -> Result<ExitCode, Failure> {
    let plan = Plan::load(file).map_err(Failure::config)?;
    let fleet = if embedded { Some(Fleet::start(None).await?) } else { None };
    let connected_clusters = connect_all(&plan, fleet.as_ref()).await?;
    let sources = sources(&plan, &connected_clusters).await.map_err(Failure::config)?;
    let mut text = String::new();
    for cluster in connected_clusters.keys() {
        let cluster_sources = sources.iter().filter(|source| source.cluster == *cluster);
        let _ = writeln!(text, "# For the cluster {cluster}.");
        let mut roles = collect_roles(cluster_sources);
        if plan.has_checkpoint {
            // An empty cluster role still gets the rule for reading `kube-system`.
            roles.entry(None).or_default();
        }
        text.push_str(&manifests(&roles, namespace, plan.has_checkpoint));
        if plan.replicas_cluster() == Some(cluster)
            && let Some((lease_namespace, lease)) = plan.replicas.as_ref().and_then(ReplicasConfig::namespace_and_name)
        {
            text.push_str(&replicas_manifests(lease_namespace, lease, namespace));
        }
    }
    print(&text)
}

/// Returns the role of replicas in the namespace of their lease. RBAC cannot restrict `create` to a name.
fn replicas_manifests(lease_namespace: &str, lease: &str, account_namespace: &str) -> String {
    let (name, secret) = (format!("{ACCOUNT_NAME}-replicas"), shared_secret_name(lease));
    let metadata = format!("metadata:\n  name: {name}\n  namespace: {lease_namespace}\n");
    let mut text = format!("apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\n{metadata}rules:\n");
    // `resourceNames` restricts `get` and `update` to the lease and its Secret.
    for (group, resource, object) in [("coordination.k8s.io", "leases", lease), ("", "secrets", &secret)] {
        let _ = write!(
            text,
            "- apiGroups: [\"{group}\"]\n  resources: [{resource}]\n  verbs: [create]\n- apiGroups: [\"{group}\"]\n  \
             resources: [{resource}]\n  resourceNames: [{object}]\n  verbs: [get, update]\n"
        );
    }
    let _ = write!(
        text,
        "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\n{metadata}roleRef:\n  apiGroup: \
         rbac.authorization.k8s.io\n  kind: Role\n  name: {name}\nsubjects:\n- kind: ServiceAccount\n  name: {ACCOUNT_NAME}\n  \
         namespace: {account_namespace}\n---\n"
    );
    text
}

fn collect_roles<'a>(sources: impl Iterator<Item = &'a RuleSource>) -> Roles {
    let mut roles = Roles::new();
    for RuleSource { resource, scope, lookups, .. } in sources {
        let watched = [(resource, scope.in_namespace().map(str::to_owned))].into_iter();
        for (resource, namespace) in
            watched.chain(lookups.iter().map(|lookup| (&lookup.resource, lookup.namespace.clone())))
        {
            let role = roles.entry(namespace).or_default();
            role.entry(resource.group.clone()).or_default().insert(resource.plural.clone());
        }
    }
    // A cluster role covers each namespace, so its resources are removed from the namespaced roles.
    let cluster_wide = roles.get(&None).cloned().unwrap_or_default();
    for (_, role) in roles.iter_mut().filter(|(namespace, _)| namespace.is_some()) {
        for (group, resources) in role.iter_mut() {
            resources.retain(|resource| {
                !cluster_wide.get(group).is_some_and(|cluster_wide| cluster_wide.contains(resource))
            });
        }
        role.retain(|_, resources| !resources.is_empty());
    }
    roles.retain(|_, role| !role.is_empty());
    roles
}

/// Rule for reading the UID of `kube-system`, which identifies a cluster: a checkpoint is valid for one cluster only.
const CLUSTER_ID_RULE: &str =
    "- apiGroups: [\"\"]\n  resources: [namespaces]\n  resourceNames: [kube-system]\n  verbs: [get]\n";

fn manifests(roles: &Roles, account_namespace: &str, has_checkpoint: bool) -> String {
    let mut text = format!(
        "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: {ACCOUNT_NAME}\n  namespace: {account_namespace}\n---\n"
    );
    for (namespace, role) in roles {
        // A Role and its binding apply in their own namespace only, also for an account of another namespace.
        let kind = if namespace.is_some() { "Role" } else { "ClusterRole" };
        let namespace_line =
            namespace.as_ref().map(|namespace| format!("\n  namespace: {namespace}")).unwrap_or_default();
        let metadata = format!("metadata:\n  name: {ACCOUNT_NAME}{namespace_line}\n");
        let _ = write!(text, "apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\n{metadata}rules:\n");
        for (group, resources) in role {
            let resources = resources.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            // Informers only list and watch, so `get` is not granted.
            let _ = write!(text, "- apiGroups: [\"{group}\"]\n  resources: [{resources}]\n  verbs: [list, watch]\n");
        }
        if has_checkpoint && namespace.is_none() {
            text.push_str(CLUSTER_ID_RULE);
        }
        let _ = write!(
            text,
            "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}Binding\n{metadata}roleRef:\n  \
             apiGroup: rbac.authorization.k8s.io\n  kind: {kind}\n  name: {ACCOUNT_NAME}\nsubjects:\n- kind: ServiceAccount\n  \
             name: {ACCOUNT_NAME}\n  namespace: {account_namespace}\n---\n"
        );
    }
    text
}
