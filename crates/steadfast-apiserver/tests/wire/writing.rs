//! Writes: their effects, and the reasons for rejections.

use crate::support::{CONFIG_MAPS, Client, config_map, in_memory_server, names, version_of};
use http::Method;
use serde_json::{Value, json};
use steadfast_apiserver::ApiServer;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const PODS: &str = "/api/v1/namespaces/default/pods";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

async fn post(client: &mut Client, path: &str, object: &Value) -> (u16, Value) {
    client.call(Method::POST, path, object).await.unwrap()
}

async fn put(client: &mut Client, path: &str, object: &Value) -> (u16, Value) {
    client.call(Method::PUT, path, object).await.unwrap()
}

async fn delete(client: &mut Client, path: &str, options: &Value) -> (u16, Value) {
    client.call(Method::DELETE, path, options).await.unwrap()
}

fn message(status: &Value) -> &str {
    status["message"].as_str().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn created_object_has_identity_and_version() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let (code, created) = post(&mut client, CONFIG_MAPS, &json!({"metadata": {"name": "a"}})).await;
    assert_eq!(code, 201);
    assert_eq!((&created["kind"], &created["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
    let metadata = &created["metadata"];
    assert_eq!(metadata["namespace"], "default");
    assert_eq!(metadata["uid"].as_str().map(str::len), Some(36));
    assert_eq!(metadata["creationTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(version_of(&created), server.revision());

    let (code, generated) = post(&mut client, CONFIG_MAPS, &json!({"metadata": {"generateName": "job-"}})).await;
    let name = generated["metadata"]["name"].as_str().unwrap();
    assert!(code == 201 && name.starts_with("job-") && name.len() == 9, "{name}");
}

#[tokio::test(start_paused = true)]
async fn equal_seeds_make_equal_histories() {
    let mut uids = Vec::new();
    for seed in [7, 7, 8] {
        let server = steadfast_apiserver::ApiServer::builder().in_memory().seed(seed).start().await.unwrap();
        uids.push(server.create(&config_map("a")).unwrap()["metadata"]["uid"].clone());
    }
    assert_eq!(uids[0], uids[1]);
    assert_ne!(uids[0], uids[2]);
}

#[tokio::test(start_paused = true)]
async fn invalid_creations_fail_like_real_server() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    server.create(&config_map("a")).unwrap();
    let (code, status) = post(&mut client, CONFIG_MAPS, &config_map("a")).await;
    assert_eq!((code, message(&status)), (409, "configmaps \"a\" already exists"));
    assert_eq!(status["reason"], "AlreadyExists");
    assert_eq!(status["details"], json!({"name": "a", "kind": "configmaps"}));
    let nowhere = CONFIG_MAPS.replace("default", "nowhere");
    let (code, status) = post(&mut client, &nowhere, &json!({"metadata": {"name": "a"}})).await;
    assert_eq!((code, message(&status)), (404, "namespaces \"nowhere\" not found"));
    for (object, expected) in [
        (json!({"metadata": {}}), 422),
        (json!({"metadata": {"name": "A_b"}}), 422),
        (json!({"metadata": {"name": "b", "namespace": "kube-system"}}), 400),
        (json!({"metadata": {"name": "b", "resourceVersion": "5"}}), 500),
        (json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "b"}}), 400),
        (json!([]), 400),
    ] {
        assert_eq!(post(&mut client, CONFIG_MAPS, &object).await.0, expected, "{object}");
    }
    let headers = [("content-type", "application/json")];
    let huge = json!({"metadata": {"name": "b"}, "data": {"k": "x".repeat(4 << 20)}});
    let (code, _) = client.call_with(Method::POST, CONFIG_MAPS, &headers, &huge).await.unwrap();
    assert_eq!(code, 413);
}

#[tokio::test(start_paused = true)]
async fn plain_text_secret_is_stored_encoded() {
    let server = in_memory_server().await;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": "v"},
    });
    let stored = server.create(&secret).unwrap();
    assert_eq!((&stored["data"], stored.get("stringData")), (&json!({"k": "dg=="}), None));
    assert_eq!(stored["type"], "Opaque");
}

