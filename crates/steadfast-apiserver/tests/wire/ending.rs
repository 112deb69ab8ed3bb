//! Deletion of namespaces, and warnings of objects without effect.

use std::time::Duration;

use crate::support::{CONFIG_MAPS, Client, in_memory_server, names, seconds_since};
use http::Method;
use serde_json::{Value, json};
use steadfast_apiserver::ApiServer;

const NAMESPACES: &str = "/api/v1/namespaces";
const TEAM: &str = "/api/v1/namespaces/team";

async fn post(client: &mut Client, path: &str, object: &Value) -> (u16, Value) {
    client.call(Method::POST, path, object).await.expect("the server responds")
}

async fn delete(client: &mut Client, path: &str) -> (u16, Value) {
    client.call(Method::DELETE, path, &Value::Null).await.expect("the server responds")
}

/// Creates the namespace `team` with two config maps. Returns a client and the path of the config maps.
async fn create_team(server: &ApiServer) -> (Client, String) {
    let mut client = Client::in_memory(server, 0).await.unwrap();
    post(&mut client, NAMESPACES, &json!({"metadata": {"name": "team"}})).await;
    let team_config_maps = CONFIG_MAPS.replace("default", "team");
    for name in ["a", "b"] {
        post(&mut client, &team_config_maps, &json!({"metadata": {"name": name}})).await;
    }
    (client, team_config_maps)
}

