//! `steadfast watch` shows what changed, on the embedded server.

use std::io::{BufRead, BufReader, Read};
use std::process::Child;

use serde_json::{Value, json};
use steadfast_apiserver::ApiServer;

use crate::run::{KillOnDrop, finish, signal, start, stderr_text, temp_file};

/// The program, and its output line by line.
struct WatchOutput {
    child: KillOnDrop,
    lines: BufReader<std::process::ChildStdout>,
}

impl WatchOutput {
    /// Starts the program on `server`, and waits until it has printed the existing objects.
    fn start(server: &ApiServer, name: &str, arguments: &[&str]) -> Self {
        let kubeconfig = temp_file(&format!("watch-{name}.kubeconfig"), &server.kubeconfig());
        let all_arguments = [&["watch", "--kubeconfig", &kubeconfig, "--utc"], arguments].concat();
        let mut child = KillOnDrop(start(&all_arguments));
        let lines = BufReader::new(child.0.stdout.take().expect("a piped stdout"));
        let mut watch_output = Self { child, lines };
        let is_synced = |line: &str| line.contains(" synced ") || line.contains("\"type\":\"Synced\"");
        while !is_synced(&watch_output.next_line()) {}
        watch_output
    }

    fn next_line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.lines.read_line(&mut line).expect("a readable line") > 0, "the program exited");
        line.trim_end().to_owned()
    }

    /// Returns the next line without its time.
    fn next_event(&mut self) -> String {
        let line = self.next_line();
        line.split_once("Z ").unwrap_or_else(|| panic!("no time in {line}")).1.to_owned()
    }

    fn next_json(&mut self) -> Value {
        serde_json::from_str(&self.next_line()).expect("valid JSON")
    }

    fn child(&self) -> &Child {
        &self.child.0
    }
}

