//! Connections for commands, and resolution of resource names.
//!
//! Short commands connect to all clusters first, and report each failure as an error. In the running program, each
//! cluster has its own task instead (`cluster`).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use steadfast::unstable::catalog::{Catalog, NotFound, ServedResource};
use steadfast::{Connection, InformerFactory, Scope};
use steadfast_notify::config::{ClusterConfig, RuleConfig};
use steadfast_notify::problem::{Problem, Problems};
use steadfast_notify::{ClusterInformers, LookupResource, Plan, RuleSource};
use tokio::time::timeout;

use crate::connect::connect;
use crate::discovery;
use crate::failure::Failure;
use crate::fleet::Fleet;
use crate::kubectl_flags::ConnectionArgs;

/// Time limit of a command for reaching a cluster.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Timeout of the selector check. If the check times out, the watch itself reports an invalid selector later.
const SELECTOR_TIMEOUT: Duration = Duration::from_secs(10);

/// A cluster with its connection and catalog.
pub(super) struct ConnectedCluster {
    pub(super) connection: Connection,
    pub(super) catalog: Catalog,
    pub(super) cluster_informers: ClusterInformers,
}

/// The connected clusters of a configuration, by name.
pub(super) type ConnectedClusters = BTreeMap<String, ConnectedCluster>;

/// Connects to the clusters of `plan` that rules watch, or to the embedded server instead, for a command.
///
/// # Errors
///
/// Returns an error if a cluster cannot be reached, or does not respond within [`CONNECT_TIMEOUT`].
pub(super) async fn connect_all(plan: &Plan, fleet: Option<&Fleet>) -> Result<ConnectedClusters, Failure> {
    let mut connected_clusters = ConnectedClusters::new();
    for (name, cluster) in &plan.clusters {
        if !is_watched(plan, name) {
            continue;
        }
        let connection = connection(plan, cluster, fleet).await;
        let connection =
            connection.map_err(|reason| Failure::config(plan.problem_with_cluster(name, reason.to_string())))?;
        let catalog = discovery::catalog(&connection, Some(CONNECT_TIMEOUT)).await?;
        let cluster_informers = cluster_informers(&connection, cluster);
        connected_clusters.insert(name.clone(), ConnectedCluster { connection, catalog, cluster_informers });
    }
    Ok(connected_clusters)
}

/// Connects concurrently to the clusters of `plan` that rules watch, each for at most [`CONNECT_TIMEOUT`]. Returns the
/// connected clusters, and the failures of the others.
pub(super) async fn connect_possible(plan: &Plan) -> (ConnectedClusters, Vec<(String, Failure)>) {
    let clusters = plan.clusters.iter().filter(|(name, _)| is_watched(plan, name));
    let attempts = clusters.map(|(name, cluster)| async {
        let attempt = async {
            let connection = connection(plan, cluster, None).await?;
            let catalog = discovery::catalog(&connection, Some(CONNECT_TIMEOUT)).await?;
            let cluster_informers = cluster_informers(&connection, cluster);
            Ok(ConnectedCluster { connection, catalog, cluster_informers })
        };
        (name.clone(), attempt.await)
    });
    let (mut connected_clusters, mut failed) = (ConnectedClusters::new(), Vec::new());
    for (name, attempt) in join_all(attempts).await {
        match attempt {
            Ok(connected_cluster) => _ = connected_clusters.insert(name, connected_cluster),
            Err(reason) => failed.push((name, reason)),
        }
    }
    (connected_clusters, failed)
}

/// Returns whether any rule watches the cluster of this name.
pub(super) fn is_watched(plan: &Plan, name: &str) -> bool {
    plan.rules.iter().any(|rule| plan.clusters_of(&rule.config).contains(&name))
}

