//! `steadfast serve`.

use std::io::Read;

use crate::run::{RunningServer, start_with_input, stderr_text, steadfast, temp_file, temp_path};

/// Returns the names of the config maps in a namespace, from the output of `steadfast watch`.
fn config_maps(kubeconfig: &str, namespace: &str, event_count: &str) -> Vec<String> {
    let arguments = ["watch", "cm", "-n", namespace, "--kubeconfig", kubeconfig, "--until", event_count];
    let output = steadfast(&arguments);
    assert!(output.status.success(), "{}", stderr_text(&output));
    let output_text = String::from_utf8_lossy(&output.stdout).into_owned();
    let added_lines = output_text.lines().filter_map(|line| line.split_once(" + configmaps "));
    // The name precedes the description of the object.
    added_lines.filter_map(|(_, description)| description.split_whitespace().next()).map(str::to_owned).collect()
}

fn config_map(namespace: &str, name: &str) -> String {
    format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: {namespace}}}\n")
}

/// Creates a folder with these files in the temporary folder of the tests.
fn folder(name: &str, files: &[(&str, &str)]) -> String {
    let folder = temp_path(name);
    let _ = std::fs::remove_dir_all(&folder);
    for (file, text) in files {
        let file = std::path::Path::new(&folder).join(file);
        std::fs::create_dir_all(file.parent().expect("a parent folder")).expect("the folder is writable");
        std::fs::write(file, text).expect("the folder is writable");
    }
    folder
}

#[test]
fn every_replica_has_working_context() {
    let objects = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}\n---\n\
                   apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n";
    let manifest = temp_file("serve.yaml", objects);
    let server = RunningServer::start("serve.kubeconfig", &["--replicas", "2", "-f", &manifest]);
    for (replica, context) in ["steadfast", "steadfast-1"].into_iter().enumerate() {
        let line = &server.startup_lines[replica];
        assert!(line.starts_with(&format!("replica {replica}: https://127.0.0.1:")), "{:?}", server.startup_lines);
        assert!(line.ends_with(&format!(", context {context}")), "{:?}", server.startup_lines);
        let server_arguments = ["--kubeconfig", &server.kubeconfig, "--context", context];
        let output = steadfast(&[&["watch", "cm", "-n", "shop", "--until", "2"], &server_arguments[..]].concat());
        let output_text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{}", stderr_text(&output));
        assert!(output_text.contains("+ configmaps shop/a"), "{output_text}");
    }
    assert_eq!(server.startup_lines[2], "created 2 objects");
}

#[test]
fn simulated_cluster_runs_deployments() {
    let manifest = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: 3\n  \
                    selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    \
                    spec: {containers: [{name: main, image: 'web:1'}]}\n";
    let manifest = temp_file("world.yaml", manifest);
    let server = RunningServer::start("world.kubeconfig", &["--world", "--nodes", "2", "-f", &manifest]);
    assert!(server.startup_lines.iter().any(|line| line.contains("are simulated")), "{:?}", server.startup_lines);
    let arguments = ["watch", "deploy/web", "--until", "condition=Available", "--wait", "60", "-n", "default"];
    let output = steadfast(&[&arguments[..], &["--kubeconfig", &server.kubeconfig]].concat());
    assert!(output.status.success(), "{}", stderr_text(&output));
    let output = steadfast(&["watch", "nodes", "--until", "2", "--kubeconfig", &server.kubeconfig]);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.contains("node-1") && printed.contains("node-2"), "{printed}");
    let output = steadfast(&["serve", "--nodes", "2"]);
    assert!(stderr_text(&output).contains("--world"), "{}", stderr_text(&output));
}

/// The token in a kubeconfig.
fn token(kubeconfig: &str) -> String {
    let text = std::fs::read_to_string(kubeconfig).expect("the file exists");
    let token = text.lines().find_map(|line| line.trim().strip_prefix("\"token\":"));
    token.unwrap_or_else(|| panic!("no token: {text}")).trim().trim_matches(['"', '\'']).to_owned()
}

