//! API discovery: lists the resources of a server, and waits for servers and kinds that are not available yet.

use std::time::Duration;

use kube::Error;
use kube::api::{Api, ListParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta};
use serde_json::Value;
use steadfast::unstable::catalog::{Catalog, NotFound, ServedResource, fetch_catalog};
use steadfast::{Connection, Scope};
use tokio::time::{Instant, sleep};

use crate::built_in_groups::is_built_in_group;
use crate::changes::columns::Column;
use crate::connect::{RequestFailure, classify};
use crate::console;
use crate::failure::Failure;
use crate::names::ResourceArg;

const RETRY_INITIAL_DELAY: Duration = Duration::from_millis(250);
const RETRY_MAX_DELAY: Duration = Duration::from_secs(4);

/// Common resources: group, version, kind, plural name, and whether they have namespaces.
const DEFAULT_RESOURCES: [(&str, &str, &str, &str, bool); 8] = [
    ("", "v1", "Pod", "pods", true),
    ("", "v1", "Service", "services", true),
    ("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", true),
    ("apps", "v1", "Deployment", "deployments", true),
    ("", "v1", "ConfigMap", "configmaps", true),
    ("", "v1", "Event", "events", true),
    ("", "v1", "Node", "nodes", false),
    ("", "v1", "Namespace", "namespaces", false),
];

/// Returns the resources of the server. Waits for an unreachable server, at most for `limit` if it is given.
pub(crate) async fn catalog(connection: &Connection, limit: Option<Duration>) -> Result<Catalog, Failure> {
    let (client, server) = (connection.client(), connection.server());
    let started = Instant::now();
    let (mut reported, mut pause) = (None, RETRY_INITIAL_DELAY);
    loop {
        let reason = match fetch_catalog(&client).await {
            Ok(catalog) => return Ok(catalog),
            Err(error) => match classify(server, &error) {
                RequestFailure::Permanent(failure) => return Err(failure),
                RequestFailure::Transient(reason) => reason,
            },
        };
        // The pause counts toward the limit: an attempt after the deadline would be pointless.
        if let Some(limit) = limit.filter(|limit| started.elapsed() + pause > *limit) {
            let waited = limit.as_secs();
            return Err(Failure::run(format!("{server} could not be reached within {waited} s: {reason}")));
        }
        // Reports each cause once, and again only after a different cause.
        if reported.as_ref() != Some(&reason) {
            console::report(format_args!("waiting for {server}: {reason}"));
            reported = Some(reason);
        }
        sleep(pause).await;
        pause = (pause * 2).min(RETRY_MAX_DELAY);
    }
}

/// Returns the resources that `names` name, each once.
///
/// # Errors
///
/// Returns an error if the server does not serve a resource.
pub(crate) fn find_all(catalog: &Catalog, names: &[String]) -> Result<Vec<ServedResource>, Failure> {
    let mut found = Vec::new();
    for name in names {
        let resource = catalog.find(name).map_err(Failure::usage)?;
        if !found.contains(&resource) {
            found.push(resource);
        }
    }
    Ok(found)
}

/// Returns the common resources, which need no discovery. With a namespace, cluster-scoped resources are left out.
pub(crate) fn default_resources(namespace: Option<&str>) -> Vec<ServedResource> {
    let all = DEFAULT_RESOURCES.into_iter().map(|(group, version, kind, plural, namespaced)| {
        let kind = GroupVersionKind::gvk(group, version, kind);
        ServedResource { api_resource: ApiResource::from_gvk_with_plural(&kind, plural), namespaced }
    });
    all.filter(|resource| resource.namespaced || namespace.is_none()).collect()
}

/// Returns the resource of Events in the core group.
pub(crate) fn event_resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Event"), "events")
}

/// Returns the objects of a resource in a namespace, or all of them.
pub(crate) fn objects(connection: &Connection, resource: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => Api::namespaced_with(connection.client(), namespace, resource),
        None => Api::all_with(connection.client(), resource),
    }
}

