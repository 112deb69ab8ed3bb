//! The `scale` subresource.

use std::sync::Arc;

use serde_json::{Value, json};

use super::exchange::Exchange;
use super::negotiate::Form;
use super::rendering::RenderedState;
use super::rendering::Rendering;
use super::response::ApiResponse;
use super::write::WriteRequest;
use crate::metadata;
use crate::records::Verb;
use crate::resources::GroupResource;
use crate::status::Status;
use crate::storage::{Modification, ObjectKey, Patch, WriteTarget, scale_of};

/// Reads or changes the number of replicas of an object.
pub(super) async fn respond(
    exchange: &Exchange,
    verb: Verb,
    write: &WriteRequest<'_>,
    rendering: &Rendering,
) -> Result<ApiResponse, Status> {
    // Reads and writes of `scale` use the stored object, so a frozen store blocks both.
    exchange.backend().confirm_newest_revision().await?;
    let target = write.write_target(Some(if verb == Verb::Patch { "PatchOptions" } else { "UpdateOptions" }))?;
    let result = read_or_write(exchange, verb, write, &target, rendering).await;
    Ok(ApiResponse::with_warnings(result, &target.request.warnings))
}

async fn read_or_write(
    exchange: &Exchange,
    verb: Verb,
    write: &WriteRequest<'_>,
    target: &WriteTarget,
    rendering: &Rendering,
) -> Result<ApiResponse, Status> {
    let scale: Value = match verb {
        Verb::Get => {
            let key = ObjectKey::new(&target.namespace, &target.name);
            let backend = exchange.backend();
            let found = backend.object(&target.resource, &key, backend.newest_revision()).await?;
            let change = found.ok_or_else(|| Status::not_found(&target.resource.name, &target.name))?;
            scale_of(&target.resource, target.version(), &rendering.object_of(&change, RenderedState::Current))?
        }
        Verb::Update => {
            let update = Modification::Replace(write.object()?);
            exchange.write_with_rules(target, |state| state.rescale(target, &update))?
        }
        Verb::Patch => {
            let update = Modification::Patch(Patch::parse(write.content_type, &write.body, target.resource.is_custom)?);
            exchange.write_with_rules(target, |state| state.rescale(target, &update))?
        }
        _ if target.resource.is_custom => {
            let name = &target.resource.name;
            let detail = format!("delete is not supported on resources of kind \"{name}\"");
            return Err(Status::new(405, "MethodNotAllowed", detail).with_object(name, ""));
        }
        _ => return Err(Status::method_not_allowed()),
    };
    if rendering.form == Form::Table {
        let version = json!({"resourceVersion": metadata::text(&scale, "resourceVersion")});
        return Ok(ApiResponse::json(200, &scale_rendering(rendering).table(&version, &[scale])));
    }
    Ok(ApiResponse::object(200, &scale))
}

/// Converts the rendering of an object to the rendering of its scale.
fn scale_rendering(rendering: &Rendering) -> Rendering {
    let mut scales = rendering.clone();
    let resource = Arc::make_mut(&mut scales.resource);
    resource.name = GroupResource::new("autoscaling", "scales");
    "Scale".clone_into(&mut resource.kind);
    // A scale is a built-in kind, even for a custom resource.
    (resource.is_custom, resource.definition) = (false, None);
    "autoscaling/v1".clone_into(&mut scales.api_version);
    scales
}