#[tokio::test(start_paused = true)]
async fn dry_run_stores_nothing() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    server.create(&config_map("a")).unwrap();
    let before = server.revision();
    let dry_run_path = |path: &str| format!("{path}?dryRun=All");
    assert_eq!(post(&mut client, &dry_run_path(CONFIG_MAPS), &json!({"metadata": {"name": "b"}})).await.0, 201);
    let a = format!("{CONFIG_MAPS}/a");
    assert_eq!(client.patch(&dry_run_path(&a), "merge-patch", &json!({"data": {"k": "w"}})).await.0, 200);
    assert_eq!(delete(&mut client, &dry_run_path(&a), &Value::Null).await.0, 200);
    assert_eq!((server.revision(), client.get(&a).await.0), (before, 200));
}

#[tokio::test(start_paused = true)]
async fn wrong_version_or_object_conflicts() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let path = format!("{CONFIG_MAPS}/a");
    let mut object = server.create(&config_map("a")).unwrap();
    server.merge_patch("configmaps", "default", "a", json!({"data": {"k": "other"}})).unwrap();
    object["data"]["k"] = "mine".into();
    let (code, status) = put(&mut client, &path, &object).await;
    assert_eq!((code, &status["reason"]), (409, &json!("Conflict")));
    object["metadata"]["resourceVersion"] = Value::Null;
    assert_eq!(put(&mut client, &path, &object).await.0, 200);
    object["metadata"]["uid"] = "another".into();
    assert_eq!(put(&mut client, &path, &object).await.0, 409);
    assert_eq!(put(&mut client, &format!("{CONFIG_MAPS}/none"), &json!({"metadata": {}})).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn unchanged_update_keeps_its_version() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let object = server.create(&config_map("a")).unwrap();
    let (code, updated) = put(&mut client, &format!("{CONFIG_MAPS}/a"), &object).await;
    assert_eq!((code, version_of(&updated)), (200, version_of(&object)));
    assert_eq!(server.revision(), version_of(&object));
}

#[tokio::test(start_paused = true)]
async fn status_and_spec_are_written_separately() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let object = json!({"metadata": {"name": "d"}, "spec": {"replicas": 1}, "status": {"replicas": 9}});
    let (_, created) = post(&mut client, DEPLOYMENTS, &object).await;
    assert_eq!((&created["status"], &created["metadata"]["generation"]), (&json!({}), &json!(1)));
    let main_path = format!("{DEPLOYMENTS}/d");
    let status = format!("{DEPLOYMENTS}/d/status");
    let both = json!({"spec": {"replicas": 2}, "status": {"replicas": 2}});
    let (_, patched) = client.patch(&status, "merge-patch", &both).await;
    assert_eq!((&patched["spec"]["replicas"], &patched["status"]["replicas"]), (&json!(1), &json!(2)));
    assert_eq!(patched["metadata"]["generation"], 1);
    let both = json!({"spec": {"replicas": 3}, "status": {"replicas": 3}});
    let (_, patched) = client.patch(&main_path, "merge-patch", &both).await;
    assert_eq!((&patched["spec"]["replicas"], &patched["status"]["replicas"]), (&json!(3), &json!(2)));
    assert_eq!(patched["metadata"]["generation"], 2);
    let (_, labelled) = client.patch(&main_path, "merge-patch", &json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!(labelled["metadata"]["generation"], 2);
    assert_eq!(client.get(&format!("{CONFIG_MAPS}/a/status")).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn each_patch_type_merges_differently() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [
        {"name": "a", "image": "a:1", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "b:1"},
    ]}});
    post(&mut client, PODS, &pod).await;
    let path = format!("{PODS}/p");
    let strategic = json!({"spec": {"containers": [
        {"name": "a", "image": "a:2", "env": [{"name": "Y", "value": "2"}]}, {"name": "b", "$patch": "delete"},
    ]}});
    let (code, patched) = client.patch(&path, "strategic-merge-patch", &strategic).await;
    assert_eq!(code, 200);
    let containers = json!([{"name": "a", "image": "a:2", "env": [
        {"name": "Y", "value": "2"}, {"name": "X", "value": "1"},
    ]}]);
    assert_eq!(patched["spec"]["containers"], containers);

    let operations = json!([
        {"op": "test", "path": "/spec/containers/0/image", "value": "a:2"},
        {"op": "replace", "path": "/spec/containers/0/image", "value": "a:3"},
    ]);
    let (code, patched) = client.patch(&path, "json-patch", &operations).await;
    assert_eq!((code, &patched["spec"]["containers"][0]["image"]), (200, &json!("a:3")));
    assert_eq!(client.patch(&path, "json-patch", &operations).await.0, 422);

    let merge = json!({"spec": {"containers": [{"name": "c"}]}});
    let (_, patched) = client.patch(&path, "merge-patch", &merge).await;
    assert_eq!(patched["spec"]["containers"], json!([{"name": "c"}]));
    let stale = json!({"metadata": {"resourceVersion": "1"}});
    assert_eq!(client.patch(&path, "merge-patch", &stale).await.0, 409);
}

