//! Lists: pages, versions, selectors, forms.

use std::time::Duration;

use crate::support::{CONFIG_MAPS, Client, config_map, in_memory_server, labelled, names, version_of};
use http::Method;
use serde_json::{Value, json};
use steadfast_apiserver::{ApiServer, ResourceDeclaration};

#[tokio::test(start_paused = true)]
async fn pages_share_the_first_revision() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    for name in ["a", "b", "c", "d", "e"] {
        server.create(&config_map(name)).unwrap();
    }
    let (_, first) = client.get(&format!("{CONFIG_MAPS}?limit=2")).await;
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    server.delete(&config_map("d")).unwrap();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (_, second) = client.get(&format!("{CONFIG_MAPS}?limit=2&continue={token}")).await;
    assert_eq!(names(&second), ["c", "d"]);
    assert_eq!(version_of(&second), version_of(&first));
    let token = second["metadata"]["continue"].as_str().unwrap();
    let (_, third) = client.get(&format!("{CONFIG_MAPS}?limit=2&continue={token}")).await;
    assert_eq!(names(&third), ["e"]);
    assert_eq!(third["metadata"].get("continue"), None);
    let counts = server.request_counts();
    assert_eq!((counts.lists, counts.pages, counts.most_concurrent_transfers), (1, 2, 1));
}

#[tokio::test(start_paused = true)]
async fn continue_token_expires_with_compaction() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    for name in ["a", "b"] {
        server.create(&config_map(name)).unwrap();
    }
    let (_, first) = client.get(&format!("{CONFIG_MAPS}?limit=1")).await;
    server.create(&config_map("c")).unwrap();
    server.compact();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (code, status) = client.get(&format!("{CONFIG_MAPS}?limit=5&continue={token}")).await;
    assert_eq!((code, &status["reason"]), (410, &json!("Expired")));
    let token = status["metadata"]["continue"].as_str().unwrap();
    let (_, rest) = client.get(&format!("{CONFIG_MAPS}?limit=5&continue={token}")).await;
    assert_eq!(names(&rest), ["b", "c"]);
    let (code, _) = client.get(&format!("{CONFIG_MAPS}?continue=nonsense")).await;
    assert_eq!(code, 400);
    assert_eq!(server.request_counts().probes, 1);
}

#[tokio::test(start_paused = true)]
async fn version_with_limit_is_exact() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let old = version_of(&server.create(&config_map("a")).unwrap());
    server.create(&config_map("b")).unwrap();
    let old_version = |rest: &str| format!("{CONFIG_MAPS}?resourceVersion={old}{rest}");
    assert_eq!(names(&client.get(&old_version("&limit=10")).await.1), ["a"]);
    assert_eq!(names(&client.get(&old_version("&resourceVersionMatch=Exact")).await.1), ["a"]);
    assert_eq!(names(&client.get(&old_version("&resourceVersionMatch=NotOlderThan&limit=10")).await.1), ["a", "b"]);
    assert_eq!(names(&client.get(&old_version("")).await.1), ["a", "b"]);
    server.compact();
    let (code, status) = client.get(&old_version("&limit=10")).await;
    assert_eq!((code, &status["reason"]), (410, &json!("Expired")));
}

#[tokio::test(start_paused = true)]
async fn future_version_fails_after_three_seconds() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let now = server.revision();
    let before = server.elapsed();
    for (index, version_match) in (1..).zip(["NotOlderThan", "Exact"]) {
        let path = format!("{CONFIG_MAPS}?resourceVersion={}&resourceVersionMatch={version_match}", now + 1);
        let (code, status) = client.get(&path).await;
        assert_eq!(crate::support::seconds_since(&server, before), 3 * index, "{version_match}");
        assert_eq!(code, 504, "{version_match}");
        assert_eq!(status["message"], format!("Timeout: Too large resource version: {}, current: {now}", now + 1));
        assert_eq!(status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
        assert_eq!(status["details"]["retryAfterSeconds"], 1);
    }
}

#[tokio::test(start_paused = true)]
async fn future_exact_version_is_served_once_reached() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let future_version = version_of(&server.create(&config_map("a")).unwrap()) + 1;
    let before = server.elapsed();
    let path = format!("{CONFIG_MAPS}?resourceVersion={future_version}&resourceVersionMatch=Exact");
    let (response, ()) = tokio::join!(client.get(&path), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.create(&config_map("b")).unwrap();
    });
    assert_eq!(crate::support::seconds_since(&server, before), 1);
    assert_eq!(names(&response.1), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn selectors_match_labels_and_fields() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    server.create(&labelled("a", &json!({"app": "web"}))).unwrap();
    server.create(&labelled("b", &json!({"app": "api"}))).unwrap();
    let list = |labels: &str| format!("{CONFIG_MAPS}?labelSelector={labels}");
    assert_eq!(names(&client.get(&list("app%20in%20(web,db)")).await.1), ["a"]);
    assert_eq!(names(&client.get(&list("app!%3Dweb")).await.1), ["b"]);
    assert_eq!(names(&client.get(&format!("{CONFIG_MAPS}?fieldSelector=metadata.name%3Db")).await.1), ["b"]);
    assert_eq!(client.get(&list("%3D%3D")).await.0, 400);
    assert_eq!(client.get(&format!("{CONFIG_MAPS}?fieldSelector=data.k%3Dv")).await.0, 400);

    for (name, node) in [("p", "n1"), ("q", "n2")] {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"nodeName": node},
            "status": {"phase": if name == "p" { "Running" } else { "Pending" }},
        });
        server.create(&pod).unwrap();
    }
    let pods = |fields: &str| format!("/api/v1/pods?fieldSelector={fields}");
    assert_eq!(names(&client.get(&pods("spec.nodeName%3Dn1")).await.1), ["p"]);
    assert_eq!(names(&client.get(&pods("status.phase!%3DRunning")).await.1), ["q"]);
}

