//! `steadfast doctor`: each planted fault is found with its remedy, and a healthy server has no finding.

mod rewriting_proxy;

use std::io::{BufRead, BufReader};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use steadfast_apiserver::{ApiServer, InjectedResponse, RequestRule};
use tokio::net::TcpListener;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

use crate::bad_input::kubeconfig;
use crate::run::{finish, start, stderr_text, steadfast, temp_file};
use rewriting_proxy::Rewrites;

/// Result of a run with `-o json`.
struct Diagnosis {
    code: Option<i32>,
    report: Value,
}

impl Diagnosis {
    fn findings(&self) -> impl Iterator<Item = &Value> {
        self.report["findings"].as_array().expect("findings").iter()
    }

    /// Returns the only finding of `check` with this severity.
    fn only(&self, severity: &str, check: &str) -> &Value {
        let mut found = self.findings().filter(|finding| finding["severity"] == severity && finding["check"] == check);
        match (found.next(), found.next()) {
            (Some(finding), None) => finding,
            _ => panic!("not one {severity} of {check} in {:#}", self.report),
        }
    }

    /// Returns the names of the checks with findings of this severity, each once.
    fn checks(&self, severity: &str) -> Vec<&str> {
        let found = self.findings().filter(|finding| finding["severity"] == severity);
        let mut names: Vec<&str> = found.map(|finding| text(finding, "check")).collect();
        names.dedup();
        names
    }
}

fn text<'a>(finding: &'a Value, field: &str) -> &'a str {
    finding[field].as_str().unwrap_or_else(|| panic!("no {field} in {finding}"))
}

/// Asserts that texts of the finding contain these parts, and that it has an effect.
fn assert_finding(finding: &Value, message: &str, remedy: &str) {
    assert!(text(finding, "message").contains(message), "{message:?} is not in {finding:#}");
    assert!(text(finding, "remedy").contains(remedy), "{remedy:?} is not in {finding:#}");
    assert!(!text(finding, "effect").is_empty(), "{finding:#}");
}

/// Runs the program with the kubeconfig file.
async fn diagnose(kubeconfig: &str, arguments: &[&str]) -> Diagnosis {
    let all = [&["doctor", "--kubeconfig", kubeconfig, "-o", "json"], arguments].concat();
    let all: Vec<String> = all.into_iter().map(str::to_owned).collect();
    let run = tokio::task::spawn_blocking(move || steadfast(&all.iter().map(String::as_str).collect::<Vec<_>>()));
    let output = run.await.expect("a result");
    let report = serde_json::from_slice(&output.stdout);
    let report = report.unwrap_or_else(|error| panic!("{error}: {}", stderr_text(&output)));
    Diagnosis { code: output.status.code(), report }
}

/// Runs the program on `server` with a short sample.
async fn diagnose_server(server: &ApiServer, name: &str, arguments: &[&str]) -> Diagnosis {
    let file = temp_file(&format!("doctor-{name}.kubeconfig"), &server.kubeconfig());
    diagnose(&file, &[&["--sample", "5s"], arguments].concat()).await
}

/// Changes a lease until the test ends: as in a real cluster, the version of the server rises all the time.
fn keep_changing(server: &Arc<ApiServer>) {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "node", "namespace": "default"},
        "spec": {"leaseTransitions": 0},
    });
    server.create(&lease).expect("a lease");
    let server = server.clone();
    tokio::spawn(async move {
        for number in 1.. {
            sleep(Duration::from_millis(200)).await;
            let patch = json!({"spec": {"leaseTransitions": number}});
            server.merge_patch("leases", "default", "node", patch).expect("a patch");
        }
    });
}

fn config_map(name: &str, bytes: usize) -> Value {
    let metadata = json!({"name": name, "namespace": "default"});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"v": "x".repeat(bytes)}})
}

