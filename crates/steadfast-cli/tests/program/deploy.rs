//! `examples/notify/deploy`: the manifests have valid arguments and the needed permissions.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::run::{stderr_text, steadfast, temp_file};

const MANIFESTS: &str = include_str!("../../../../examples/notify/deploy/kubernetes.yaml");
const REPLICAS: &str = include_str!("../../../../examples/notify/deploy/replicas.yaml");
const SERVICE: &str = include_str!("../../../../examples/notify/deploy/steadfast-notify.service");
const IMAGE: &str = include_str!("../../../../examples/notify/deploy/Containerfile");

fn documents(text: &str) -> Vec<Value> {
    let documents = text.split("---\n").filter(|document| document.contains("kind:"));
    documents.map(|document| serde_saphyr::from_str(document).expect("valid YAML")).collect()
}

fn find_kind<'a>(documents: &'a [Value], kind: &str) -> &'a Value {
    documents.iter().find(|document| document["kind"] == kind).unwrap_or_else(|| panic!("the manifest has no {kind}"))
}

/// Checks the arguments: the program must fail only at its last step, because the file is missing.
fn assert_arguments_accepted(arguments: &[&str]) {
    let output = steadfast(arguments);
    assert_eq!(output.status.code(), Some(3), "{arguments:?}: {}", stderr_text(&output));
    assert!(
        stderr_text(&output).contains("/etc/steadfast/notify.toml:1:1: cannot read the file"),
        "{}",
        stderr_text(&output)
    );
}

/// Returns kind and name of a manifest, which identify the manifest in a file.
fn identity(document: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    (text(&document["kind"]), text(&document["metadata"]["name"]))
}

/// Checks that the manifests grant exactly the rights that `rbac` prints for their configuration. Returns the number of
/// documents with rights.
fn assert_exact_rights(name: &str, text: &str) -> usize {
    let manifests = documents(text);
    let configuration = find_kind(&manifests, "ConfigMap")["data"]["notify.toml"].as_str().expect("a configuration");
    let path = temp_file(&format!("notify-deploy-{name}.toml"), configuration);
    let output = steadfast(&["notify", "check", "-c", &path]);
    assert!(output.status.success(), "{}", stderr_text(&output));
    let output = steadfast(&["notify", "rbac", "--embedded", "-n", "steadfast-notify", "-c", &path]);
    assert!(output.status.success(), "{}", stderr_text(&output));
    let generated = documents(&String::from_utf8_lossy(&output.stdout));
    let is_right = |document: &&Value| {
        document["kind"].as_str().is_some_and(|kind| kind == "ServiceAccount" || kind.contains("Role"))
    };
    let by_identity = |documents: &[Value]| -> BTreeMap<(String, String), Value> {
        documents.iter().filter(is_right).map(|document| (identity(document), document.clone())).collect()
    };
    assert_eq!(by_identity(&manifests), by_identity(&generated), "{name}");
    generated.len()
}

#[test]
fn manifests_have_exactly_the_needed_rights() {
    assert_eq!(assert_exact_rights("one", MANIFESTS), 3);
    assert_eq!(assert_exact_rights("replicas", REPLICAS), 5);
}

#[test]
fn replicas_differ_only_by_their_number() {
    let (one, three) = (documents(MANIFESTS), documents(REPLICAS));
    let (one, three) = (find_kind(&one, "StatefulSet").clone(), find_kind(&three, "StatefulSet").clone());
    assert_eq!((&one["spec"]["replicas"], &three["spec"]["replicas"]), (&json!(1), &json!(3)));
    // Each replica needs a state folder of its own.
    assert_eq!(three["spec"]["volumeClaimTemplates"], one["spec"]["volumeClaimTemplates"]);
    assert_eq!(three["spec"]["template"]["spec"]["containers"], one["spec"]["template"]["spec"]["containers"]);
    let budget = documents(REPLICAS);
    let budget = find_kind(&budget, "PodDisruptionBudget");
    assert_eq!(budget["spec"]["selector"], three["spec"]["selector"], "the budget covers the replicas");
}

#[test]
fn manifests_unit_and_image_have_valid_arguments() {
    let manifests = documents(MANIFESTS);
    let pod = &find_kind(&manifests, "StatefulSet")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let arguments = |list: &Value| {
        let list = list.as_array().expect("a list").iter().map(|word| word.as_str().expect("a word").to_owned());
        list.collect::<Vec<_>>()
    };
    let args = arguments(&container["args"]);
    assert_arguments_accepted(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let drain: u64 = args.last().and_then(|seconds| seconds.parse().ok()).expect("--drain comes last");
    assert!(pod["terminationGracePeriodSeconds"].as_u64().expect("a number") > drain);
    let probes = [&container["livenessProbe"], &container["readinessProbe"]].map(|probe| &probe["httpGet"]["path"]);
    assert_eq!(probes, ["/livez", "/readyz"]);

    let line = |prefix: &str| {
        let line = SERVICE.lines().find_map(|line| line.strip_prefix(prefix)).expect("a line with this key");
        line.split(' ').skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    for prefix in ["ExecStart=", "ExecStartPre="] {
        assert_arguments_accepted(&line(prefix).iter().map(String::as_str).collect::<Vec<_>>());
    }
    let command = IMAGE.lines().find_map(|line| line.strip_prefix("CMD ")).expect("a command of the image");
    let command = arguments(&serde_json::from_str(command).expect("a JSON list"));
    assert_arguments_accepted(&command.iter().map(String::as_str).collect::<Vec<_>>());
}
