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
use crate::rbac::{RbacRole, RbacRule, RbacSubject, scalar};

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

/// Returns the role of replicas in the namespace of their lease.
fn replicas_manifests(lease_namespace: &str, lease: &str, account_namespace: &str) -> String {
    let (name, secret) = (format!("{ACCOUNT_NAME}-replicas"), shared_secret_name(lease));
    let rules =
        [("coordination.k8s.io", "leases", lease), ("", "secrets", &secret)].map(|(group, resource, object)| {
            let rule = |object, verbs| RbacRule { group, resources: vec![resource], object, verbs };
            // `resourceNames` restricts `get` and `update` to the lease and its Secret. RBAC cannot restrict `create` to a
            // name.
            [rule(None, &["create"] as &[_]), rule(Some(object), &["get", "update"])]
        });
    let role = RbacRole { name: &name, namespace: Some(lease_namespace), rules: rules.into_iter().flatten().collect() };
    format!("{}---\n", role.manifests(account(account_namespace)))
}

/// Returns the service account.
fn account(namespace: &str) -> RbacSubject<'_> {
    RbacSubject::ServiceAccount { namespace, name: ACCOUNT_NAME }
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
fn cluster_id_rule() -> RbacRule<'static> {
    RbacRule { group: "", resources: vec!["namespaces"], object: Some("kube-system"), verbs: &["get"] }
}

fn manifests(roles: &Roles, account_namespace: &str, has_checkpoint: bool) -> String {
    let mut text = format!(
        "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: {ACCOUNT_NAME}\n  namespace: {}\n---\n",
        scalar(account_namespace)
    );
    for (namespace, role) in roles {
        let watch_rules = role.iter().map(|(group, resources)| {
            let resources = resources.iter().map(String::as_str).collect();
            // Informers only list and watch, so `get` is not granted.
            RbacRule { group, resources, object: None, verbs: &["list", "watch"] }
        });
        let identity = (has_checkpoint && namespace.is_none()).then(cluster_id_rule);
        let rbac_role = RbacRole {
            name: ACCOUNT_NAME,
            namespace: namespace.as_deref(),
            rules: watch_rules.chain(identity).collect(),
        };
        text.push_str(&rbac_role.manifests(account(account_namespace)));
        text.push_str("---\n");
    }
    text
}
