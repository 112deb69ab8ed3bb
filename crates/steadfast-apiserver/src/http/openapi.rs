//! `OpenAPI` documents: as much as `kubectl` needs to know that validation is the server's business.
//!
//! There are no schemas of fields in them. Version 2 is not offered, since clients ask for it in protobuf.

use serde_json::{Map, Value, json};

use crate::resources::ServedResource;
use crate::storage::State;

/// The documents there are, one for each group and version.
pub(super) fn index(state: &State) -> Value {
    let mut paths = Map::new();
    for (group, versions) in state.registry.groups() {
        for version in versions {
            let path = group_path(&group, &version);
            paths.insert(path.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{path}")}));
        }
    }
    json!({"paths": paths})
}

/// The document of a group and version by its path, `apis/apps/v1` for instance.
pub(super) fn document(state: &State, path: &str) -> Option<Value> {
    let (group, version) = match path.split('/').collect::<Vec<_>>().as_slice() {
        ["api", version] => (String::new(), (*version).to_owned()),
        ["apis", group, version] => ((*group).to_owned(), (*version).to_owned()),
        _ => return None,
    };
    let mut paths = Map::new();
    let mut schemas = Map::new();
    for served in state.registry.all().filter(|served| served.name.group() == group && served.serves(&version)) {
        paths.insert(object_path(served, path), json!({"patch": operation(served, &version)}));
        schemas.insert(format!("{group}.{version}.{}", served.kind), schema(served, &version));
    }
    (!paths.is_empty()).then(|| {
        json!({
            "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.37.0"},
            "paths": paths, "components": {"schemas": schemas},
        })
    })
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

fn schema(served: &ServedResource, version: &str) -> Value {
    json!({
        "type": "object", "description": format!("A {} of the embedded API server.", served.kind),
        "x-kubernetes-group-version-kind": [identity(served, version)],
    })
}