#[tokio::test(flavor = "multi_thread")]
async fn healthy_server_has_no_problem() {
    let server = Arc::new(ApiServer::builder().tls(true).token("hunter2").start().await.expect("a server"));
    server.create(&config_map("a", 10)).expect("a config map");
    keep_changing(&server);
    let diagnosis = diagnose_server(&server, "healthy", &[]).await;
    let problems: Vec<_> = diagnosis.findings().filter(|finding| finding["severity"] != "ok").collect();
    assert!(problems.is_empty(), "{problems:#?}");
    assert_eq!((diagnosis.code, &diagnosis.report["severity"]), (Some(0), &json!("ok")));
    let checks = diagnosis.checks("ok");
    for name in [
        "reachability",
        "certificates",
        "response",
        "authentication",
        "permissions",
        "protocol",
        "proxies",
        "clock",
        "endpoints",
        "streamed lists",
        "history",
        "conversion webhooks",
        "API groups",
        "bookmarks",
        "changes",
        "sizes",
        "large objects",
    ] {
        assert!(checks.contains(&name), "{name} is not in {checks:?}");
    }
    let sizes = diagnosis.findings().find(|finding| finding["check"] == "sizes" && finding["subject"] == "configmaps");
    let data = &sizes.expect("the size of config maps")["data"];
    assert!(data["objects"].as_u64() >= Some(1) && data["decodedBytes"].as_u64() > Some(0), "{data}");
    assert!(!diagnosis.report.to_string().contains("hunter2"), "the token is in the report");
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_server_is_found() {
    let refused = kubeconfig("doctor-refused.kubeconfig", "https://127.0.0.1:1", "");
    let unknown = kubeconfig("doctor-unknown.kubeconfig", "https://no-such-host.invalid", "");
    let through = "    proxy-url: http://127.0.0.1:1\n";
    let proxied = kubeconfig("doctor-proxied.kubeconfig", "https://api.example.invalid", through);
    let (refused, unknown, proxied) =
        tokio::join!(diagnose(&refused, &[]), diagnose(&unknown, &[]), diagnose(&proxied, &[]));
    assert_finding(refused.only("failure", "reachability"), "no TCP connection", "firewalls");
    assert_finding(unknown.only("failure", "reachability"), "cannot be resolved", "DNS");
    assert_finding(proxied.only("failure", "response"), "through the proxy http://127.0.0.1:1: ", "proxies");
    for diagnosis in [refused, unknown, proxied] {
        assert_eq!(diagnosis.code, Some(1));
        assert_finding(diagnosis.only("failure", "response"), "no response to GET /version", "reachability");
        // The other checks are reported as open, and not as passed.
        assert_eq!(text(diagnosis.only("not-checked", "permissions"), "message"), "the server does not respond");
        assert!(!diagnosis.report.to_string().contains("hunter2"), "the token is in the report");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn untrusted_or_frozen_server_is_found() {
    let server = ApiServer::builder().tls(true).start().await.expect("a server");
    let other = ApiServer::builder().tls(true).start().await.expect("another server");
    let authority = |server: &ApiServer| STANDARD.encode(server.ca_pem().expect("an authority"));
    let text = server.kubeconfig().replace(&authority(&server), &authority(&other));
    assert_ne!(text, server.kubeconfig());
    let diagnosis = diagnose(&temp_file("doctor-untrusted.kubeconfig", &text), &[]).await;
    assert_finding(diagnosis.only("failure", "response"), "the TLS handshake with", "certificates");
    assert_eq!(diagnosis.code, Some(1));

    server.faults().freeze(true);
    let diagnosis = diagnose_server(&server, "frozen", &[]).await;
    assert_finding(diagnosis.only("failure", "response"), "no complete response within 10 s", "API server");
    assert_eq!(diagnosis.only("ok", "reachability")["severity"], "ok");
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_token_is_found() {
    let server = ApiServer::builder().tls(true).token("hunter2").start().await.expect("a server");
    let file = temp_file("doctor-rejected.kubeconfig", &server.kubeconfig());
    server.faults().replace_tokens(&["other"]);
    let diagnosis = diagnose(&file, &[]).await;
    assert_finding(diagnosis.only("failure", "authentication"), "rejects the credentials (token)", "current token");
    assert_eq!(text(diagnosis.only("not-checked", "permissions"), "message"), "the credentials are rejected");
    assert_eq!(diagnosis.code, Some(1));
    assert!(!diagnosis.report.to_string().contains("hunter2"), "the token is in the report");
}

#[tokio::test(flavor = "multi_thread")]
async fn old_server_has_each_warning() {
    let server = Arc::new(ApiServer::builder().tls(true).http2(false).start().await.expect("a server"));
    keep_changing(&server);
    server.faults().refuse_streamed_lists(true);
    server.faults().no_bookmarks(true);
    for number in 0..30 {
        server.create(&config_map(&format!("c{number}"), 10)).expect("a config map");
    }
    server.faults().expire_events();
    let diagnosis = diagnose_server(&server, "old", &["configmaps"]).await;
    assert_finding(diagnosis.only("warning", "protocol"), "HTTP/1.1 only", "HTTP/2");
    assert_finding(diagnosis.only("warning", "streamed lists"), "rejects streamed lists", "WatchList");
    assert_finding(diagnosis.only("warning", "bookmarks"), "no bookmark arrived", "allowWatchBookmarks");
    assert_finding(diagnosis.only("warning", "history"), "but not", "--watch-cache-sizes");
    assert!(diagnosis.checks("failure").is_empty(), "{:#}", diagnosis.report);
    assert_eq!(diagnosis.code, Some(0), "warnings alone must not fail the program");
    server.faults().refuse_streamed_lists(false);
    server.faults().no_initial_events_end(true);
    let diagnosis = diagnose_server(&server, "endless", &["configmaps", "--strict"]).await;
    assert_finding(diagnosis.only("warning", "streamed lists"), "did not end a streamed list", "sendInitialEvents");
    assert_eq!(diagnosis.code, Some(1), "--strict");
}

#[tokio::test(flavor = "multi_thread")]
async fn lagging_replica_is_found() {
    let server = Arc::new(ApiServer::builder().tls(true).replicas(2).start().await.expect("a server"));
    for replica in 0..2 {
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {
                "name": format!("kubernetes-{replica}"), "namespace": "default",
                "labels": {"kubernetes.io/service-name": "kubernetes"},
            },
            "endpoints": [{"addresses": ["127.0.0.1"]}],
            "ports": [{"name": "https", "port": server.address(replica).expect("an address").port(), "protocol": "TCP"}],
        });
        server.create(&slice).expect("a slice");
    }
    let healthy = diagnose_server(&server, "replicas", &["namespaces"]).await;
    assert_eq!(healthy.findings().filter(|finding| finding["check"] == "endpoints").count(), 2);
    assert!(healthy.checks("failure").is_empty(), "{:#}", healthy.report);
    server.faults().replica(1).lag(true);
    server.create(&config_map("new", 10)).expect("a config map");
    let diagnosis = diagnose_server(&server, "lagging", &["namespaces"]).await;
    let finding = diagnosis.only("failure", "endpoints");
    assert_finding(finding, "has not reached version", "load balancer");
    assert_eq!(text(finding, "subject"), server.address(1).expect("an address").to_string());
    assert_eq!(diagnosis.code, Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_clock_and_missing_permission_are_found() {
    let server = Arc::new(ApiServer::start().await.expect("a server"));
    keep_changing(&server);
    let rewrites = Rewrites {
        respond: |path, body| {
            let attributes = &body["spec"]["resourceAttributes"];
            let is_denied = attributes["resource"] == "configmaps" && attributes["verb"] == "watch";
            (path.ends_with("/selfsubjectaccessreviews") && is_denied).then(|| json!({"status": {"allowed": false}}))
        },
        headers: vec![
            ("date", "Thu, 01 Jan 2026 00:00:00 GMT".to_owned()),
            ("via", "1.1 gateway\u{20}(nginx)".to_owned()),
        ],
    };
    let address = rewriting_proxy::start(server.address(0).expect("an address"), rewrites).await;
    let file = kubeconfig("doctor-rewritten.kubeconfig", &format!("http://{address}"), "");
    let diagnosis = diagnose(&file, &["pods", "configmaps", "-n", "shop", "--sample", "1s"]).await;
    assert_finding(diagnosis.only("failure", "clock"), "behind the clock of this machine", "NTP");
    assert_finding(diagnosis.only("warning", "proxies"), "via: 1.1 gateway (nginx)", "idle timeouts");
    let finding = diagnosis.only("failure", "permissions");
    assert_finding(finding, "watch is not permitted in the namespace shop", "role and binding");
    let manifest = text(finding, "manifest");
    for part in [
        "kind: Role\nmetadata:\n  name: watch-configmaps\n  namespace: shop\n",
        "- apiGroups: [\"\"]\n  resources: [configmaps]\n  verbs: [watch]\n",
        "kind: RoleBinding\n",
        "kind: User\n  name: \"admin\"\n",
    ] {
        assert!(manifest.contains(part), "{part:?} is not in {manifest}");
    }
    assert_eq!(diagnosis.only("ok", "permissions")["subject"], "pods");
    // Two checks need the user.
    let requests = server.requests();
    let reviews = requests.iter().filter(|request| request.path.ends_with("/selfsubjectreviews")).count();
    assert_eq!(reviews, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_discovery_is_a_finding() {
    let server = ApiServer::start().await.expect("a server");
    let respond = |path: &str, _: &Value| (path == "/apis").then(|| json!({"kind": "Nonsense"}));
    let rewrites = Rewrites { respond, headers: Vec::new() };
    let address = rewriting_proxy::start(server.address(0).expect("an address"), rewrites).await;
    let file = kubeconfig("doctor-discovery.kubeconfig", &format!("http://{address}"), "");
    let diagnosis = diagnose(&file, &["deployments", "--sample", "1s"]).await;
    assert_finding(diagnosis.only("failure", "discovery"), "cannot be listed", "aggregated API");
    let skipped = text(diagnosis.only("not-checked", "permissions"), "message");
    assert_eq!(skipped, "the discovery of the named resources failed");
    assert_eq!(diagnosis.only("ok", "authentication")["severity"], "ok");
    assert_eq!(diagnosis.code, Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_backends_are_found() {
    let server = ApiServer::builder().tls(true).start().await.expect("a server");
    for plural in ["gadgets", "widgets"] {
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.example.com")},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": plural.to_uppercase()},
                "conversion": {"strategy": "Webhook", "webhook": {
                    "conversionReviewVersions": ["v1"],
                    "clientConfig": {"service": {"namespace": "ops", "name": "converter"}},
                }},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }}}],
            },
        });
        server.create(&definition).expect("a definition");
    }
    let service = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1beta1.metrics.k8s.io"},
        "spec": {
            "group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "service": {"namespace": "kube-system", "name": "metrics-server"},
        },
        "status": {"conditions": [{
            "type": "Available", "status": "False", "reason": "MissingEndpoints", "message": "no addresses",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]},
    });
    server.create(&service).expect("an APIService");
    server
        .merge_patch(
            "apiservices.apiregistration.k8s.io",
            "",
            "v1beta1.metrics.k8s.io",
            json!({"status": service["status"]}),
        )
        .expect("a status");
    let dead = InjectedResponse::code(500);
    server.faults().respond_after(RequestRule::any().resource("gadgets"), Duration::ZERO, dead);
    server.faults().delay_matching(RequestRule::any().resource("widgets"), Duration::from_millis(1_500));
    let diagnosis = diagnose_server(&server, "backends", &["configmaps"]).await;
    let finding = diagnosis.only("failure", "conversion webhooks");
    assert_finding(finding, "one object cannot be listed: 500", "service ops/converter");
    assert_eq!(text(finding, "subject"), "gadgets.example.com v1");
    let finding = diagnosis.only("warning", "conversion webhooks");
    assert_finding(finding, "through the conversion webhook", "service ops/converter");
    assert_eq!(text(finding, "subject"), "widgets.example.com v1");
    assert_finding(diagnosis.only("failure", "API groups"), "MissingEndpoints", "kube-system/metrics-server");
}

