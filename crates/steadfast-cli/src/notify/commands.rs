//! The commands `explain`, `schema` and `redrive`.

use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use kube::api::ListParams;
use serde_json::Value;
use steadfast::unstable::catalog::ServedResource;
use steadfast_notify::change::EventSubject;
use steadfast_notify::dead_letter::DeadLetters;
use steadfast_notify::engine_event::{EngineEvent, EventCallback, escaped};
use steadfast_notify::explain::{NotCovered, explain as explain_rule};
use steadfast_notify::rule::CompiledRule;
use steadfast_notify::sink::MessageSink;
use steadfast_notify::sink::stdout::JsonLines;
use steadfast_notify::{LookupSnapshot, Plan, RuleSource, config, lookup_snapshot};

use super::connections::{CONNECT_TIMEOUT, ConnectedCluster, connect_all, resolve};
use crate::connect::{RequestFailure, classify};
use crate::console::{self, print};
use crate::discovery::objects;
use crate::failure::Failure;
use crate::fleet::Fleet;
use crate::names::ResourceArg;

fn stdout() -> Arc<dyn MessageSink> {
    Arc::new(JsonLines::new(io::stdout(), |_| {}))
}

/// Prints the JSON schema of configurations.
pub(super) fn schema() -> Result<ExitCode, Failure> {
    let schema = serde_json::to_string_pretty(&config::schema()).map_err(Failure::run)?;
    print(&(schema + "\n"))
}

/// Delivers dead letters again.
pub(super) async fn redrive(file: &Path, sink: Option<&str>) -> Result<ExitCode, Failure> {
    let plan = Plan::load(file).map_err(Failure::config)?;
    if let Some(sink) = sink.filter(|sink| !plan.sinks.contains_key(*sink)) {
        let names: Vec<&str> = plan.sinks.keys().map(String::as_str).collect();
        return Err(Failure::usage(format!("unknown sink {sink:?}; configured sinks: {}", names.join(", "))));
    }
    // The unreadable secret of one sink must not prevent the delivery to the others.
    let plan = Arc::new(plan);
    let report_event: Arc<EventCallback> = Arc::new(|event: EngineEvent| console::report(event));
    let streams = plan.open_or_retry(&stdout(), &report_event).await;
    let dead_letters = DeadLetters::new(plan.dead_letters.clone(), plan.max_dead_letters);
    let report = steadfast_notify::redrive(&dead_letters, &streams, sink).await;
    let report = report.map_err(|error| Failure::run(format!("{}: {error}", plan.dead_letters.display())))?;
    for (id, reason) in &report.failed {
        console::report(format_args!("{}: {}", escaped(id), escaped(reason)));
    }
    let (delivered, failed, skipped) = (report.delivered.len(), report.failed.len(), report.skipped);
    let malformed = if report.malformed_lines > 0 {
        format!(", {} malformed lines removed", report.malformed_lines)
    } else {
        String::new()
    };
    console::report(format_args!(
        "{delivered} delivered, {failed} still dead letters, {skipped} for other sinks{malformed}"
    ));
    if failed > 0 {
        let file = plan.dead_letters.display();
        return Err(Failure::run(format!("{failed} messages could not be delivered; they are in {file}")));
    }
    Ok(ExitCode::SUCCESS)
}

/// Object of the explanation.
pub(super) struct ExplainTarget {
    pub(super) object: ResourceArg,
    pub(super) namespace: Option<String>,
    pub(super) cluster: Option<String>,
    pub(super) embedded: bool,
}

