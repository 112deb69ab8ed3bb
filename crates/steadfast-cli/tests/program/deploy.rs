//! `examples/notify/deploy`: the manifests have valid arguments and the needed permissions.

use serde_json::Value;

use crate::run::{stderr_text, steadfast, temp_file};

const MANIFESTS: &str = include_str!("../../../../examples/notify/deploy/kubernetes.yaml");
const SERVICE: &str = include_str!("../../../../examples/notify/deploy/steadfast-notify.service");
const IMAGE: &str = include_str!("../../../../examples/notify/deploy/Containerfile");

fn documents(text: &str) -> Vec<Value> {
    let parts = text.split("---\n").filter(|part| part.contains("kind:"));
    parts.map(|part| serde_saphyr::from_str(part).expect("valid YAML")).collect()
}

fn of_kind<'a>(documents: &'a [Value], kind: &str) -> &'a Value {
    documents.iter().find(|document| document["kind"] == kind).unwrap_or_else(|| panic!("the manifest has no {kind}"))
}

/// Checks the arguments: the program must fail only at the missing file, its last step.
fn takes(arguments: &[&str]) {
    let output = steadfast(arguments);
    assert_eq!(output.status.code(), Some(3), "{arguments:?}: {}", stderr_text(&output));
    assert!(
        stderr_text(&output).contains("/etc/steadfast/notify.toml:1:1: cannot read the file"),
        "{}",
        stderr_text(&output)
    );
}

#[test]
fn manifests_have_exactly_the_needed_rights() {
    let manifests = documents(MANIFESTS);
    let configuration = of_kind(&manifests, "ConfigMap")["data"]["notify.toml"].as_str().expect("a configuration");
    let path = temp_file("notify-deploy.toml", configuration);
    let output = steadfast(&["notify", "check", "-c", &path]);
    assert!(output.status.success(), "{}", stderr_text(&output));
    let output = steadfast(&["notify", "rbac", "--embedded", "-n", "steadfast-notify", "-c", &path]);
    assert!(output.status.success(), "{}", stderr_text(&output));
    let printed = documents(&String::from_utf8_lossy(&output.stdout));
    assert_eq!(printed.len(), 3);
    for document in &printed {
        assert_eq!(of_kind(&manifests, document["kind"].as_str().expect("a kind")), document);
    }
}

#[test]
fn manifests_unit_and_image_have_valid_arguments() {
    let manifests = documents(MANIFESTS);
    let pod = &of_kind(&manifests, "StatefulSet")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let arguments = |list: &Value| {
        let list = list.as_array().expect("a list").iter().map(|word| word.as_str().expect("a word").to_owned());
        list.collect::<Vec<_>>()
    };
    let args = arguments(&container["args"]);
    takes(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let drain: u64 = args.last().and_then(|seconds| seconds.parse().ok()).expect("--drain comes last");
    assert!(pod["terminationGracePeriodSeconds"].as_u64().expect("a number") > drain);
    let probes = [&container["livenessProbe"], &container["readinessProbe"]].map(|probe| &probe["httpGet"]["path"]);
    assert_eq!(probes, ["/livez", "/readyz"]);

    let line = |begins: &str| {
        let line = SERVICE.lines().find_map(|line| line.strip_prefix(begins)).expect("a line with this key");
        line.split(' ').skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    for begins in ["ExecStart=", "ExecStartPre="] {
        takes(&line(begins).iter().map(String::as_str).collect::<Vec<_>>());
    }
    let command = IMAGE.lines().find_map(|line| line.strip_prefix("CMD ")).expect("a command of the image");
    let command = arguments(&serde_json::from_str(command).expect("a JSON list"));
    takes(&command.iter().map(String::as_str).collect::<Vec<_>>());
}
