//! Creations, updates, patches and deletions.

mod deletions;
mod duplicates;
mod request;

use std::sync::Arc;

use serde_json::{Value, json};

use super::exchange::Exchange;
use super::list;
use super::options::ListOptions;
use super::rendering::Rendering;
use super::response::ApiResponse;
use crate::apply;
use crate::records::Verb;
use crate::selector::Selector;
use crate::status::Status;
use crate::storage::{Modification, Patch, WriteOutcome, WriteTarget};

pub(super) use request::WriteRequest;

/// Performs a write.
pub(super) async fn write(
    exchange: &Exchange,
    verb: Verb,
    write: &WriteRequest<'_>,
    rendering: &Rendering,
) -> Result<ApiResponse, Status> {
    let target = write.write_target(match verb {
        Verb::Create => Some("CreateOptions"),
        Verb::Update => Some("UpdateOptions"),
        Verb::Patch => Some("PatchOptions"),
        _ => None,
    })?;
    // Writes need etcd. While etcd is frozen, a write ends in a timeout.
    exchange.backend().confirm_newest_revision().await?;
    let warnings = target.request.warnings.clone();
    Ok(ApiResponse::with_warnings(perform_write(exchange, verb, write, target, rendering), &warnings))
}

fn perform_write(
    exchange: &Exchange,
    verb: Verb,
    write: &WriteRequest<'_>,
    target: WriteTarget,
    rendering: &Rendering,
) -> Result<ApiResponse, Status> {
    match verb {
        Verb::Create => {
            let object = write.object()?;
            // The object is cloned, because the write is retried if the stored object changed while the CEL rules were
            // evaluated.
            let created = exchange.write_with_rules(&target, |state| state.create(&target, object.clone()))?;
            Ok(object_response(201, rendering, &created))
        }
        Verb::Update => {
            let object = write.object()?;
            // Some kinds are created by an update of an absent object, which responds with 201.
            let (stored, created) =
                exchange.write_with_rules(&target, |state| state.update_or_create(&target, object.clone()))?;
            Ok(object_response(if created { 201 } else { 200 }, rendering, &stored))
        }
        Verb::Patch if write.is_apply() => {
            let applied = apply::parse(&write.body)?;
            let (stored, created) = exchange.write_with_rules(&target, |state| state.apply(&target, &applied))?;
            Ok(object_response(if created { 201 } else { 200 }, rendering, &stored))
        }
        Verb::Patch => {
            let update = Modification::Patch(Patch::parse(write.content_type, &write.body, target.resource.is_custom)?);
            let outcome = exchange.write_with_rules(&target, |state| state.update(&target, &update))?;
            Ok(object_response(200, rendering, outcome.object()))
        }
        _ => {
            let options = deletions::parse_options(write)?;
            let target = WriteTarget { is_dry_run: options.is_dry_run, ..target };
            options.warn(&target);
            let outcome = exchange.write(|state| state.delete(&target, &options.deletion))?;
            let mut response = deletion_response(&target, &outcome, rendering);
            // As on a real server, the code is 202 if the object still exists and the request sets `orphanDependents`
            // to false. Such a client waits for the deletion of the dependents.
            if matches!(outcome, WriteOutcome::Stored(_)) && options.deletes_dependents {
                response.code = 202;
            }
            Ok(response)
        }
    }
}

/// Deletes all selected objects of a collection.
pub(super) async fn delete_collection(
    exchange: &Exchange,
    write: &WriteRequest<'_>,
    options: &ListOptions,
    selector: &Selector,
    rendering: Rendering,
) -> Result<ApiResponse, Status> {
    let deletion_options = deletions::parse_options(write)?;
    let target = WriteTarget { is_dry_run: deletion_options.is_dry_run, ..write.write_target(None)? };
    deletion_options.warn(&target);
    let deleted = delete_selected(exchange, write, (&target, &deletion_options), options, selector, rendering).await;
    Ok(ApiResponse::with_warnings(deleted, &target.request.warnings))
}

async fn delete_selected(
    exchange: &Exchange,
    write: &WriteRequest<'_>,
    (target, deletion_options): (&WriteTarget, &deletions::DeletionOptions),
    options: &ListOptions,
    selector: &Selector,
    rendering: Rendering,
) -> Result<ApiResponse, Status> {
    exchange.backend().confirm_newest_revision().await?;
    // The response contains the objects before their deletion. The list has a limit: only with a limit, a version
    // without `resourceVersionMatch` means exactly this version.
    let limit = if options.limit > 0 { options.limit } else { usize::MAX };
    let options = ListOptions { limit, ..options.clone() };
    let page = list::find(exchange, write.target, &options, selector, &rendering).await?;
    exchange.write(|state| {
        // One write for the whole collection: no request reads a partly deleted collection.
        for found in &page.objects {
            let namespace = found.namespace.clone().unwrap_or_default();
            let target = WriteTarget { namespace, name: found.name.clone(), ..target.clone() };
            match state.delete(&target, &deletion_options.deletion) {
                // The deletion of one object can delete another one, such as the contents of a namespace.
                Err(status) if status.code != 404 => return Err(status),
                _ => {}
            }
        }
        Ok(())
    })?;
    Ok(list::respond(exchange, page, rendering, None))
}

/// Creates the response of a deletion: usually a `Status`; the object for a few kinds, and if the object still exists.
fn deletion_response(target: &WriteTarget, outcome: &WriteOutcome, rendering: &Rendering) -> ApiResponse {
    let resource = &target.resource.name;
    let returns_object = match resource.group() {
        "" => matches!(
            resource.resource(),
            "namespaces"
                | "nodes"
                | "persistentvolumeclaims"
                | "persistentvolumes"
                | "pods"
                | "podtemplates"
                | "resourcequotas"
                | "serviceaccounts"
                | "services"
        ),
        "storage.k8s.io" => true,
        _ => false,
    };
    if returns_object || matches!(outcome, WriteOutcome::Stored(_)) {
        return object_response(200, rendering, outcome.object());
    }
    let mut details = crate::status::object_details(resource, &target.name);
    details["uid"] = outcome.object().pointer("/metadata/uid").cloned().unwrap_or_default();
    let success =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details});
    // For custom resources, this status is always JSON.
    if target.resource.is_custom { ApiResponse::json(200, &success) } else { ApiResponse::object(200, &success) }
}

/// Creates the response with an object in the requested form and encoding.
fn object_response(code: u16, rendering: &Rendering, object: &Arc<Value>) -> ApiResponse {
    ApiResponse::bytes(code, rendering.encode(object)).with_content_type(rendering.encoding.content_type())
}