/// Prints which rules fire for an object, and why the others do not.
pub(super) async fn explain(file: &Path, target: ExplainTarget) -> Result<ExitCode, Failure> {
    let plan = Plan::load(file).map_err(Failure::config)?;
    let fleet = if target.embedded { Some(Fleet::start(None).await?) } else { None };
    let connected_clusters = connect_all(&plan, fleet.as_ref()).await?;
    let names: Vec<&str> = connected_clusters.keys().map(String::as_str).collect();
    let selected = match (&target.cluster, &names[..]) {
        (Some(name), _) => connected_clusters.get_key_value(name),
        (None, [only]) => connected_clusters.get_key_value(*only),
        (None, _) => None,
    };
    let Some((cluster, connected_cluster)) = selected else {
        return Err(Failure::usage(format!(
            "several clusters are configured; choose one with --cluster: {}",
            names.join(", ")
        )));
    };
    let served_resource = connected_cluster.catalog.find(&target.object.resource).map_err(Failure::usage)?;
    let Some(name) = target.object.object.as_deref() else {
        let resource = &target.object.resource;
        return Err(Failure::usage(format!("the name of an object is missing; write {resource}/NAME")));
    };
    let namespace = match (&target.namespace, served_resource.namespaced) {
        (_, false) => String::new(),
        (Some(namespace), true) => namespace.clone(),
        (None, true) => connected_cluster.connection.default_namespace().to_owned(),
    };
    let object = get_object(connected_cluster, &served_resource, &namespace, name, None).await?.ok_or_else(|| {
        let location = if namespace.is_empty() { String::new() } else { format!(" in the namespace {namespace}") };
        Failure::usage(format!(
            "{cluster} has no {served_resource}/{name}{location}; name another, or its namespace with -n"
        ))
    })?;
    let subject = EventSubject {
        cluster: cluster.clone(),
        resource: served_resource.to_string(),
        namespace,
        name: name.to_owned(),
        uid: object["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
    };
    let mut text = String::new();
    for rule in &plan.rules {
        let not_covered = not_covered(&plan, rule, connected_cluster, &served_resource, &subject).await?;
        let object_or_reason = not_covered.map_or(Ok(&object), Err);
        let lookups = lookups(&plan, rule, connected_cluster, &subject).await?;
        text.push_str(&explain_rule(rule, &subject, object_or_reason, lookups.as_ref()));
    }
    print(&text)
}

/// Returns the lookups of the rule for the object.
async fn lookups(
    plan: &Plan,
    rule: &CompiledRule,
    connected_cluster: &ConnectedCluster,
    subject: &EventSubject,
) -> Result<Option<Arc<LookupSnapshot>>, Failure> {
    let (resolved, _) = resolve(plan, &subject.cluster, |name| connected_cluster.catalog.find(name));
    // A rule for several namespaces has one source per namespace, and each source looks up objects of its own
    // namespace.
    let is_of_object = |source: &RuleSource| {
        let namespace = source.scope.in_namespace();
        source.rule == rule.config.name && namespace.is_none_or(|namespace| namespace == subject.namespace)
    };
    let source = resolved.into_iter().map(|resolved| resolved.source).find(is_of_object);
    let Some(source) = source else { return Ok(None) };
    lookup_snapshot(&connected_cluster.cluster_informers, &subject.cluster, &source.lookups, CONNECT_TIMEOUT)
        .await
        .map_err(Failure::run)
}

/// Returns the reason why `rule` does not watch the object; `None` if the rule watches the object.
async fn not_covered(
    plan: &Plan,
    rule: &CompiledRule,
    connected_cluster: &ConnectedCluster,
    served_resource: &ServedResource,
    subject: &EventSubject,
) -> Result<Option<NotCovered>, Failure> {
    if !plan.clusters_of(&rule.config).contains(&subject.cluster.as_str()) {
        return Ok(Some(NotCovered::Cluster));
    }
    let is_resource =
        |name: &String| connected_cluster.catalog.find(name).is_ok_and(|resource| resource == *served_resource);
    if !rule.config.resources.iter().any(is_resource) {
        return Ok(Some(NotCovered::Resource));
    }
    if !rule.config.namespaces.is_empty() && !rule.config.namespaces.contains(&subject.namespace) {
        return Ok(Some(NotCovered::Namespace));
    }
    // Selectors are checked last, since only they need a request.
    if rule.config.labels.is_none() && rule.config.fields.is_none() {
        return Ok(None);
    }
    let matching =
        get_object(connected_cluster, served_resource, &subject.namespace, &subject.name, Some(rule)).await?;
    Ok(matching.is_none().then_some(NotCovered::Selectors))
}

/// Returns the object from the server; with a rule, only if the object matches the rule's selectors.
async fn get_object(
    connected_cluster: &ConnectedCluster,
    served_resource: &ServedResource,
    namespace: &str,
    name: &str,
    rule: Option<&CompiledRule>,
) -> Result<Option<Value>, Failure> {
    let namespace = served_resource.namespaced.then_some(namespace);
    let api = objects(&connected_cluster.connection, &served_resource.api_resource, namespace);
    // A list instead of a GET: the server applies the selectors exactly as for the watch of the rule.
    let mut fields = format!("metadata.name={name}");
    if let Some(more) = rule.and_then(|rule| rule.config.fields.as_ref()) {
        fields = format!("{fields},{more}");
    }
    let labels = rule.and_then(|rule| rule.config.labels.clone());
    let parameters = ListParams { label_selector: labels, field_selector: Some(fields), ..ListParams::default() };
    let list =
        api.list(&parameters).await.map_err(|error| match classify(connected_cluster.connection.server(), &error) {
            RequestFailure::Transient(reason) => Failure::run(reason),
            RequestFailure::Permanent(failure) => failure,
        })?;
    let Some(object) = list.items.into_iter().next() else { return Ok(None) };
    let mut object = serde_json::to_value(object).map_err(Failure::run)?;
    // Items of lists have no type, unlike single objects.
    object["apiVersion"] = served_resource.api_resource.api_version.clone().into();
    object["kind"] = served_resource.api_resource.kind.clone().into();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    Ok(Some(object))
}