#[test]
fn token_is_random_by_default() {
    let first_server = RunningServer::start("token-one.kubeconfig", &[]);
    let second_server = RunningServer::start("token-other.kubeconfig", &[]);
    let (first, second) = (token(&first_server.kubeconfig), token(&second_server.kubeconfig));
    assert!(first.len() >= 32 && first != second, "{first} {second}");
    let server = RunningServer::start(
        "token-fixed.kubeconfig",
        &["--token", "s3cret-token", "-f", &temp_file("token.yaml", &config_map("default", "a"))],
    );
    assert_eq!(token(&server.kubeconfig), "s3cret-token");
    assert_eq!(config_maps(&server.kubeconfig, "default", "1").len(), 1, "the token is accepted");
    // A client with another token is rejected.
    let text =
        std::fs::read_to_string(&server.kubeconfig).expect("the file exists").replace("s3cret-token", "embedded");
    let wrong_kubeconfig = temp_file("token-wrong.kubeconfig", &text);
    let output =
        steadfast(&["watch", "cm", "-n", "default", "--kubeconfig", &wrong_kubeconfig, "--until", "1", "--wait", "5"]);
    assert!(stderr_text(&output).contains("401"), "{}", stderr_text(&output));
}

#[test]
fn plain_http_needs_no_token() {
    // Clients built on client-go keep their tokens to TLS.
    let manifest = temp_file("plain.yaml", &config_map("default", "a"));
    let server = RunningServer::start("plain.kubeconfig", &["--tls", "false", "-f", &manifest]);
    let text = std::fs::read_to_string(&server.kubeconfig).expect("the file exists");
    let text_without_token = text.replace("\"token\":", "\"unused\":");
    assert_ne!(text, text_without_token);
    assert_eq!(config_maps(&temp_file("plain-without.kubeconfig", &text_without_token), "default", "1").len(), 1);
    assert_eq!(config_maps(&server.kubeconfig, "default", "1").len(), 1, "the token is accepted as well");
}

#[cfg(unix)]
#[test]
fn signal_stops_server_cleanly() {
    use crate::run::signal;

    for name in ["TERM", "INT"] {
        let mut server = RunningServer::start(&format!("ends-{name}.kubeconfig"), &["--tls", "false"]);
        signal(&server.child, name);
        let status = server.child.wait().expect("an exit status");
        let mut output_text = String::new();
        server.stdout.read_to_string(&mut output_text).expect("readable output");
        assert!(status.success(), "{name}: {status}");
        assert!(output_text.starts_with("stopped at revision "), "{output_text}");
        assert!(!std::path::Path::new(&server.kubeconfig).exists(), "the shutdown removes the created kubeconfig");
    }
}

#[test]
fn startup_prints_three_limitations() {
    let server = RunningServer::start("is-not.kubeconfig", &[]);
    let is_limitation =
        |line: &&String| ["no cluster: ", "no admission: ", "no storage: "].iter().any(|no| line.starts_with(no));
    assert_eq!(server.startup_lines.iter().filter(is_limitation).count(), 3, "{:?}", server.startup_lines);
}

/// A kubeconfig with entries of another cluster.
#[cfg(unix)]
const OTHER_ENTRIES: &str = "\
apiVersion: v1
kind: Config
# A comment.
current-context: prod
clusters:
- {name: prod, cluster: {server: 'https://prod.example.test:6443'}}
users:
- {name: prod, user: {token: hunter2, password: 0123}}
contexts:
- {name: prod, context: {cluster: prod, user: prod, namespace: shop}}
preferences: {}
";

