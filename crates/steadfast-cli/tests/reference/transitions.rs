//! `steadfast watch` on the reference, while the test writes what controllers and kubelets of a cluster write: the text
//! of each change, and the changes of `-o json`, which applied to the old object must return the new one.

use std::collections::HashMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::Request;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use steadfast_testing::TestError;
use steadfast_testing::reference::Reference;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::apply::apply;
use crate::custom_kinds::CustomKind;

const LINE_TIMEOUT: Duration = Duration::from_secs(60);
/// Number of random updates of each generated custom kind.
const UPDATES_PER_KIND: usize = 20;

const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/default/deployments/web";
const REPLICA_SET: &str = "/apis/apps/v1/namespaces/default/replicasets/web-7d9f";
const POD: &str = "/api/v1/namespaces/default/pods/web-0";
const NODE: &str = "/api/v1/nodes/node-3";
const CONFIG: &str = "/api/v1/namespaces/default/configmaps/settings";
const SECRET: &str = "/api/v1/namespaces/default/secrets/db";
const SLICE: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/web-1";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/leader";

/// Patch of the object at a path, or of its status, and the start of the line for it. Without text, the change is noise.
type Row = (&'static str, &'static str, Value, &'static str);

/// A running `steadfast watch`, which ends when it is dropped.
struct RunningWatch {
    _child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl RunningWatch {
    /// Starts the program, and returns it with its lines until all `resources` are synced.
    async fn start(
        kubeconfig: &Path,
        resources: &[String],
        arguments: &[&str],
    ) -> Result<(Self, Vec<String>), TestError> {
        let mut child = Command::new(env!("CARGO_BIN_EXE_steadfast"))
            .args(["watch", &resources.join(","), "--utc", "-n", "default", "--kubeconfig"])
            .arg(kubeconfig)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        let mut watch = Self { _child: child, lines };
        let (mut first_lines, mut synced_count) = (Vec::new(), 0);
        while synced_count < resources.len() {
            let line = watch.next_line().await?;
            synced_count += usize::from(line.contains(" synced ") || line.contains(r#""type":"Synced""#));
            first_lines.push(line);
        }
        Ok((watch, first_lines))
    }

    async fn next_line(&mut self) -> Result<String, TestError> {
        let line = timeout(LINE_TIMEOUT, self.lines.next_line()).await.map_err(|_| "no line came")??;
        line.ok_or_else(|| "the program has ended".into())
    }

    /// Returns the next line without its time.
    async fn next_text(&mut self) -> Result<String, TestError> {
        let line = self.next_line().await?;
        let (_, text) = line.split_once("Z ").ok_or_else(|| format!("no time in {line}"))?;
        Ok(text.to_owned())
    }
}

/// Objects according to the lines of `-o json --full -v`.
struct Replay {
    watch: RunningWatch,
    objects: HashMap<String, Value>,
}

impl Replay {
    /// Applies a line. The changes of an update must turn the object of the line before into the one of this line.
    fn apply_line(&mut self, line: &str) -> Result<Value, TestError> {
        let line: Value = serde_json::from_str(line)?;
        let key = format!("{} {}", line["resource"], line["name"]);
        match line["type"].as_str() {
            Some("Added") => assert!(self.objects.insert(key, line["object"].clone()).is_none(), "{line}"),
            Some("Updated") => {
                let old = self.objects.insert(key, line["object"].clone()).ok_or("an update of an unknown object")?;
                // `object` has no managed fields, but `-v` shows their changes.
                let is_visible = |change: &&Value| {
                    !change["path"].as_str().is_some_and(|path| path.starts_with("metadata.managedFields"))
                };
                let changes = line["changes"].as_array().ok_or("an update without changes")?;
                let changes: Vec<Value> = changes.iter().filter(is_visible).cloned().collect();
                assert_eq!(apply(&old, &changes), line["object"], "{line}");
            }
            Some("Deleted") => assert!(self.objects.remove(&key).is_some(), "{line}"),
            _ => {}
        }
        Ok(line)
    }

    /// Reads and applies the next line, which must be an update.
    async fn next_update(&mut self) -> Result<(), TestError> {
        let line = self.watch.next_line().await?;
        let line = self.apply_line(&line)?;
        assert_eq!(line["type"], "Updated", "{line}");
        Ok(())
    }
}

/// Sends a request to the server, and returns its response.
pub(crate) async fn send(client: &Client, method: &str, path: &str, body: &Value) -> Result<Value, TestError> {
    let content_type = match method {
        // Custom resources have no strategic merge patches.
        "PATCH" if path.contains("example.com") => "application/merge-patch+json",
        "PATCH" => "application/strategic-merge-patch+json",
        _ => "application/json",
    };
    let request = Request::builder().method(method).uri(path).header("content-type", content_type);
    let body = if body.is_null() { Vec::new() } else { serde_json::to_vec(body)? };
    let response = client.send(request.body(Body::from(body))?).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    if !status.is_success() {
        return Err(format!("{method} {path}: {status}: {}", String::from_utf8_lossy(&body)).into());
    }
    Ok(serde_json::from_slice(&body)?)
}

fn template(image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "app", "image": image}]},
    })
}