#[tokio::test(flavor = "multi_thread")]
async fn hot_and_large_objects_are_found() {
    let server = Arc::new(ApiServer::builder().tls(true).start().await.expect("a server"));
    server.create(&config_map("large", 600 << 10)).expect("a config map");
    server.create(&config_map("hot", 10)).expect("a config map");
    let writer = server.clone();
    tokio::spawn(async move {
        for number in 0.. {
            sleep(Duration::from_millis(100)).await;
            let patch = json!({"data": {"v": format!("{number}")}});
            writer.merge_patch("configmaps", "default", "hot", patch).expect("a patch");
        }
    });
    let diagnosis = diagnose_server(&server, "hot", &["configmaps"]).await;
    let finding = diagnosis.only("warning", "changes");
    assert_finding(finding, "changes per minute by", "field managers");
    assert_eq!(text(finding, "subject"), "configmaps default/hot");
    let finding = diagnosis.only("warning", "large objects");
    assert_finding(finding, "most of it in the field data", "split");
    assert_eq!(text(finding, "subject"), "configmaps default/large");
}

/// Returns a self-signed certificate that expires in `days`, with its key.
fn certificate(days: i64) -> (rcgen::Certificate, KeyPair) {
    let until = jiff::Zoned::now().saturating_add(jiff::Span::new().days(days)).date();
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("parameters");
    let [month, day] = [until.month(), until.day()].map(|part| u8::try_from(part).expect("a date"));
    params.not_after = rcgen::date_time_ymd(until.year().into(), month, day);
    let key = KeyPair::generate().expect("a key");
    (params.self_signed(&key).expect("a certificate"), key)
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_client_certificate_is_found() {
    let (certificate, key) = certificate(-2);
    let server = ApiServer::builder().tls(true).start().await.expect("a server");
    let user = format!(
        "user: {{client-certificate-data: {}, client-key-data: {}}}",
        STANDARD.encode(certificate.pem()),
        STANDARD.encode(key.serialize_pem()),
    );
    let authority = STANDARD.encode(server.ca_pem().expect("an authority"));
    let text = format!(
        "current-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nusers: [{{name: u, {user}}}]\n\
         clusters: [{{name: c, cluster: {{server: '{}', certificate-authority-data: {authority}}}}}]\n",
        server.url(0),
    );
    let diagnosis = diagnose(&temp_file("doctor-client.kubeconfig", &text), &["--sample", "1s"]).await;
    assert_finding(diagnosis.only("failure", "certificates"), "expired on", "new certificate");
    assert!(!diagnosis.report.to_string().contains(&STANDARD.encode(key.serialize_pem())), "the key is in the report");
}

#[tokio::test(flavor = "multi_thread")]
async fn expiring_server_certificate_is_found() {
    let (certificate, key) = certificate(4);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let config = config.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key);
    let acceptor = TlsAcceptor::from(Arc::new(config.expect("a configuration")));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("https://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            // The handshake is enough: the client does not trust the certificate.
            tokio::spawn(acceptor.accept(socket));
        }
    });
    let diagnosis = diagnose(&kubeconfig("doctor-expiring.kubeconfig", &url, ""), &[]).await;
    assert_finding(diagnosis.only("warning", "certificates"), "the server's certificate expires on", "kubeadm");
}

