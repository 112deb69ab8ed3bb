//! `steadfast watch`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};

use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Value, json};
use steadfast_apiserver::ApiServer;

use crate::run::{RunningServer, finish, start, start_with_variables, stderr_text, steadfast, temp_file};

fn lines(stdout: &[u8]) -> Vec<Value> {
    let parse = |line: &[u8]| serde_json::from_slice(line).expect("every line is JSON");
    stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(parse).collect()
}

fn text<'a>(line: &'a Value, key: &str) -> &'a str {
    line[key].as_str().unwrap_or_else(|| panic!("{key} is not a string in {line}"))
}

#[test]
fn until_limits_embedded_fleet_events() {
    let output = steadfast(&["watch", "--embedded", "--until", "60", "-o", "json"]);
    assert!(output.status.success(), "{}", stderr_text(&output));
    assert_eq!(stderr_text(&output), "");
    let lines = lines(&output.stdout);
    assert_eq!(lines.len(), 60);

    let (mut versions, mut types, mut last_time) = (BTreeMap::<&str, u64>::new(), BTreeSet::new(), "");
    for line in &lines {
        let (time, kind) = (text(line, "time"), text(line, "type"));
        // The UTC form 2026-01-02T03:04:05.678901Z, in every time zone.
        assert_eq!((time.len(), &time[10..11], &time[19..20], &time[26..]), (27, "T", ".", "Z"), "{time}");
        assert!(["pods", "deployments.apps"].contains(&text(line, "resource")), "{line}");
        types.insert(kind);
        let keys = line.as_object().expect("an object").len();
        let expected = match kind {
            "Synced" => 7,
            "Added" => 8,
            _ => 10,
        };
        assert_eq!(keys, expected, "{line}");
        if kind == "Synced" {
            assert!(line["uid"].is_null(), "{line}");
            continue;
        }
        last_time = last_time.max(time);
        assert!(!text(line, "namespace").is_empty() && !text(line, "name").is_empty(), "{line}");
        let version: u64 = text(line, "resourceVersion").parse().expect("a version is a number here");
        let previous_version = versions.insert(text(line, "uid"), version);
        match kind {
            "Added" => assert_eq!(previous_version, None, "added twice: {line}"),
            "Updated" => assert!(
                previous_version.is_some_and(|previous_version| previous_version < version),
                "out of order: {line}"
            ),
            "Deleted" => {
                assert!(
                    previous_version.is_some_and(|previous_version| previous_version < version),
                    "out of order: {line}"
                );
                assert_eq!((text(line, "certainty"), text(line, "reason")), ("Observed", "Deleted"));
                versions.remove(text(line, "uid"));
            }
            other => panic!("unknown kind of event: {other}"),
        }
    }
    assert_eq!(types, BTreeSet::from(["Added", "Deleted", "Synced", "Updated"]));
}

#[test]
fn outage_shows_doubt_and_missed_changes() {
    let output = steadfast(&["watch", "--embedded", "--outages", "--until", "60"]);
    assert!(output.status.success(), "{}", stderr_text(&output));
    let error_output = stderr_text(&output);
    for expected_text in
        ["# the embedded server: cut off for ", " ! pods: ", "can be reached again", " ! pods: fresh again after "]
    {
        assert!(error_output.contains(expected_text), "{expected_text:?} is missing in {error_output}");
    }
    let output_text = String::from_utf8_lossy(&output.stdout);
    assert!(output_text.contains(" - pods ") && output_text.contains("(inferred: deleted)"), "{output_text}");
}

#[test]
fn until_twenty_prints_twenty_lines() {
    let output = steadfast(&["watch", "--embedded", "--until", "20", "-o", "json"]);
    assert!(output.status.success(), "{}", stderr_text(&output));
    assert_eq!(lines(&output.stdout).len(), 20);
}

#[test]
fn full_prints_whole_objects() {
    let output = steadfast(&["watch", "po", "--embedded", "-n", "shop", "--until", "2", "-o", "json", "--full"]);
    let lines = lines(&output.stdout);
    assert_eq!(lines.len(), 2, "{}", stderr_text(&output));
    for line in lines.iter().filter(|line| line["type"] == "Added") {
        assert_eq!(
            (&line["object"]["kind"], &line["object"]["metadata"]["namespace"]),
            (&"Pod".into(), &"shop".into())
        );
        assert_eq!(line["object"]["metadata"]["uid"], line["uid"]);
    }
}

#[test]
fn text_has_symbol_resource_and_name() {
    let output = steadfast(&["watch", "deploy", "--embedded", "--until", "4"]);
    let output_text = String::from_utf8_lossy(&output.stdout).into_owned();
    for expected_text in [
        "+ deployments.apps default/web ready 3 of 3\n",
        "+ deployments.apps shop/cart ready ",
        "= deployments.apps synced at ",
    ] {
        assert!(output_text.contains(expected_text), "{expected_text:?} is missing in {output_text}");
    }
}

