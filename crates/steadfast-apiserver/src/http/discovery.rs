//! What is served, told to clients; health and version.

use serde_json::{Value, json};

use super::answer::Answer;
use super::openapi;
use super::read;
use super::route::Route;
use super::serve::Exchange;
use crate::resources::ServedResource;
use crate::status::Status;
use crate::storage::State;

/// Answers what is not about objects.
pub(super) async fn answer(exchange: &Exchange, route: &Route) -> Result<Answer, Status> {
    let store = &exchange.cluster.store;
    Ok(match route {
        Route::CoreVersions => Answer::json(200, &core_versions()),
        Route::Groups => Answer::json(200, &store.read(groups)),
        Route::Group(group) => match store.read(|state| group_of(state, group)) {
            Some(group) => Answer::json(200, &group),
            None => Answer::page_not_found(),
        },
        Route::GroupVersion { group, version } => match store.read(|state| resources(state, group, version)) {
            Some(resources) => Answer::json(200, &resources),
            None => Answer::page_not_found(),
        },
        Route::Version => Answer::json(200, &version()),
        Route::Health => {
            read::etcd_answers(&exchange.cluster, exchange.replica).await?;
            Answer::text(200, "ok")
        }
        Route::OpenApi(path) if path == "v3" => Answer::json(200, &store.read(openapi::index)),
        Route::OpenApi(path) => {
            let document = path.strip_prefix("v3/").and_then(|path| store.read(|state| openapi::document(state, path)));
            document.map_or_else(Answer::page_not_found, |document| Answer::json(200, &document))
        }
        Route::Resource(_) | Route::Unknown => Answer::page_not_found(),
    })
}

fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

fn groups(state: &State) -> Value {
    let groups = state.registry.groups();
    let groups: Vec<Value> =
        groups.iter().filter(|(name, _)| !name.is_empty()).map(|(name, versions)| group(name, versions)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

fn group_of(state: &State, name: &str) -> Option<Value> {
    let groups = state.registry.groups();
    let mut found = group(name, groups.get(name)?);
    found["kind"] = "APIGroup".into();
    found["apiVersion"] = "v1".into();
    Some(found)
}

fn group(name: &str, versions: &[String]) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|version| json!({"groupVersion": format!("{name}/{version}"), "version": version}))
        .collect();
    json!({"name": name, "versions": versions, "preferredVersion": versions.first()})
}

fn resources(state: &State, group: &str, version: &str) -> Option<Value> {
    if !state.registry.groups().get(group)?.iter().any(|served| served == version) {
        return None;
    }
    let served = state.registry.all().filter(|served| served.name.group() == group && served.serves(version));
    let resources: Vec<Value> = served.flat_map(|served| entries(served, version)).collect();
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources,
    }))
}

fn entries(served: &ServedResource, version: &str) -> Vec<Value> {
    let plural = served.name.resource();
    let verbs = if served.custom {
        ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
    } else {
        ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    };
    let mut entry = json!({
        "name": plural, "singularName": served.singular, "namespaced": served.namespaced, "kind": served.kind,
        "verbs": verbs,
    });
    if !served.short_names.is_empty() {
        entry["shortNames"] = json!(served.short_names);
    }
    if !served.categories.is_empty() {
        entry["categories"] = json!(served.categories);
    }
    let status = served.has_status(version).then(|| {
        json!({
            "name": format!("{plural}/status"), "singularName": "", "namespaced": served.namespaced,
            "kind": served.kind, "verbs": ["get", "patch", "update"],
        })
    });
    let scale = served.scale(version).map(|_| {
        json!({
            "name": format!("{plural}/scale"), "singularName": "", "namespaced": served.namespaced,
            "group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": ["get", "patch", "update"],
        })
    });
    let (second, third) = if served.custom { (status, scale) } else { (scale, status) };
    [Some(entry), second, third].into_iter().flatten().collect()
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "37", "gitVersion": "v1.37.0-steadfast", "gitCommit": "", "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc", "platform": std::env::consts::OS,
    })
}