#[tokio::test(start_paused = true)]
async fn deletion_sets_garbage_collector_finalizers() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let path = format!("{CONFIG_MAPS}/a");
    post(&mut client, CONFIG_MAPS, &json!({"metadata": {"name": "a"}})).await;
    for (policy, finalizer) in [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")] {
        let (code, held) = delete(&mut client, &path, &json!({"propagationPolicy": policy})).await;
        let metadata = &held["metadata"];
        assert_eq!((code, &metadata["finalizers"]), (200, &json!([finalizer])));
        assert_eq!(metadata["deletionTimestamp"], "2026-01-01T00:00:00Z");
    }
    let (code, _) = delete(&mut client, &path, &json!({"propagationPolicy": "Background"})).await;
    assert_eq!((code, client.get(&path).await.0), (200, 404));
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    post(&mut client, jobs, &json!({"metadata": {"name": "a"}})).await;
    let request = client.request(Method::DELETE, &format!("{jobs}/a"), &[], &Value::Null).await.unwrap();
    let warning = request.headers()["warning"].to_str().unwrap();
    assert!(warning.contains("child pods are preserved by default when jobs are deleted"), "{warning}");
    assert_eq!(client.get(&format!("{jobs}/a")).await.1["metadata"]["finalizers"], json!(["orphan"]));
    let request = client.request(Method::DELETE, jobs, &[], &Value::Null).await.unwrap();
    assert!(request.headers().contains_key("warning"));
}

#[tokio::test(start_paused = true)]
async fn invalid_metadata_is_rejected_without_loss() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let path = format!("{CONFIG_MAPS}/a");
    let object = json!({"metadata": {"name": "a", "labels": {"app": "web"}, "finalizers": ["example.com/hold"]}});
    let (_, created) = post(&mut client, CONFIG_MAPS, &object).await;
    for metadata in [json!("text"), json!([]), json!({"namespace": 7}), json!({"labels": "text"})] {
        let wrong = json!({"metadata": metadata});
        assert_eq!(client.patch(&path, "merge-patch", &wrong).await.0, 422, "{metadata}");
        assert_eq!(put(&mut client, &path, &wrong).await.0, 400, "{metadata}");
    }
    assert_eq!(put(&mut client, &path, &json!({"kind": 7, "metadata": {"name": "a"}})).await.0, 400);
    assert_eq!(client.get(&path).await.1, created);
    let service = "/api/v1/namespaces/default/services/a";
    assert_eq!(put(&mut client, service, &json!({"metadata": "text"})).await.0, 400, "the update creates no object");
    post(&mut client, DEPLOYMENTS, &json!({"metadata": {"name": "a"}, "spec": {"replicas": 2}})).await;
    let scale = format!("{DEPLOYMENTS}/a/scale");
    for wrong in [json!({"spec": "text"}), json!({"metadata": {"resourceVersion": 5}})] {
        assert_eq!(put(&mut client, &scale, &wrong).await.0, 400, "{wrong}");
        assert_eq!(client.patch(&scale, "merge-patch", &wrong).await.0, 422, "{wrong}");
    }
    assert_eq!(client.get(&scale).await.1["spec"]["replicas"], 2);
}

