//! `steadfast audit` on the embedded server with two endpoints.

use std::io::{BufRead, BufReader};
use std::process::{ChildStderr, ChildStdout};

use serde_json::Value;
use steadfast_apiserver::ApiServer;
use steadfast_testing::{Exposition, config_map};
use tokio::runtime::Runtime;

use crate::haproxy::eventually;
use crate::run::{KillOnDrop, finish, signal, start, stderr_text, steadfast, temp_file};
use crate::status::get;

/// A server with two replicas, and its kubeconfig, which names the first one.
fn server(runtime: &Runtime, name: &str) -> (ApiServer, String) {
    let builder = ApiServer::builder().replicas(2).tls(true).token("hunter2");
    let server = runtime.block_on(builder.start()).expect("a server");
    server.create(&config_map("initial", "1")).expect("a config map");
    let kubeconfig = temp_file(&format!("audit-{name}.kubeconfig"), &server.kubeconfig());
    (server, kubeconfig)
}

fn address(server: &ApiServer, replica: usize) -> String {
    server.address(replica).expect("an address").to_string()
}

/// Returns the next line of `output` with `part`.
fn line_with(output: &mut impl BufRead, part: &str) -> String {
    let mut line = String::new();
    while !line.contains(part) {
        line.clear();
        assert!(output.read_line(&mut line).expect("a readable line") > 0, "the program ended before {part:?}");
    }
    line
}

/// A running audit of both endpoints with JSON output and metrics.
struct RunningAudit {
    program: KillOnDrop,
    findings: BufReader<ChildStdout>,
    log: BufReader<ChildStderr>,
    metrics: String,
}

impl RunningAudit {
    fn start(server: &ApiServer, kubeconfig: &str) -> Self {
        let endpoints = [server.url(0), server.url(1)];
        let arguments = ["audit", "cm", "-o", "json", "--metrics", "127.0.0.1:0", "--kubeconfig", kubeconfig];
        let endpoints = ["--endpoint", endpoints[0].as_str(), "--endpoint", endpoints[1].as_str()];
        let mut program = KillOnDrop(start(&[&arguments[..], &endpoints].concat()));
        let findings = BufReader::new(program.0.stdout.take().expect("a piped stdout"));
        let mut log = BufReader::new(program.0.stderr.take().expect("a piped stderr"));
        let line = line_with(&mut log, "metrics at ");
        let metrics = line.trim().strip_prefix("metrics at http://").and_then(|rest| rest.strip_suffix("/metrics"));
        let metrics = metrics.unwrap_or_else(|| panic!("{line:?}")).to_owned();
        Self { program, findings, log, metrics }
    }

    fn sum(&self, name: &str, labels: &[(&str, &str)]) -> (f64, usize) {
        let (_, body) = get(&self.metrics, "/metrics");
        Exposition::parse(&body).unwrap_or_else(|error| panic!("{error}\n{body}")).sum(name, labels)
    }

    fn next_finding(&mut self) -> Value {
        let line = line_with(&mut self.findings, "\n");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }
}

#[test]
fn frozen_endpoint_is_reported_and_recovers() {
    let runtime = Runtime::new().expect("a runtime");
    let (server, kubeconfig) = server(&runtime, "frozen");
    let (healthy, frozen) = (address(&server, 0), address(&server, 1));
    let mut audit = RunningAudit::start(&server, &kubeconfig);
    let line = line_with(&mut audit.log, "auditing ");
    assert_eq!(line, format!("auditing configmaps on {healthy}, {frozen}\n"));
    eventually("two watches", || audit.sum("steadfast_audit_watch_open", &[]) == (2.0, 2));
    assert!(get(&audit.metrics, "/readyz").0.starts_with("HTTP/1.1 200"));

    server.faults().replica(1).freeze(true);
    let finding = audit.next_finding();
    assert_eq!((&finding["type"], &finding["state"]), (&"Finding".into(), &"Started".into()), "{finding}");
    assert_eq!((&finding["finding"], &finding["endpoint"]), (&"unresponsive".into(), &frozen.as_str().into()));
    assert!(finding["resource"].is_null() && finding["evidence"].is_string(), "{finding}");
    let responsive = "steadfast_audit_endpoint_responsive";
    assert_eq!(audit.sum(responsive, &[("endpoint", &frozen)]), (0.0, 1));
    assert_eq!(audit.sum(responsive, &[("endpoint", &healthy)]), (1.0, 1));
    assert!(audit.sum("steadfast_audit_active_findings", &[("endpoint", &healthy)]).0 < 0.5);
    let labels = [("endpoint", frozen.as_str()), ("finding", "unresponsive")];
    assert_eq!(audit.sum("steadfast_audit_findings_total", &labels), (1.0, 1));

    server.faults().replica(1).freeze(false);
    let finding = audit.next_finding();
    assert_eq!((&finding["finding"], &finding["state"]), (&"unresponsive".into(), &"Ended".into()), "{finding}");
    assert!(finding["durationSeconds"].as_f64() > Some(0.0), "{finding}");
    signal(&audit.program.0, "TERM");
    assert!(line_with(&mut audit.log, "end of the audit").ends_with("findings: 1\n"));
    assert_eq!(audit.program.0.wait().expect("an exit status").code(), Some(0));
}

#[test]
fn time_limit_has_exit_code_of_findings() {
    let runtime = Runtime::new().expect("a runtime");
    let (server, kubeconfig) = server(&runtime, "limit");
    // Without --endpoint, each address of the name is audited.
    let healthy = steadfast(&["audit", "--for", "4s", "--kubeconfig", &kubeconfig]);
    assert_eq!(healthy.status.code(), Some(0), "{}", stderr_text(&healthy));
    let text = stderr_text(&healthy);
    assert!(text.starts_with("auditing pods, services, ") && text.contains(&address(&server, 0)), "{text}");
    assert!(text.ends_with("end of the audit; findings: 0\n"), "{text}");
    let embedded = steadfast(&["audit", "--embedded", "--for", "3s"]);
    assert_eq!(embedded.status.code(), Some(0), "{}", stderr_text(&embedded));

    // The certificate must be valid for the configured name, also at the address of --endpoint.
    let url = server.url(1);
    let arguments = ["audit", "--for", "20s", "--kubeconfig", &kubeconfig, "--endpoint", &url];
    let rejected = finish(start(&[&arguments[..], &["--tls-server-name", "other.test"]].concat()));
    let text = stderr_text(&rejected);
    assert_eq!(rejected.status.code(), Some(1), "{text}");
    assert!(text.contains("the endpoint does not respond (unresponsive)"), "{text}");
    assert!(rejected.stdout.is_empty() && !text.contains("hunter2"), "{text}");
}

#[test]
fn invalid_arguments_are_rejected() {
    for (arguments, part) in [
        (&["--period", "1s"][..], "a duration from 10s to 24h, such as 10m"),
        (&["--for", "0s"], "a duration of at least 1s"),
        (&["--endpoint", "ftp://a"], "not an address"),
        (&["--embedded", "--endpoint", "https://a"], "cannot be used with"),
        (&["--embedded", "gadgets"], "gadgets"),
    ] {
        let output = steadfast(&[&["audit"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{}", stderr_text(&output));
        assert!(stderr_text(&output).contains(part), "{}", stderr_text(&output));
    }
}
