//! Invalid input: the program reports the mistake and a remedy, and returns the documented exit code.

use std::process::Output;

use crate::run::{RunningServer, stderr_text, steadfast, temp_file, temp_path};

/// A kubeconfig for `url`, with `cluster_fields` in its cluster.
pub(crate) fn kubeconfig(name: &str, url: &str, cluster_fields: &str) -> String {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: here\n\
         contexts: [{{name: here, context: {{cluster: c, user: u}}}}]\n\
         users: [{{name: u, user: {{token: hunter2}}}}]\n\
         clusters:\n- name: c\n  cluster:\n    server: {url}\n{cluster_fields}"
    );
    temp_file(name, &text)
}

/// Checks the exit code, and that standard error contains each of `expected_texts` but no secret.
fn assert_fails(output: &Output, code: i32, expected_texts: &[&str]) {
    let stderr = stderr_text(output);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    for expected_text in expected_texts {
        assert!(stderr.contains(expected_text), "{expected_text:?} is not in {stderr}");
    }
    assert!(!stderr.contains("hunter2"), "a secret is in {stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
}

#[test]
fn missing_or_invalid_kubeconfig_is_reported() {
    let missing = temp_path("there-is-none");
    assert_fails(
        &steadfast(&["watch", "pods", "--kubeconfig", &missing]),
        3,
        &["cannot be read", "there-is-none", "--kubeconfig"],
    );
    let broken = temp_file("broken.kubeconfig", "users: [{name: u, user: {token: hunter2}}\nclusters: 7\n");
    assert_fails(&steadfast(&["watch", "pods", "--kubeconfig", &broken]), 3, &["not a kubeconfig", "line 2"]);
    assert_fails(&steadfast(&["watch", "pods"]), 3, &["kubeconfig"]);
}

#[test]
fn missing_context_is_reported() {
    let good = kubeconfig("context.kubeconfig", "https://127.0.0.1:1", "");
    let output = steadfast(&["watch", "pods", "--kubeconfig", &good, "--context", "elsewhere"]);
    assert_fails(&output, 3, &["the context \"elsewhere\" does not exist", "existing contexts: here"]);
}

#[test]
fn invalid_url_and_certificate_are_reported() {
    let url = kubeconfig("url.kubeconfig", "ftp://127.0.0.1", "");
    assert_fails(&steadfast(&["watch", "pods", "--kubeconfig", &url]), 3, &["ftp://127.0.0.1"]);
    let more = "    certificate-authority-data: bm8gY2VydGlmaWNhdGU=\n";
    let garbage = kubeconfig("garbage.kubeconfig", "https://127.0.0.1:1", more);
    assert_fails(
        &steadfast(&["watch", "pods", "--kubeconfig", &garbage]),
        3,
        &["certificate-authority holds no certificate"],
    );
    let pem = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCmJtOD0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";
    let more = format!("    certificate-authority-data: {pem}\n");
    let broken = kubeconfig("broken-certificate.kubeconfig", "https://127.0.0.1:1", &more);
    assert_fails(
        &steadfast(&["watch", "pods", "--kubeconfig", &broken]),
        3,
        &["broken-certificate.kubeconfig", "check the certificates of the cluster"],
    );
}

#[test]
fn refused_connection_fails_after_wait() {
    let unreachable = kubeconfig("refused.kubeconfig", "https://127.0.0.1:1", "");
    let output = steadfast(&["watch", "pods", "--kubeconfig", &unreachable, "--wait", "1"]);
    assert_fails(&output, 1, &["https://127.0.0.1:1 could not be reached within 1 s", "refused"]);
}

#[test]
fn untrusted_server_certificate_is_reported() {
    let (server, other) = (RunningServer::start("one.kubeconfig", &[]), RunningServer::start("other.kubeconfig", &[]));
    let read = |path: &str| std::fs::read_to_string(path).expect("the file exists");
    let server_line = |text: &str| {
        text.lines()
            .find(|line| line.trim_start().starts_with("server:"))
            .expect("the server of the kubeconfig")
            .to_owned()
    };
    let (kubeconfig_of_server, kubeconfig_of_other) = (read(&server.kubeconfig), read(&other.kubeconfig));
    let mixed_kubeconfig = temp_file(
        "mixed.kubeconfig",
        &kubeconfig_of_other.replace(&server_line(&kubeconfig_of_other), &server_line(&kubeconfig_of_server)),
    );
    let output = steadfast(&["watch", "pods", "--kubeconfig", &mixed_kubeconfig]);
    assert_fails(&output, 3, &["the TLS handshake with 127.0.0.1", "certificate-authority"]);
}

#[test]
fn rejected_credentials_are_reported() {
    let server = RunningServer::start("credentials.kubeconfig", &["--tls", "false"]);
    let url = server.startup_lines[0].trim_start_matches("replica 0: ").to_owned();
    let wrong_token = kubeconfig("wrong-token.kubeconfig", &url, "");
    assert_fails(
        &steadfast(&["watch", "pods", "--kubeconfig", &wrong_token]),
        3,
        &["does not accept the credentials", "401"],
    );
}

#[test]
fn unknown_resource_and_invalid_selector_are_reported() {
    assert_fails(
        &steadfast(&["watch", "depoyments", "--embedded"]),
        2,
        &["\"depoyments\"", "did you mean deployments.apps?"],
    );
    assert_fails(&steadfast(&["watch", "pods.example.com", "--embedded"]), 2, &["similar resource: pods"]);
    assert_fails(&steadfast(&["watch", "pods", "--embedded", "-l", "app in ("]), 2, &["pods", "correct the selector"]);
    assert_fails(&steadfast(&["watch"]), 2, &["<RESOURCE[/NAME]>"]);
}

#[test]
fn empty_and_invalid_names_are_reported() {
    for (arguments, reason) in [
        (&["watch", "--embedded", ""][..], "resource's name is empty"),
        (&["watch", "--embedded", "pods,,svc"], "resource's name is empty"),
        (&["watch", "--embedded", "pods/"], "object's name is empty in \"pods/\""),
        (&["watch", "--embedded", "/web"], "resource's name is empty in \"/web\""),
        (&["watch", "--embedded", "deploy/web/x"], "an object's name cannot contain '/'"),
        (&["watch", "--embedded", "pods", "-n", ""], "the name is empty"),
        (&["watch", "pods", "--context", ""], "the name is empty"),
        (&["serve", "--context", " "], "the name is empty"),
    ] {
        assert_fails(&steadfast(arguments), 2, &[reason]);
    }
    let output = steadfast(&["watch", "--embedded", "deploy/web", "-l", "app=web"]);
    assert_fails(&output, 2, &["deploy/web names one object", "leave out the selectors"]);
}

#[test]
fn unknown_kind_error_lists_similar_kinds() {
    let similar_kinds = ["\"podz\"", "did you mean pods", "--wait-for-kind"];
    assert_fails(&steadfast(&["watch", "podz", "--embedded"]), 2, &similar_kinds);
    let as_kubectl = steadfast(&["watch", "deploy", "web", "--embedded"]);
    assert_fails(&as_kubectl, 2, &["to name an object, use a slash: deploy/web"]);
    let output = steadfast(&["watch", "widgets", "--embedded", "--wait-for-kind", "--wait", "1"]);
    assert_fails(&output, 1, &["waiting for widgets", "had no resource widgets within 1 s"]);
}

#[test]
fn unmergeable_kubeconfig_is_left_unchanged() {
    for (name, text, reason) in [
        ("no-yaml.kubeconfig", "users: [{token: hunter2", "it is not YAML, at line 1"),
        ("no-config.kubeconfig", "kind: Deployment\nspec: {token: hunter2}\n", "it is not a kubeconfig"),
        ("taken.kubeconfig", "clusters: [{name: steadfast, cluster: {server: 'https://x'}}]\n", "did not create"),
    ] {
        let path = temp_file(name, text);
        assert_fails(&steadfast(&["serve", "--kubeconfig", &path]), 3, &[name, "left unchanged", reason]);
        assert_eq!(std::fs::read_to_string(&path).expect("the file exists"), text);
    }
    let output_for_taken = steadfast(&["serve", "--kubeconfig", &temp_path("taken.kubeconfig")]);
    assert_fails(&output_for_taken, 3, &["cluster \"steadfast\"", "--context"]);
}

#[test]
fn missing_manifests_are_reported() {
    let empty = temp_path("no-manifests");
    std::fs::create_dir_all(std::path::Path::new(&empty).join("deeper")).expect("the folder is writable");
    assert_fails(&steadfast(&["serve", "-f", &empty]), 2, &["no-manifests has no file that ends in", "-R"]);
    assert_fails(&steadfast(&["serve", "-f", "https://example.test/m.yaml"]), 2, &["is a URL", "serve -f -"]);
    assert_fails(&steadfast(&["serve", "-f", "-", "-f", "-"]), 2, &["can be read once"]);
    assert_fails(&steadfast(&["serve", "-k", "/nonexistent"]), 2, &["/nonexistent is not a folder"]);
    let output_without_tools =
        crate::run::finish(crate::run::start_with_variables(&["serve", "-k", &empty], &[("PATH", "/nonexistent")]));
    assert_fails(&output_without_tools, 1, &["`kubectl` or `kustomize`", "serve -f -"]);
}

#[test]
fn kustomization_given_as_folder_is_reported() {
    let folder = std::path::PathBuf::from(temp_path("kustomized"));
    std::fs::create_dir_all(folder.join("overlay")).expect("the folder is writable");
    std::fs::write(folder.join("overlay/kustomization.yml"), "resources: [a.yaml]\n").expect("the folder is writable");
    let path_text = |path: &std::path::Path| path.display().to_string();
    let (folder_text, overlay) = (path_text(&folder), path_text(&folder.join("overlay")));
    let file = path_text(&folder.join("overlay/kustomization.yml"));
    let advice = format!("use -k {overlay}");
    for arguments in [&["-f", &overlay][..], &["-f", &file], &["-R", "-f", &folder_text]] {
        assert_fails(&steadfast(&[&["serve"], arguments].concat()), 2, &["kustomization.yml", &advice]);
    }
}

#[test]
fn non_http_server_is_reported() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = std::io::Write::write_all(&mut stream, b"220 mail.example.test ESMTP\r\n");
        }
    });
    let mail_kubeconfig = kubeconfig("mail.kubeconfig", &format!("http://{address}"), "");
    let output = steadfast(&["watch", "pods", "--kubeconfig", &mail_kubeconfig, "--wait", "2"]);
    let error_output = stderr_text(&output);
    assert!(matches!(output.status.code(), Some(1 | 3)), "{error_output}");
    assert!(error_output.contains(&address.to_string()), "{error_output}");
}

#[test]
fn unknown_scenario_manifest_and_port_are_reported() {
    assert_fails(&steadfast(&["lab", "no-such-thing"]), 2, &["\"no-such-thing\"", "--list"]);
    assert_fails(&steadfast(&["serve", "-f", "/nonexistent/m.yaml"]), 2, &["/nonexistent/m.yaml cannot be read"]);
    let secret = temp_file("secret.yaml", "kind: Secret\ndata: {password: hunter2\n");
    assert_fails(&steadfast(&["serve", "-f", &secret]), 2, &["secret.yaml", "line "]);
    let unknown = temp_file("unknown.yaml", "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: x}\n");
    assert_fails(&steadfast(&["serve", "-f", &unknown]), 1, &["Thing \"x\" cannot be created", "example.com/v1"]);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("a bound address").port().to_string();
    assert_fails(&steadfast(&["serve", "--port", &port]), 1, &[&port, "--port 0"]);
}
