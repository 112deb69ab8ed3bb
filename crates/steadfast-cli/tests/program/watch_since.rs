//! `steadfast watch --since`: the changes before the start, on the embedded server.

use std::time::Duration;

use serde_json::{Value, json};
use steadfast_apiserver::ApiServer;

use crate::run::{finish, start, stderr_text, steadfast, temp_file};

fn pod(name: &str) -> Value {
    let metadata = json!({"name": name, "namespace": "default"});
    let spec = json!({"containers": [{"name": "app", "image": "shop/app:1"}]});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

/// A server with a pod that changed several times, and an Event about it.
async fn changed_pod() -> ApiServer {
    let server = ApiServer::builder().tls(true).start().await.expect("a server");
    // The version of this object is older than all changes.
    server.create(&pod("old")).expect("a pod");
    let created = server.create(&pod("web")).expect("a pod");
    let patch = |patch: Value| server.merge_patch("pods", "default", "web", patch).expect("a patch");
    patch(json!({"status": {"phase": "Running"}}));
    let condition = json!({
        "type": "Ready", "status": "True", "reason": "Probe", "lastTransitionTime": jiff::Timestamp::now().to_string(),
    });
    patch(json!({"status": {"conditions": [condition]}}));
    server.create(&pod("short")).expect("a pod");
    server.delete_named("pods", "default", "short").expect("a deletion");
    let involved = json!({"kind": "Pod", "name": "web", "namespace": "default", "uid": created["metadata"]["uid"]});
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "pulled", "namespace": "default"},
        "involvedObject": involved, "reason": "Pulled", "message": "image\u{1b}[2J", "type": "Normal",
        "lastTimestamp": jiff::Timestamp::now().to_string(),
    });
    server.create(&event).expect("an event");
    server
}

/// Runs the program until its first counted lines, and returns the lines of its output.
async fn run(server: &ApiServer, name: &str, arguments: &[&str]) -> Vec<String> {
    let kubeconfig = temp_file(&format!("watch-since-{name}.kubeconfig"), &server.kubeconfig());
    let child = start(&[&["watch", "--kubeconfig", &kubeconfig, "--utc"], arguments].concat());
    let output = tokio::task::spawn_blocking(move || finish(child)).await.expect("an output");
    assert!(output.status.success(), "{}", stderr_text(&output));
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    lines.lines().map(str::to_owned).collect()
}

/// Returns the position of the only line with `part`.
fn position(lines: &[String], part: &str) -> usize {
    let found: Vec<usize> = (0..lines.len()).filter(|index| lines[*index].contains(part)).collect();
    assert_eq!(found.len(), 1, "{part:?} in {lines:#?}");
    found[0]
}