fn deployment(replicas: u32, image: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "app", "image": image}]},
            },
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn update_line_names_the_change() {
    let server = ApiServer::builder().tls(true).start().await.expect("a server");
    server.create(&deployment(3, "shop/app:1.4")).expect("a deployment");
    let mut watch_output = WatchOutput::start(&server, "update", &["deploy"]);
    let patch = |patch: Value| server.merge_patch("deployments.apps", "default", "web", patch).expect("a patch");
    patch(json!({"spec": {"replicas": 5}}));
    assert!(watch_output.next_event().starts_with("~ deployments.apps default/web replicas 3→5"));
    patch(json!({"spec": {"template": {"spec": {"containers": [{"name": "app", "image": "shop/app:1.5"}]}}}}));
    assert!(watch_output.next_event().starts_with("~ deployments.apps default/web image app 1.4→1.5"));
    patch(json!({"status": {"replicas": 6, "updatedReplicas": 3, "readyReplicas": 5}}));
    let line = watch_output.next_event();
    assert!(line.starts_with("~ deployments.apps default/web rollout 3/5 updated, ready 0→5 of 5"), "{line}");
    patch(json!({"metadata": {"annotations": {"note": "\u{1b}[2Jx"}}}));
    let line = watch_output.next_event();
    assert!(line.contains("annotation +note=\\u{1b}[2Jx"), "{line}");
    server.delete_named("deployments.apps", "default", "web").expect("a deletion");
    let line = watch_output.next_event();
    assert_eq!(line, "- deployments.apps default/web ready 5 of 5 (observed: deleted)");
    server.create(&deployment(1, "shop/app:2")).expect("a deployment");
    let line = watch_output.next_event();
    assert!(
        line.contains("+ deployments.apps default/web ready 0 of 1 (recreated under the same name after "),
        "{line}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn noise_has_no_line_and_is_counted() {
    let server = ApiServer::builder().tls(true).start().await.expect("a server");
    let lease = |holder: &str, time: &str| json!({"spec": {"holderIdentity": holder, "renewTime": time}});
    let mut object = lease("a", "2026-01-01T00:00:00.000000Z");
    object["apiVersion"] = json!("coordination.k8s.io/v1");
    object["kind"] = json!("Lease");
    object["metadata"] = json!({"name": "leader", "namespace": "default"});
    server.create(&object).expect("a lease");
    let mut watch_output = WatchOutput::start(&server, "noise", &["leases"]);
    let mut json = WatchOutput::start(&server, "noise-json", &["leases", "-o", "json"]);
    let patch = |patch: Value| server.merge_patch("leases", "default", "leader", patch).expect("a patch");
    patch(lease("a", "2026-01-01T00:00:02.000000Z"));
    patch(lease("b", "2026-01-01T00:00:04.000000Z"));
    assert!(watch_output.next_event().starts_with("~ leases.coordination.k8s.io default/leader holder a→b"));
    let line = json.next_json();
    assert_eq!((&line["changes"], &line["changeCount"]), (&json!([]), &json!(1)), "{line}");
    assert!(line["hidden"].as_u64().is_some_and(|hidden| hidden >= 2), "{line}");
    let expected_changes = json!([{"path": "spec.holderIdentity", "old": "a", "new": "b"}]);
    assert_eq!(json.next_json()["changes"], expected_changes);

    signal(watch_output.child(), "INT");
    let mut rest = String::new();
    let mut stderr = watch_output.child.0.stderr.take().expect("a piped stderr");
    stderr.read_to_string(&mut rest).expect("readable output");
    let expected = "# leases.coordination.k8s.io in default: 0 added, 0 deleted, 1 changed (1 more without a line";
    assert!(rest.contains("# watched for ") && rest.contains(expected), "{rest}");
}

#[tokio::test(flavor = "multi_thread")]
async fn interruption_reports_missed_changes() {
    let server = ApiServer::builder().tls(true).start().await.expect("a server");
    let config = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": {"v": "1"}});
    for name in ["a", "b"] {
        server.create(&config(name)).expect("a config map");
    }
    let kubeconfig = temp_file("watch-interruption.kubeconfig", &server.kubeconfig());
    let mut child = start(&["watch", "cm", "--kubeconfig", &kubeconfig, "--until", "7"]);
    let mut lines = BufReader::new(child.stdout.take().expect("a piped stdout"));
    for _ in 0..3 {
        lines.read_line(&mut String::new()).expect("a readable line");
    }
    let mut errors = BufReader::new(child.stderr.take().expect("a piped stderr"));
    server.faults().cut();
    let mut doubt = String::new();
    errors.read_line(&mut doubt).expect("a readable line");
    assert!(doubt.contains(" ! configmaps: "), "{doubt}");
    server.create(&config("c")).expect("a config map");
    server.delete_named("configmaps", "default", "a").expect("a deletion");
    server.merge_patch("configmaps", "default", "b", json!({"data": {"v": "2"}})).expect("a patch");
    server.faults().heal();
    let mut report = String::new();
    while !report.contains("fresh again") {
        report.clear();
        assert!(errors.read_line(&mut report).expect("a readable line") > 0, "the program exited");
    }
    assert!(report.contains("; while disconnected: 1 added, 1 deleted, 1 changed"), "{report}");
    server.create(&config("d")).expect("a config map");
    (child.stdout, child.stderr) = (Some(lines.into_inner()), Some(errors.into_inner()));
    let output = finish(child);
    assert!(output.status.success(), "{}", stderr_text(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_show_changed_keys_only() {
    let server = ApiServer::builder().tls(true).start().await.expect("a server");
    let secret = |password: &str| {
        let applied = json!({"data": {"password": password}}).to_string();
        let annotations = json!({"kubectl.kubernetes.io/last-applied-configuration": applied});
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "db", "namespace": "default", "annotations": annotations},
            "data": {"password": password},
        })
    };
    server.create(&secret("cGxhbnRlZDE=")).expect("a secret");
    let mut text = WatchOutput::start(&server, "secret", &["secrets"]);
    let mut json = WatchOutput::start(&server, "secret-json", &["secrets", "-o", "json", "--full", "-v"]);
    let mut shown = WatchOutput::start(&server, "secret-shown", &["secrets", "--show-secrets"]);
    let patch = secret("cGxhbnRlZDI=");
    server.merge_patch("secrets", "default", "db", patch).expect("a patch");
    assert!(text.next_event().starts_with("~ secrets default/db data.password changed"));
    let line = json.next_line();
    assert!(line.contains("data.password") && !line.contains("cGxhbnRlZD"), "{line}");
    assert!(shown.next_event().contains("data.password cGxhbnRlZDE=→cGxhbnRlZDI="));
}

#[tokio::test(flavor = "multi_thread")]
async fn owners_precede_the_name() {
    let server = ApiServer::builder().tls(true).start().await.expect("a server");
    let deployment = server.create(&deployment(1, "shop/app:1")).expect("a deployment");
    let object_with_owner = |api_version: &str, kind: &str, name: &str, owner: &Value| {
        let owner = json!({
            "apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": true,
            "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
        });
        let metadata = json!({"name": name, "namespace": "default", "ownerReferences": [owner]});
        json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": {}})
    };
    let replica_set =
        server.create(&object_with_owner("apps/v1", "ReplicaSet", "web-7d9f", &deployment)).expect("a replica set");
    server.create(&object_with_owner("v1", "Pod", "web-7d9f-x2x4z", &replica_set)).expect("a pod");
    let mut watch_output = WatchOutput::start(&server, "owners", &["pods"]);
    let mut number = 0;
    let mut line = String::new();
    // The owner of the replica set is requested with the first line. The response may arrive after some further lines.
    while !line.contains("deploy/web › ") {
        number += 1;
        let labels = json!({"metadata": {"labels": {"number": number.to_string()}}});
        server.merge_patch("pods", "default", "web-7d9f-x2x4z", labels).expect("a patch");
        line = watch_output.next_event();
        let has_short_chain = line.starts_with("~ pods default rs/web-7d9f › web-7d9f-x2x4z label ");
        assert!(
            has_short_chain || line.starts_with("~ pods default deploy/web › web-7d9f › web-7d9f-x2x4z label "),
            "{line}"
        );
    }
}
