//! `OpenAPI` documents, version 3: what `kubectl explain` shows, and that validation is the server's business.
//!
//! Built-in types come from the table of their fields, without descriptions; those of custom resources from their
//! definitions, whole. Version 2 is there and empty: `kubectl` asks for it where it checks a `List`, and leaves to the
//! server whatever is not in it.

mod schemas;

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use bytes::Bytes;
use http::{HeaderMap, header};
use serde_json::{Map, Value, json};

use super::answer::Answer;

use crate::resources::{DEFINITIONS, ServedResource};
use crate::storage::{State, metadata};
use crate::types;

/// The document of version 2, in protobuf where it is requested: a version, and nothing else.
pub(super) fn version_2(headers: &HeaderMap) -> Answer {
    const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accept.contains("proto-openapi.spec.v2") {
        return Answer::bytes(200, Bytes::from_static(b"\x0a\x032.0")).of_type(PROTOBUF);
    }
    Answer::json(200, &json!({"swagger": "2.0", "info": {"title": "Kubernetes", "version": "v1.37.0"}, "paths": {}}))
}

/// The documents there are, one for each group and version.
pub(super) fn index(state: &State) -> Value {
    let mut paths = Map::new();
    for (group, versions) in state.registry.groups() {
        for version in versions {
            let path = group_path(&group, &version);
            let hash = hash(state, &group);
            paths.insert(path.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={hash}")}));
        }
    }
    json!({"paths": paths})
}

/// What changes when the documents of a group do. Built-in ones never do while the server runs.
fn hash(state: &State, group: &str) -> String {
    let mut hasher = DefaultHasher::new();
    group.hash(&mut hasher);
    for definition in definitions(state).filter(|definition| group_of(definition) == group) {
        metadata::text(&definition, "uid").hash(&mut hasher);
        metadata::text(&definition, "resourceVersion").hash(&mut hasher);
    }
    format!("{:016X}", hasher.finish())
}

fn group_of(definition: &Value) -> &str {
    definition.pointer("/spec/group").and_then(Value::as_str).unwrap_or_default()
}

fn definitions(state: &State) -> impl Iterator<Item = Value> {
    let found: Vec<Value> = state
        .objects_at(&DEFINITIONS, None, std::ops::Bound::Unbounded, u64::MAX)
        .filter_map(|(_, change)| change.object.as_deref().cloned())
        .collect();
    found.into_iter()
}

/// The document of a group and version by its path, `apis/apps/v1` for instance, and its hash.
pub(super) fn document(state: &State, path: &str) -> Option<(Value, String)> {
    let (group, version) = match path.split('/').collect::<Vec<_>>().as_slice() {
        ["api", version] => (String::new(), (*version).to_owned()),
        ["apis", group, version] => ((*group).to_owned(), (*version).to_owned()),
        _ => return None,
    };
    let mut paths = Map::new();
    let mut schemas = schemas::Schemas::default();
    for served in state.registry.all().filter(|served| served.name.group() == group && served.serves(&version)) {
        paths.insert(object_path(served, path), json!({"patch": operation(served, &version)}));
        match types::of_kind(&served.api_version(&version), &served.kind) {
            Some(name) if !served.custom => schemas.add_builtin(name, &identity(served, &version)),
            _ => {
                let declared = definitions(state).find_map(|definition| declared(&definition, served, &version));
                schemas.add_custom(served, &version, declared, &identity(served, &version));
            }
        }
    }
    (!paths.is_empty()).then(|| {
        let document = json!({
            "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.37.0"},
            "paths": paths, "components": {"schemas": schemas.into_value()},
        });
        (document, hash(state, &group))
    })
}

/// What a definition says of the objects of a resource.
fn declared(definition: &Value, served: &ServedResource, version: &str) -> Option<Value> {
    let spec = definition.get("spec")?;
    let is = |path: &str, wanted: &str| spec.pointer(path).and_then(Value::as_str) == Some(wanted);
    if !is("/group", served.name.group()) || !is("/names/plural", served.name.resource()) {
        return None;
    }
    let versions = spec.get("versions").and_then(Value::as_array)?;
    let found = versions.iter().find(|found| found.get("name").and_then(Value::as_str) == Some(version))?;
    found.pointer("/schema/openAPIV3Schema").cloned()
}

fn group_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

fn object_path(served: &ServedResource, group_path: &str) -> String {
    let namespace = if served.namespaced { "/namespaces/{namespace}" } else { "" };
    format!("/{group_path}{namespace}/{}/{{name}}", served.name.resource())
}

fn identity(served: &ServedResource, version: &str) -> Value {
    json!({"group": served.name.group(), "version": version, "kind": served.kind})
}

/// A patch: `kubectl` looks here for the parameters it may send.
fn operation(served: &ServedResource, version: &str) -> Value {
    let parameter =
        |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}});
    json!({
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": identity(served, version),
        "parameters": [parameter("dryRun"), parameter("fieldManager"), parameter("fieldValidation")],
        "responses": {"200": {"description": "OK"}},
    })
}
