//! Output formats and ends of `steadfast watch`.

use serde_json::{Value, json};
use steadfast_apiserver::ApiServer;

use crate::run::{finish, start, stderr_text, steadfast, temp_file};

fn pod(namespace: &str, name: &str, ready_status: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "app", "image": "app:1"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready_status}]},
    })
}

async fn server() -> ApiServer {
    let server = ApiServer::builder().tls(true).start().await.expect("a server");
    server.create(&pod("default", "a", "False")).expect("a pod");
    server.create(&pod("kube-system", "b", "True")).expect("a pod");
    server
}

/// Runs `watch pods` to its end; returns the exit code and the output without times.
fn run_watch(server: &ApiServer, name: &str, arguments: &[&str]) -> (i32, String) {
    let kubeconfig = temp_file(&format!("watch-formats-{name}.kubeconfig"), &server.kubeconfig());
    let output = steadfast(&[&["watch", "pods", "--utc", "--kubeconfig", &kubeconfig], arguments].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = text.lines().map(|line| line.split_once("Z ").map_or(line, |(_, rest)| rest).to_owned());
    let code = output.status.code().unwrap_or_else(|| panic!("{}", stderr_text(&output)));
    (code, lines.collect::<Vec<_>>().join("\n"))
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_printed_in_kubectl_formats() {
    let server = server().await;
    for (format, expected) in [
        ("name", "pod/a"),
        ("jsonpath={.metadata.name} {.status.phase}", "a Running"),
        ("custom-columns=NAME:.metadata.name,IP:.status.podIP", "NAME              IP\na                 <none>"),
    ] {
        assert_eq!(run_watch(&server, "format", &["-o", format, "--until", "1"]), (0, expected.to_owned()));
    }
    let (_, yaml) = run_watch(&server, "yaml", &["-o", "yaml", "--until", "1"]);
    assert!(yaml.starts_with("---\n") && yaml.contains("\n  name: a\n") && yaml.contains("app:1"), "{yaml}");
    let (_, text) = run_watch(&server, "labels", &["-n", "default,kube-system", "-L", "app,tier", "--until", "4"]);
    for name in ["+ pods default/a Running app=web,tier=<none>", "+ pods kube-system/b Running app=web,tier=<none>"] {
        assert!(text.contains(name), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn until_condition_has_exit_codes() {
    let server = server().await;
    let system = ["-n", "kube-system"];
    assert_eq!(run_watch(&server, "met", &[&system[..], &["--until", "condition=Ready"]].concat()).0, 0);
    assert_eq!(
        run_watch(&server, "cel", &[&system[..], &["--until", "object.status.phase == 'Running'"]].concat()).0,
        0
    );
    assert_eq!(run_watch(&server, "time", &["--until", "condition=Ready", "--until", "1s"]).0, 4);
    assert_eq!(run_watch(&server, "only-time", &["--until", "1s"]).0, 0);
    assert_eq!(run_watch(&server, "deleted", &["-l", "app=none", "--until", "delete"]).0, 0);

    let kubeconfig = temp_file("watch-formats-wait.kubeconfig", &server.kubeconfig());
    let child = start(&["watch", "pods", "-A", "--diff", "--kubeconfig", &kubeconfig, "--until", "condition=Ready"]);
    let ready_patch = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    server.merge_patch("pods", "default", "a", ready_patch).expect("a patch");
    let output = finish(child);
    assert!(output.status.success(), "{}", stderr_text(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("= pods synced"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn diff_shows_each_changed_value() {
    let server = server().await;
    let kubeconfig = temp_file("watch-formats-diff.kubeconfig", &server.kubeconfig());
    let mut child = start(&["watch", "pods", "--diff", "--kubeconfig", &kubeconfig, "--until", "3"]);
    let mut lines = std::io::BufReader::new(child.stdout.take().expect("a piped stdout"));
    let mut line = String::new();
    while !line.contains(" synced ") {
        line.clear();
        assert!(std::io::BufRead::read_line(&mut lines, &mut line).expect("a readable line") > 0, "the program exited");
    }
    server.merge_patch("pods", "default", "a", json!({"metadata": {"labels": {"app": "api"}}})).expect("a patch");
    let mut later_lines = String::new();
    std::io::Read::read_to_string(&mut lines, &mut later_lines).expect("readable output");
    assert!(later_lines.contains(" ~ pods default/a label app web→api"), "{later_lines}");
    assert!(
        later_lines.contains("\n    - metadata.labels.app: web\n    + metadata.labels.app: api\n"),
        "{later_lines}"
    );
    child.stdout = Some(lines.into_inner());
    assert!(finish(child).status.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn several_contexts_are_marked() {
    let (east, west) = (server().await, server().await);
    let entries = |list: &str| {
        let named_entries = [("east", &east), ("west", &west)].map(|(name, server)| {
            let kubeconfig: Value = serde_saphyr::from_str(&server.kubeconfig()).expect("a kubeconfig");
            let mut entry = kubeconfig[list][0].clone();
            entry["name"] = json!(name);
            if list == "contexts" {
                entry["context"] = json!({"cluster": name, "user": name});
            }
            entry
        });
        json!(named_entries)
    };
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "clusters": entries("clusters"), "users": entries("users"),
        "contexts": entries("contexts"),
    });
    let kubeconfig = temp_file("watch-formats-contexts.kubeconfig", &kubeconfig.to_string());
    let arguments = ["watch", "pods", "--kubeconfig", &kubeconfig, "--context", "east,west", "--until", "4"];
    let output = steadfast(&arguments);
    assert!(output.status.success(), "{}", stderr_text(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for line in [" + east pods default/a Running", " + west pods default/a Running", " = west pods synced"] {
        assert!(text.contains(line), "{text}");
    }
    let output = steadfast(&[&arguments[..], &["-o", "json"]].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let contexts: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let mut contexts: Vec<&str> = contexts.iter().filter_map(|line| line["context"].as_str()).collect();
    contexts.sort_unstable();
    assert_eq!(contexts, ["east", "east", "west", "west"], "{text}");
}
