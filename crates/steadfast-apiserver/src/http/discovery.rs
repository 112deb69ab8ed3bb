//! Discovery, health and version.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use http::{HeaderMap, header};
use serde_json::{Value, json};

use super::exchange::Exchange;
use super::negotiate::{JSON, by_preference, media_type};
use super::openapi;
use super::options::Query;
use super::response::{ApiResponse, DocumentVersion};
use super::reviews::{self, Review};
use super::route::Route;
use super::subresources;
use crate::encode;
use crate::resources::{Registry, ServedResource};
use crate::status::Status;

/// Content type of discovery as a single document.
const AGGREGATED_CONTENT_TYPE: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Responds to requests that do not concern objects.
pub(super) async fn respond(
    exchange: &Exchange,
    route: &Route,
    query: &Query,
    headers: &HeaderMap,
) -> Result<ApiResponse, Status> {
    // Documents are built from a copy, not under the lock of the store. The copy shares the resources.
    let registry = exchange.backend().registry();
    Ok(match route {
        Route::CoreVersions | Route::Groups if wants_aggregated(headers) => {
            let document = aggregated_document(&registry, *route == Route::CoreVersions);
            let version = DocumentVersion { tag: tag(&document), cache_control: "public" };
            ApiResponse::document(AGGREGATED_CONTENT_TYPE, || encode::json(&document), version, headers)
        }
        Route::CoreVersions => ApiResponse::json(200, &core_versions()),
        Route::Groups => ApiResponse::json(200, &group_list(&registry)),
        Route::Group(group) => match group_document(&registry, group) {
            Some(group) => ApiResponse::json(200, &group),
            None => ApiResponse::page_not_found(),
        },
        Route::GroupVersion { group, version } => match resource_list(&registry, group, version) {
            Some(resources) => ApiResponse::json(200, &resources),
            None => ApiResponse::page_not_found(),
        },
        Route::Version => ApiResponse::json(200, &version_document()),
        Route::Ping => ApiResponse::text(200, "ok"),
        Route::Health => {
            exchange.backend().confirm_newest_revision().await?;
            ApiResponse::text(200, "ok")
        }
        Route::OpenApi(path) if path == "v3" => ApiResponse::json(200, &openapi::index(&registry)),
        Route::OpenApi(path) if path == "v2" => openapi::version_2(headers),
        Route::OpenApi(path) => {
            let path = path.strip_prefix("v3/").unwrap_or_default();
            match openapi::document(&registry, &exchange.cluster.documents, path) {
                None => ApiResponse::page_not_found(),
                Some((bytes, tag)) => {
                    // A document requested by its hash never changes.
                    let is_fixed = query.text("hash") == tag;
                    let cache_control = if is_fixed { "public, immutable" } else { "no-cache, private" };
                    ApiResponse::document(JSON, || bytes, DocumentVersion { tag, cache_control }, headers)
                }
            }
        }
        Route::Resource(_) | Route::Unknown => ApiResponse::page_not_found(),
    })
}

/// Returns whether the most preferred of the supported forms in `Accept` is the aggregated one. As on a real server,
/// only the first line of the header counts.
fn wants_aggregated(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let preferred = by_preference(accept).into_iter().find_map(|range| {
        if !matches!(media_type(range), "application/json" | "application/*" | "*/*") {
            return None;
        }
        let parameters: Vec<&str> = range.split(';').skip(1).map(str::trim).collect();
        let required_parameters = ["as=APIGroupDiscoveryList", "g=apidiscovery.k8s.io", "v=v2"];
        let is_aggregated = required_parameters.iter().all(|required| parameters.contains(required));
        (is_aggregated || parameters.iter().all(|part| !part.starts_with("as="))).then_some(is_aggregated)
    });
    preferred == Some(true)
}

/// Returns a tag that identifies the content of a document.
fn tag(document: &Value) -> String {
    let mut hasher = DefaultHasher::new();
    document.to_string().hash(&mut hasher);
    format!("{:016X}", hasher.finish())
}