#[test]
fn closed_pipe_ends_watch_silently() {
    let mut child = start(&["watch", "--embedded", "-o", "json"]);
    let mut first_line = String::new();
    let mut reader = BufReader::new(child.stdout.take().expect("a piped stdout"));
    reader.read_line(&mut first_line).expect("a readable line");
    assert!(first_line.contains("Added"), "{first_line}");
    drop(reader);
    let status = child.wait().expect("an exit status");
    assert!(status.success(), "{status}");
}

#[test]
fn selectors_contexts_and_names_reach_the_server() {
    let objects = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: default, labels: {app: web}}\n---\n\
                   apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, namespace: default}\n---\n\
                   apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: kube-system, labels: {app: web}}\n";
    let manifest = temp_file("selectors.yaml", objects);
    let server = RunningServer::start("selectors.kubeconfig", &["-f", &manifest]);
    let watched_names = |extra_arguments: &[&str], until: &str| {
        let common = ["watch", "configmaps", "--kubeconfig", &server.kubeconfig, "-o", "json", "--until", until];
        let output = steadfast(&[&common, extra_arguments].concat());
        assert!(output.status.success(), "{}", stderr_text(&output));
        let added = lines(&output.stdout).into_iter().filter(|line| line["type"] == "Added");
        added.map(|line| text(&line, "name").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(watched_names(&[], "3"), ["a", "b"]);
    assert_eq!(watched_names(&["-A"], "4"), ["a", "b", "c"]);
    assert_eq!(watched_names(&["-A", "-l", "app=web"], "3"), ["a", "c"]);
    assert_eq!(watched_names(&["-A", "--field-selector", "metadata.name=b"], "2"), ["b"]);
    assert_eq!(watched_names(&["-n", "kube-system", "--context", "steadfast"], "2"), ["c"]);
    let arguments = ["watch", "cm,ns", "nodes", "--kubeconfig", &server.kubeconfig, "--until", "9"];
    let output = steadfast(&arguments);
    let output_text = String::from_utf8_lossy(&output.stdout).into_owned();
    for expected_text in ["+ configmaps default/a", "+ namespaces default", "= nodes synced"] {
        assert!(output_text.contains(expected_text), "{expected_text:?} is missing in {output_text}");
    }
}

#[cfg(unix)]
#[test]
fn unreachable_server_is_reported_and_retried() {
    use crate::run::signal;

    let kubeconfig = crate::bad_input::kubeconfig("waiting.kubeconfig", "https://127.0.0.1:1", "");
    let mut child = start(&["watch", "pods", "--kubeconfig", &kubeconfig]);
    let mut warning = String::new();
    let mut stderr = BufReader::new(child.stderr.take().expect("a piped stderr"));
    stderr.read_line(&mut warning).expect("a readable line");
    assert!(warning.starts_with("waiting for https://127.0.0.1:1: ") && warning.contains("refused"), "{warning}");
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(child.try_wait().expect("the state of the process").is_none(), "the program retries instead of ending");
    child.stderr = Some(stderr.into_inner());
    signal(&child, "INT");
    let output = finish(child);
    assert!(output.status.success(), "{}", stderr_text(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn running_watch_uses_replaced_token() {
    let server = ApiServer::builder().tls(true).token("first").start().await.expect("a server");
    let namespaces = ["default", "kube-node-lease", "kube-public", "kube-system", "synced"].len();
    let kubeconfig = temp_file("rotated.kubeconfig", &server.kubeconfig());
    let until = (namespaces + 1).to_string();
    let mut child = start(&["watch", "namespaces", "--kubeconfig", &kubeconfig, "-o", "json", "--until", &until]);
    let mut stdout = BufReader::new(child.stdout.take().expect("a piped stdout"));
    for _ in 0..namespaces {
        let mut line = String::new();
        assert!(stdout.read_line(&mut line).expect("a readable line") > 0, "the program exited early");
    }

    server.faults().replace_tokens(&["second"]);
    temp_file("rotated.kubeconfig", &server.kubeconfig().replace("first", "second"));
    server.faults().reset();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "after-the-rotation"}});
    server
        .create(&serde_json::from_value::<Namespace>(namespace).expect("a namespace"))
        .expect("the object is created");
    child.stdout = Some(stdout.into_inner());
    let output = finish(child);
    assert!(output.status.success(), "{}", stderr_text(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("after-the-rotation"), "{}", stderr_text(&output));
}

fn config_map(name: &str, value: &str) -> Value {
    let metadata = json!({"name": name, "namespace": "default"});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"value": value}})
}

