use jiff::Timestamp;
use serde_json::{Value, json};

use super::columns;
use crate::clock::Clock;

/// Returns the cells of a kind's table without the columns of `-o wide`.
fn cells(group: &str, kind: &str, object: &Value) -> Vec<String> {
    let clock = Clock::starting_at("2026-01-01T01:00:00Z".parse::<Timestamp>().unwrap());
    let shown_columns = columns::for_kind(group, kind).iter().filter(|column| !column.is_wide);
    shown_columns
        .map(|column| column.cell(object, &clock))
        .map(|cell| cell.as_str().map_or(cell.to_string(), str::to_owned))
        .collect()
}

fn pod(spec: &Value, status: &Value) -> String {
    let metadata = json!({"name": "p", "creationTimestamp": "2026-01-01T00:59:18Z"});
    cells("", "Pod", &json!({"metadata": metadata, "spec": spec, "status": status})).join(" ")
}

#[test]
fn pod_status_follows_its_containers() {
    let one_container = json!({"containers": [{"name": "a"}]});
    let running_with = |state: Value| json!({"phase": "Running", "containerStatuses": [state]});
    assert_eq!(pod(&one_container, &json!({"phase": "Pending"})), "p 0/1 Pending 0 42s");
    assert_eq!(
        pod(&one_container, &running_with(json!({"ready": true, "state": {"running": {}}}))),
        "p 1/1 Running 0 42s"
    );
    assert_eq!(
        pod(
            &one_container,
            &running_with(json!({
                "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"finishedAt": "2026-01-01T00:59:30Z"}},
            }))
        ),
        "p 0/1 CrashLoopBackOff 3 (30s ago) 42s"
    );
    assert_eq!(
        pod(&one_container, &running_with(json!({"state": {"terminated": {"exitCode": 3}}}))),
        "p 0/1 ExitCode:3 0 42s"
    );
    assert_eq!(
        pod(&one_container, &running_with(json!({"state": {"terminated": {"signal": 9}}}))),
        "p 0/1 Signal:9 0 42s"
    );
    assert_eq!(pod(&one_container, &json!({"phase": "Failed", "reason": "Evicted"})), "p 0/1 Evicted 0 42s");
    let two_statuses = json!({"phase": "Running", "containerStatuses": [
        {"name": "a", "state": {"terminated": {"reason": "Completed"}}},
        {"name": "b", "ready": true, "state": {"running": {}}},
    ]});
    assert_eq!(pod(&json!({"containers": [{"name": "a"}, {"name": "b"}]}), &two_statuses), "p 1/2 NotReady 0 42s");
}

#[test]
fn initialising_pod_shows_its_progress() {
    let spec = json!({
        "initContainers": [{"name": "first"}, {"name": "beside", "restartPolicy": "Always"}, {"name": "last"}],
        "containers": [{"name": "a"}],
    });
    let status = |statuses: Value| json!({"phase": "Pending", "initContainerStatuses": statuses});
    let finished_container = json!({"name": "first", "restartCount": 2, "state": {"terminated": {"exitCode": 0}}});
    let sidecar = json!({"name": "beside", "started": true, "ready": true, "state": {"running": {}}});
    let last = json!({"name": "last", "state": {"running": {}}});
    assert_eq!(pod(&spec, &status(json!([finished_container, sidecar, last]))), "p 1/2 Init:2/3 2 42s");
    let failed = json!({"name": "first", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}});
    assert_eq!(pod(&spec, &status(json!([failed]))), "p 0/2 Init:Error 0 42s");
    let mut initialised =
        status(json!([finished_container, sidecar, {"name": "last", "state": {"terminated": {"exitCode": 0}}}]));
    initialised["containerStatuses"] = json!([{"ready": true, "state": {"running": {}}}]);
    initialised["phase"] = "Running".into();
    assert_eq!(pod(&spec, &initialised), "p 2/2 Running 0 42s");
}

#[test]
fn deleted_pod_is_terminating() {
    let pod = |status: Value| {
        let metadata = json!({"name": "p", "deletionTimestamp": "2026-01-01T01:00:30Z"});
        cells("", "Pod", &json!({"metadata": metadata, "spec": {}, "status": status})).join(" ")
    };
    assert_eq!(pod(json!({"phase": "Running"})), "p 0/0 Terminating 0 <unknown>");
    assert_eq!(pod(json!({"phase": "Succeeded"})), "p 0/0 Succeeded 0 <unknown>");
}

