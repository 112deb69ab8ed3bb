//! The clusters of a configuration: connections, and what its names mean there.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use steadfast::{Checkpoint, Connection, InformerFactory, Scope};
use steadfast_notify::config::{Cluster, Rule};
use steadfast_notify::problem::{Problem, Problems};
use steadfast_notify::{Lookout, Plan, Source, State};

use crate::catalog::{Catalog, Found};
use crate::connect::connect;
use crate::discovery;
use crate::failure::Failure;
use crate::fleet::Fleet;

/// How long a cluster is waited for that somebody waits to hear of.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// A cluster that is connected to.
pub(super) struct Place {
    cluster: Cluster,
    pub(super) connection: Connection,
    pub(super) catalog: Catalog,
    pub(super) lookout: Lookout,
}

impl Place {
    /// The same connection and informers, for a configuration that may take this one's place.
    pub(super) fn again(&self) -> Self {
        Self {
            cluster: self.cluster.clone(),
            connection: self.connection.clone(),
            catalog: Catalog::default(),
            lookout: self.lookout.clone(),
        }
    }

    /// Whether `other` is the same connection.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.cluster == other.cluster
    }
}

/// All clusters of a configuration, by name.
pub(super) type Places = BTreeMap<String, Place>;

/// Connects to the clusters of `plan` that rules look at, or to the embedded one in the place of each; those of `before`
/// that are configured as they were are kept. One that cannot be reached is waited for, for ever or for `patience`.
pub(super) async fn connected(
    plan: &Plan,
    fleet: Option<&Fleet>,
    mut before: Places,
    patience: Option<Duration>,
) -> Result<Places, Failure> {
    let mut places = Places::new();
    for (name, cluster) in &plan.clusters {
        let is_needed = plan.rules.iter().any(|rule| plan.clusters_of(&rule.config).contains(&name.as_str()));
        if !is_needed {
            continue;
        }
        if let Some(place) = before.remove(name).filter(|place| place.cluster == *cluster) {
            // What the server has may have changed since.
            let catalog = discovery::catalog(&place.connection, patience).await?;
            places.insert(name.clone(), Place { catalog, ..place });
            continue;
        }
        let connection = if let Some(fleet) = fleet {
            fleet.connect().await?
        } else {
            let kubeconfig = cluster.kubeconfig.as_ref().map(|file: &PathBuf| plan.folder.join(file));
            let connected = connect(kubeconfig, cluster.context.clone()).await;
            connected.map_err(|why| Failure::config(plan.problem_with_cluster(name, why.to_string())))?
        };
        let catalog = discovery::catalog(&connection, patience).await?;
        let factory = InformerFactory::new(&connection);
        let lookout = Lookout { factory, checkpoint: None, audit: cluster.audit_every() };
        places.insert(name.clone(), Place { cluster: cluster.clone(), connection, catalog, lookout });
    }
    Ok(places)
}

/// Has the caches of all clusters kept in the folder of `state`, beyond this life of the program.
pub(super) fn keep(places: &mut Places, state: &State) -> Result<(), Failure> {
    for (name, place) in places.iter_mut().filter(|(_, place)| place.lookout.checkpoint.is_none()) {
        let file = state.checkpoint_of(name, &place.cluster);
        place.lookout.checkpoint = Some(Checkpoint::open(file).map_err(Failure::run)?);
    }
    Ok(())
}

/// What the rules look at; the error has all that the servers do not have.
pub(super) async fn sources(plan: &Plan, places: &Places) -> Result<Vec<Source>, Problems> {
    let (mut sources, mut problems) = (Vec::<Source>::new(), Vec::<Problem>::new());
    for rule in &plan.rules {
        for cluster in plan.clusters_of(&rule.config) {
            let Some(place) = places.get(cluster) else { continue };
            for (number, resource) in rule.config.resources.iter().enumerate() {
                let found = match place.catalog.find(resource) {
                    Ok(found) => found,
                    Err(why) => {
                        problems.push(plan.problem_with_resource(rule, number, format!("{cluster}: {why}")));
                        continue;
                    }
                };
                if !found.namespaced && !rule.config.namespaces.is_empty() {
                    let what = format!("{found} are in no namespace, and the rule is for some");
                    problems.push(plan.problem_with_resource(rule, number, what));
                    continue;
                }
                for scope in scopes(&rule.config) {
                    if let Err(why) = discovery::check_selectors(&place.connection, &found, &scope).await {
                        problems.push(plan.problem_with_selectors(rule, format!("{cluster}: {why}")));
                        break;
                    }
                    let Found { described, .. } = found.clone();
                    let (rule, cluster) = (rule.config.name.clone(), cluster.to_owned());
                    let source = Source { rule, cluster, resource: described, scope };
                    // One resource may go by several names.
                    if !sources.contains(&source) {
                        sources.push(source);
                    }
                }
            }
        }
    }
    if problems.is_empty() { Ok(sources) } else { Err(Problems(problems)) }
}

/// The parts of a resource that a rule looks at.
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