/// Creates one document with the resources of the core group, or of all other groups.
fn aggregated_document(registry: &Registry, is_core: bool) -> Value {
    let groups = all_groups(registry);
    let items: Vec<Value> = groups
        .iter()
        .filter(|(name, _)| name.is_empty() == is_core)
        .map(|(name, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    let listed = resource_list(registry, name, version).unwrap_or_default();
                    let resources = aggregated_resources(listed["resources"].as_array().map_or(&[], Vec::as_slice));
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let metadata = if is_core { json!({}) } else { json!({"name": name}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

/// Converts resources to the aggregated form, in which subresources are nested.
fn aggregated_resources(listed: &[Value]) -> Vec<Value> {
    let mut resources: Vec<Value> = Vec::new();
    for entry in listed {
        let name = entry["name"].as_str().unwrap_or_default();
        let kind = json!({
            "group": entry.get("group").cloned().unwrap_or_else(|| "".into()),
            "version": entry.get("version").cloned().unwrap_or_else(|| "".into()),
            "kind": entry["kind"],
        });
        if let Some((_, subresource)) = name.split_once('/') {
            let entry = json!({"subresource": subresource, "responseKind": kind, "verbs": entry["verbs"]});
            if let Some(resource) = resources.last_mut().and_then(Value::as_object_mut)
                && let Value::Array(subresources) = resource.entry("subresources").or_insert_with(|| json!([]))
            {
                subresources.push(entry);
            }
            continue;
        }
        let scope = if entry["namespaced"] == true { "Namespaced" } else { "Cluster" };
        let mut resource = json!({
            "resource": name, "responseKind": kind, "scope": scope, "singularResource": entry["singularName"],
            "verbs": entry["verbs"],
        });
        for key in ["shortNames", "categories"] {
            if let Some(names) = entry.get(key) {
                resource[key] = names.clone();
            }
        }
        resources.push(resource);
    }
    resources
}

/// Returns the API groups of objects and of reviews, with their versions.
fn all_groups(registry: &Registry) -> BTreeMap<String, Vec<String>> {
    let mut groups = registry.groups();
    for review in reviews::REVIEWS {
        groups.entry(review.group.to_owned()).or_insert_with(|| vec!["v1".to_owned()]);
    }
    groups
}

fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

fn group_list(registry: &Registry) -> Value {
    let groups = all_groups(registry);
    let groups: Vec<Value> = groups
        .iter()
        .filter(|(name, _)| !name.is_empty())
        .map(|(name, versions)| group_entry(name, versions))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

fn group_document(registry: &Registry, name: &str) -> Option<Value> {
    let groups = all_groups(registry);
    let mut found = group_entry(name, groups.get(name)?);
    found["kind"] = "APIGroup".into();
    found["apiVersion"] = "v1".into();
    Some(found)
}

fn group_entry(name: &str, versions: &[String]) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|version| json!({"groupVersion": format!("{name}/{version}"), "version": version}))
        .collect();
    json!({"name": name, "versions": versions, "preferredVersion": versions.first()})
}

fn resource_list(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let mut served = registry.in_version(group, version).peekable();
    let mut reviews = reviews::REVIEWS.iter().filter(|review| review.group == group && version == "v1").peekable();
    if served.peek().is_none() && reviews.peek().is_none() {
        return None;
    }
    let resources: Vec<Value> =
        served.flat_map(|served| resource_entries(served, version)).chain(reviews.map(Review::entry)).collect();
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources,
    }))
}

fn resource_entries(served: &ServedResource, version: &str) -> Vec<Value> {
    let plural = served.name.resource();
    // The real server lists the verbs of custom resources in another order.
    let verbs = if served.is_custom {
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
    // The real server lists `status` before `scale` for custom resources.
    let (second, third) = if served.is_custom { (status, scale) } else { (scale, status) };
    let others = subresources::SUBRESOURCES.iter().filter(|_| !served.is_custom && served.name.group().is_empty());
    let others = others.filter(|(resource, ..)| *resource == plural).map(|(_, name, group, version, kind, verb)| {
        let mut entry = json!({
            "name": format!("{plural}/{name}"), "singularName": "", "namespaced": true, "kind": kind, "verbs": [verb],
        });
        if !version.is_empty() {
            entry["group"] = (*group).into();
            entry["version"] = (*version).into();
        }
        entry
    });
    [Some(entry), second, third].into_iter().flatten().chain(others).collect()
}

fn version_document() -> Value {
    json!({
        "major": "1", "minor": "37", "gitVersion": "v1.37.0-steadfast", "gitCommit": "", "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc", "platform": std::env::consts::OS,
    })
}
