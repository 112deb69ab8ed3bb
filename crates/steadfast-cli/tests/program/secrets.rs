//! The program prints no secret, at any log level.

use std::process::Output;

use k8s_openapi::api::core::v1::Secret;
use serde_json::json;
use steadfast_apiserver::ApiServer;

use crate::run::{finish, start_with_variables, temp_file};

/// Secrets of the test: the token, the content of a Secret in plain text and Base64, a rejected token, and the token of
/// a plugin.
const PLANTED_VALUES: [&str; 5] = [
    "planted-bearer-token",
    "planted-password",
    "cGxhbnRlZC1wYXNzd29yZA==",
    "planted-stale-token",
    "planted-plugin-token",
];

fn leaks(text: &str) -> Vec<&'static str> {
    PLANTED_VALUES.into_iter().filter(|planted| text.contains(planted)).collect()
}

/// Watches secrets with all logs. Returns the output, also as one text.
fn run_watch(kubeconfig: &str, extra_arguments: &[&str]) -> (Output, String) {
    let arguments = [&["watch", "secrets", "-A", "--kubeconfig", kubeconfig], extra_arguments].concat();
    let output = finish(start_with_variables(&arguments, &[("STEADFAST_LOG", "trace")]));
    let error_output = [output.stdout.as_slice(), &output.stderr].concat();
    let error_output = String::from_utf8_lossy(&error_output).into_owned();
    (output, error_output)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_printed_or_logged() {
    let server = ApiServer::builder().tls(true).token(PLANTED_VALUES[0]).start().await.expect("a server");
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db", "namespace": "default"},
        "data": {"password": PLANTED_VALUES[2]},
    });
    server.create(&serde_json::from_value::<Secret>(secret).expect("a secret")).expect("the object is created");
    let kubeconfig = temp_file("secrets.kubeconfig", &server.kubeconfig());

    let (output, error_output) = run_watch(&kubeconfig, &["-o", "json", "--until", "2"]);
    assert!(
        output.status.success() && error_output.contains("TRACE") && error_output.contains("\"db\""),
        "{error_output}"
    );
    assert_eq!(leaks(&error_output), Vec::<&str>::new(), "{error_output}");

    let (_, error_output) = run_watch(&kubeconfig, &["-o", "json", "--until", "2", "--full"]);
    assert_eq!(leaks(&error_output), Vec::<&str>::new(), "{error_output}");

    // Checks the search for leaks: with `--show-secrets`, the program prints the planted secret.
    let (_, error_output) = run_watch(&kubeconfig, &["-o", "json", "--until", "2", "--full", "--show-secrets"]);
    assert_eq!(leaks(&error_output), [PLANTED_VALUES[2]], "{error_output}");

    let stale =
        temp_file("secrets-stale.kubeconfig", &server.kubeconfig().replace(PLANTED_VALUES[0], PLANTED_VALUES[3]));
    let plugin = temp_file("secrets-plugin.sh", &format!("echo {0}; echo {0} >&2; exit 1", PLANTED_VALUES[4]));
    let exec = format!(
        "exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, args: ['{plugin}'], interactiveMode: Never}}"
    );
    let kubeconfig = server.kubeconfig();
    let token =
        kubeconfig.lines().find(|line| line.contains(PLANTED_VALUES[0])).expect("a token").trim_start().to_owned();
    let failing_kubeconfig = temp_file("secrets-plugin.kubeconfig", &kubeconfig.replace(&token, &exec));
    for kubeconfig in [stale, failing_kubeconfig] {
        let (output, error_output) = run_watch(&kubeconfig, &["--until", "1", "--wait", "1"]);
        assert!(!output.status.success(), "{error_output}");
        assert!(!output.stderr.is_empty());
        assert_eq!(leaks(&error_output), Vec::<&str>::new(), "{error_output}");
    }
}