#[tokio::test(start_paused = true)]
async fn duplicate_field_is_always_reported() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let replicas = json!({"metadata": {"name": "a"}, "spec": {"replicas": 1}});
    post(&mut client, DEPLOYMENTS, &replicas).await;
    let path = format!("{DEPLOYMENTS}/a");
    for (method, place, content_type, body, flaw) in [
        ("PUT", "", "application/json", r#"{"spec": {"replicas": 2, "replicas": 3}}"#, "spec.replicas"),
        ("PATCH", "", "application/merge-patch+json", r#"{"spec": {"replicas": 2, "replicas": 3}}"#, "spec.replicas"),
        ("PUT", "/scale", "application/json", r#"{"spec": {"replicas": 2, "replicas": 3}}"#, "spec.replicas"),
        ("PATCH", "/scale", "application/merge-patch+json", r#"{"spec": {"replicas": 1}, "spec": {}}"#, "spec"),
        ("PATCH", "", "application/apply-patch+yaml", r#"{"spec": {"replicas": 2, "replicas": 3}}"#, "spec.replicas"),
    ] {
        for (validation, refused) in [("Warn", false), ("Strict", true)] {
            let mut uri = format!("{path}{place}?fieldManager=m&fieldValidation={validation}");
            let mut body = body.to_owned();
            if content_type.contains("apply") {
                uri.push_str("&force=true");
                body.insert_str(1, r#""apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "#);
            }
            let request = http::Request::builder().method(method).uri(&uri).header("host", "localhost");
            let request = request.header("content-type", content_type).body(body.into_bytes().into()).unwrap();
            let response = client.send(request).await.unwrap();
            assert_eq!(response.status().is_client_error(), refused, "{method} {place} {content_type}");
            let warning = response.headers().get("warning").map(|text| text.to_str().unwrap().to_owned());
            let expected = format!("duplicate field \\\"{flaw}\\\"");
            let is_warned = warning.as_ref().is_some_and(|warning| warning.contains(&expected));
            assert_eq!(is_warned, !refused, "{method} {place} {content_type}: {warning:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn finalizers_delay_the_removal() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let mut object = config_map("a");
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    let created = server.create(&object).unwrap();
    let path = format!("{CONFIG_MAPS}/a");
    let mut watch = client.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", server.revision())).await;
    let (code, held) = delete(&mut client, &path, &Value::Null).await;
    assert_eq!((code, &held["metadata"]["deletionTimestamp"]), (200, &json!("2026-01-01T00:00:00Z")));
    assert_eq!(watch.summary().await.0, "MODIFIED");
    assert_eq!(delete(&mut client, &path, &Value::Null).await.0, 200);
    let more = json!({"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}});
    assert_eq!(client.patch(&path, "merge-patch", &more).await.0, 422);
    let released = json!({"metadata": {"finalizers": null}});
    assert_eq!(client.patch(&path, "merge-patch", &released).await.0, 200);
    let deleted = watch.event().await;
    assert_eq!(
        (&deleted["type"], &deleted["object"]["metadata"]["uid"]),
        (&json!("DELETED"), &created["metadata"]["uid"])
    );
    assert_eq!(client.get(&path).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn deletion_checks_preconditions_and_selects_collections() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    for (name, app) in [("a", "web"), ("b", "web"), ("c", "api")] {
        server.create(&crate::support::labelled(name, &json!({"app": app}))).unwrap();
    }
    let path = format!("{CONFIG_MAPS}/a");
    for preconditions in [json!({"uid": "x"}), json!({"resourceVersion": "1"})] {
        let (code, _) = delete(&mut client, &path, &json!({"preconditions": preconditions})).await;
        assert_eq!(code, 409);
    }
    let (code, status) = delete(&mut client, &path, &json!({"propagationPolicy": "Background"})).await;
    assert_eq!((code, &status["status"], &status["details"]["name"]), (200, &json!("Success"), &json!("a")));
    assert_eq!(delete(&mut client, &path, &Value::Null).await.0, 404);
    let (_, list) = delete(&mut client, &format!("{CONFIG_MAPS}?labelSelector=app%3Dweb"), &Value::Null).await;
    assert_eq!(names(&list), ["b"]);
    assert_eq!(names(&client.get(CONFIG_MAPS).await.1), ["c"]);
}

#[tokio::test(start_paused = true)]
async fn namespace_deletes_contents_before_itself() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    post(&mut client, "/api/v1/namespaces", &json!({"metadata": {"name": "team"}})).await;
    let team_path = CONFIG_MAPS.replace("default", "team");
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    post(&mut client, &team_path, &held).await;
    post(&mut client, &team_path, &json!({"metadata": {"name": "free"}})).await;
    let (code, namespace) = delete(&mut client, "/api/v1/namespaces/team", &Value::Null).await;
    assert_eq!((code, &namespace["status"]["phase"]), (200, &json!("Terminating")));
    tokio::time::sleep(std::time::Duration::from_secs(6)).await;
    assert_eq!(names(&client.get(&team_path).await.1), ["held"]);
    let (code, _) = post(&mut client, &team_path, &json!({"metadata": {"name": "late"}})).await;
    assert_eq!(code, 403);
    let released = json!({"metadata": {"finalizers": null}});
    client.patch(&format!("{team_path}/held"), "merge-patch", &released).await;
    assert_eq!(client.get("/api/v1/namespaces/team").await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn events_share_one_collection() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let (old, new) = ("/api/v1/namespaces/default/events", "/apis/events.k8s.io/v1/namespaces/default/events");
    let about = json!({"kind": "Pod", "namespace": "default", "name": "p"});
    let event = json!({"metadata": {"name": "a"}, "involvedObject": about, "message": "it began", "reason": "Begun"});
    let mut watch = client.watch(&format!("{new}?watch=1&resourceVersion={}", server.revision())).await;
    assert_eq!(post(&mut client, old, &event).await.0, 201);
    let observed = watch.event().await;
    assert_eq!((&observed["object"]["note"], &observed["object"]["regarding"]), (&json!("it began"), &about));
    assert_eq!(observed["object"]["apiVersion"], "events.k8s.io/v1");
    let note = json!({"note": "it ended"});
    let (code, patched) = client.patch(&format!("{new}/a"), "merge-patch", &note).await;
    assert_eq!((code, &patched["note"], &patched["message"]), (200, &json!("it ended"), &Value::Null));
    let (_, read) = client.get(&format!("{old}/a")).await;
    assert_eq!(
        (&read["message"], &read["note"], &read["apiVersion"]),
        (&json!("it ended"), &Value::Null, &json!("v1"))
    );
    let of_pod = client.get(&format!("{new}?fieldSelector=regarding.name%3Dp")).await.1;
    assert_eq!((names(&of_pod), &of_pod["items"][0]["regarding"]), (vec!["a"], &about));
    let other = client.get(&format!("{new}?fieldSelector=regarding.name%3Dq")).await.1;
    assert_eq!(names(&other), Vec::<&str>::new());
    assert_eq!(server.get("events.events.k8s.io", "default", "a").unwrap()["note"], "it ended");
    assert_eq!(delete(&mut client, &format!("{new}/a"), &Value::Null).await.0, 200);
    assert_eq!(client.get(&format!("{old}/a")).await.0, 404);
}

/// Returns a definition of widgets with two versions, of which the older one is served but not stored.
fn definition_of_widgets() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "shortNames": ["wd"]},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": schema},
                {"name": "v1beta1", "served": true, "storage": false, "schema": schema},
            ],
        },
    })
}

#[tokio::test(start_paused = true)]
async fn invalid_metadata_error_names_request_version() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    post(&mut client, DEFINITIONS, &definition_of_widgets()).await;
    for version in ["v1", "v1beta1"] {
        let widget = json!({"metadata": {"name": "w", "generation": "first"}});
        let (code, status) = post(&mut client, &WIDGETS.replace("v1", version), &widget).await;
        assert_eq!(code, 400);
        let prefix = format!("Widget in version \"{version}\" cannot be handled as a Widget: ");
        assert!(message(&status).starts_with(&prefix), "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn definition_adds_and_removes_its_resource() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    assert_eq!(client.get(WIDGETS).await.0, 404);
    let (code, created) = post(&mut client, DEFINITIONS, &definition_of_widgets()).await;
    assert_eq!((code, &created["status"]["conditions"]), (201, &Value::Null));
    let (_, defined) = client.get(&format!("{DEFINITIONS}/widgets.example.com")).await;
    assert_eq!(defined["status"]["conditions"][1]["type"], "Established");
    let (_, widget) = post(&mut client, WIDGETS, &json!({"metadata": {"name": "w"}, "spec": {"size": 1}})).await;
    assert_eq!((&widget["apiVersion"], &widget["metadata"]["generation"]), (&json!("example.com/v1"), &json!(1)));
    let (_, older) = client.get(&format!("{}/w", WIDGETS.replace("v1", "v1beta1"))).await;
    assert_eq!(older["apiVersion"], "example.com/v1beta1");
    let (_, discovered) = client.get("/apis/example.com/v1").await;
    assert_eq!(discovered["resources"][0]["shortNames"], json!(["wd"]));
    assert_eq!(discovered["resources"][1]["name"], "widgets/status");
    // Updates of custom resources require a version.
    let (code, _) = put(&mut client, &format!("{WIDGETS}/w"), &json!({"metadata": {"name": "w"}})).await;
    assert_eq!(code, 422);

    let mut watch = client.watch(&format!("{WIDGETS}?watch=1&resourceVersion={}", server.revision())).await;
    delete(&mut client, &format!("{DEFINITIONS}/widgets.example.com"), &Value::Null).await;
    assert_eq!(watch.summary().await.0, "DELETED");
    watch.assert_ends().await;
    assert_eq!(client.get(WIDGETS).await, (404, json!("404 page not found\n")));
}

#[tokio::test(start_paused = true)]
async fn discovery_lists_served_resources() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    assert_eq!(client.get("/api").await.1["versions"], json!(["v1"]));
    let (_, resources) = client.get("/api/v1").await;
    let pods = resources["resources"].as_array().unwrap().iter().find(|entry| entry["name"] == "pods").unwrap();
    assert_eq!((&pods["shortNames"], &pods["categories"]), (&json!(["po"]), &json!(["all"])));
    let (_, groups) = client.get("/apis").await;
    assert!(groups["groups"].as_array().unwrap().iter().any(|group| group["name"] == "apps"));
    assert_eq!(client.get("/apis/apps").await.1["preferredVersion"]["version"], "v1");
    assert_eq!(client.get("/version").await.1["major"], "1");
    assert_eq!(client.get("/readyz").await, (200, json!("ok")));
    assert_eq!(client.get("/api/v1/nothing").await.1["reason"], "NotFound");
    assert_eq!(client.get("/nowhere").await, (404, json!("404 page not found\n")));
    let (code, _) = client.call(Method::PUT, CONFIG_MAPS, &json!({})).await.unwrap();
    assert_eq!(code, 405);
}

/// Returns a pod with a label, a phase and a readiness.
fn pod(name: &str, is_ready: bool) -> Value {
    let status = if is_ready { "True" } else { "False" };
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "labels": {"app": "shop"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": status}]},
    })
}

async fn evict(client: &mut Client, name: &str) -> (u16, Value) {
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    let path = format!("/api/v1/namespaces/default/pods/{name}/eviction");
    client.call(Method::POST, &path, &eviction).await.expect("a response")
}

#[tokio::test]
async fn eviction_respects_disruption_budgets() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    for (name, is_ready) in [("a", true), ("b", true), ("c", false)] {
        server.create(&pod(name, is_ready)).unwrap();
    }
    server
        .create(&json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": "shop", "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "shop"}}},
        }))
        .unwrap();
    assert_eq!(evict(&mut client, "c").await.0, 201, "a pod that is not ready");
    assert_eq!(evict(&mut client, "a").await.0, 201);
    let (code, status) = evict(&mut client, "b").await;
    assert_eq!((code, status["reason"].as_str()), (429, Some("TooManyRequests")), "{status}");
    let expected = "The disruption budget shop needs 1 healthy pods and has 1 currently";
    assert_eq!(status["details"]["causes"][0]["message"], expected);
    assert_eq!(evict(&mut client, "missing").await.0, 404);
    // A budget with an up-to-date status is used without counting pods.
    let status =
        json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1}});
    server.merge_patch("poddisruptionbudgets", "default", "shop", status).unwrap();
    assert_eq!(evict(&mut client, "b").await.0, 201);
    let budget = server.get("poddisruptionbudgets", "default", "shop").unwrap();
    assert_eq!(budget["status"]["disruptionsAllowed"], 0);
    assert!(server.get("pods", "default", "b").is_err());
}

