//! The clusters of a configuration, and what its names mean there.
//!
//! Commands that end soon connect to all clusters first, and report what is wrong with one as an error. The program itself
//! does not: there each cluster is a task of its own (`cluster`).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use steadfast::{Connection, InformerFactory, Scope};
use steadfast_notify::config::{Cluster, Rule};
use steadfast_notify::problem::{Problem, Problems};
use steadfast_notify::{LookedUp, Lookout, Plan, Source};
use tokio::time::timeout;

use crate::catalog::{Catalog, Found, NotFound};
use crate::connect::connect;
use crate::discovery;
use crate::failure::Failure;
use crate::fleet::Fleet;

/// How long a command waits for a cluster.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// How long a server may take to check a selector. Later its watch reports what is wrong with it.
const SELECTOR_TIMEOUT: Duration = Duration::from_secs(10);

/// A cluster that is connected to.
pub(super) struct Place {
    pub(super) connection: Connection,
    pub(super) catalog: Catalog,
    pub(super) lookout: Lookout,
}

/// All clusters of a configuration, by name.
pub(super) type Places = BTreeMap<String, Place>;

/// Connects to the clusters of `plan` that rules watch, or to the embedded one instead of each, for a command.
///
/// # Errors
///
/// If one of them cannot be connected to, or does not respond within [`PATIENCE`].
pub(super) async fn connected(plan: &Plan, fleet: Option<&Fleet>) -> Result<Places, Failure> {
    let mut places = Places::new();
    for (name, cluster) in &plan.clusters {
        if !is_watched(plan, name) {
            continue;
        }
        let connection = connection(plan, cluster, fleet).await;
        let connection = connection.map_err(|why| Failure::config(plan.problem_with_cluster(name, why.to_string())))?;
        let catalog = discovery::catalog(&connection, Some(PATIENCE)).await?;
        let lookout = lookout(&connection, cluster);
        places.insert(name.clone(), Place { connection, catalog, lookout });
    }
    Ok(places)
}

/// Connects to the clusters of `plan` that rules watch, each independently of the others, for [`PATIENCE`]. Returns those that it
/// reached, and why not the others.
pub(super) async fn attempted(plan: &Plan) -> (Places, Vec<(String, Failure)>) {
    let clusters = plan.clusters.iter().filter(|(name, _)| is_watched(plan, name));
    let attempts = clusters.map(|(name, cluster)| async {
        let attempt = async {
            let connection = connection(plan, cluster, None).await?;
            let catalog = discovery::catalog(&connection, Some(PATIENCE)).await?;
            let lookout = lookout(&connection, cluster);
            Ok(Place { connection, catalog, lookout })
        };
        (name.clone(), attempt.await)
    });
    let (mut places, mut failed) = (Places::new(), Vec::new());
    for (name, attempt) in join_all(attempts).await {
        match attempt {
            Ok(place) => _ = places.insert(name, place),
            Err(why) => failed.push((name, why)),
        }
    }
    (places, failed)
}

/// Returns whether any rule watches the cluster of this name.
pub(super) fn is_watched(plan: &Plan, name: &str) -> bool {
    plan.rules.iter().any(|rule| plan.clusters_of(&rule.config).contains(&name))
}

/// Makes the connection that `cluster` specifies, or one to the embedded server. No request is sent yet.
pub(super) async fn connection(plan: &Plan, cluster: &Cluster, fleet: Option<&Fleet>) -> Result<Connection, Failure> {
    if let Some(fleet) = fleet {
        return fleet.connect().await;
    }
    let kubeconfig = cluster.kubeconfig.as_ref().map(|file: &PathBuf| plan.folder.join(file));
    connect(kubeconfig, cluster.context.clone()).await
}

/// Returns the informers on `connection`; none of them runs yet, and none has a checkpoint.
pub(super) fn lookout(connection: &Connection, cluster: &Cluster) -> Lookout {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    Lookout {
        connection: NUMBER.fetch_add(1, Ordering::Relaxed),
        factory: InformerFactory::new(connection),
        checkpoint: None,
        rechecks: None,
        audit: cluster.audit_every(),
        memory_limit: cluster.memory_limit,
        clock: Timestamp::now,
    }
}

/// What a rule watches, and how the server describes its resource.
pub(super) struct Resolved {
    pub(super) source: Source,
    pub(super) found: Found,
    /// The name of the resource in the configuration.
    pub(super) name: String,
    /// What the rule looks up, by its names in the configuration.
    pub(super) looked_up: Vec<(String, Found)>,
}

/// What a rule names and the server does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Missing {
    pub(super) rule: String,
    pub(super) resource: String,
    pub(super) problem: Problem,
}

