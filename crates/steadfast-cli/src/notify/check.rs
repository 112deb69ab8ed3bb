//! `check`: reports all mistakes of a configuration, offline or with queries to its sinks and clusters.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{join, join_all};
use serde_json::Value;
use steadfast::Connection;
use steadfast::unstable::catalog::ServedResource;
use steadfast_notify::problem::{Problem, Problems};
use steadfast_notify::rule::CompiledRule;
use steadfast_notify::sink::MessageSink;
use steadfast_notify::sink::stdout::JsonLines;
use steadfast_notify::{InspectionFindings, OpenedMirrors, Plan, Schemas, TypedResource, reach};
use tokio::time::timeout;

use super::connections::{ConnectedCluster, ConnectedClusters, connect_possible, sources};
use super::replicas;
use crate::console::{self, print};
use crate::failure::Failure;

/// Timeout of a request for the schemas of one API version.
const SCHEMA_TIMEOUT: Duration = Duration::from_secs(20);

/// Validates a configuration and reports its mistakes.
pub(super) async fn check(file: &Path, online: bool) -> Result<ExitCode, Failure> {
    // Collects all problems, so that a user can correct them in one pass.
    let (plan, mut problems) = Plan::examine_file(file).map_err(Failure::config)?;
    let InspectionFindings { problems: found, warnings } = plan.inspect();
    problems.extend(found);
    problems.extend(replicas::timing_problem(&plan));
    let (opened_mirrors, unopened) = OpenedMirrors::open_possible(&plan).await;
    problems.extend(unopened);
    let stdout: Arc<dyn MessageSink> = Arc::new(JsonLines::new(io::stdout(), |_| {}));
    if let Err(Problems(unopened)) = plan.open(&stdout).await {
        problems.extend(unopened);
    }
    let mut unreachable = Vec::new();
    if online {
        let (reached, clusters) = join(reach(&plan, &opened_mirrors), connect_possible(&plan)).await;
        if let Err(Problems(unreachable_targets)) = reached {
            problems.extend(unreachable_targets);
        }
        let (connected_clusters, failed) = clusters;
        for (cluster, failure) in failed {
            let problem = plan.problem_with_cluster(&cluster, failure.to_string());
            // An unreachable cluster is not a mistake in the configuration, and has another exit code.
            if failure.is_run() { unreachable.push(problem) } else { problems.push(problem) }
        }
        if let Err(Problems(missing)) = sources(&plan, &connected_clusters).await {
            problems.extend(missing);
        }
        problems.extend(unknown_fields(&plan, &connected_clusters).await);
    }
    for warning in warnings {
        console::report(format_args!("warning: {warning}"));
    }
    let has_config_problems = !problems.is_empty();
    problems.extend(unreachable);
    if !problems.is_empty() {
        let problems = sorted(problems);
        return Err(if has_config_problems { Failure::config(problems) } else { Failure::run(problems) });
    }
    let clusters_text = if online {
        ", its sinks can be reached, and its clusters serve the watched resources"
    } else {
        "; --online also queries its sinks and clusters"
    };
    let (rules, sinks) = (plan.rules.len(), plan.sinks.len());
    print(&format!("{}: no problems in its {rules} rules and {sinks} sinks{clusters_text}\n", file.display()))
}

/// Sorts problems by their position in the file, and removes duplicates, since two checks may report the same problem.
fn sorted(mut problems: Vec<Problem>) -> Problems {
    problems.sort_by(|one, other| (one.position, &one.description).cmp(&(other.position, &other.description)));
    problems.dedup_by(|one, other| (one.position, &one.description) == (other.position, &other.description));
    Problems(problems)
}

/// API version of a group in a cluster: cluster, group, version.
type ClusterApiVersion<'a> = (&'a str, String, String);

/// Returns the selected fields that the resources of a rule do not have.
async fn unknown_fields(plan: &Plan, connected_clusters: &ConnectedClusters) -> Vec<Problem> {
    let watched_resources: Vec<(&Arc<CompiledRule>, &str, Vec<ServedResource>)> = plan
        .rules
        .iter()
        .flat_map(|rule| plan.clusters_of(&rule.config).into_iter().map(move |cluster| (rule, cluster)))
        .filter_map(|(rule, cluster)| {
            let connected_cluster = connected_clusters.get(cluster)?;
            let resources = rule.config.resources.iter().map(|name| connected_cluster.catalog.find(name).ok());
            // Without the resource, its fields are unknown.
            Some((rule, cluster, resources.collect::<Option<Vec<_>>>()?))
        })
        .collect();
    // One request per API version, even if several rules watch its resources.
    let versions: BTreeSet<ClusterApiVersion<'_>> = watched_resources
        .iter()
        .flat_map(|(_, cluster, resources)| {
            resources
                .iter()
                .map(|resource| (*cluster, resource.api_resource.group.clone(), resource.api_resource.version.clone()))
        })
        .collect();
    let fetched = versions.into_iter().map(|version| async {
        let connected_cluster: &ConnectedCluster = connected_clusters.get(version.0)?;
        let schemas = schemas(&connected_cluster.connection, &version.1, &version.2).await;
        // This is only a warning, because old servers and some aggregated APIs serve no OpenAPI v3.
        if let Err(reason) = &schemas {
            let (cluster, group) = (version.0, if version.1.is_empty() { "the core group" } else { &version.1 });
            console::report(format_args!("warning: {cluster}: the fields of {group} are not checked: {reason}"));
        }
        Some((version, schemas.ok()?))
    });
    let schemas: BTreeMap<ClusterApiVersion<'_>, Schemas> = join_all(fetched).await.into_iter().flatten().collect();
    let mut problems = Vec::new();
    for (rule, cluster, resources) in &watched_resources {
        let names: Vec<String> = resources.iter().map(ToString::to_string).collect();
        let typed = resources.iter().zip(&names).map(|(ServedResource { api_resource, .. }, resource)| {
            let schemas = schemas.get(&(*cluster, api_resource.group.clone(), api_resource.version.clone()))?;
            Some(TypedResource {
                resource,
                group: &api_resource.group,
                version: &api_resource.version,
                kind: &api_resource.kind,
                schemas,
            })
        });
        // Fields are checked only if all schemas are available: a selected field may belong to the resource whose
        // schema is missing.
        if let Some(typed) = typed.collect::<Option<Vec<_>>>() {
            problems.extend(plan.unknown_fields(rule, &typed));
        }
    }
    problems
}

/// Fetches the schemas of one version of a group.
async fn schemas(connection: &Connection, group: &str, version: &str) -> Result<Schemas, String> {
    let path = if group.is_empty() {
        format!("/openapi/v3/api/{version}")
    } else {
        format!("/openapi/v3/apis/{group}/{version}")
    };
    let request = hyper::Request::get(&path).body(Vec::new()).map_err(|error| error.to_string())?;
    let client = connection.client();
    let document = timeout(SCHEMA_TIMEOUT, client.request::<Value>(request)).await;
    let document = document.map_err(|_| format!("{path} took longer than {} s", SCHEMA_TIMEOUT.as_secs()))?;
    let document = document.map_err(|error| format!("{path}: {error}"))?;
    Schemas::read(document).ok_or_else(|| format!("{path} has no schemas"))
}
