//! Discovery in both forms, `OpenAPI` and reviews.

use std::collections::BTreeSet;

use crate::support::{Client, in_memory_server};
use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use steadfast_apiserver::ApiServer;

const AGGREGATED_ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Name of a resource in discovery, and its description.
type Entry = (String, String);

fn definition(version: &str, field: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList",
                "shortNames": ["wd"], "categories": ["all"]},
            "versions": [{
                "name": version, "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {field: {"type": "string"}}},
                }}},
            }],
        },
    })
}

async fn read_plain_discovery(client: &mut Client, server: &ApiServer) -> BTreeSet<Entry> {
    let mut group_versions = vec!["/api/v1".to_owned()];
    let (_, groups) = client.get("/apis").await;
    for group in groups["groups"].as_array().unwrap() {
        for version in group["versions"].as_array().unwrap() {
            group_versions.push(format!("/apis/{}", version["groupVersion"].as_str().unwrap()));
        }
    }
    let mut entries = BTreeSet::new();
    for path in group_versions {
        let (code, list) = client.get(&path).await;
        assert_eq!(code, 200, "{path}: {list}");
        for resource in list["resources"].as_array().unwrap() {
            let name = format!("{path}/{}", resource["name"].as_str().unwrap());
            let traits = ["kind", "verbs", "shortNames", "categories"].map(|key| resource[key].to_string());
            let scope = if name.matches('/').count() > path.matches('/').count() + 1 {
                Value::Null
            } else {
                resource["namespaced"].clone()
            };
            entries.insert((name, format!("{} {scope}", traits.join(" "))));
        }
    }
    assert!(entries.len() > 50 && server.request_counts().bytes > 0, "{} resources are few", entries.len());
    entries
}

async fn read_aggregated_discovery(client: &mut Client) -> BTreeSet<Entry> {
    let mut entries = BTreeSet::new();
    for root in ["/api", "/apis"] {
        let (_, document) =
            client.call_with(Method::GET, root, &[("accept", AGGREGATED_ACCEPT)], &Value::Null).await.unwrap();
        assert_eq!(document["kind"], "APIGroupDiscoveryList");
        for group in document["items"].as_array().unwrap() {
            for version in group["versions"].as_array().unwrap() {
                let name = group["metadata"]["name"].as_str().map(|name| format!("/{name}")).unwrap_or_default();
                let path = format!("{root}{name}/{}", version["version"].as_str().unwrap());
                for resource in version["resources"].as_array().unwrap() {
                    let name = format!("{path}/{}", resource["resource"].as_str().unwrap());
                    let field_text = |entry: &Value, key: &str| entry[key].to_string();
                    let line = |entry: &Value, namespaced: Value| {
                        let kind = field_text(&entry["responseKind"], "kind");
                        let rest = ["verbs", "shortNames", "categories"].map(|key| field_text(entry, key)).join(" ");
                        format!("{kind} {rest} {namespaced}")
                    };
                    for part in resource["subresources"].as_array().into_iter().flatten() {
                        let name = format!("{name}/{}", part["subresource"].as_str().unwrap());
                        entries.insert((name, line(part, Value::Null)));
                    }
                    entries.insert((name, line(resource, (resource["scope"] == "Namespaced").into())));
                }
            }
        }
    }
    entries
}

#[tokio::test(start_paused = true)]
async fn weights_select_form_of_discovery() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let aggregated = AGGREGATED_ACCEPT;
    for (accept, kind) in [
        (format!("{aggregated},application/json"), "APIGroupDiscoveryList"),
        (format!("application/json;q=0.5,{aggregated}"), "APIGroupDiscoveryList"),
        (format!("{aggregated};q=0.5,application/json"), "APIGroupList"),
        (format!("{aggregated};q=0.9,application/json;q=0.8"), "APIGroupDiscoveryList"),
    ] {
        let headers = [("accept", accept.as_str())];
        let (_, document) = client.call_with(Method::GET, "/apis", &headers, &Value::Null).await.unwrap();
        assert_eq!(document["kind"], kind, "{accept}");
    }
    let protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    for (accept, is_json) in [
        (protobuf.to_owned(), false),
        (format!("{protobuf},application/json"), false),
        (format!("{protobuf};q=0.5,application/json"), true),
    ] {
        let headers = [("accept", accept.as_str())];
        let response = client.request(Method::GET, "/openapi/v2", &headers, &Value::Null).await.unwrap();
        assert_eq!(response.headers()["content-type"] == "application/json", is_json, "{accept}");
    }
}

