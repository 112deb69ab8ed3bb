//! Pods of about the size that they have in real clusters, and their changes.

use serde_json::{Value, json};
use steadfast_apiserver::{ApiServer, Status};

/// Number of namespaces of the pods.
const NAMESPACES: usize = 50;

/// Number of environment variables of a container. The size of a pod depends on it.
const VARIABLES: usize = 20;

/// Namespace and name of the pod that programs sort first. Its status measures the delay.
const FIRST_POD: (&str, &str) = ("a-first", "a-first");

/// Creates `count` pods. Returns their mean length as JSON, in bytes.
pub(crate) fn create(server: &ApiServer, count: usize) -> Result<usize, Status> {
    let namespaces = (0..NAMESPACES).map(namespace).chain([FIRST_POD.0.to_owned()]);
    for name in namespaces {
        server.create(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }))?;
    }
    let mut bytes = server.create(&pod(FIRST_POD.0, FIRST_POD.1, 0))?.to_string().len();
    for number in 1..count {
        bytes += server.create(&pod(&namespace(number), &name(number), number))?.to_string().len();
    }
    Ok(bytes / count.max(1))
}

/// Changes the status of a random pod: a restart of its container, which the columns of the table show.
pub(crate) fn change(server: &ApiServer, count: usize, restarts: u32) -> Result<(), Status> {
    let number = fastrand::usize(1..count);
    let patch = json!({ "status": { "containerStatuses": [container_status(restarts)] } });
    server.merge_patch("pods", &namespace(number), &name(number), patch)?;
    Ok(())
}

/// Changes the status of the first pod to `reason`.
pub(crate) fn change_first(server: &ApiServer, reason: &str) -> Result<(), Status> {
    server.merge_patch("pods", FIRST_POD.0, FIRST_POD.1, json!({ "status": { "reason": reason } }))?;
    Ok(())
}

fn namespace(number: usize) -> String {
    format!("team-{:02}", number % NAMESPACES)
}

fn name(number: usize) -> String {
    format!("web-{:05}-7d4b9c6f5d-{number:06}", number / 20)
}

fn container_status(restarts: u32) -> Value {
    json!({
        "name": "main", "ready": true, "started": true, "restartCount": restarts,
        "image": "registry.example.com/shop/web:1.4.2",
        "imageID": "registry.example.com/shop/web@sha256:4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945",
        "containerID": "containerd://6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b",
        "state": { "running": { "startedAt": "2026-11-26T08:00:03Z" } },
    })
}

fn pod(namespace: &str, name: &str, number: usize) -> Value {
    let app = format!("web-{}", number / 20);
    let variables: Vec<Value> = (0..VARIABLES)
        .map(|at| json!({ "name": format!("SETTING_{at}"), "value": format!("value {at} of deployment {app}") }))
        .collect();
    let probe =
        |path: &str| json!({ "httpGet": { "path": path, "port": 8080, "scheme": "HTTP" }, "periodSeconds": 10 });
    let conditions: Vec<Value> = ["Initialized", "Ready", "ContainersReady", "PodScheduled"]
        .iter()
        .map(|kind| {
            json!({ "type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-11-26T08:00:00Z" })
        })
        .collect();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "generateName": format!("{app}-7d4b9c6f5d-"),
            "labels": {
                "app": app, "app.kubernetes.io/name": app, "app.kubernetes.io/part-of": "shop",
                "pod-template-hash": "7d4b9c6f5d", "tier": "web",
            },
            "annotations": { "prometheus.io/scrape": "true", "prometheus.io/port": "9102" },
            "managedFields": [managed_fields("kube-controller-manager"), managed_fields("kubelet")],
        },
        "spec": {
            "nodeName": format!("node-{}", number % 500),
            "serviceAccountName": app,
            "restartPolicy": "Always",
            "volumes": [
                { "name": "config", "configMap": { "name": format!("{app}-config"), "defaultMode": 420 } },
                { "name": "tls", "secret": { "secretName": format!("{app}-tls"), "defaultMode": 420 } },
            ],
            "containers": [{
                "name": "main",
                "image": "registry.example.com/shop/web:1.4.2",
                "env": variables,
                "ports": [{ "containerPort": 8080, "protocol": "TCP" }],
                "livenessProbe": probe("/live"),
                "readinessProbe": probe("/ready"),
                "resources": {
                    "requests": { "cpu": "100m", "memory": "128Mi" }, "limits": { "memory": "256Mi" },
                },
                "volumeMounts": [
                    { "name": "config", "mountPath": "/etc/config" }, { "name": "tls", "mountPath": "/etc/tls" },
                ],
            }],
            "tolerations": [
                { "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute" },
                { "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute" },
            ],
        },
        "status": {
            "phase": "Running",
            "podIP": format!("10.{}.{}.{}", number >> 16 & 255, number >> 8 & 255, number & 255),
            "hostIP": "192.0.2.7",
            "startTime": "2026-11-26T08:00:00Z",
            "conditions": conditions,
            "containerStatuses": [container_status(0)],
        },
    })
}

/// Returns an entry of about 1 KB, as long as those of a pod in a real cluster.
fn managed_fields(manager: &str) -> Value {
    let variables: serde_json::Map<String, Value> = (0..VARIABLES)
        .map(|at| (format!("k:{{\"name\":\"SETTING_{at}\"}}"), json!({ ".": {}, "f:name": {}, "f:value": {} })))
        .collect();
    json!({
        "manager": manager, "operation": "Update", "apiVersion": "v1", "time": "2026-11-26T08:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": { "f:spec": { "f:containers": { "k:{\"name\":\"main\"}": { "f:env": variables } } } },
    })
}