#[tokio::test(start_paused = true)]
async fn deleted_namespace_terminates_before_its_removal() {
    let server = in_memory_server().await;
    let (mut client, team_config_maps) = create_team(&server).await;
    let start_revision = server.revision();
    let mut watch = client.watch(&format!("{NAMESPACES}?watch=1&resourceVersion={start_revision}")).await;
    let mut contents = client.watch(&format!("{team_config_maps}?watch=1&resourceVersion={start_revision}")).await;
    let started = server.elapsed();
    let (code, answered) = delete(&mut client, TEAM).await;
    assert_eq!((code, &answered["spec"]["finalizers"]), (200, &json!(["kubernetes"])));

    let changed = watch.event().await;
    let object = &changed["object"];
    assert_eq!((&changed["type"], &object["status"]["phase"]), (&json!("MODIFIED"), &json!("Terminating")));
    assert!(object["metadata"]["deletionTimestamp"].is_string(), "{object}");
    assert_eq!(
        names(&client.get(&team_config_maps).await.1),
        ["a", "b"],
        "the objects are still present for their deletion"
    );
    assert_eq!(contents.summary().await.0, "DELETED");
    assert_eq!(contents.summary().await.0, "DELETED");
    let (kind, name, _) = watch.summary().await;
    assert_eq!((kind.as_str(), name.as_str()), ("DELETED", "team"));
    assert_eq!(seconds_since(&server, started), 5, "like the controller of a real cluster");
    assert_eq!(client.get(TEAM).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn terminating_namespace_allows_only_deletions() {
    let server = in_memory_server().await;
    let (mut client, team_config_maps) = create_team(&server).await;
    delete(&mut client, TEAM).await;
    let (code, refused) = post(&mut client, &team_config_maps, &json!({"metadata": {"name": "late"}})).await;
    assert_eq!((code, &refused["details"]["causes"][0]["reason"]), (403, &json!("NamespaceTerminating")));
    assert_eq!(post(&mut client, NAMESPACES, &json!({"metadata": {"name": "team"}})).await.0, 409);
    // The order of `kubectl delete -k`: the namespace first, then each of its objects.
    for name in ["a", "b"] {
        assert_eq!(delete(&mut client, &format!("{team_config_maps}/{name}")).await.0, 200, "{name}");
    }
    assert_eq!(client.get(TEAM).await.0, 200, "the namespace is empty, but its termination delay has not ended");
    assert_eq!(delete(&mut client, TEAM).await.0, 200, "a repeated deletion has no effect");
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(client.get(TEAM).await.0, 404);
    assert_eq!(post(&mut client, NAMESPACES, &json!({"metadata": {"name": "team"}})).await.0, 201);
}

#[tokio::test(start_paused = true)]
async fn namespace_without_delay_is_removed_at_once() {
    let server = ApiServer::builder().in_memory().namespace_termination_delay(Duration::ZERO).start().await.unwrap();
    let (mut client, team_config_maps) = create_team(&server).await;
    let start_revision = server.revision();
    assert_eq!(delete(&mut client, TEAM).await.0, 200);
    assert_eq!((client.get(TEAM).await.0, names(&client.get(&team_config_maps).await.1)), (404, Vec::new()));
    assert_eq!(server.revision(), start_revision + 4, "terminating, two config maps, removed");
}

#[tokio::test(start_paused = true)]
async fn own_finalizer_holds_an_empty_namespace() {
    let server = in_memory_server().await;
    let (mut client, team_config_maps) = create_team(&server).await;
    client.patch(TEAM, "merge-patch", &json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
    delete(&mut client, TEAM).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    let (code, held) = client.get(TEAM).await;
    assert_eq!((code, &held["spec"]), (200, &json!({})), "the contents no longer hold the namespace");
    assert_eq!(names(&client.get(&team_config_maps).await.1), Vec::<&str>::new());
    client.patch(TEAM, "merge-patch", &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(client.get(TEAM).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn terminating_namespace_ends_after_a_restore() {
    let server = in_memory_server().await;
    let (mut client, _) = create_team(&server).await;
    delete(&mut client, TEAM).await;
    let backup = server.revision();
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(client.get(TEAM).await.0, 404);
    server.faults().restore(backup);
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    assert_eq!(client.get(TEAM).await.1["status"]["phase"], "Terminating");
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(client.get(TEAM).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn system_namespaces_cannot_be_deleted() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    for name in ["default", "kube-system", "kube-public"] {
        let (code, refused) = delete(&mut client, &format!("{NAMESPACES}/{name}")).await;
        let words = format!("namespaces \"{name}\" is forbidden: this namespace may not be deleted");
        assert_eq!((code, &refused["message"]), (403, &json!(words)));
    }
    assert_eq!(delete(&mut client, &format!("{NAMESPACES}/kube-node-lease")).await.0, 200);
}

/// Performs a request. Returns the code and the warnings of the response.
async fn call_for_warnings(
    client: &mut Client,
    method: Method,
    path: &str,
    kind: &str,
    object: &Value,
) -> (u16, Vec<String>) {
    let response = client.request(method, path, &[("content-type", kind)], object).await.expect("the server responds");
    let headers = response.headers().get_all("warning").iter();
    let warnings = headers.map(|value| value.to_str().expect("a text value").to_owned()).collect();
    (response.status().as_u16(), warnings)
}

#[tokio::test(start_paused = true)]
async fn objects_without_effect_cause_warnings() {
    const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    for (plural, kind, words) in [
        ("validatingwebhookconfigurations", "ValidatingWebhookConfiguration", "this server calls no webhooks"),
        ("mutatingwebhookconfigurations", "MutatingWebhookConfiguration", "this server calls no webhooks"),
        ("validatingadmissionpolicies", "ValidatingAdmissionPolicy", "this server evaluates no admission policies"),
        ("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", "evaluates no admission policies"),
        ("mutatingadmissionpolicies", "MutatingAdmissionPolicy", "this server evaluates no admission policies"),
        ("mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", "evaluates no admission policies"),
    ] {
        let object = |name: &str| json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}});
        let path = format!("{GROUP}/{plural}");
        let (code, warnings) =
            call_for_warnings(&mut client, Method::POST, &path, "application/json", &object("posted")).await;
        assert_eq!((code, warnings.len()), (201, 1), "{kind}: {warnings:?}");
        assert!(warnings[0].starts_with(&format!("299 - \"this {kind} is stored without effect: ")), "{warnings:?}");
        assert!(warnings[0].contains(words), "{warnings:?}");
        let apply = format!("{path}/applied?fieldManager=test");
        let apply_content_type = "application/apply-patch+yaml";
        let (code, warnings) =
            call_for_warnings(&mut client, Method::PATCH, &apply, apply_content_type, &object("applied")).await;
        assert_eq!((code, warnings.len()), (201, 1), "{kind}: {warnings:?}");
        let (code, warnings) =
            call_for_warnings(&mut client, Method::PATCH, &apply, apply_content_type, &object("applied")).await;
        assert_eq!((code, warnings), (200, Vec::new()), "{kind} already exists");
    }
    let map = json!({"metadata": {"name": "a"}});
    assert_eq!(
        call_for_warnings(&mut client, Method::POST, CONFIG_MAPS, "application/json", &map).await,
        (201, Vec::new())
    );
}

#[tokio::test(start_paused = true)]
async fn webhook_conversion_warns_without_the_api() {
    let server = in_memory_server().await;
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let webhook = json!({"clientConfig": {"url": "https://example.test"}, "conversionReviewVersions": ["v1"]});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
            "conversion": {"strategy": "Webhook", "webhook": webhook},
        },
    });
    let (_, warnings) = server.create_with_warnings(&definition).unwrap();
    assert!(matches!(warnings.as_slice(), [warning] if warning.contains("calls no webhooks")), "{warnings:?}");
}
