//! `steadfast watch --related`: the tree of owners and children, and its changes, on the embedded server.

use std::io::{BufRead, BufReader};
use std::process::ChildStdout;

use serde_json::{Value, json};
use steadfast_apiserver::ApiServer;

use crate::run::{KillOnDrop, finish, start, stderr_text, steadfast, temp_file};

/// Returns an object in the namespace `default`, owned by `owner`.
fn object(api_version: &str, kind: &str, name: &str, owner: Option<&Value>, more: Value) -> Value {
    let references: Vec<Value> = owner
        .iter()
        .map(|owner| {
            json!({
                "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"], "controller": true,
            })
        })
        .collect();
    let mut object = more;
    object["apiVersion"] = json!(api_version);
    object["kind"] = json!(kind);
    object["metadata"] = json!({"name": name, "namespace": "default", "ownerReferences": references});
    object
}

fn workload(kind: &str, name: &str, owner: Option<&Value>, replicas: u32) -> Value {
    let spec = json!({
        "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "app", "image": "shop/app:1"}]},
        },
    });
    object("apps/v1", kind, name, owner, json!({"spec": spec}))
}

fn pod(name: &str, owner: Option<&Value>) -> Value {
    object("v1", "Pod", name, owner, json!({"spec": {"containers": [{"name": "app", "image": "shop/app:1"}]}}))
}

/// A deployment with a replica set, a ready pod and a service, next to a pod without an owner.
struct Workload {
    server: ApiServer,
    deployment: Value,
    replica_set: Value,
}

impl Workload {
    async fn start() -> Self {
        let server = ApiServer::builder().tls(true).start().await.expect("a server");
        let create = |object: Value| server.create(&object).expect("an object");
        let deployment = create(workload("Deployment", "web", None, 2));
        let replica_set = create(workload("ReplicaSet", "web-7d9f", Some(&deployment), 2));
        let ready = create(pod("web-7d9f-a", Some(&replica_set)));
        let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        server.merge_patch("pods", "default", "web-7d9f-a", status).expect("a status");
        create(pod("stranger", None));
        let service = create(object("v1", "Service", "front", None, json!({"spec": {"ports": [{"port": 80}]}})));
        let target = json!({"kind": "Pod", "name": "web-7d9f-a", "uid": ready["metadata"]["uid"]});
        let endpoints = json!({
            "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.7"], "targetRef": target}],
        });
        create(object("discovery.k8s.io/v1", "EndpointSlice", "front-x", Some(&service), endpoints));
        Self { server, deployment, replica_set }
    }

    fn kubeconfig(&self, name: &str) -> String {
        temp_file(&format!("watch-related-{name}.kubeconfig"), &self.server.kubeconfig())
    }

    fn watch(&self, name: &str, more: &[&str]) -> (KillOnDrop, BufReader<ChildStdout>) {
        let kubeconfig = self.kubeconfig(name);
        let arguments = ["watch", "deploy/web", "--related", "--utc", "--kubeconfig", &kubeconfig];
        let mut child = KillOnDrop(start(&[&arguments, more].concat()));
        let lines = BufReader::new(child.0.stdout.take().expect("a piped stdout"));
        (child, lines)
    }
}

fn next(lines: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    assert!(lines.read_line(&mut line).expect("a readable line") > 0, "the program exited");
    line.trim_end().to_owned()
}