#[tokio::test(flavor = "multi_thread")]
async fn history_is_reconstructed_then_exact() {
    let server = changed_pod().await;
    let lines = run(&server, "exact", &["pods", "--since", "1h", "--until", "3"]).await;
    let boundary = position(&lines, "── pods in default: reconstructed until here, exact changes since version ");
    for part in [
        "≈ pods default/web created (reconstructed: creation)",
        "≈ pods default/web Ready True (Probe) (reconstructed: condition)",
        "≈ pods default/web Normal Pulled: image\\u{1b}[2J (reconstructed: Event)",
    ] {
        assert!(position(&lines, part) < boundary, "{part:?} in {lines:#?}");
    }
    let exact = [
        "+ pods default/web",
        "~ pods default/web phase Pending→Running",
        "~ pods default/web Ready True (Probe)",
        "+ pods default/short",
        "- pods default/short",
    ];
    let mut earlier = boundary;
    for part in exact {
        let rest = &lines[earlier + 1..];
        let found = rest.iter().position(|line| line.contains(part));
        earlier += 1 + found.unwrap_or_else(|| panic!("{part:?} after line {earlier} in {lines:#?}"));
    }
    // The existing objects follow, and the three counted lines are the last ones.
    let last = &lines[lines.len() - 3..];
    assert!(last[0].contains("+ pods default/") && last[2].contains("= pods synced"), "{lines:#?}");
    assert_eq!(lines.iter().filter(|line| line.contains("- pods default/short")).count(), 1, "{lines:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_history_is_reconstructed_only() {
    let server = changed_pod().await;
    server.compact();
    server.faults().expire_events();
    let lines = run(&server, "expired", &["pods", "--since", "1h", "--until", "3", "-o", "json"]).await;
    let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).expect("valid JSON")).collect();
    let types: Vec<&str> = lines.iter().map(|line| line["type"].as_str().expect("a type")).collect();
    let boundary = types.iter().position(|kind| *kind == "ExactSince").expect("a boundary");
    assert!(types[..boundary].iter().all(|kind| *kind == "Reconstructed") && boundary >= 4, "{types:?}");
    assert_eq!(lines[boundary]["resourceVersion"], Value::Null);
    assert!(lines[boundary]["reason"].as_str().expect("a reason").contains("has expired"), "{}", lines[boundary]);
    assert_eq!(types[boundary + 1..], ["Added", "Added", "Synced"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn json_marks_history() {
    let server = changed_pod().await;
    let lines = run(&server, "json", &["pods", "--since", "1h", "--until", "3", "-o", "json"]).await;
    let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).expect("valid JSON")).collect();
    let event = lines.iter().find(|line| line["source"] == "Event").expect("a line of the Event");
    assert_eq!((&event["type"], &event["name"]), (&json!("Reconstructed"), &json!("web")));
    let replayed: Vec<&Value> = lines.iter().filter(|line| line["replayed"] == true).collect();
    // The deletion of a pod is two changes: an update with a deletion timestamp, and the removal.
    assert_eq!(replayed.len(), 6, "{lines:#?}");
    let phase = &replayed[1]["changes"];
    assert_eq!(phase, &json!([{"path": "status.phase", "old": "Pending", "new": "Running"}]));
    assert_eq!(lines.iter().filter(|line| line["type"] == "ExactSince").count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_during_replay_are_printed_once() {
    let server = std::sync::Arc::new(changed_pod().await);
    let kubeconfig = temp_file("watch-since-live.kubeconfig", &server.kubeconfig());
    let writer = server.clone();
    let writing = tokio::spawn(async move {
        for number in 0.. {
            let labels = json!({"metadata": {"labels": {"number": number.to_string()}}});
            writer.merge_patch("pods", "default", "web", labels).expect("a patch");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let arguments = ["watch", "pods", "--since", "1h", "--until", "60", "-o", "json", "--kubeconfig", &kubeconfig];
    let child = start(&arguments);
    let output = tokio::task::spawn_blocking(move || finish(child)).await.expect("an output");
    writing.abort();
    let lines: Vec<Value> =
        output.stdout.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
    let numbers = lines.iter().filter(|line| line["type"] == "Updated").map(|line| {
        let changes = line["changes"].as_array().expect("changes").iter();
        let is_label =
            |change: &&Value| change["path"] == "metadata.labels.number" || change["path"] == "metadata.labels";
        changes.filter(is_label).find_map(|change| {
            let new = &change["new"];
            new.as_str().or(new["number"].as_str())?.parse::<u64>().ok()
        })
    });
    let numbers: Vec<u64> = numbers.flatten().collect();
    assert!(numbers.len() > 50, "{lines:#?}");
    assert_eq!(
        numbers,
        (numbers[0]..numbers[0] + numbers.len() as u64).collect::<Vec<_>>(),
        "{}",
        stderr_text(&output)
    );
}

#[test]
fn since_needs_duration_and_lines() {
    for (arguments, part) in [
        (&["pods", "--since", "0s"][..], "a duration such as 10m"),
        (&["pods", "--since", "10m", "-o", "name"], "--since needs -o text, wide or json"),
    ] {
        let output = steadfast(&[&["watch"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{}", stderr_text(&output));
        assert!(stderr_text(&output).contains(part), "{}", stderr_text(&output));
    }
}
