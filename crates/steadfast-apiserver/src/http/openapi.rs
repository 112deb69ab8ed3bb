//! `OpenAPI` documents of version 3. `kubectl explain` reads them. Before a write, `kubectl` checks in them whether the
//! server validates fields itself.
//!
//! Schemas of built-in types come from the table of their fields, without descriptions. Schemas of custom resources are
//! copied from their definitions. The document of version 2 is empty: `kubectl` requests it to check a `List`, and
//! leaves unknown types to the server.

mod schemas;

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use bytes::Bytes;
use http::{HeaderMap, header};
use serde_json::{Map, Value, json};

use super::negotiate::{by_preference, media_type};
use super::response::ApiResponse;
use crate::documents::DocumentCache;
use crate::encode;
use crate::resources::{Registry, ServedResource};
use crate::types;

/// Returns the document of version 2, which contains only its version. The encoding is protobuf if the client prefers
/// the protobuf form of the document, and JSON otherwise.
pub(super) fn version_2(headers: &HeaderMap) -> ApiResponse {
    const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let prefers_protobuf = by_preference(accept).into_iter().find_map(|range| match media_type(range) {
        "application/json" | "application/*" | "*/*" => Some(false),
        media_type => media_type.contains("proto-openapi.spec.v2").then_some(true),
    });
    if prefers_protobuf == Some(true) {
        // Some clients accept only this encoding. The bytes are field 1, the version, with the text `2.0`.
        return ApiResponse::bytes(200, Bytes::from_static(b"\x0a\x032.0")).with_content_type(PROTOBUF);
    }
    ApiResponse::json(
        200,
        &json!({"swagger": "2.0", "info": {"title": "Kubernetes", "version": "v1.37.0"}, "paths": {}}),
    )
}

/// Returns the paths of the documents of all groups and versions.
pub(super) fn index(registry: &Registry) -> Value {
    let mut paths = Map::new();
    for (group, versions) in registry.groups() {
        for version in versions {
            let path = group_path(&group, &version);
            let tag = document_tag(registry, &group, &version);
            paths.insert(path.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={tag}")}));
        }
    }
    json!({"paths": paths})
}

/// Returns the tag of a document, which changes with the version's resources and their definitions.
fn document_tag(registry: &Registry, group: &str, version: &str) -> String {
    let mut hasher = DefaultHasher::new();
    (group, version).hash(&mut hasher);
    // The tag covers all inputs of a document, so no document is built for the index.
    // A hash is stable within a process only, which suffices for a cache tag.
    for served in registry.in_version(group, version) {
        (served.name.resource(), &served.kind, served.namespaced).hash(&mut hasher);
        served.definition.as_ref().map(|definition| definition.fingerprint()).hash(&mut hasher);
    }
    format!("{:016X}", hasher.finish())
}

/// Returns the document of a group and version, such as `apis/apps/v1`, and its tag. Built once for each tag, from a
/// copy of the registry, without any lock.
pub(super) fn document(registry: &Registry, cache: &DocumentCache, path: &str) -> Option<(Bytes, String)> {
    let (group, version) = match path.split('/').collect::<Vec<_>>().as_slice() {
        ["api", version] => ("", *version),
        ["apis", group, version] => (*group, *version),
        _ => return None,
    };
    registry.in_version(group, version).next()?;
    let tag = document_tag(registry, group, version);
    let bytes = cache.get_or_build(path, &tag, || encode::json(&build_document(registry, group, version, path)));
    Some((bytes, tag))
}

fn build_document(registry: &Registry, group: &str, version: &str, path: &str) -> Value {
    let mut paths = Map::new();
    let mut schemas = schemas::Schemas::default();
    for served in registry.in_version(group, version) {
        paths.insert(object_path(served, path), json!({"patch": operation(served, version)}));
        match types::type_for_kind(&served.api_version(version), &served.kind) {
            Some(name) if !served.is_custom => schemas.add_builtin(name, &group_version_kind(served, version)),
            _ => {
                let declared = served.definition.as_ref().and_then(|definition| definition.raw_schema(version));
                schemas.add_custom(served, version, declared.cloned(), &group_version_kind(served, version));
            }
        }
    }
    json!({
        "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.37.0"},
        "paths": paths, "components": {"schemas": schemas.into_value()},
    })
}

fn group_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

fn object_path(served: &ServedResource, group_path: &str) -> String {
    let namespace = if served.namespaced { "/namespaces/{namespace}" } else { "" };
    format!("/{group_path}{namespace}/{}/{{name}}", served.name.resource())
}

fn group_version_kind(served: &ServedResource, version: &str) -> Value {
    json!({"group": served.name.group(), "version": version, "kind": served.kind})
}

/// Returns the patch operation, from which `kubectl` reads the supported parameters.
fn operation(served: &ServedResource, version: &str) -> Value {
    let parameter =
        |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}});
    json!({
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": group_version_kind(served, version),
        "parameters": [parameter("dryRun"), parameter("fieldManager"), parameter("fieldValidation")],
        "responses": {"200": {"description": "OK"}},
    })
}