/// Returns the next line of a change, without its time.
fn change(lines: &mut BufReader<ChildStdout>) -> String {
    let line = next(lines);
    line.split_once("Z ").unwrap_or_else(|| panic!("no time in {line}")).1.to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn tree_precedes_changes_of_relatives() {
    let workload = Workload::start().await;
    let (_child, mut lines) = workload.watch("tree", &[]);
    let tree: Vec<String> = (0..5).map(|_| next(&mut lines)).collect();
    let expected = [
        "✗ deployments.apps default/web ready 0 of 2",
        "└─ ✗ replicasets.apps default/web-7d9f ready 0 of 2",
        "   └─ ✓ pods default/web-7d9f-a Running",
        "· services default/front 10.96.0.1 80",
        "└─ ✓ endpointslices.discovery.k8s.io default/front-x 1 endpoint",
    ];
    for (line, start) in tree.iter().zip(expected) {
        assert!(line.starts_with(start), "{start:?}: {tree:#?}");
    }

    let server = &workload.server;
    let touched = json!({"metadata": {"labels": {"touched": "yes"}}});
    server.merge_patch("pods", "default", "stranger", touched).expect("a patch");
    let created = server.create(&pod("web-7d9f-b", Some(&workload.replica_set))).expect("a pod");
    let line = change(&mut lines);
    assert!(line.starts_with("+ pods default deploy/web › web-7d9f › web-7d9f-b"), "{line}");
    let event = |name: &str, about: &Value| {
        let involved = json!({
            "kind": about["kind"], "name": about["metadata"]["name"], "namespace": "default", "uid": about["metadata"]["uid"],
        });
        let more = json!({"involvedObject": involved, "reason": "Pulled", "message": "image", "type": "Normal"});
        server.create(&object("v1", "Event", name, None, more)).expect("an event");
    };
    let stranger = server.get("pods", "default", "stranger").expect("a pod");
    event("other", &stranger);
    event("own", &created);
    let line = change(&mut lines);
    assert!(line.starts_with("+ events default/own Normal Pulled Pod/web-7d9f-b"), "{line}");
    server.merge_patch("deployments.apps", "default", "web", json!({"spec": {"replicas": 3}})).expect("a patch");
    let line = change(&mut lines);
    assert!(line.starts_with("~ deployments.apps default/web replicas 2→3"), "{line}");
    let newer = server.create(&self::workload("ReplicaSet", "web-8a", Some(&workload.deployment), 1)).expect("a set");
    let line = change(&mut lines);
    assert!(line.starts_with("+ replicasets.apps default deploy/web › web-8a"), "{line}");
    server.create(&pod("web-8a-a", Some(&newer))).expect("a pod");
    let line = change(&mut lines);
    assert!(line.starts_with("+ pods default deploy/web › web-8a › web-8a-a"), "{line}");
    server.delete_named("pods", "default", "web-7d9f-a").expect("a deletion");
    let line = change(&mut lines);
    assert!(line.contains(" pods default deploy/web › web-7d9f › web-7d9f-a"), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn until_considers_named_objects_only() {
    let workload = Workload::start().await;
    let status = json!({"status": {"conditions": [{"type": "Available", "status": "True"}]}});
    workload.server.merge_patch("deployments.apps", "default", "web", status).expect("a status");
    // No other object of the tree has this condition.
    let (mut child, lines) = workload.watch("until", &["--until", "condition=Available", "--until", "50s"]);
    child.0.stdout = Some(lines.into_inner());
    let KillOnDrop(child) = &mut child;
    let status = tokio::task::block_in_place(|| child.wait()).expect("a status");
    assert_eq!(status.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_object_is_awaited() {
    let server = ApiServer::builder().tls(true).start().await.expect("a server");
    let kubeconfig = temp_file("watch-related-missing.kubeconfig", &server.kubeconfig());
    let child = start(&["watch", "deploy/web", "--related", "--utc", "--until", "1", "--kubeconfig", &kubeconfig]);
    let mut child = child;
    let mut lines = BufReader::new(child.stdout.take().expect("a piped stdout"));
    assert_eq!(next(&mut lines), "? deployments.apps web: does not exist; waiting for it");
    server.create(&workload("Deployment", "web", None, 1)).expect("a deployment");
    let line = change(&mut lines);
    assert!(line.starts_with("+ deployments.apps default/web ready 0 of 1"), "{line}");
    child.stdout = Some(lines.into_inner());
    assert!(finish(child).status.success());
}

/// Returns the position of the only line with `part`.
fn position(lines: &[String], part: &str) -> usize {
    let found: Vec<usize> = (0..lines.len()).filter(|index| lines[*index].contains(part)).collect();
    assert_eq!(found.len(), 1, "{part:?} in {lines:#?}");
    found[0]
}

#[tokio::test(flavor = "multi_thread")]
async fn history_of_relatives_follows_tree() {
    let workload = Workload::start().await;
    let server = &workload.server;
    // A pod of the past, and an Event about it and about another pod.
    let gone = server.create(&pod("web-7d9f-gone", Some(&workload.replica_set))).expect("a pod");
    server.delete_named("pods", "default", "web-7d9f-gone").expect("a deletion");
    let stranger = server.get("pods", "default", "stranger").expect("a pod");
    let ready = server.get("pods", "default", "web-7d9f-a").expect("a pod");
    for (name, reason, about) in
        [("own", "Pulled", &ready), ("past", "Killing", &gone), ("other", "BackOff", &stranger)]
    {
        let involved = json!({
            "kind": "Pod", "name": about["metadata"]["name"], "namespace": "default", "uid": about["metadata"]["uid"],
        });
        let more = json!({
            "involvedObject": involved, "reason": reason, "message": "image", "type": "Normal",
            "lastTimestamp": jiff::Timestamp::now().to_string(),
        });
        server.create(&object("v1", "Event", name, None, more)).expect("an event");
    }
    server.merge_patch("deployments.apps", "default", "web", json!({"spec": {"replicas": 3}})).expect("a patch");

    // The stop condition is met at once. It must not end the output before the history.
    let kubeconfig = workload.kubeconfig("since");
    let until = "object.metadata.name == 'web'";
    let arguments =
        ["watch", "deploy/web", "--related", "--utc", "--since", "1h", "--until", until, "--kubeconfig", &kubeconfig];
    let child = start(&arguments);
    let output = tokio::task::spawn_blocking(move || finish(child)).await.expect("an output");
    assert!(output.status.success(), "{}", stderr_text(&output));
    let lines: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    assert!(lines[0].starts_with("✗ deployments.apps default/web ready 0 of 3"), "{lines:#?}");
    assert!(lines[4].starts_with("└─ ✓ endpointslices.discovery.k8s.io default/front-x 1 endpoint"), "{lines:#?}");
    let boundary = position(&lines, "── related objects in default: reconstructed until here, exact changes since");
    for part in [
        "≈ deployments.apps default/web created (reconstructed: creation)",
        "≈ replicasets.apps default/web-7d9f created (reconstructed: creation)",
        "≈ pods default/web-7d9f-a Normal Pulled: image (reconstructed: Event)",
        "≈ services default/front created (reconstructed: creation)",
        // The pod no longer exists.
        "≈ events default/past Normal Killing: image (reconstructed: Event)",
    ] {
        assert!((5..boundary).contains(&position(&lines, part)), "{part:?} in {lines:#?}");
    }
    let reconstructed = &lines[5..boundary];
    assert!(reconstructed.iter().all(|line| line.contains(" ≈ ")), "{lines:#?}");
    assert!(reconstructed.is_sorted_by_key(|line| line.split_once(' ').map(|(time, _)| time)), "{lines:#?}");
    let exact = &lines[boundary + 1..];
    // The oldest known version is that of the replica set.
    for part in [
        "+ pods default/web-7d9f-a Pending",
        "~ pods default/web-7d9f-a phase Pending→Running",
        "- pods default/web-7d9f-gone",
        "+ events default/past Normal Killing Pod/web-7d9f-gone",
        "~ deployments.apps default/web replicas 2→3",
    ] {
        position(exact, part);
    }
    // Versions order the exact changes of all resources.
    assert!(position(exact, "- pods default/web-7d9f-gone") < position(exact, "web replicas 2→3"), "{lines:#?}");
    assert!(!lines.iter().any(|line| line.contains("stranger") || line.contains("/other ")), "{lines:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn live_changes_follow_history_of_relatives() {
    let workload = Workload::start().await;
    let (_child, mut lines) = workload.watch("since-live", &["--since", "1h"]);
    while !next(&mut lines).contains("~ pods default/web-7d9f-a phase Pending→Running") {}
    // The exact changes after this one.
    while !next(&mut lines).contains("+ endpointslices.discovery.k8s.io default/front-x") {}
    let replicas = json!({"spec": {"replicas": 4}});
    workload.server.merge_patch("deployments.apps", "default", "web", replicas).expect("a patch");
    let line = change(&mut lines);
    assert!(line.starts_with("~ deployments.apps default/web replicas 2→4"), "{line}");
    workload.server.create(&pod("web-7d9f-b", Some(&workload.replica_set))).expect("a pod");
    let line = change(&mut lines);
    assert!(line.starts_with("+ pods default deploy/web › web-7d9f › web-7d9f-b"), "{line}");
}

#[test]
fn related_needs_name_and_text() {
    for (arguments, part) in [
        (&["deploy", "--related"][..], "--related needs the name of an object; write it as in deploy/web"),
        (&["deploy/web", "--related", "-o", "json"], "--related needs -o text or -o wide"),
    ] {
        let output = steadfast(&[&["watch"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{}", stderr_text(&output));
        assert!(stderr_text(&output).contains(part), "{}", stderr_text(&output));
    }
}