/// Objects of all kinds of the rows, with their collections.
fn first_objects() -> Vec<(&'static str, Value)> {
    let workload = |kind: &str, name: &str| {
        json!({
            "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template("shop/app:1.4")},
        })
    };
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-0"}});
    pod["spec"] = template("shop/app:1.4")["spec"].clone();
    pod["spec"]["nodeName"] = json!("node-3");
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "web-1"},
        "addressType": "IPv4", "endpoints": [],
    });
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "leader"},
        "spec": {"holderIdentity": "a", "renewTime": "2026-01-01T00:00:00.000000Z"},
    });
    let named = |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
    vec![
        (DEPLOYMENT, workload("Deployment", "web")),
        (REPLICA_SET, workload("ReplicaSet", "web-7d9f")),
        (POD, pod),
        (NODE, named("Node", "node-3")),
        (CONFIG, named("ConfigMap", "settings")),
        (SECRET, named("Secret", "db")),
        (SLICE, slice),
        (LEASE, lease),
    ]
}

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({"status": {"conditions": [{"type": kind, "status": status, "reason": reason}]}})
}

fn container(state: &Value, restarts: u32, is_ready: bool) -> Value {
    let status = json!({
        "name": "app", "image": "shop/app:1.4", "imageID": "", "state": state, "lastState": {},
        "restartCount": restarts, "ready": is_ready,
    });
    json!({"status": {"containerStatuses": [status]}})
}

/// A rollout and a change of its size.
fn rollout() -> Vec<Row> {
    let status = |total: u32, updated: u32, ready: u32| json!({"status": {"replicas": total, "updatedReplicas": updated, "readyReplicas": ready, "availableReplicas": ready}});
    vec![
        (DEPLOYMENT, "", json!({"spec": {"replicas": 5}}), "~ deployments.apps default/web replicas 3→5"),
        (DEPLOYMENT, "/status", status(5, 5, 5), "~ deployments.apps default/web rollout complete: 5/5 updated"),
        (
            DEPLOYMENT,
            "",
            json!({"spec": {"template": template("shop/app:1.5")}}),
            "~ deployments.apps default/web image app 1.4→1.5",
        ),
        (DEPLOYMENT, "/status", status(6, 1, 5), "~ deployments.apps default/web rollout 1/5 updated"),
        (DEPLOYMENT, "/status", status(6, 3, 5), "~ deployments.apps default/web rollout 3/5 updated"),
        (DEPLOYMENT, "/status", status(5, 5, 4), "~ deployments.apps default/web rollout 5/5 updated, ready 5→4 of 5"),
        (
            DEPLOYMENT,
            "/status",
            condition("Progressing", "False", "ProgressDeadlineExceeded"),
            "~ deployments.apps default/web Progressing False (ProgressDeadlineExceeded)",
        ),
        (DEPLOYMENT, "", json!({"spec": {"paused": true}}), "~ deployments.apps default/web paused"),
        (
            DEPLOYMENT,
            "",
            json!({"spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"}}}}}),
            "~ deployments.apps default/web restart requested",
        ),
        (REPLICA_SET, "", json!({"spec": {"replicas": 1}}), "~ replicasets.apps default/web-7d9f replicas 3→1"),
        (
            REPLICA_SET,
            "/status",
            json!({"status": {"replicas": 1, "readyReplicas": 1}}),
            "~ replicasets.apps default/web-7d9f ",
        ),
        (
            SLICE,
            "",
            json!({"endpoints": [{"addresses": ["10.0.0.7"], "conditions": {"ready": true}}]}),
            "~ endpointslices.discovery.k8s.io default/web-1 endpoints +10.0.0.7",
        ),
    ]
}

