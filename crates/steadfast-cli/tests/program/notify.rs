//! `steadfast notify`.

use serde_json::Value;
#[cfg(unix)]
use serde_json::json;

use crate::run::{stderr_text, steadfast, temp_file};

fn example(name: &str) -> String {
    format!("{}/../../examples/notify/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn lines(stdout: &[u8]) -> Vec<Value> {
    let lines = stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).expect("every line is JSON")).collect()
}

#[test]
fn embedded_fleet_needs_no_cluster() {
    for name in ["services.toml", "services.yaml"] {
        let output = steadfast(&["notify", "--embedded", "--for", "3", "-c", &example(name)]);
        assert!(output.status.success(), "{}", stderr_text(&output));
        let output_text = stderr_text(&output);
        assert!(
            output_text.contains("running /") && output_text.contains("0 dead letters, 0 failed expressions"),
            "{output_text}"
        );
        let lines = lines(&output.stdout);
        let in_traffic: Vec<&Value> = lines.iter().filter(|line| line["rule"] == "in-traffic").collect();
        assert!(in_traffic.iter().any(|line| line["type"] == "Added"), "{lines:?}");
        for line in &in_traffic {
            let ip = line["data"]["ip"].as_str().expect("each pod in traffic has an address");
            assert!(
                ip.starts_with("10.0.0.") && !line["name"].as_str().expect("a name").starts_with("worker"),
                "{line}"
            );
        }
        // Two equal consecutive messages would mean that an unchanged message was resent.
        let mut last = std::collections::BTreeMap::new();
        for line in in_traffic {
            let before = last.insert(line["uid"].to_string(), line.clone());
            let is_news = before.is_none_or(|before| before["data"] != line["data"] || line["type"] == "Deleted");
            assert!(is_news, "{line}");
        }
    }
}

#[test]
fn embedded_mirrors_print_simulated_commands() {
    let output = steadfast(&["notify", "--embedded", "--for", "4", "-c", &example("traffic.toml")]);
    let output_text = stderr_text(&output);
    assert!(output.status.success(), "{output_text}");
    assert!(output_text.contains("web | echo 'add server web/sf-default.default.web-"), "{output_text}");
    assert!(
        output_text.contains("web | echo 'set server web/sf-default.default.web-") && output_text.contains("weight 0'"),
        "one server drains: {output_text}"
    );
    assert!(output_text.contains("cart | table ip steadfast_cart {"), "{output_text}");
    assert!(output_text.contains("names | update add web.example.org. 30 IN A 10.0.0."), "{output_text}");
    assert!(
        output_text.contains("registry | etcdctl ") && output_text.contains(" del -- '/services/shop/cart-"),
        "{output_text}"
    );
    // A simulation writes no state folder.
    assert!(!std::path::Path::new(&example("steadfast-state")).exists());
}

#[test]
fn rbac_grants_watched_resources_only() {
    let arguments = ["notify", "rbac", "--embedded", "-n", "ops", "-c", &example("traffic.toml")];
    let output = steadfast(&arguments);
    assert!(output.status.success(), "{}", stderr_text(&output));
    let text = String::from_utf8(output.stdout).expect("UTF-8 output");
    // The cluster role of a rule for all namespaces covers rules for one namespace.
    let rules: Vec<&str> = text.lines().filter(|line| line.contains("resources:") || line.contains("verbs:")).collect();
    let verbs_line = "  verbs: [list, watch]";
    // The UID of this namespace identifies the cluster of a checkpoint.
    let identity = ["  resources: [namespaces]", "  verbs: [get]"];
    assert_eq!(
        rules,
        [&["  resources: [pods]", verbs_line, "  resources: [deployments]", verbs_line][..], &identity].concat(),
        "{text}"
    );
    assert!(text.contains("  resourceNames: [kube-system]\n"), "{text}");
    let documents: Vec<Value> = text
        .split("---\n")
        .filter(|part| part.contains("kind:"))
        .map(|part| serde_saphyr::from_str(part).expect("valid YAML"))
        .collect();
    let kinds: Vec<&str> = documents.iter().filter_map(|document| document["kind"].as_str()).collect();
    assert_eq!(kinds, ["ServiceAccount", "ClusterRole", "ClusterRoleBinding"]);
    assert_eq!(documents[2]["subjects"][0]["namespace"], "ops");

    // A rule for one namespace needs only a namespaced role.
    let text = std::fs::read_to_string(example("traffic.toml")).expect("the file exists");
    let text = ["registry"].iter().fold(text, |text, rule| {
        let (first, rest) = text.split_once(&format!("[[rules]]\nname = \"{rule}\"")).expect("the rule exists");
        format!("{first}[[rules]]\nnamespaces = [\"default\"]\nname = \"{rule}\"{rest}")
    });
    let configuration = temp_file("notify-rbac.toml", &text);
    let output = steadfast(&["notify", "rbac", "--embedded", "-c", &configuration]);
    let text = String::from_utf8(output.stdout).expect("UTF-8 output");
    assert_eq!(text.matches("kind: Role\n").count(), 4, "two roles, and two bindings to them: {text}");
    assert!(text.contains("  namespace: shop\n") && text.matches("resources: [pods]").count() == 2, "{text}");
}

