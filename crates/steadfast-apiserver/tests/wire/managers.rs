//! Field managers as clients see them: apply, conflicts and resets.

use crate::support::{CONFIG_MAPS, Client, in_memory_server};
use http::Method;
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GADGETS: &str = "/apis/managers.steadfast.dev/v1/namespaces/default/gadgets";

async fn apply(client: &mut Client, path: &str, options: &str, object: &Value) -> (u16, Value) {
    let headers = [("content-type", "application/apply-patch+yaml")];
    client.call_with(Method::PATCH, &format!("{path}?{options}"), &headers, object).await.unwrap()
}

fn managers(object: &Value) -> Vec<(String, Value)> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    let manager_label = |entry: &Value| {
        format!("{} {} {}", text(entry, "operation"), text(entry, "manager"), text(entry, "subresource"))
    };
    entries.iter().map(|entry| (manager_label(entry).trim_end().to_owned(), entry["fieldsV1"].clone())).collect()
}

fn config_map(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
}

#[tokio::test(start_paused = true)]
async fn conflicting_apply_fails_until_forced() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let path = format!("{CONFIG_MAPS}/a");
    let (code, _) = apply(&mut client, &path, "fieldManager=one", &config_map(&json!({"x": "1", "y": "1"}))).await;
    assert_eq!(code, 201);
    let other = config_map(&json!({"x": "2"}));
    let (code, refusal) = apply(&mut client, &path, "fieldManager=two", &other).await;
    assert_eq!((code, &refusal["reason"]), (409, &json!("Conflict")));
    assert_eq!(refusal["message"], "Apply failed with 1 conflict: conflict with \"one\": .data.x");
    assert_eq!(refusal["details"]["causes"][0]["field"], ".data.x");
    let (code, object) = apply(&mut client, &path, "fieldManager=two&force=true", &other).await;
    assert_eq!((code, &object["data"]), (200, &json!({"x": "2", "y": "1"})));
    let expected = [
        ("Apply one".to_owned(), json!({"f:data": {"f:y": {}}})),
        ("Apply two".to_owned(), json!({"f:data": {"f:x": {}}})),
    ];
    assert_eq!(managers(&object), expected);
    let (_, object) = apply(&mut client, &path, "fieldManager=one", &config_map(&json!({}))).await;
    assert_eq!(object["data"], json!({"x": "2"}), "fields that are no longer applied are removed");
}

#[tokio::test(start_paused = true)]
async fn update_keeps_or_resets_managers() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let path = format!("{CONFIG_MAPS}/a");
    let body = config_map(&json!({"x": "1"}));
    for reset_value in [json!([]), json!([{}])] {
        for by_patch in [false, true] {
            apply(&mut client, &path, "fieldManager=one", &body).await;
            let (_, kept) = client.call(Method::PUT, &path, &body).await.unwrap();
            assert_eq!(managers(&kept).len(), 1, "{kept}");
            let (code, forgotten) = if by_patch {
                client.patch(&path, "merge-patch", &json!({"metadata": {"managedFields": reset_value}})).await
            } else {
                let mut body = body.clone();
                body["metadata"]["managedFields"] = reset_value.clone();
                client.call(Method::PUT, &path, &body).await.unwrap()
            };
            assert_eq!((code, managers(&forgotten)), (200, Vec::new()), "{reset_value} {by_patch}");
            client.call(Method::DELETE, &path, &Value::Null).await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn applied_object_is_decoded_by_its_type() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let path = "/api/v1/namespaces/default/secrets/a";
    let secret =
        |data: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "data": {"k": data}});
    for _ in 0..2 {
        let (code, refusal) = apply(&mut client, path, "fieldManager=one", &secret("no base64!")).await;
        let message = refusal["message"].as_str().unwrap();
        assert!(
            code == 500
                && message.starts_with("failed to convert new object (/a; /v1, Kind=Secret) to proper version: "),
            "{message}"
        );
        assert!(!message.contains("no base64"), "errors must not contain the contents of secrets: {message}");
        let (_, applied) = apply(&mut client, path, "fieldManager=one", &secret("YWJj\nZGVm")).await;
        assert_eq!(applied["data"]["k"], "YWJjZGVm");
    }
}