/// A pod that starts and crashes, and the loss of its node.
fn crash_and_node_loss() -> Vec<Row> {
    let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
    let running = json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}});
    let mut killed = container(&running, 1, false);
    killed["status"]["containerStatuses"][0]["lastState"] =
        json!({"terminated": {"reason": "OOMKilled", "exitCode": 137}});
    let phase =
        |phase: &str, address: &str| json!({"status": {"phase": phase, "podIP": address, "podIPs": [{"ip": address}]}});
    let heartbeat = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:05:00Z"}]}});
    vec![
        (
            POD,
            "/status",
            container(&waiting("ContainerCreating"), 0, false),
            "~ pods default/web-0 container app ContainerCreating",
        ),
        (POD, "/status", phase("Running", "10.0.0.7"), "~ pods default/web-0 phase Pending→Running on node-3"),
        (
            POD,
            "/status",
            container(&running, 0, true),
            "~ pods default/web-0 container app running, ready containers 0→1 of 1",
        ),
        (POD, "/status", condition("Ready", "True", ""), "~ pods default/web-0 Ready True"),
        (POD, "/status", killed, "~ pods default/web-0 restarts 0→1 (OOMKilled)"),
        (
            POD,
            "/status",
            container(&waiting("CrashLoopBackOff"), 1, false),
            "~ pods default/web-0 container app CrashLoopBackOff",
        ),
        (
            POD,
            "/status",
            condition("Ready", "False", "ContainersNotReady"),
            "~ pods default/web-0 Ready True→False (ContainersNotReady)",
        ),
        (NODE, "/status", condition("Ready", "True", "KubeletReady"), "~ nodes node-3 Ready True (KubeletReady)"),
        (NODE, "/status", heartbeat, ""),
        (NODE, "", json!({"spec": {"unschedulable": true}}), "~ nodes node-3 cordoned"),
        (
            NODE,
            "/status",
            condition("Ready", "Unknown", "NodeStatusUnknown"),
            "~ nodes node-3 Ready True→Unknown (NodeStatusUnknown)",
        ),
        (
            NODE,
            "",
            json!({"spec": {"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]}}),
            "~ nodes node-3 ",
        ),
        (POD, "", json!({"metadata": {"labels": {"tier": "front"}}}), "~ pods default/web-0 label +tier=front"),
    ]
}

/// Changes of configuration, and a lease.
fn configuration() -> Vec<Row> {
    vec![
        (CONFIG, "", json!({"data": {"level": "info"}}), "~ configmaps default/settings +data.level=info"),
        (CONFIG, "", json!({"data": {"level": "debug"}}), "~ configmaps default/settings data.level info→debug"),
        (
            CONFIG,
            "",
            json!({"metadata": {"annotations": {"a.b/c": "\u{1b}[2Jx"}}}),
            "~ configmaps default/settings annotation +a.b/c=\\u{1b}[2Jx",
        ),
        (CONFIG, "", json!({"immutable": true}), "~ configmaps default/settings immutable"),
        (SECRET, "", json!({"data": {"password": "cGxhbnRlZA=="}}), "~ secrets default/db +data.password"),
        (SECRET, "", json!({"data": {"password": "cGxhbnRlZDI="}}), "~ secrets default/db data.password changed"),
        (LEASE, "", json!({"spec": {"renewTime": "2026-01-01T00:00:02.000000Z"}}), ""),
        (LEASE, "", json!({"spec": {"holderIdentity": "b"}}), "~ leases.coordination.k8s.io default/leader holder a→b"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_transition_is_shown_and_exact() -> Result<(), TestError> {
    let Some(reference) = Reference::start().await? else { return Ok(()) };
    let client = Client::try_from(reference.kube_config().await?)?;
    for (path, object) in first_objects() {
        let (collection, _) = path.rsplit_once('/').ok_or("a path without a name")?;
        send(&client, "POST", collection, &object).await?;
    }
    let mut custom_kinds: Vec<CustomKind> = (0..6).map(CustomKind::generate).collect();
    for kind in &mut custom_kinds {
        kind.create(&client).await?;
    }
    let built_in = ["deploy", "rs", "pods", "nodes", "cm", "secrets", "endpointslices", "leases"];
    let mut resources = built_in.map(str::to_owned).to_vec();
    resources.extend(custom_kinds.iter().map(CustomKind::resource));
    let kubeconfig = reference.kubeconfig();
    let (mut text, _) = RunningWatch::start(&kubeconfig, &resources, &[]).await?;
    let arguments = ["-o", "json", "--full", "-v", "--show-secrets"];
    let (watch, first_lines) = RunningWatch::start(&kubeconfig, &resources, &arguments).await?;
    let mut replay = Replay { watch, objects: HashMap::new() };
    for line in first_lines {
        replay.apply_line(&line)?;
    }

    let mut unexpected_lines = Vec::new();
    for (path, subresource, patch, expected) in [rollout(), crash_and_node_loss(), configuration()].concat() {
        send(&client, "PATCH", &format!("{path}{subresource}"), &patch).await?;
        replay.next_update().await?;
        if !expected.is_empty() {
            let line = text.next_text().await?;
            if !line.starts_with(expected) {
                unexpected_lines.push(format!("{line:?} instead of {expected:?}"));
            }
        }
    }
    assert!(unexpected_lines.is_empty(), "{unexpected_lines:#?}");
    for kind in &mut custom_kinds {
        let mut update_count = 0;
        while update_count < UPDATES_PER_KIND {
            // A random object can equal the one before, and then the server reports no change.
            if kind.update(&client).await? {
                update_count += 1;
                replay.next_update().await?;
                let line = text.next_text().await?;
                let start = format!("~ {} default/sample ", kind.resource());
                assert!(line.starts_with(&start) && line.len() > start.len(), "{line:?} instead of {start:?}");
            }
        }
    }
    Ok(())
}