#[tokio::test(start_paused = true)]
async fn issued_token_is_accepted_until_it_expires() {
    let server = ApiServer::builder().in_memory().token("secret").start().await.unwrap();
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a", "namespace": "default"}});
    server.create(&account).unwrap();
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let path = "/api/v1/namespaces/default/serviceaccounts/a/token";
    let headers = [("authorization", "Bearer secret"), ("content-type", "application/json")];
    let request = |seconds: i64| json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": seconds}});
    let (code, _) = client.call_with(Method::POST, path, &headers, &request(60)).await.unwrap();
    assert_eq!(code, 422, "less than ten minutes");
    let (code, issued) = client.call_with(Method::POST, path, &headers, &request(600)).await.unwrap();
    assert_eq!(code, 201, "{issued}");
    let bearer = format!("Bearer {}", issued["status"]["token"].as_str().expect("a token"));
    let headers = [("authorization", bearer.as_str())];
    assert_eq!(client.call_with(Method::GET, CONFIG_MAPS, &headers, &Value::Null).await.unwrap().0, 200);
    tokio::time::advance(std::time::Duration::from_secs(601)).await;
    assert_eq!(client.call_with(Method::GET, CONFIG_MAPS, &headers, &Value::Null).await.unwrap().0, 401);
}

#[tokio::test]
async fn missing_subresource_and_logs_are_rejected() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    server.create(&pod("a", true)).unwrap();
    let pod = "/api/v1/namespaces/default/pods/a";
    for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE] {
        let (code, _) = client.call(method.clone(), &format!("{pod}/odd"), &json!({})).await.unwrap();
        assert_eq!(code, 404, "{method}");
    }
    assert_eq!(client.call(Method::PUT, &format!("{pod}/eviction"), &json!({})).await.unwrap().0, 405);
    let (code, status) = client.get(&format!("{pod}/log")).await;
    assert_eq!(code, 400);
    assert!(status["message"].as_str().unwrap_or_default().starts_with("pod a runs nowhere"), "{status}");
}