#[tokio::test(start_paused = true)]
async fn both_forms_of_discovery_are_equal() {
    let server = in_memory_server().await;
    server.create(&definition("v1", "a")).unwrap();
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let plain = read_plain_discovery(&mut client, &server).await;
    let aggregated = read_aggregated_discovery(&mut client).await;
    assert_eq!(plain.difference(&aggregated).collect::<Vec<_>>(), Vec::<&Entry>::new());
    assert_eq!(aggregated.difference(&plain).collect::<Vec<_>>(), Vec::<&Entry>::new());
    assert!(plain.iter().any(|(name, list)| name == "/apis/example.com/v1/widgets/status" && list.contains("Widget")));
}

#[tokio::test(start_paused = true)]
async fn unchanged_discovery_is_not_sent_again() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let mut get_with_etag = async |tag: &str| {
        let headers = [("accept", AGGREGATED_ACCEPT), ("if-none-match", tag)];
        let response = client.request(Method::GET, "/apis", &headers, &Value::Null).await.unwrap();
        let header = |name: &str| response.headers().get(name).unwrap().to_str().unwrap().to_owned();
        let (code, tag, kind) = (response.status().as_u16(), header("etag"), header("content-type"));
        (code, tag, kind, response.into_body().collect().await.unwrap().to_bytes().len())
    };
    let (code, tag, kind, length) = get_with_etag("\"none\"").await;
    assert_eq!((code, kind.as_str(), length > 1000), (200, AGGREGATED_ACCEPT, true));
    let (code, repeated_tag, _, length) = get_with_etag(&tag).await;
    assert_eq!((code, &repeated_tag, length), (304, &tag, 0));
    server.create(&definition("v1", "a")).unwrap();
    let (code, changed_tag, _, _) = get_with_etag(&tag).await;
    assert_eq!((code, changed_tag == tag), (200, false));
}

#[tokio::test(start_paused = true)]
async fn client_preference_selects_the_plain_form() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    for accept in ["application/json", "*/*", "application/json;as=Other;v=v1;g=x,application/json"] {
        let (_, groups) = client.call_with(Method::GET, "/apis", &[("accept", accept)], &Value::Null).await.unwrap();
        assert_eq!(groups["kind"], "APIGroupList", "{accept}");
    }
    // As on a real server, only the first line of the header counts.
    for (lines, kind) in [
        (["application/json", AGGREGATED_ACCEPT], "APIGroupList"),
        ([AGGREGATED_ACCEPT, "application/json"], "APIGroupDiscoveryList"),
    ] {
        let headers = lines.map(|line| ("accept", line));
        let (_, groups) = client.call_with(Method::GET, "/apis", &headers, &Value::Null).await.unwrap();
        assert_eq!(groups["kind"], kind, "{lines:?}");
    }
    let preferred = format!("{AGGREGATED_ACCEPT},application/json");
    let (_, all) = client.call_with(Method::GET, "/apis", &[("accept", &preferred)], &Value::Null).await.unwrap();
    assert_eq!(all["kind"], "APIGroupDiscoveryList");
}

