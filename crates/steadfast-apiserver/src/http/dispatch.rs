//! Dispatch of requests to their handlers.

use std::sync::Arc;

use http::{Method, Request, header};
use hyper::body::Incoming;
use serde_json::json;

use super::context::RequestContext;
use super::exchange::Exchange;
use super::negotiate::{self, Encoding, Form, IncludeObject};
use super::options::{ListOptions, Query};
use super::rendering::Rendering;
use super::response::ApiResponse;
use super::route::{ResourcePath, Route};
use super::streaming::{self, EventSocket};
use super::target::Target;
use super::{access, discovery, list, namespace_versions, payload, read, reviews, scale, subresources, watch, write};
use crate::records::Verb;
use crate::resources;
use crate::selector::Selector;
use crate::status::Status;
use crate::write_scope::WriteScope;

/// Responds to a request. `request` has the body; all other parts are read from `context`.
pub(super) async fn respond(
    exchange: &Exchange,
    mut context: RequestContext,
    request: Request<Incoming>,
) -> Result<ApiResponse, Status> {
    access::authenticate(&exchange.cluster, &context)?;
    // The handler of custom resources has its own rules for methods, so this step precedes the check of the method.
    apply_custom_resource_rules(exchange, &mut context);
    if !context.route.allows(&context.method) {
        // A missing subresource is reported as `404` before the method is checked.
        if let Route::Resource(path) = &context.route
            && let Some(subresource) = path.subresource.as_deref()
            && Target::find(exchange.backend(), path).is_none_or(|target| !has_subresource(&target, subresource))
        {
            return Err(Status::of_code(404).with_details(json!({})));
        }
        return Err(not_allowed(exchange, &context));
    }
    match &context.route {
        Route::Resource(path) => match reviews::for_path(path) {
            Some(review) => {
                let media_type = payload::media_type(context.header(&header::CONTENT_TYPE));
                let object =
                    payload::decode_object(media_type, &payload::read_body(request.into_body()).await?, review.kind)?;
                Ok(review.respond(exchange, &object, context.user.as_deref()))
            }
            None => respond_for_resource(exchange, path, &context, request).await,
        },
        Route::Unknown => Ok(ApiResponse::page_not_found()),
        other => discovery::respond(exchange, other, &context.query, &context.headers).await,
    }
}

/// Adapts a request for custom resources, for which a real server has a separate handler. The handler derives the verb
/// from the method alone: it serves `HEAD` like `GET`, and accepts a creation at the path of an object.
fn apply_custom_resource_rules(exchange: &Exchange, context: &mut RequestContext) {
    let Route::Resource(path) = &mut context.route else { return };
    let is_head = context.method == Method::HEAD;
    let is_creation = context.method == Method::POST && path.name.is_some() && path.subresource.is_none();
    // Other requests need no lookup of their target yet.
    if !(is_head || is_creation)
        || !Target::find(exchange.backend(), path).is_some_and(|target| target.resource.is_custom)
    {
        return;
    }
    // A creation ignores the name in the path.
    if is_head {
        context.set_method(Method::GET);
    } else {
        path.name = None;
    }
}

/// Returns whether the resource of `target` has the subresource `name`.
fn has_subresource(target: &Target, name: &str) -> bool {
    match name {
        "status" => target.resource.has_status(&target.version),
        "scale" => target.resource.scale(&target.version).is_some(),
        _ => subresources::find(target, name).is_some(),
    }
}

/// Creates the status for a method that a path does not support. The handler of custom resources has its own messages.
fn not_allowed(exchange: &Exchange, context: &RequestContext) -> Status {
    let Route::Resource(path) = &context.route else { return Status::method_not_allowed() };
    let Some(target) = Target::find(exchange.backend(), path).filter(|target| target.resource.is_custom) else {
        return Status::method_not_allowed();
    };
    let resource = &target.resource.name;
    let verb = match context.method.as_str() {
        "PATCH" | "PUT" => return Status::bad_request("name must be provided"),
        "POST" => "create",
        _ => "",
    };
    Status::new(405, "MethodNotAllowed", format_args!("{verb} is not supported on resources of kind \"{resource}\""))
        .with_details(crate::status::object_details(resource, ""))
}

async fn respond_for_resource(
    exchange: &Exchange,
    path: &ResourcePath,
    context: &RequestContext,
    request: Request<Incoming>,
) -> Result<ApiResponse, Status> {
    let Some(target) = Target::find(exchange.backend(), path) else {
        return not_found(exchange, &path.group);
    };
    // Only the handler of custom resources ignores further segments.
    if path.has_more_segments && !target.resource.is_custom {
        return not_found(exchange, &path.group);
    }
    let deprecation = target.resource.deprecation(&target.version);
    // The deprecation warning comes first, before warnings about the content.
    let mut response =
        respond_for_target(exchange, target, path, context, request).await.unwrap_or_else(ApiResponse::from);
    // An error carries the warning as well.
    if let Some(warning) = deprecation {
        response.warnings.insert(0, warning);
    }
    Ok(response)
}