#[cfg(unix)]
#[test]
fn existing_kubeconfig_gets_context_and_keeps_entries() {
    use std::os::unix::fs::PermissionsExt;

    let path = temp_file("merged.kubeconfig", OTHER_ENTRIES);
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).expect("the mode is changed");
    let read = || std::fs::read_to_string(&path).expect("the file exists");
    let value = |text: &str| serde_saphyr::from_str::<serde_json::Value>(text).expect("valid YAML");
    let contexts = || {
        let file = value(&read());
        let names = file["contexts"].as_array().expect("a list").iter().map(|context| context["name"].clone());
        (names.collect::<Vec<_>>(), file["current-context"].clone())
    };

    let mut server = RunningServer::start_with_kubeconfig("merged.kubeconfig", &[]);
    assert_eq!(contexts(), (vec!["prod".into(), "steadfast".into()], "steadfast".into()));
    assert!(read().contains("password: 0123"), "the value stays verbatim: {}", read());
    let mode = std::fs::metadata(&path).expect("the file exists").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(config_maps(&path, "default", "1"), Vec::<String>::new());

    // A killed server leaves its entries, and the next run replaces them.
    server.child.kill().expect("the process is killed");
    server.child.wait().expect("an exit status");
    let server = RunningServer::start_with_kubeconfig("merged.kubeconfig", &["--replicas", "2"]);
    assert_eq!(contexts(), (vec!["prod".into(), "steadfast".into(), "steadfast-1".into()], "steadfast".into()));
    server.stop();
    assert_eq!(value(&read()), value(OTHER_ENTRIES), "the original file is restored");
}

#[cfg(unix)]
#[test]
fn concurrent_servers_have_separate_contexts() {
    let path = temp_file("two.kubeconfig", OTHER_ENTRIES);
    let first_server = RunningServer::start_with_kubeconfig("two.kubeconfig", &[]);
    let second_server = RunningServer::start_with_kubeconfig("two.kubeconfig", &["--context", "other"]);
    for context in ["steadfast", "other"] {
        let arguments = ["watch", "ns", "--kubeconfig", &path, "--context", context, "--until", "5"];
        assert!(steadfast(&arguments).status.success(), "{context}");
    }
    first_server.stop();
    second_server.stop();
    let value = |text: &str| serde_saphyr::from_str::<serde_json::Value>(text).expect("valid YAML");
    assert_eq!(value(&std::fs::read_to_string(&path).expect("the file exists")), value(OTHER_ENTRIES));
}

#[test]
fn manifests_are_read_from_input_and_folders() {
    let (a, b, c) = (config_map("default", "a"), config_map("default", "b"), config_map("default", "c"));
    let files = [("2.yml", b.as_str()), ("1.yaml", &a), ("deeper/3.json.yaml", &c), ("notes.txt", "no manifest: [")];
    let folder = folder("manifests", &files);
    let server = RunningServer::start("folder.kubeconfig", &["-f", &folder]);
    assert!(server.startup_lines.contains(&"created 2 objects".to_owned()), "{:?}", server.startup_lines);
    let server = RunningServer::start("folders.kubeconfig", &["-R", "-f", &folder]);
    assert!(server.startup_lines.contains(&"created 3 objects".to_owned()), "{:?}", server.startup_lines);

    let kubeconfig = temp_path("input.kubeconfig");
    let _ = std::fs::remove_file(&kubeconfig);
    let child = start_with_input(&["serve", "--kubeconfig", &kubeconfig, "-f", "-"], &[a, b].concat());
    let server = RunningServer::wait_until_ready(kubeconfig, child);
    assert_eq!(config_maps(&server.kubeconfig, "default", "3"), ["default/a", "default/b"]);
}

#[cfg(unix)]
#[test]
fn kustomization_is_built_by_installed_tool() {
    use std::os::unix::fs::PermissionsExt;

    use crate::run::start_with_variables;

    let kustomization = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [cm.yaml]\n";
    let overlay = folder("overlay", &[("kustomization.yaml", kustomization), ("cm.yaml", &config_map("default", "k"))]);
    // `tests/kubectl.rs` runs the real kubectl if one is installed.
    let script = "#!/bin/sh\n[ \"$1\" = kustomize ] && [ -f \"$2/kustomization.yaml\" ] && exec cat \"$2/cm.yaml\"\n";
    let tools = folder("tools", &[("kubectl", script)]);
    let kubectl = std::path::Path::new(&tools).join("kubectl");
    std::fs::set_permissions(kubectl, PermissionsExt::from_mode(0o755)).expect("the mode is changed");
    let path = format!("{tools}:/usr/bin:/bin");
    let kubeconfig = temp_path("kustomize.kubeconfig");
    let _ = std::fs::remove_file(&kubeconfig);
    let child = start_with_variables(&["serve", "--kubeconfig", &kubeconfig, "-k", &overlay], &[("PATH", &path)]);
    let server = RunningServer::wait_until_ready(kubeconfig, child);
    assert_eq!(config_maps(&server.kubeconfig, "default", "2"), ["default/k"]);
}