/// Creates the connection for `cluster`, or one to the embedded server. Sends no request.
pub(super) async fn connection(
    plan: &Plan,
    cluster: &ClusterConfig,
    fleet: Option<&Fleet>,
) -> Result<Connection, Failure> {
    if let Some(fleet) = fleet {
        return fleet.connect().await;
    }
    let kubeconfig = cluster.kubeconfig.as_ref().map(|file: &PathBuf| plan.folder.join(file));
    let context = cluster.context.clone();
    connect(ConnectionArgs { kubeconfig, context, ..ConnectionArgs::default() }).await
}

/// Creates the factory and the settings for informers of `cluster`, without a checkpoint. No informer starts yet.
pub(super) fn cluster_informers(connection: &Connection, cluster: &ClusterConfig) -> ClusterInformers {
    // After a reload, the name of a cluster may belong to another connection, so the name does not identify the
    // connection.
    static NEXT_CONNECTION_ID: AtomicU64 = AtomicU64::new(0);
    ClusterInformers {
        connection_id: NEXT_CONNECTION_ID.fetch_add(1, Ordering::Relaxed),
        factory: InformerFactory::new(connection),
        checkpoint: None,
        watermark_folder: None,
        audit_interval: cluster.audit_interval(),
        memory_limit: cluster.memory_limit,
        clock: Timestamp::now,
    }
}

/// A source of a rule with its resource.
pub(super) struct ResolvedSource {
    pub(super) source: RuleSource,
    pub(super) served_resource: ServedResource,
    /// The name of the resource in the configuration.
    pub(super) name: String,
    /// Resources of the rule's lookups, by their names in the configuration.
    pub(super) lookup_resources: Vec<(String, ServedResource)>,
}

/// A resource of a rule that cannot be watched. The server does not serve it or rejects the rule's selectors, or the
/// rule has namespaces for a cluster-scoped resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MissingResource {
    pub(super) rule: String,
    pub(super) resource: String,
    pub(super) problem: Problem,
}

/// Resolves the sources of all rules of `plan` in `cluster` with `find`. Returns the sources and the missing resources.
pub(super) fn resolve(
    plan: &Plan,
    cluster: &str,
    find: impl Fn(&str) -> Result<ServedResource, NotFound>,
) -> (Vec<ResolvedSource>, Vec<MissingResource>) {
    let (mut resolved, mut missing) = (Vec::<ResolvedSource>::new(), Vec::new());
    let rules = plan.rules.iter().filter(|rule| plan.clusters_of(&rule.config).contains(&cluster));
    for rule in rules {
        let (lookup_resources, unknown): (Vec<_>, Vec<_>) =
            rule.lookups().into_iter().map(|name| (name.to_owned(), find(name))).partition(|(_, found)| found.is_ok());
        if !unknown.is_empty() {
            // A rule without one of its lookups cannot evaluate any object.
            missing.extend(unknown.into_iter().filter_map(|(name, found)| {
                let problem = plan.problem_with_lookup(rule, &name, format!("{cluster}: {}", found.err()?));
                Some(MissingResource { rule: rule.config.name.clone(), resource: name, problem })
            }));
            continue;
        }
        let lookup_resources: Vec<(String, ServedResource)> =
            lookup_resources.into_iter().filter_map(|(name, found)| Some((name, found.ok()?))).collect();
        for (number, name) in rule.config.resources.iter().enumerate() {
            let served_resource = find(name).map_err(|reason| format!("{cluster}: {reason}"));
            let served_resource = served_resource.and_then(|served_resource| {
                // Cluster-scoped resources have no namespaced endpoint: the watch would fail with 404.
                let is_impossible = !served_resource.namespaced && !rule.config.namespaces.is_empty();
                let description = || format!("{served_resource} are cluster-scoped, but the rule has `namespaces`");
                if is_impossible { Err(description()) } else { Ok(served_resource) }
            });
            let served_resource = match served_resource {
                Ok(served_resource) => served_resource,
                Err(description) => {
                    let problem = plan.problem_with_resource(rule, number, description);
                    missing.push(MissingResource { rule: rule.config.name.clone(), resource: name.clone(), problem });
                    continue;
                }
            };
            for scope in scopes(&rule.config) {
                let (rule, cluster) = (rule.config.name.clone(), cluster.to_owned());
                let lookups = lookup_resources.iter().map(|(name, served_resource)| LookupResource {
                    name: name.clone(),
                    resource: served_resource.api_resource.clone(),
                    is_namespaced: served_resource.namespaced,
                    // Lookups are limited to the namespace of the source: a lookup must not read more than its rule.
                    namespace: scope.in_namespace().filter(|_| served_resource.namespaced).map(str::to_owned),
                });
                let lookups = lookups.collect();
                let source =
                    RuleSource { rule, cluster, resource: served_resource.api_resource.clone(), scope, lookups };
                // Two names of one resource result in one source.
                if !resolved.iter().any(|resolved| resolved.source == source) {
                    let (served_resource, name, lookup_resources) =
                        (served_resource.clone(), name.clone(), lookup_resources.clone());
                    resolved.push(ResolvedSource { source, served_resource, name, lookup_resources });
                }
            }
        }
    }
    (resolved, missing)
}