#[test]
fn other_kinds_show_their_columns() {
    let metadata = json!({"name": "x", "creationTimestamp": "2026-01-01T00:00:00Z"});
    let row_text = |group: &str, kind: &str, mut object: Value| {
        object["metadata"] = metadata.clone();
        cells(group, kind, &object).join(" ")
    };
    let deployment = json!({"spec": {"replicas": 3}, "status": {"readyReplicas": 1, "updatedReplicas": 2}});
    assert_eq!(row_text("apps", "Deployment", deployment), "x 1/3 2 0 60m");
    assert_eq!(row_text("", "ConfigMap", json!({"data": {"a": "1"}, "binaryData": {"b": ""}})), "x 2 60m");
    assert_eq!(row_text("", "Secret", json!({"type": "Opaque", "data": {"a": "1"}})), "x Opaque 1 60m");
    let service = json!({"spec": {
        "type": "LoadBalancer", "clusterIP": "10.0.0.1",
        "ports": [{"port": 80, "nodePort": 30080}, {"port": 53, "protocol": "UDP"}],
    }});
    assert_eq!(row_text("", "Service", service), "x LoadBalancer 10.0.0.1 <pending> 80:30080/TCP,53/UDP 60m");
    let node =
        json!({"spec": {"unschedulable": true}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    assert_eq!(row_text("", "Node", node), "x Ready,SchedulingDisabled <none> 60m ");
    let job = json!({
        "spec": {"completions": 2},
        "status": {"succeeded": 2, "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:01:00Z",
            "conditions": [{"type": "Complete", "status": "True"}]},
    });
    assert_eq!(row_text("batch", "Job", job), "x Complete 2/2 60s 60m");
    let event = json!({
        "type": "Normal", "reason": "Made", "involvedObject": {"kind": "Pod", "name": "p"}, "message": "by hand\n",
        "eventTime": "2026-01-01T00:59:00.000000Z",
    });
    assert_eq!(row_text("", "Event", event), "60s Normal Made pod/p by hand");
    let policy = json!({"spec": {"podSelector": {
        "matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "In", "values": ["d", "e"]}],
    }}});
    assert_eq!(row_text("networking.k8s.io", "NetworkPolicy", policy), "x a=b,c in (d,e) 60m");
    assert_eq!(row_text("rbac.authorization.k8s.io", "Role", json!({})), "x 2026-01-01T00:00:00Z");
}

#[test]
fn selector_is_sorted_by_key_and_value() {
    let selector = json!({
        "matchLabels": {"b": "1"},
        "matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["z", "y"]}, {"key": "c", "operator": "Exists"}],
    });
    let policy = json!({"metadata": {"name": "x"}, "spec": {"podSelector": selector}});
    assert_eq!(cells("networking.k8s.io", "NetworkPolicy", &policy)[1], "a notin (y,z),b=1,c");
}

/// Expected texts are the output of `kubectl get hpa` on a real server.
#[test]
fn autoscaler_shows_current_and_target_values() {
    let row_text = |metrics: Value, current: Value| {
        let object = json!({"spec": {"metrics": metrics}, "status": {"currentMetrics": current}});
        cells("autoscaling", "HorizontalPodAutoscaler", &object)[2].clone()
    };
    let percent = |percent: u8| json!({"averageUtilization": percent});
    let average = |quantity: &str| json!({"averageValue": quantity});
    let value = |quantity: &str| json!({"value": quantity});
    let metric = |kind: &str, key: &str, target: Value| json!({"type": kind, key: {"name": "cpu", "target": target}});
    let current_value = |key: &str, current: Value| json!({key: {"current": current}});

    let cpu = metric("Resource", "resource", percent(70));
    let pods = metric("Pods", "pods", average("5"));
    assert_eq!(row_text(json!([pods, cpu]), json!([])), "<unknown>/5, cpu: <unknown>/70%");
    let memory = metric("Resource", "resource", average("100Mi"));
    let current = json!([current_value("pods", average("3")), current_value("resource", average("50Mi"))]);
    assert_eq!(row_text(json!([pods, memory]), current), "3/5, cpu: 50Mi/100Mi");
    let external = [metric("External", "external", value("10")), metric("External", "external", average("7"))];
    let current = json!([current_value("external", value("1500m"))]);
    assert_eq!(row_text(json!([external[0], external[1], pods]), current), "1500m/10, <unknown>/7 (avg) + 1 more...");
    let object = json!([metric("Object", "object", value("10")), metric("Object", "object", average("7"))]);
    let current = json!([current_value("object", value("4")), current_value("object", average("6"))]);
    assert_eq!(row_text(object, current), "4/10, 6/7 (avg)");
    let container = json!([metric("ContainerResource", "containerResource", percent(70))]);
    assert_eq!(row_text(container, json!([current_value("containerResource", percent(33))])), "cpu: 33%/70%");
    assert_eq!(row_text(json!([]), json!([])), "<none>");
}