#[test]
fn schema_is_json_and_check_locates_mistakes() {
    let output = steadfast(&["notify", "schema"]);
    assert!(output.status.success(), "{}", stderr_text(&output));
    let schema: Value = serde_json::from_slice(&output.stdout).expect("valid JSON");
    assert!(schema["properties"]["rules"].is_object(), "{schema}");

    let output = steadfast(&["notify", "check", "-c", &example("services.toml")]);
    assert!(output.status.success(), "{}", stderr_text(&output));
    let invalid_configuration = temp_file(
        "notify-bad.toml",
        "[sinks.log.stdout]\n[[rules]]\nname = \"r\"\nresources = [\"pods\"]\nto = [\"log\"]\nwhen = \"size(pod) > 1\"\n",
    );
    let output = steadfast(&["notify", "check", "-c", &invalid_configuration]);
    assert_eq!(output.status.code(), Some(3));
    assert!(
        stderr_text(&output).contains("notify-bad.toml:6:14: rules[0].when: unknown variable `pod`"),
        "{}",
        stderr_text(&output)
    );
}

#[test]
fn explain_and_missing_kind_reports() {
    let explain = |arguments: &[&str]| {
        let output =
            steadfast(&[&["notify", "explain", "--embedded", "-c", &example("services.toml")], arguments].concat());
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned(), stderr_text(&output))
    };
    let (code, output_text, error_output) = explain(&["deploy/web"]);
    assert_eq!(code, Some(0), "{error_output}");
    assert!(
        output_text.contains("rule release\n") && output_text.contains("does not apply: the rule covers pods"),
        "{output_text}"
    );
    assert!(output_text.contains("does not fire while spec.template.spec.containers stays the same"), "{output_text}");
    let (code, _, error_output) = explain(&["deploy/none", "-n", "shop"]);
    assert_eq!(code, Some(2));
    assert!(error_output.contains("default has no deployments.apps/none in the namespace shop"), "{error_output}");

    let invalid_configuration = temp_file(
        "notify-kind.toml",
        "[sinks.log.stdout]\n[[rules]]\nname = \"r\"\nresources = [\"pods\", \"depoyments\"]\nto = [\"log\"]\n",
    );
    // A kind that may be served later is reported, and everything else runs.
    let output = steadfast(&["notify", "--embedded", "--for", "2", "-c", &invalid_configuration]);
    let (error_output, sent) = (self::stderr_text(&output), lines(&output.stdout));
    assert_eq!(output.status.code(), Some(0), "{error_output}");
    assert!(
        error_output.contains("notify-kind.toml:4:22:") && error_output.contains("did you mean deployments.apps?"),
        "{error_output}"
    );
    assert!(sent.iter().any(|line| line["resource"] == "pods"), "{error_output}");
}

/// Waits at most 60 s until `is_done`.
#[cfg(unix)]
fn wait_until(description: &str, mut is_done: impl FnMut() -> bool) {
    use std::time::{Duration, Instant};

    let start_time = Instant::now();
    while !is_done() {
        assert!(start_time.elapsed() < Duration::from_secs(60), "{description}: not within a minute");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(unix)]
#[test]
fn invalid_reload_keeps_last_valid_configuration() {
    use std::io::{BufRead, BufReader};

    use crate::run::{RunningServer, finish, signal, start, temp_path};

    let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "1"}});
    let manifest = temp_file("notify-manifest.json", &manifest.to_string());
    let server = RunningServer::start("notify.kubeconfig", &["-f", &manifest]);
    let configuration = |send: &str| {
        format!(
            "[state]\nfolder = \"notify-again\"\n[clusters.here]\nkubeconfig = \"{}\"\n[sinks.log.stdout]\n[[rules]]\nname = \"r\"\ninitial = true\n\
             resources = [\"cm\"]\nfields = \"metadata.name=a\"\nsend = \"{send}\"\nto = [\"log\"]\n\
             [[rules]]\nname = \"r-{}\"\ninitial = true\nresources = [\"cm\"]\nnamespaces = [\"default\"]\nto = [\"log\"]\n",
            server.kubeconfig,
            send.len(),
        )
    };
    // Remove files of an earlier test run.
    let _ = std::fs::remove_dir_all(temp_path("notify-again"));
    let path = temp_file("notify-again.toml", &configuration("object.data.k"));
    let mut child = start(&["notify", "-c", &path]);
    let mut stdout = BufReader::new(child.stdout.take().expect("a piped stdout"));
    let mut next_line = || {
        let mut line = String::new();
        stdout.read_line(&mut line).expect("a readable line");
        serde_json::from_str::<Value>(&line).unwrap_or_else(|_| panic!("no JSON: {line:?}"))
    };
    let mut rules =
        [next_line(), next_line()].map(|line| (line["rule"].clone(), line["data"].clone(), line["cluster"].clone()));
    rules.sort_by_key(|(rule, ..)| rule.to_string());
    assert_eq!(rules[0], (json!("r"), json!("1"), json!("here")));
    assert_eq!(rules[1].0, json!("r-13"));

    let mut stderr = BufReader::new(child.stderr.take().expect("a piped stderr"));
    let mut output_text = String::new();
    // An invalid configuration changes nothing.
    std::fs::write(&path, configuration("object.data.k +")).expect("the folder is writable");
    signal(&child, "HUP");
    wait_until("the mistake", || {
        stderr.read_line(&mut output_text).expect("a readable line");
        output_text.contains("the configuration is unchanged") && output_text.contains("rules[0].send")
    });
    // A valid configuration starts its new rule with the existing objects; the old rule keeps its state.
    std::fs::write(&path, configuration("'' + object.data.k")).expect("the folder is writable");
    signal(&child, "HUP");
    assert_eq!(next_line()["rule"], json!("r-18"));
    signal(&child, "TERM");
    child.stdout = Some(stdout.into_inner());
    child.stderr = Some(stderr.into_inner());
    let output = finish(child);
    assert!(output.status.success(), "{}", stderr_text(&output));
    assert!(lines(&output.stdout).is_empty(), "no message is sent twice: {}", String::from_utf8_lossy(&output.stdout));
}
