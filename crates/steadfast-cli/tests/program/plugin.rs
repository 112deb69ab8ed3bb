//! `kubectl steadfast`: the program, started by the links that kubectl runs.

use std::os::unix::fs::symlink;
use std::process::{Command, Output};

use serde_json::json;
use steadfast_apiserver::ApiServer;

use crate::run::{stderr_text, temp_path};

/// Runs the program by a link with this name.
fn run_as(link: &str, arguments: &[&str]) -> Output {
    let folder = temp_path("plugin");
    std::fs::create_dir_all(&folder).expect("the folder is writable");
    let path = format!("{folder}/{link}");
    // The link may exist from an earlier run, for a program that is deleted by now.
    if !std::fs::exists(&path).expect("the folder is readable") {
        let _ = std::fs::remove_file(&path);
    }
    let _ = symlink(env!("CARGO_BIN_EXE_steadfast"), &path);
    let mut command = Command::new(path);
    command.args(arguments).env_remove("KUBECONFIG").env_remove("KUBERNETES_SERVICE_HOST").env("HOME", "/nonexistent");
    command.output().expect("the program starts")
}

#[test]
fn link_shows_usage_of_plugin() {
    for arguments in [&["watch", "--help"][..], &["help", "watch"]] {
        let output = run_as("kubectl-steadfast", arguments);
        let help = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && help.contains("Usage: kubectl steadfast watch [OPTIONS]"), "{help}");
        assert!(help.contains("\n  kubectl steadfast watch pods\n"), "{help}");
    }
    let output = run_as("kubectl-steadfast", &["watch"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr_text(&output).contains("Usage: kubectl steadfast watch"), "{}", stderr_text(&output));
}

#[test]
fn completion_link_has_format_of_cobra() {
    let output = run_as("kubectl_complete-steadfast", &["wat"]);
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(lines.starts_with("watch\tWatch resources") && lines.ends_with("\n:4\n"), "{lines}");
}

#[tokio::test(flavor = "multi_thread")]
async fn flags_of_kubectl_need_no_kubeconfig() {
    let server = ApiServer::builder().tls(true).token("t0").start().await.expect("a server");
    let metadata = json!({"name": "settings", "namespace": "default"});
    server.create(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})).expect("a config map");
    let url = server.url(0);
    let watch = ["watch", "cm", "-n", "default", "--until", "1", "-o", "name", "--request-timeout", "5s", "-s", &url];
    let with = |more: &[&str]| run_as("kubectl-steadfast", &[&watch[..], more].concat());
    let (output, rejected) = tokio::task::block_in_place(|| {
        (with(&["--token=t0", "--insecure-skip-tls-verify"]), with(&["--token=other", "--insecure-skip-tls-verify"]))
    });
    assert_eq!(String::from_utf8_lossy(&output.stdout), "configmap/settings\n", "{}", stderr_text(&output));
    assert_eq!(rejected.status.code(), Some(3), "{}", stderr_text(&rejected));
}