/// Regression test for script 232 of the differential test of applies.
#[tokio::test(start_paused = true)]
async fn restored_deletion_time_has_no_manager() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    let path = format!("{CONFIG_MAPS}/a");
    let mut body = config_map(&json!({"x": "1"}));
    body["metadata"]["finalizers"] = json!(["steadfast.dev/held"]);
    client.call(Method::POST, CONFIG_MAPS, &body).await.unwrap();
    client.patch(&path, "merge-patch", &json!({"metadata": {"managedFields": [{}]}})).await;
    client.call(Method::DELETE, &path, &Value::Null).await.unwrap();
    let (_, applied) = apply(&mut client, &path, "fieldManager=one", &config_map(&json!({"y": "1"}))).await;
    let held = json!({".": {}, "v:\"steadfast.dev/held\"": {}});
    let with_times = json!({
        "f:data": {".": {}, "f:x": {}},
        "f:metadata": {
            "f:deletionGracePeriodSeconds": {}, "f:deletionTimestamp": {}, "f:finalizers": held,
        },
    });
    let before = "Update before-first-apply".to_owned();
    assert_eq!(managers(&applied)[1], (before.clone(), with_times));
    body["data"]["y"] = json!("1");
    let (code, updated) = client.call(Method::PUT, &path, &body).await.unwrap();
    assert_eq!((code, &updated["metadata"]["deletionTimestamp"]), (200, &applied["metadata"]["deletionTimestamp"]));
    let without = json!({"f:data": {".": {}, "f:x": {}}, "f:metadata": {"f:finalizers": held}});
    assert_eq!(managers(&updated)[1], (before, without));
}

async fn define(client: &mut Client) {
    let number = json!({"type": "integer"});
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"replicas": number, "size": number}}, "status": any,
    }});
    let scale = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.managers.steadfast.dev"},
        "spec": {
            "group": "managers.steadfast.dev", "scope": "Namespaced",
            "names": {"plural": "gadgets", "kind": "Gadget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}, "scale": scale},
            }],
        },
    });
    assert_eq!(client.call(Method::POST, DEFINITIONS, &definition).await.unwrap().0, 201);
}

fn gadget(spec: &Value, status: &Value) -> Value {
    json!({"apiVersion": "managers.steadfast.dev/v1", "kind": "Gadget", "metadata": {"name": "a"}, "spec": spec,
           "status": status})
}

#[tokio::test(start_paused = true)]
async fn mistyped_object_gets_no_managers() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    define(&mut client).await;
    let (code, created) = client.call(Method::POST, GADGETS, &gadget(&json!({"size": 1}), &json!(3))).await.unwrap();
    assert_eq!(
        (code, managers(&created)),
        (201, Vec::new()),
        "a number is not a valid status, although the status is dropped"
    );
    client.call(Method::DELETE, &format!("{GADGETS}/a"), &Value::Null).await.unwrap();
    let (_, created) = client.call(Method::POST, GADGETS, &gadget(&json!({"size": 1}), &json!({}))).await.unwrap();
    let spec = json!({"f:spec": {".": {}, "f:size": {}}});
    assert_eq!(managers(&created), [("Update unknown".to_owned(), spec)]);
    let type_mismatch = json!({"spec": {"size": "many"}, "status": {"x": 1}});
    let (code, changed) = client.patch(&format!("{GADGETS}/a/status"), "merge-patch", &type_mismatch).await;
    assert_eq!((code, &changed["status"]), (200, &json!({"x": 1})));
    assert_eq!(managers(&changed), managers(&created));
}

#[tokio::test(start_paused = true)]
async fn scaling_takes_over_managed_replicas() {
    let server = in_memory_server().await;
    let mut client = Client::in_memory(&server, 0).await.unwrap();
    define(&mut client).await;
    let path = format!("{GADGETS}/a");
    let replicas = json!({"f:spec": {"f:replicas": {}}});
    for (spec, scalers) in [(json!({"size": 1, "replicas": 1}), vec![replicas]), (json!({"size": 1}), Vec::new())] {
        client.call(Method::POST, GADGETS, &gadget(&spec, &json!({}))).await.unwrap();
        let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"},
                           "spec": {"replicas": 5}});
        assert_eq!(client.call(Method::PUT, &format!("{path}/scale"), &scale).await.unwrap().0, 200);
        let (_, scaled) = client.get(&path).await;
        assert_eq!(scaled["spec"]["replicas"], 5);
        let scale_fields =
            |(manager_label, fields): (String, Value)| (manager_label == "Update unknown scale").then_some(fields);
        let found: Vec<Value> = managers(&scaled).into_iter().filter_map(scale_fields).collect();
        assert_eq!(found, scalers, "{spec}");
        client.call(Method::DELETE, &path, &Value::Null).await.unwrap();
    }
}
