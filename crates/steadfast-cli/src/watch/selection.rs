//! Selection of the watched objects from the command line: resources, namespaces and selectors.

use steadfast::unstable::catalog::{Catalog, NotFound, ServedResource};
use steadfast::{Connection, Scope};

use super::related::RELATED_RESOURCES;
use crate::cli::WatchArgs;
use crate::console;
use crate::failure::Failure;
use crate::names::ResourceArg;

/// Rejects selectors together with the name of an object, since a name is a field selector itself.
pub(super) fn reject_selectors_of_named_object(args: &WatchArgs) -> Result<(), Failure> {
    let named = args.resources.iter().find_map(|argument| Some((&argument.resource, argument.object.as_ref()?)));
    match named {
        Some((resource, object)) if args.labels.is_some() || args.fields.is_some() => Err(Failure::usage(format!(
            "{resource}/{object} names one object; leave out the selectors, or the name: {resource}"
        ))),
        _ => Ok(()),
    }
}

/// Rejects `--related` for resources without the name of an object.
pub(super) fn reject_unnamed_relatives(args: &WatchArgs) -> Result<(), Failure> {
    match args.resources.iter().find(|wanted| args.related && wanted.object.is_none()) {
        Some(ResourceArg { resource, .. }) => Err(Failure::usage(format!(
            "--related needs the name of an object; write it as in {resource}/web, or leave out --related"
        ))),
        None => Ok(()),
    }
}

/// Rejects `--logs` if no pods are watched.
pub(super) fn reject_logs_without_pods(found: &[(ResourceArg, ServedResource)]) -> Result<(), Failure> {
    if found.iter().any(|(_, resource)| resource.to_string() == "pods") {
        return Ok(());
    }
    Err(Failure::usage("--logs needs pods; add pods to the resources, or --related to a named object"))
}

/// Returns the resources of the named objects and of their possible relatives, each once and without a name.
pub(super) fn with_relatives(
    found: Vec<(ResourceArg, ServedResource)>,
    catalog: &Catalog,
) -> Vec<(ResourceArg, ServedResource)> {
    let mut all: Vec<(ResourceArg, ServedResource)> = Vec::new();
    let named = found.into_iter().map(|(wanted, resource)| (wanted.resource, resource));
    // A server may lack some of these resources.
    let relatives = RELATED_RESOURCES.iter().filter_map(|name| Some(((*name).to_owned(), catalog.find(name).ok()?)));
    for (name, resource) in named.chain(relatives) {
        if !all.iter().any(|(_, known)| *known == resource) {
            all.push((ResourceArg { resource: name, object: None }, resource));
        }
    }
    all
}

/// Requested resources, split by whether the server serves them.
#[derive(Default)]
pub(super) struct RequestedResources {
    pub(super) found: Vec<(ResourceArg, ServedResource)>,
    pub(super) missing: Vec<ResourceArg>,
}

/// Looks up the requested resources.
pub(super) fn requested_resources(args: &WatchArgs, catalog: &Catalog) -> Result<RequestedResources, Failure> {
    let RequestedResources { mut found, mut missing } = RequestedResources::default();
    for argument in &args.resources {
        match catalog.find(&argument.resource) {
            Ok(resource) => found.push((argument.clone(), resource)),
            Err(NotFound::Unknown(reason)) if args.wait_for_kind => {
                console::report(format_args!("waiting for {}: {reason}", argument.resource));
                missing.push(argument.clone());
            }
            Err(NotFound::Unknown(reason)) => {
                // `deploy web` is kubectl's syntax for one object, so a probable name gets a hint.
                let previous =
                    found.last().filter(|(previous, _)| previous.object.is_none() && argument.object.is_none());
                let hint = previous.map_or(String::new(), |(previous, _)| {
                    format!("; to name an object, use a slash: {}/{}", previous.resource, argument.resource)
                });
                return Err(Failure::usage(format!(
                    "{reason}{hint}; with --wait-for-kind, the program waits for the resource"
                )));
            }
            Err(reason @ NotFound::Unwatchable(_)) => return Err(Failure::usage(reason)),
        }
    }
    Ok(RequestedResources { found, missing })
}

/// Returns the scopes to watch in `resource`, one for each namespace: all objects, the selected ones, or one `object`.
pub(super) fn scopes(
    args: &WatchArgs,
    resource: &ServedResource,
    object: Option<&str>,
    connection: &Connection,
) -> Vec<Scope> {
    // The simulated workloads of `--embedded` span several namespaces, so the default there is all of them.
    let everywhere = args.all_namespaces || (args.embedded && args.namespaces.is_empty());
    let scopes = if !resource.namespaced || everywhere {
        vec![Scope::all()]
    } else if args.namespaces.is_empty() {
        vec![Scope::namespace(connection.default_namespace())]
    } else {
        let mut namespaces: Vec<&String> = Vec::new();
        for namespace in &args.namespaces {
            if !namespaces.contains(&namespace) {
                namespaces.push(namespace);
            }
        }
        namespaces.into_iter().map(Scope::namespace).collect()
    };
    scopes.into_iter().map(|scope| apply_selectors(scope, args, object)).collect()
}

/// Returns the selected objects of `scope`, or one `object`.
fn apply_selectors(mut scope: Scope, args: &WatchArgs, object: Option<&str>) -> Scope {
    if let Some(labels) = &args.labels {
        scope = scope.labels(labels);
    }
    match (object, &args.fields) {
        (Some(object), _) => scope.fields(format!("metadata.name={object}")),
        (None, Some(fields)) => scope.fields(fields),
        (None, None) => scope,
    }
}