async fn respond_for_target(
    exchange: &Exchange,
    target: Target,
    path: &ResourcePath,
    context: &RequestContext,
    mut request: Request<Incoming>,
) -> Result<ApiResponse, Status> {
    if path.is_streaming() {
        return streaming::respond(exchange, &target, path, context, request).await;
    }
    if let Some(found) = path.subresource.as_deref().and_then(|name| subresources::find(&target, name)) {
        return subresources::respond(exchange, found, &target, path, context, request.into_body()).await;
    }
    let write_scope = match path.subresource.as_deref() {
        None => WriteScope::Main,
        Some("status") if target.resource.has_status(&target.version) => WriteScope::Status,
        Some("scale") if target.resource.scale(&target.version).is_some() => WriteScope::Main,
        Some(_) if target.resource.is_custom => {
            return Err(Status::not_found(&target.resource.name, path.name.as_deref().unwrap_or_default()));
        }
        Some(_) => return Err(Status::of_code(404).with_details(json!({}))),
    };
    let query = &context.query;
    // The upgrade must be taken from the request before its body is read.
    let socket = if query.is_watch() { EventSocket::from_request(&mut request)? } else { None };
    let mut rendering = rendering_for(exchange, &target, path, context.accepted(target.resource.is_custom)?);
    if rendering.form == Form::Table {
        rendering.include_object = negotiate::parse_include_object(query.text("includeObject"))?;
    }
    let selector = || Selector::parse(query.text("labelSelector"), query.text("fieldSelector"), &target.resource);
    match context.verb {
        Verb::Get if path.subresource.as_deref() != Some("scale") => {
            let name = path.name.as_deref().unwrap_or_default();
            read::get(exchange, &target, name, query, &rendering).await
        }
        Verb::List | Verb::Page | Verb::Probe | Verb::ListByName => {
            let options = list_options(query, &rendering)?;
            list::list(exchange, &target, &options, &selector()?, rendering).await
        }
        Verb::Watch | Verb::StreamedList => {
            let options = list_options(query, &rendering)?;
            let encoding = rendering.encoding;
            let response = watch::watch(exchange, &target, &options, selector()?, rendering).await?;
            Ok(match socket {
                Some(socket) => socket.upgrade(response, exchange, encoding),
                None => response,
            })
        }
        _ => {
            // A read-only server rejects every write, regardless of its body.
            if context.method != Method::GET {
                exchange.backend().store()?;
            }
            let content_type = payload::media_type(context.header(&header::CONTENT_TYPE));
            let verb = context.verb;
            let write = write::WriteRequest {
                target: &target,
                name: path.name.as_deref().unwrap_or_default(),
                write_scope,
                query,
                content_type,
                user_agent: context.header(&header::USER_AGENT),
                body: payload::read_body(request.into_body()).await?,
            };
            if path.subresource.as_deref() == Some("scale") {
                return scale::respond(exchange, verb, &write, &rendering).await;
            }
            if verb == Verb::DeleteCollection {
                let options = ListOptions::parse(query)?;
                return write::delete_collection(exchange, &write, &options, &selector()?, rendering).await;
            }
            write::write(exchange, verb, &write, &rendering).await
        }
    }
}

/// Creates the response for an unknown resource: a `Status` for a group of built-in kinds, plain text for other groups.
fn not_found(exchange: &Exchange, group: &str) -> Result<ApiResponse, Status> {
    if let Some(status) = resources::missing_feature(group) {
        return Err(status);
    }
    // A missing resource of a built-in group is reported as a `Status`, a missing group as plain
    // text.
    let is_builtin_group =
        exchange.backend().registry().all().any(|served| served.name.group() == group && !served.is_custom);
    if is_builtin_group { Err(Status::of_code(404).with_details(json!({}))) } else { Ok(ApiResponse::page_not_found()) }
}

fn list_options(query: &Query, rendering: &Rendering) -> Result<ListOptions, Status> {
    let options = ListOptions::parse(query)?;
    let version = options.version.filter(|_| rendering.has_namespace_counters);
    Ok(ListOptions { version: version.map(namespace_versions::revision).or(options.version), ..options })
}

fn rendering_for(exchange: &Exchange, target: &Target, path: &ResourcePath, accepted: (Form, Encoding)) -> Rendering {
    let active_faults = &exchange.replica().active_faults;
    let (corrupted_objects, has_namespace_counters) =
        active_faults.read(|faults| (Arc::clone(&faults.corrupted_objects), faults.has_namespace_counters));
    Rendering {
        form: accepted.0,
        encoding: accepted.1,
        resource: Arc::clone(&target.resource),
        api_version: target.resource.api_version(&path.version),
        clock: exchange.cluster.clock,
        include_object: IncludeObject::Metadata,
        includes_columns: true,
        corrupted_objects,
        has_namespace_counters,
    }
}