/// Returns what the rules of `plan` watch in `cluster`, where `find` knows what resource a name means, and what is missing.
pub(super) fn resolve(
    plan: &Plan,
    cluster: &str,
    find: impl Fn(&str) -> Result<Found, NotFound>,
) -> (Vec<Resolved>, Vec<Missing>) {
    let (mut resolved, mut missing) = (Vec::<Resolved>::new(), Vec::new());
    let rules = plan.rules.iter().filter(|rule| plan.clusters_of(&rule.config).contains(&cluster));
    for rule in rules {
        let (looked_up, unknown): (Vec<_>, Vec<_>) =
            rule.lookups().into_iter().map(|name| (name.to_owned(), find(name))).partition(|(_, found)| found.is_ok());
        if !unknown.is_empty() {
            // Without it no object can be evaluated.
            missing.extend(unknown.into_iter().filter_map(|(name, found)| {
                let problem = plan.problem_with_lookup(rule, &name, format!("{cluster}: {}", found.err()?));
                Some(Missing { rule: rule.config.name.clone(), resource: name, problem })
            }));
            continue;
        }
        let looked_up: Vec<(String, Found)> =
            looked_up.into_iter().filter_map(|(name, found)| Some((name, found.ok()?))).collect();
        for (number, name) in rule.config.resources.iter().enumerate() {
            let found = find(name).map_err(|why| format!("{cluster}: {why}"));
            let found = found.and_then(|found| {
                let is_nowhere = !found.namespaced && !rule.config.namespaces.is_empty();
                let what = || format!("{found} are in no namespace, and the rule is for some");
                if is_nowhere { Err(what()) } else { Ok(found) }
            });
            let found = match found {
                Ok(found) => found,
                Err(what) => {
                    let problem = plan.problem_with_resource(rule, number, what);
                    missing.push(Missing { rule: rule.config.name.clone(), resource: name.clone(), problem });
                    continue;
                }
            };
            for scope in scopes(&rule.config) {
                let (rule, cluster) = (rule.config.name.clone(), cluster.to_owned());
                let lookups = looked_up.iter().map(|(name, found)| LookedUp {
                    name: name.clone(),
                    resource: found.described.clone(),
                    is_namespaced: found.namespaced,
                    // No more than the rule itself may see.
                    namespace: scope.in_namespace().filter(|_| found.namespaced).map(str::to_owned),
                });
                let lookups = lookups.collect();
                let source = Source { rule, cluster, resource: found.described.clone(), scope, lookups };
                // One resource may have several names.
                if !resolved.iter().any(|resolved| resolved.source == source) {
                    let (found, name, looked_up) = (found.clone(), name.clone(), looked_up.clone());
                    resolved.push(Resolved { source, found, name, looked_up });
                }
            }
        }
    }
    (resolved, missing)
}

/// Moves those of `resolved` whose selectors the server rejects to what is missing. All are checked at once.
pub(super) async fn without_rejected(
    plan: &Plan,
    connection: &Connection,
    resolved: Vec<Resolved>,
    missing: &mut Vec<Missing>,
) -> Vec<Resolved> {
    let checks = resolved.iter().map(|resolved| {
        let check = discovery::check_selectors(connection, &resolved.found, &resolved.source.scope);
        timeout(SELECTOR_TIMEOUT, check)
    });
    let checks = join_all(checks).await;
    let mut accepted = Vec::new();
    for (resolved, check) in resolved.into_iter().zip(checks) {
        let Resolved { source, name, .. } = &resolved;
        match (check, plan.rule(&source.rule)) {
            (Ok(Err(why)), Some(rule)) => {
                let problem = plan.problem_with_selectors(rule, format!("{}: {why}", source.cluster));
                let is_known = missing.iter().any(|missing| missing.problem == problem);
                if !is_known {
                    missing.push(Missing { rule: source.rule.clone(), resource: name.clone(), problem });
                }
            }
            // The watch reports any other error.
            _ => accepted.push(resolved),
        }
    }
    accepted
}

/// Returns what the rules watch, for a command.
///
/// # Errors
///
/// All that the servers do not have.
pub(super) async fn sources(plan: &Plan, places: &Places) -> Result<Vec<Source>, Problems> {
    let (mut sources, mut problems) = (Vec::new(), Vec::<Problem>::new());
    for (cluster, place) in places {
        let (resolved, mut missing) = resolve(plan, cluster, |name| place.catalog.find(name));
        let resolved = without_rejected(plan, &place.connection, resolved, &mut missing).await;
        sources.extend(resolved.into_iter().map(|resolved| resolved.source));
        problems.extend(missing.into_iter().map(|missing| missing.problem));
    }
    if !problems.is_empty() {
        problems.sort_by_key(|problem| problem.place);
        return Err(Problems(problems));
    }
    // In the order of the rules, which decides between entries of one key.
    let number = |source: &Source| plan.rule(&source.rule).map(|rule| rule.number);
    sources.sort_by_key(number);
    Ok(sources)
}

/// The parts of a resource that a rule watches.
fn scopes(rule: &Rule) -> Vec<Scope> {
    let places = match rule.namespaces.as_slice() {
        [] => vec![Scope::all()],
        namespaces => namespaces.iter().map(Scope::namespace).collect(),
    };
    let selected = places.into_iter().map(|mut scope| {
        if let Some(labels) = &rule.labels {
            scope = scope.labels(labels);
        }
        if let Some(fields) = &rule.fields {
            scope = scope.fields(fields);
        }
        scope
    });
    selected.collect()
}