#[tokio::test(start_paused = true)]
async fn events_are_selected_by_their_api_fields() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    for (version, about, name) in [("v1", "involvedObject", "old"), ("events.k8s.io/v1", "regarding", "new")] {
        let event = json!({"apiVersion": version, "kind": "Event", "metadata": {"name": name}, about: {"name": "p"}});
        server.create(&event).unwrap();
    }
    let core = |field: &str| format!("/api/v1/events?fieldSelector={field}.name%3Dp");
    let newer = |field: &str| format!("/apis/events.k8s.io/v1/events?fieldSelector={field}.name%3Dp");
    assert_eq!(names(&client.get(&core("involvedObject")).await.1), ["new", "old"]);
    assert_eq!(names(&client.get(&newer("regarding")).await.1), ["new", "old"]);
    assert_eq!(client.get(&core("regarding")).await.0, 400);
    assert_eq!(client.get(&newer("involvedObject")).await.0, 400);
}

#[tokio::test(start_paused = true)]
async fn custom_lists_write_their_version_last() {
    let widgets = ResourceDeclaration::namespaced("example.com", "v1", "Widget", "widgets");
    let server = ApiServer::builder().in_memory().resource(widgets).start().await.unwrap();
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {}});
    server.create(&widget).unwrap();
    let order = |text: &str| text.find("\"items\"") < text.rfind("\"metadata\"");
    let response = client.request(Method::GET, "/apis/example.com/v1/widgets", &[], &Value::Null).await.unwrap();
    let bytes = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    assert!(order(&text) && text.contains("\"kind\":\"Widget\""), "{text}");
    let list: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((names(&list), &list["kind"]), (vec!["w"], &json!("WidgetList")));
    server.create(&config_map("a")).unwrap();
    let (_, list) = client.get(CONFIG_MAPS).await;
    assert_eq!(list["items"][0].get("kind"), None);
}

#[tokio::test(start_paused = true)]
async fn large_list_arrives_complete_in_chunks() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    for index in 0..2000 {
        server.create(&config_map(&format!("c{index:04}"))).unwrap();
    }
    let (_, list) = client.get(CONFIG_MAPS).await;
    assert_eq!(names(&list).len(), 2000);
    assert!(server.request_counts().bytes > 200_000);
}

#[tokio::test(start_paused = true)]
async fn objects_render_as_rows_and_metadata() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    server.create(&config_map("a")).unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(90)).await;
    let accept = |form: &'static str| [("accept", form)];
    let table = accept("application/json;as=Table;v=v1;g=meta.k8s.io,application/json");
    let (_, rows) = client.call_with(Method::GET, CONFIG_MAPS, &table, &Value::Null).await.unwrap();
    assert_eq!((&rows["kind"], &rows["rows"][0]["cells"]), (&json!("Table"), &json!(["a", 1, "90s"])));
    let partial = accept("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io");
    let (_, list) = client.call_with(Method::GET, CONFIG_MAPS, &partial, &Value::Null).await.unwrap();
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["items"][0]["kind"], "PartialObjectMetadata");
    assert_eq!((names(&list), list["items"][0].get("data")), (vec!["a"], None));
}

#[tokio::test(start_paused = true)]
async fn scale_renders_as_a_row() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let paths = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"});
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "subresources": {"scale": paths},
            }],
        },
    });
    server.create(&definition).unwrap();
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")];
    for (version, kind, plural) in [("apps/v1", "Deployment", "deployments"), ("example.com/v1", "Widget", "widgets")] {
        let object = json!({
            "apiVersion": version, "kind": kind, "metadata": {"name": "d"}, "spec": {"replicas": 3},
            "status": {"replicas": 2},
        });
        server.create(&object).unwrap();
        let path = format!("/apis/{version}/namespaces/default/{plural}/d/scale");
        let (_, rows) = client.call_with(Method::GET, &path, &table, &Value::Null).await.unwrap();
        let columns: Vec<&Value> = rows["columnDefinitions"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
        assert_eq!(columns, ["Name", "Desired", "Available", "Age"], "{kind}");
        assert_eq!(rows["rows"][0]["cells"], json!(["d", 3, 2, "0s"]), "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn contradictory_options_are_invalid() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    for query in [
        "resourceVersionMatch=Exact",
        "resourceVersionMatch=Exact&resourceVersion=0",
        "resourceVersionMatch=Other&resourceVersion=5",
        "sendInitialEvents=true",
        "watch=1&sendInitialEvents=true",
        "watch=1&resourceVersionMatch=NotOlderThan",
    ] {
        let (code, status) = client.get(&format!("{CONFIG_MAPS}?{query}")).await;
        assert_eq!((code, &status["reason"]), (422, &json!("Invalid")), "{query}");
    }
    assert_eq!(client.get(&format!("{CONFIG_MAPS}?resourceVersion=x")).await.0, 400);
}