#[test]
fn times_have_local_offset_or_utc() {
    let arguments = ["watch", "ns", "--embedded", "--until", "1"];
    let run_watch = |extra_arguments: &[&str]| {
        let output = finish(start_with_variables(&[&arguments, extra_arguments].concat(), &[("TZ", "IST-5:30")]));
        assert!(output.status.success(), "{}", stderr_text(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let (local, utc, json) = (run_watch(&[]), run_watch(&["--utc"]), run_watch(&["-o", "json"]));
    // A local line starts with `15:34:05.678+05:30 + namespaces default`.
    assert_eq!((&local[12..19], &utc[12..14]), ("+05:30 ", "Z "), "{local}{utc}");
    let time = lines(json.as_bytes())[0]["time"].as_str().expect("a time").to_owned();
    assert!(time.ends_with('Z'), "for programs it is UTC: {time}");
}

#[test]
fn single_object_is_watched_by_name() {
    let watched_objects = |resources: &[&str], until: &str| {
        let common = ["watch", "--embedded", "--until", until, "-o", "json"];
        let output = steadfast(&[&common, resources].concat());
        assert!(output.status.success(), "{}", stderr_text(&output));
        let mut added: Vec<String> = Vec::new();
        for line in lines(&output.stdout).iter().filter(|line| line["type"] == "Added") {
            added.push(format!("{} {}/{}", text(line, "resource"), text(line, "namespace"), text(line, "name")));
        }
        added.sort();
        added
    };
    assert_eq!(watched_objects(&["deploy/web"], "2"), ["deployments.apps default/web"]);
    assert_eq!(watched_objects(&["deploy/cart", "-n", "shop"], "2"), ["deployments.apps shop/cart"]);
    let two_objects = ["deployments.apps default/web", "deployments.apps default/worker"];
    assert_eq!(
        watched_objects(&["deploy/web,Deployment/worker", "deployments/web"], "4"),
        two_objects,
        "one line per object"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_kind_is_awaited_while_others_run() {
    let server = ApiServer::builder().tls(true).start().await.expect("a server");
    let kubeconfig = temp_file("wait-for-kind.kubeconfig", &server.kubeconfig());
    let arguments = ["watch", "widgets.example.com", "cm", "--wait-for-kind", "--kubeconfig", &kubeconfig];
    let mut child = start(&[&arguments[..], &["--until", "3"]].concat());
    let mut stdout = BufReader::new(child.stdout.take().expect("a piped stdout"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("a readable line");
    assert!(line.contains("= configmaps synced"), "{line}");
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    });
    server.create(&definition).expect("a definition");
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
    server.create(&widget).expect("a widget");
    let mut later_lines = String::new();
    std::io::Read::read_to_string(&mut stdout, &mut later_lines).expect("readable output");
    child.stdout = Some(stdout.into_inner());
    let output = finish(child);
    assert!(output.status.success(), "{}", stderr_text(&output));
    assert!(
        later_lines.contains("+ widgets.example.com default/w") && later_lines.contains("= widgets.example.com synced"),
        "{later_lines}"
    );
    assert!(
        stderr_text(&output).contains("waiting for widgets.example.com: the server has no resource"),
        "{}",
        stderr_text(&output)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn json_doubt_lines_precede_newer_events() {
    let server = ApiServer::builder().tls(true).start().await.expect("a server");
    server.create(&config_map("before", "1")).expect("a config map");
    let kubeconfig = temp_file("freshness.kubeconfig", &server.kubeconfig());
    let arguments = ["watch", "cm", "--kubeconfig", &kubeconfig, "-o", "json", "--until", "4"];
    let mut child = start(&arguments);
    let mut stdout = BufReader::new(child.stdout.take().expect("a piped stdout"));
    let mut next_line = || -> Value {
        let mut line = String::new();
        assert!(stdout.read_line(&mut line).expect("a readable line") > 0, "the program exited");
        serde_json::from_str(&line).expect("valid JSON")
    };
    assert_eq!((next_line()["type"].clone(), next_line()["type"].clone()), (json!("Added"), json!("Synced")));

    server.faults().cut();
    server.create(&config_map("meanwhile", "1")).expect("a config map");
    let doubt = next_line();
    assert_eq!((&doubt["type"], &doubt["resource"]), (&json!("Freshness"), &json!("configmaps")), "{doubt}");
    assert!(["Resuming", "Stale"].contains(&text(&doubt, "state")), "{doubt}");
    assert!(!text(&doubt, "reason").is_empty() && doubt["doubtSeconds"].as_f64().is_some_and(|lasted| lasted >= 0.5));
    server.faults().heal();
    let mut lines_until_fresh = Vec::new();
    loop {
        let line = next_line();
        let is_fresh = line["state"] == "Fresh";
        lines_until_fresh.push(line);
        if is_fresh {
            break;
        }
    }
    let end_line = lines_until_fresh.last().expect("a line of fresh state");
    assert_eq!((&end_line["reason"], &end_line["namespace"]), (&Value::Null, &json!("default")), "{end_line}");
    assert!(
        lines_until_fresh.iter().any(|line| line["name"] == "meanwhile"),
        "before the end of the doubt: {lines_until_fresh:?}"
    );
    server.create(&config_map("after", "1")).expect("a config map");
    assert_eq!(next_line()["name"], "after");
    child.stdout = Some(stdout.into_inner());
    assert!(finish(child).status.success(), "four events; freshness lines do not count");
}