/// Moves the sources whose selectors the server rejects from `resolved` to `missing`. The checks run concurrently.
pub(super) async fn reject_invalid_selectors(
    plan: &Plan,
    connection: &Connection,
    resolved: Vec<ResolvedSource>,
    missing: &mut Vec<MissingResource>,
) -> Vec<ResolvedSource> {
    let checks = resolved.iter().map(|resolved| {
        let check = discovery::check_selectors(connection, &resolved.served_resource, &resolved.source.scope);
        timeout(SELECTOR_TIMEOUT, check)
    });
    let checks = join_all(checks).await;
    let mut accepted = Vec::new();
    for (resolved, check) in resolved.into_iter().zip(checks) {
        let ResolvedSource { source, name, .. } = &resolved;
        match (check, plan.rule(&source.rule)) {
            (Ok(Err(reason)), Some(rule)) => {
                let problem = plan.problem_with_selectors(rule, format!("{}: {reason}", source.cluster));
                // All sources of a rule share its selectors, so the mistake is reported once.
                let is_already_missing = missing.iter().any(|missing| missing.problem == problem);
                if !is_already_missing {
                    missing.push(MissingResource { rule: source.rule.clone(), resource: name.clone(), problem });
                }
            }
            // The watch reports any other error.
            _ => accepted.push(resolved),
        }
    }
    accepted
}

/// Returns the sources of the rules, for a command.
///
/// # Errors
///
/// Returns an error if a server does not serve some resources, or rejects selectors.
pub(super) async fn sources(plan: &Plan, connected_clusters: &ConnectedClusters) -> Result<Vec<RuleSource>, Problems> {
    let (mut sources, mut problems) = (Vec::new(), Vec::<Problem>::new());
    for (cluster, connected_cluster) in connected_clusters {
        let (resolved, mut missing) = resolve(plan, cluster, |name| connected_cluster.catalog.find(name));
        let resolved = reject_invalid_selectors(plan, &connected_cluster.connection, resolved, &mut missing).await;
        sources.extend(resolved.into_iter().map(|resolved| resolved.source));
        problems.extend(missing.into_iter().map(|missing| missing.problem));
    }
    if !problems.is_empty() {
        problems.sort_by_key(|problem| problem.position);
        return Err(Problems(problems));
    }
    // Sources follow the order of the rules, because this order decides between entries with equal keys.
    let number = |source: &RuleSource| plan.rule(&source.rule).map(|rule| rule.number);
    sources.sort_by_key(number);
    Ok(sources)
}

/// Returns the scopes that a rule watches: one per namespace, with the rule's selectors.
fn scopes(rule: &RuleConfig) -> Vec<Scope> {
    let mut scope = Scope::all();
    if let Some(labels) = &rule.labels {
        scope = scope.labels(labels);
    }
    if let Some(fields) = &rule.fields {
        scope = scope.fields(fields);
    }
    if rule.namespaces.is_empty() { vec![scope] } else { scope.in_each(&rule.namespaces) }
}