#[tokio::test]
async fn pod_is_assigned_once() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    server.create(&pod("a", true)).unwrap();
    let path = "/api/v1/namespaces/default/pods/a/binding";
    let binding =
        json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}, "target": {"name": "node-1"}});
    assert_eq!(client.call(Method::POST, path, &binding).await.unwrap().0, 201);
    assert_eq!(server.get("pods", "default", "a").unwrap()["spec"]["nodeName"], "node-1");
    assert_eq!(client.call(Method::POST, path, &binding).await.unwrap().0, 409);
}

#[tokio::test]
async fn service_gets_addresses_and_keeps_them() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let path = "/api/v1/namespaces/default/services";
    let service = |name: &str, kind: &str| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"type": kind, "ports": [{"port": 80}, {"port": 81, "nodePort": 30000}]}})
    };
    let (code, first) = post(&mut client, path, &service("a", "NodePort")).await;
    assert_eq!(code, 201, "{first}");
    assert_eq!(first["spec"]["clusterIP"], "10.96.0.1");
    assert_eq!(first["spec"]["clusterIPs"], json!(["10.96.0.1"]));
    assert_eq!(first["spec"]["ports"][0]["nodePort"], 30001);
    let mut plain = service("b", "ClusterIP");
    plain["spec"]["ports"] = json!([{"port": 80}]);
    let (_, second) = post(&mut client, path, &plain).await;
    assert_eq!((&second["spec"]["clusterIP"], second["spec"]["ports"][0].get("nodePort")), (&json!("10.96.0.2"), None));
    let mut headless = plain.clone();
    headless["metadata"]["name"] = "c".into();
    headless["spec"]["clusterIP"] = "None".into();
    assert_eq!(post(&mut client, path, &headless).await.1["spec"]["clusterIP"], "None");
    let (code, replaced) = put(&mut client, &format!("{path}/a"), &service("a", "NodePort")).await;
    assert_eq!(code, 200, "{replaced}");
    assert_eq!(replaced["spec"], first["spec"]);
}