#[cfg(unix)]
#[test]
fn webhook_manifest_prints_warning() {
    let webhook = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\n\
                   metadata: {name: checks}\nwebhooks: []\n";
    let manifest = temp_file("webhook.yaml", webhook);
    let error_output = RunningServer::start("webhook.kubeconfig", &["-f", &manifest]).stop();
    assert!(error_output.contains("webhook.yaml: ValidatingWebhookConfiguration \"checks\": "), "{error_output}");
    assert!(error_output.contains("this server calls no webhooks"), "{error_output}");
}

#[test]
fn help_lists_commands_and_exit_codes() {
    let output = steadfast(&["--help"]);
    let help_text = String::from_utf8_lossy(&output.stdout).into_owned();
    for expected_text in ["watch", "lab", "serve", "Exit codes:", "  3  "] {
        assert!(help_text.contains(expected_text), "{expected_text:?} is missing in {help_text}");
    }
    for command in ["watch", "lab", "serve"] {
        assert!(steadfast(&[command, "--help"]).status.success());
    }
}

#[test]
fn faults_are_switched_while_the_server_runs() {
    let manifest = temp_file("faults.yaml", &config_map("default", "a"));
    let server =
        RunningServer::start("faults.kubeconfig", &["--replicas", "2", "-f", &manifest, "--fault", "delay=10ms"]);
    assert!(server.startup_lines.iter().any(|line| line == "fault: delay=10ms"), "{:?}", server.startup_lines);
    let fault = |faults: &[&str]| {
        let output = steadfast(&[&["fault", "--kubeconfig", &server.kubeconfig], faults].concat());
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned(), stderr_text(&output))
    };
    assert_eq!(fault(&[]).1, "delay=10ms\n");
    assert_eq!(config_maps(&server.kubeconfig, "default", "1"), ["default/a"]);

    // Faults of the API server must not affect the control endpoint.
    assert_eq!(fault(&["respond=503,resource=configmaps", "accept-and-close,replica=1"]).0, Some(0));
    let kubeconfig = server.kubeconfig.clone();
    let watch_thread = std::thread::spawn(move || config_maps(&kubeconfig, "default", "1"));
    assert_eq!(fault(&[]).1, "delay=10ms\nrespond=503,resource=configmaps\naccept-and-close,replica=1\n");
    assert!(!watch_thread.is_finished(), "lists get status 503");
    assert_eq!(fault(&["none"]).0, Some(0));
    assert_eq!(fault(&[]).1, "no fault is on; --list shows all\n");
    assert_eq!(watch_thread.join().expect("the watcher does not panic"), ["default/a"]);

    let (code, _, error_output) = fault(&["lag,replica=7"]);
    assert!(code == Some(2) && error_output.contains("no replica 7"), "{error_output}");
    let (code, _, error_output) = fault(&["lag", "lagg"]);
    assert!(code == Some(2) && error_output.contains("unknown fault \"lagg\""), "{error_output}");
    assert_eq!(fault(&[]).1, "no fault is on; --list shows all\n", "an unknown fault leaves the others off");
    assert!(fault(&["--list"]).1.lines().count() > 20);
    let output = steadfast(&["fault", "lag", "--kubeconfig", &temp_file("elsewhere.kubeconfig", "kind: Config\n")]);
    assert!(stderr_text(&output).contains("no context of a running `steadfast serve`"), "{}", stderr_text(&output));
}