#[tokio::test(flavor = "multi_thread")]
async fn text_report_states_its_limits() {
    let server = ApiServer::builder().tls(true).start().await.expect("a server");
    let file = temp_file("doctor-text.kubeconfig", &server.kubeconfig());
    let child = start(&["doctor", "pods", "--kubeconfig", &file, "--sample", "1s"]);
    let output = tokio::task::spawn_blocking(move || finish(child)).await.expect("a result");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    for part in [
        "(context embedded of ",
        "ok           protocol            https://127.0.0.1:",
        "not checked  bookmarks           pods: a watch of 1 s is too short; use --sample 10s\n",
        "\n0 failures, 0 warnings, 1 not checked, ",
        "Not checked: workloads and their manifests.\n",
    ] {
        assert!(printed.contains(part), "{part:?} is not in {printed}");
    }
    assert_eq!(output.status.code(), Some(0), "{printed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_resource_and_kubeconfig_are_rejected() {
    let server = ApiServer::builder().tls(true).start().await.expect("a server");
    let file = temp_file("doctor-unknown-kind.kubeconfig", &server.kubeconfig());
    let run = |arguments: &'static [&'static str], file: String| {
        tokio::task::spawn_blocking(move || steadfast(&[&["doctor", "--kubeconfig", &file], arguments].concat()))
    };
    let output = run(&["depoyments"], file).await.expect("a result");
    assert_eq!(output.status.code(), Some(2), "{}", stderr_text(&output));
    assert!(stderr_text(&output).contains("did you mean deployments.apps?"), "{}", stderr_text(&output));
    let output = run(&[], "/nonexistent/kubeconfig".to_owned()).await.expect("a result");
    assert_eq!(output.status.code(), Some(3), "{}", stderr_text(&output));
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn repeated_rounds_show_new_findings() {
    use crate::run::{KillOnDrop, signal};

    let server = ApiServer::builder().tls(true).start().await.expect("a server");
    let file = temp_file("doctor-rounds.kubeconfig", &server.kubeconfig());
    let arguments =
        ["doctor", "pods", "--kubeconfig", &file, "--sample", "1s", "-o", "json", "--watch", "--interval", "1s"];
    let mut child = KillOnDrop(start(&arguments));
    let mut lines = BufReader::new(child.0.stdout.take().expect("a piped stdout"));
    let mut round = || -> Value {
        let mut line = String::new();
        lines.read_line(&mut line).expect("a readable line");
        serde_json::from_str(&line).expect("JSON")
    };
    assert_eq!(round()["warnings"], 0);
    server.faults().refuse_streamed_lists(true);
    while round()["warnings"] == 0 {}
    signal(&child.0, "INT");
    let status = tokio::task::spawn_blocking(move || child.0.wait()).await.expect("a result").expect("a status");
    assert_eq!(status.code(), Some(0), "warnings alone must not fail the program");
}
