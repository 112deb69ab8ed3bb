//! `check` reports all mistakes at once; with `--online` also unknown fields of resources.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use serde_json::{Value, json};
use steadfast_apiserver::ApiServer;
use tokio::runtime::Runtime;

use crate::run::{finish, start_with_variables, stderr_text, steadfast, temp_file};

/// Starts a proxy in front of an API server: it responds to requests for `/openapi/v3/…`, and forwards all others.
fn start_openapi_proxy(server: SocketAddr, document: &Value) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let document = document.to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let document = document.clone();
            // A disconnected client needs no response.
            std::thread::spawn(move || drop(respond(stream, server, &document)));
        }
    });
    address
}

fn respond(mut client: TcpStream, server: SocketAddr, document: &str) -> std::io::Result<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    if head.starts_with("GET /openapi/v3/apis/apps/v1 ") {
        let length = document.len();
        return write!(
            client,
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{document}"
        );
    }
    let mut server = TcpStream::connect(server)?;
    // One request per connection: the proxy parses only the first request of each connection.
    server.write_all(head.replacen("\r\n", "\r\nConnection: close\r\n", 1).as_bytes())?;
    std::io::copy(&mut server, &mut client)?;
    client.shutdown(Shutdown::Both)
}

#[test]
fn check_online_reports_unknown_fields() {
    let runtime = Runtime::new().expect("a runtime");
    let server = runtime.block_on(ApiServer::start()).expect("an API server");
    let document = json!({"components": {"schemas": {"Deployment": {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"replicas": {"type": "integer"}}}},
        "x-kubernetes-group-version-kind": [{"group": "apps", "version": "v1", "kind": "Deployment"}],
    }}}});
    let upstream = server.address(0).expect("an address");
    let proxy = start_openapi_proxy(upstream, &document);
    let kubeconfig = server.kubeconfig().replace(&upstream.to_string(), &proxy.to_string());
    let kubeconfig = temp_file("check-online-kubeconfig", &kubeconfig);
    let rule = |name: &str, resource: &str, when: &str| {
        format!("[[rules]]\nname = \"{name}\"\nresources = [\"{resource}\"]\nwhen = \"{when}\"\nto = [\"log\"]\n")
    };
    let text = format!(
        "[sinks.log.stdout]\n{}{}{}",
        rule("typo", "deployments", "object.spec.replcas > 1"),
        rule("good", "deployments", "object.spec.replicas > 1"),
        rule("unknown", "widgets", "object.spec.x > 1"),
    );
    let configuration = temp_file("check-online.toml", &text);
    let arguments = ["notify", "check", "--online", "-c", &configuration];
    let output = finish(start_with_variables(&arguments, &[("KUBECONFIG", &kubeconfig)]));
    let error_output = stderr_text(&output);
    assert_eq!(output.status.code(), Some(3), "{error_output}");
    let typo = "check-online.toml:5:21: when: deployments.apps: no field `spec.replcas`, did you mean `replicas`?";
    assert!(error_output.contains(typo), "{error_output}");
    assert!(error_output.contains("check-online.toml:14:14: ") && error_output.contains("widgets"), "{error_output}");
    assert_eq!(error_output.matches("check-online.toml:").count(), 2, "{error_output}");
}

#[test]
fn check_reports_sinks_secrets_and_rules_together() {
    let text = "[sinks.hook]\n\
        webhook = {url = \"https://localhost/\", secret_headers = {Authorization = {file = \"steadfast-absent\"}}}\n\
        [sinks.tool]\nexec = {command = [\"steadfast-no-such-program\"]}\n\
        [sinks.names]\n\
        dns = {server = \"127.0.0.1\", zone = \"example.org\", secret = {env = \"STEADFAST_NOT_SET\"}, mark = \"m\"}\n\
        [[rules]]\nname = \"one\"\nresources = [\"pods\"]\nto = [\"hook\", \"tool\"]\nwhen = \"object.a = 1\"\n\
        [[rules]]\nname = \"two\"\nresources = [\"pods\"]\nto = [\"names\"]\n\
        send = \"{'name': object.a, 'type': 'MXX', 'data': 'a'}\"\n";
    let configuration = temp_file("check-all.toml", text);
    let output = steadfast(&["notify", "check", "-c", &configuration]);
    let error_output = stderr_text(&output);
    assert_eq!(output.status.code(), Some(3), "{error_output}");
    for (position, message) in [
        ("2:", "the file steadfast-absent"),
        ("4:", "no program \"steadfast-no-such-program\" in PATH"),
        ("6:", "$STEADFAST_NOT_SET is not set"),
        ("11:", "rules[0].when"),
        ("16:", "`type`: \"MXX\" is not"),
    ] {
        let mut lines = error_output.lines();
        let is_reported =
            lines.any(|line| line.contains(&format!("check-all.toml:{position}")) && line.contains(message));
        assert!(is_reported, "no {position} {message} in:\n{error_output}");
    }
}

#[test]
fn replicas_are_checked_and_have_rights() {
    let rule = "[sinks.log.stdout]\n[[rules]]\nname = \"r\"\nresources = [\"pods\"]\nto = [\"log\"]\n";
    let check = |replicas: &str| {
        let path = temp_file("notify-replicas.toml", &format!("{replicas}\n{rule}"));
        let output = steadfast(&["notify", "check", "-c", &path]);
        (output.status.code(), stderr_text(&output))
    };
    assert_eq!(check("[replicas]\nlease = \"ops/notify\"").0, Some(0));
    for (invalid, reason) in [
        ("[replicas]\nlease = \"notify\"", "\"notify\" is not a valid lease"),
        ("[replicas]\nlease = \"ops/a/b\"", "is not a valid lease"),
        ("[replicas]\nlease = \"ops/notify\"\ncluster = \"far\"", "unknown cluster \"far\""),
        ("[clusters.a]\n[clusters.b]\n[replicas]\nlease = \"ops/notify\"", "the cluster of the lease is missing"),
        ("state = {checkpoint = false}\n[replicas]\nlease = \"ops/notify\"", "replicas need the checkpoint"),
        ("[replicas]\nlease = \"ops/notify\"\nrenew_deadline = \"20s\"", "is not below the lease duration"),
    ] {
        let (code, error_output) = check(invalid);
        assert_eq!(code, Some(3), "{invalid}: {error_output}");
        assert!(
            error_output.contains("notify-replicas.toml:") && error_output.contains(reason),
            "{invalid}: {error_output}"
        );
    }
    let path = temp_file("notify-replicas-rbac.toml", &format!("[replicas]\nlease = \"ops/notify\"\n{rule}"));
    let output = steadfast(&["notify", "rbac", "--embedded", "-n", "agents", "-c", &path]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", stderr_text(&output));
    let document = text
        .split("---\n")
        .find(|document| document.contains("kind: Role\n"))
        .expect("a role in the lease's namespace");
    let rights: Value = serde_saphyr::from_str(document).expect("valid YAML");
    assert_eq!(rights["metadata"]["namespace"], "ops");
    let rules = rights["rules"].as_array().expect("rules");
    let rights_of_rules: Vec<_> =
        rules.iter().map(|rule| (&rule["resources"][0], &rule["resourceNames"][0], &rule["verbs"])).collect();
    let expected = json!([
        ["leases", null, ["create"]],
        ["leases", "notify", ["get", "update"]],
        ["secrets", null, ["create"]],
        ["secrets", "notify-settled", ["get", "update"]],
    ]);
    assert_eq!(json!(rights_of_rules), expected, "{text}");
}