/// Collects the names that a document refers to.
fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value.as_str() {
                    Some(target) if key == "$ref" => {
                        found.insert(target.trim_start_matches("#/components/schemas/").to_owned());
                    }
                    _ => references(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[tokio::test(start_paused = true)]
async fn openapi_documents_are_complete() {
    let server = in_memory_server().await;
    server.create(&definition("v1", "colour")).unwrap();
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let (_, index) = client.get("/openapi/v3").await;
    let paths = index["paths"].as_object().unwrap();
    assert!(paths.len() > 15, "{paths:?}");
    for (path, entry) in paths {
        let (code, document) = client.get(entry["serverRelativeURL"].as_str().unwrap()).await;
        assert_eq!(code, 200, "{path}");
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let mut referenced_names = BTreeSet::new();
        references(&document, &mut referenced_names);
        for name in referenced_names {
            assert!(schemas.contains_key(&name), "{name} is missing in {path}");
        }
    }
    let (_, document) = client.get("/openapi/v3/api/v1").await;
    let pod = &document["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"];
    assert_eq!(pod["required"], json!(["containers"]));
    assert_eq!(pod["properties"]["containers"]["x-kubernetes-list-map-keys"], json!(["name"]));
    let (_, document) = client.get("/openapi/v3/apis/example.com/v1").await;
    let widget = &document["components"]["schemas"]["com.example.v1.Widget"];
    assert_eq!(widget["properties"]["spec"]["properties"]["colour"]["type"], "string");
    assert_eq!(client.get("/openapi/v3/apis/none.example.com/v1").await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn document_hash_follows_its_definitions() {
    let server = in_memory_server().await;
    server.create(&definition("v1", "a")).unwrap();
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let mut urls = async || {
        let (_, index) = client.get("/openapi/v3").await;
        let url = |path: &str| index["paths"][path]["serverRelativeURL"].as_str().unwrap().to_owned();
        (url("apis/example.com/v1"), url("apis/apps/v1"))
    };
    let before = urls().await;
    assert_eq!(urls().await, before);
    server.replace(&definition("v1", "b")).unwrap();
    let after = urls().await;
    assert_ne!(after.0, before.0);
    assert_eq!(after.1, before.1);
    let response = client.request(Method::GET, &after.0, &[], &Value::Null).await.unwrap();
    assert_eq!(response.headers()["cache-control"], "public, immutable");
    let response = client.request(Method::GET, &before.0, &[], &Value::Null).await.unwrap();
    assert_eq!(response.headers()["cache-control"], "no-cache, private");
}

#[tokio::test(start_paused = true)]
async fn accepted_user_may_do_everything() {
    let server = ApiServer::builder().in_memory().token("known").start().await.unwrap();
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let mut review = async |kind: &str, plural: &str, spec: Value| {
        let group = if kind.contains("Access") { "authorization.k8s.io" } else { "authentication.k8s.io" };
        let headers = [("content-type", "application/json"), ("authorization", "Bearer known")];
        let object = json!({"apiVersion": format!("{group}/v1"), "kind": kind, "spec": spec});
        client.call_with(Method::POST, &format!("/apis/{group}/v1/{plural}"), &headers, &object).await.unwrap()
    };
    let attributes = json!({"resourceAttributes": {"verb": "delete", "resource": "pods"}});
    let (code, response) = review("SelfSubjectAccessReview", "selfsubjectaccessreviews", attributes.clone()).await;
    assert_eq!((code, &response["status"]["allowed"], &response["spec"]), (201, &json!(true), &attributes));
    let (_, response) = review("SelfSubjectReview", "selfsubjectreviews", json!({})).await;
    assert_eq!(response["status"]["userInfo"]["username"], "admin");
    let (_, response) = review("TokenReview", "tokenreviews", json!({"token": "known"})).await;
    assert_eq!(response["status"]["authenticated"], true);
    let (_, response) = review("TokenReview", "tokenreviews", json!({"token": "other"})).await;
    assert_eq!(response["status"].get("authenticated"), None);
}

#[tokio::test]
async fn openapi_tag_follows_its_own_definitions() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    server.create(&definition("v1", "one")).unwrap();
    let tags = async |client: &mut Client| {
        let (_, index) = client.get("/openapi/v3").await;
        ["apis/example.com/v1", "apis/apps/v1"]
            .map(|path| index["paths"][path]["serverRelativeURL"].as_str().expect("a document").to_owned())
    };
    let before = tags(&mut client).await;
    let response = client.request(Method::GET, &before[0], &[], &Value::Null).await.unwrap();
    let etag = response.headers()["etag"].to_str().unwrap().to_owned();
    assert!(before[0].ends_with(&format!("?hash={}", etag.trim_matches('"'))), "{before:?} {etag}");
    let if_none_match = [("if-none-match", etag.as_str())];
    assert_eq!(client.request(Method::GET, &before[0], &if_none_match, &Value::Null).await.unwrap().status(), 304);
    server.replace(&definition("v1", "two")).unwrap();
    let after = tags(&mut client).await;
    assert_ne!(before[0], after[0]);
    assert_eq!(before[1], after[1]);
    let response =
        client.request(Method::GET, "/openapi/v3/apis/example.com/v1", &if_none_match, &Value::Null).await.unwrap();
    assert_eq!(response.status(), 200);
    let document = client.get(&after[0]).await.1.to_string();
    assert!(document.contains("two") && !document.contains("\"one\""), "{document}");
}

#[tokio::test]
async fn openapi_embedded_resource_has_common_fields() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let mut embedding = definition("v1", "one");
    embedding["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["inner"] = json!({
        "type": "array", "items": {
            "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
        },
    });
    server.create(&embedding).unwrap();
    let (_, document) = client.get("/openapi/v3/apis/example.com/v1").await;
    let schemas = &document["components"]["schemas"];
    let inner = &schemas["com.example.v1.Widget"]["properties"]["spec"]["properties"]["inner"]["items"];
    let reference = inner["properties"]["metadata"]["allOf"][0]["$ref"].as_str().unwrap_or_default();
    assert_eq!(reference, "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
    assert_eq!(inner["properties"]["kind"], json!({"type": "string"}));
    assert!(schemas["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]["properties"].is_object());
}