/// Waits until the server serves all of `missing`, and calls `found` once for each resource when it appears.
///
/// # Errors
///
/// Returns an error if `limit` expires first, or if a resource cannot be watched.
pub(crate) async fn await_kinds(
    connection: &Connection,
    mut missing: Vec<ResourceArg>,
    limit: Option<Duration>,
    mut found: impl AsyncFnMut(ResourceArg, ServedResource) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let started = Instant::now();
    let mut pause = RETRY_INITIAL_DELAY;
    while !missing.is_empty() {
        let left = limit.map(|limit| limit.saturating_sub(started.elapsed()));
        if left.is_some_and(|left| left < pause) {
            let names: Vec<&str> = missing.iter().map(|wanted| wanted.resource.as_str()).collect();
            let (names, server) = (names.join(", "), connection.server());
            let waited = limit.unwrap_or_default().as_secs();
            return Err(Failure::run(format!("{server} had no resource {names} within {waited} s")));
        }
        sleep(pause).await;
        pause = (pause * 2).min(RETRY_MAX_DELAY);
        // The server may become unreachable during the wait. The remaining time bounds both waits together.
        let catalog = catalog(connection, left).await?;
        for wanted in std::mem::take(&mut missing) {
            match catalog.find(&wanted.resource) {
                Ok(resource) => found(wanted, resource).await?,
                // An API group that is temporarily unavailable also ends up here, so only the deadline ends the wait.
                Err(NotFound::Unknown(_)) => missing.push(wanted),
                Err(reason @ NotFound::Unwatchable(_)) => return Err(Failure::usage(reason)),
            }
        }
    }
    Ok(())
}

/// Returns the printer columns of a custom resource. Returns no columns if the definition cannot be read; lines then
/// show paths instead.
pub(crate) async fn printer_columns(connection: &Connection, resource: &ServedResource) -> Vec<Column> {
    let definition = definition(connection, resource).await;
    definition.map_or_else(Vec::new, |definition| Column::of(&definition, &resource.api_resource.version))
}

/// Returns the definition of a custom resource; `None` for other resources, and if the definition cannot be read.
pub(crate) async fn definition(connection: &Connection, resource: &ServedResource) -> Option<Value> {
    // Built-in groups cost no request.
    if is_built_in_group(&resource.api_resource.group) {
        return None;
    }
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let definitions = ApiResource::from_gvk_with_plural(&kind, "customresourcedefinitions");
    let api: Api<DynamicObject> = Api::all_with(connection.client(), &definitions);
    api.get(&resource.to_string()).await.ok().map(|definition| definition.data)
}

/// Lets the server validate the selectors of `scope`, so that an invalid selector is an error and not a rejected watch.
///
/// All other errors are ignored here: the watch reports them.
pub(crate) async fn check_selectors(
    connection: &Connection,
    resource: &ServedResource,
    scope: &Scope,
) -> Result<(), Failure> {
    if scope.label_selector().is_none() && scope.field_selector().is_none() {
        return Ok(());
    }
    let parameters = ListParams {
        label_selector: scope.label_selector().map(str::to_owned),
        field_selector: scope.field_selector().map(str::to_owned),
        // The server validates selectors even if no object matches, so the smallest list is enough.
        limit: Some(1),
        ..ListParams::default()
    };
    let api = objects(connection, &resource.api_resource, scope.in_namespace());
    // Metadata only: the one object may be large.
    match api.list_metadata(&parameters).await.map(|_: kube::core::ObjectList<PartialObjectMeta<DynamicObject>>| ()) {
        // API servers reject a malformed selector, or a field without an index, with 400 (Bad Request).
        Err(Error::Api(status)) if status.code == 400 => {
            Err(Failure::usage(format!("{resource} in {scope}: {}; correct the selector", status.message)))
        }
        _ => Ok(()),
    }
}
