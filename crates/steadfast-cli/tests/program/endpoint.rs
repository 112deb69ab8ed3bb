//! `steadfast watch --metrics`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use serde_json::json;
use steadfast_apiserver::ApiServer;
use steadfast_testing::Exposition;

use crate::run::{RunningServer, finish, start, stderr_text, steadfast, temp_file};

/// The program with its endpoint; killed on drop.
struct WatchProcess {
    child: Child,
    address: String,
    /// Lines of standard error.
    error_output: Arc<Mutex<String>>,
}

impl WatchProcess {
    fn start(arguments: &[&str]) -> Self {
        let (process, mut stdout) = Self::start_unread(&[&["watch", "--metrics", "127.0.0.1:0"], arguments].concat());
        // Both pipes need a reader, or the program blocks.
        std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
        process
    }

    /// Starts the program and returns its standard output, which the caller must read.
    fn start_unread(arguments: &[&str]) -> (Self, std::process::ChildStdout) {
        let mut child = start(arguments);
        let mut stderr = BufReader::new(child.stderr.take().expect("a piped stderr"));
        let mut line = String::new();
        stderr.read_line(&mut line).expect("a readable line");
        let address = line.trim().strip_prefix("metrics at http://").and_then(|rest| rest.strip_suffix("/metrics"));
        let address = address.unwrap_or_else(|| panic!("{line:?}")).to_owned();
        let error_output = Arc::new(Mutex::new(String::new()));
        let error_output_sink = error_output.clone();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                error_output_sink.lock().push_str(&(line + "\n"));
            }
        });
        let stdout = child.stdout.take().expect("a piped stdout");
        (Self { child, address, error_output }, stdout)
    }

    /// Sends `request` and returns the response verbatim.
    fn send(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("the endpoint listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a read timeout");
        // The server may respond to an oversized request before its end, and reset the connection.
        let _ = stream.write_all(request);
        let mut response = Vec::new();
        let _ = stream.read_to_end(&mut response);
        String::from_utf8_lossy(&response).into_owned()
    }

    fn get(&self, path: &str) -> (String, String) {
        let response = self.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes());
        let (head, body) = response.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{response:?}"));
        (head.to_owned(), body.to_owned())
    }

    /// Waits until `/readyz` responds with `status`, and returns the body.
    fn wait_for_readiness(&self, status: &str) -> String {
        let start_time = Instant::now();
        loop {
            let (head, body) = self.get("/readyz");
            if head.starts_with(&format!("HTTP/1.1 {status}")) {
                return body;
            }
            assert!(start_time.elapsed() < Duration::from_secs(60), "{head}\n{body}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for WatchProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn endpoint_serves_metrics_health_and_readiness() {
    let process = WatchProcess::start(&["--embedded"]);
    assert_eq!(process.wait_for_readiness("200"), "ok\n");
    let (head, body) = process.get("/metrics");
    let head = head.to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"), "{head}");
    let metrics = Exposition::parse(&body).unwrap_or_else(|error| panic!("{error}\n{body}"));
    assert_eq!(metrics.sum("steadfast_informer_freshness", &[("state", "fresh")]), (2.0, 2));
    let deployments = [("resource", "deployments"), ("group", "apps")];
    assert_eq!(metrics.sum("steadfast_informer_objects", &deployments), (3.0, 1));
    assert!(process.get("/healthz").0.starts_with("HTTP/1.1 200"));
    assert!(process.get("/other").0.starts_with("HTTP/1.1 404"));
    let response = process.send(b"POST /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    assert!(response.starts_with("HTTP/1.1 405"), "{response}");
}

#[test]
fn readiness_names_failing_resource_and_cause() {
    let mut server = RunningServer::start("readiness.kubeconfig", &[]);
    let process = WatchProcess::start(&["configmaps", "-A", "--kubeconfig", &server.kubeconfig]);
    assert_eq!(process.wait_for_readiness("200"), "ok\n");
    server.child.kill().expect("the process is killed");
    server.child.wait().expect("an exit status");
    let readiness_text = process.wait_for_readiness("503");
    assert!(
        readiness_text.starts_with("configmaps in all namespaces: ") && readiness_text.contains(" for "),
        "{readiness_text}"
    );
    assert!(process.get("/healthz").0.starts_with("HTTP/1.1 200"), "alive, though not ready");
}

#[test]
fn replaced_server_is_reported_and_relisted() {
    let manifests: Vec<_> = (0..8)
        .map(|number| {
            format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m-{number}, namespace: default}}\n")
        })
        .collect();
    let manifests = temp_file("replaced-server.yaml", &manifests.concat());
    let mut server = RunningServer::start("replaced-server.kubeconfig", &["-f", &manifests]);
    let kubeconfig = std::fs::read_to_string(&server.kubeconfig).expect("the file exists");
    let port = kubeconfig.split("127.0.0.1:").nth(1).expect("the address of the server");
    let port: String = port.chars().take_while(char::is_ascii_digit).collect();
    let process = WatchProcess::start(&["configmaps", "-n", "default", "--kubeconfig", &server.kubeconfig]);
    assert_eq!(process.wait_for_readiness("200"), "ok\n");
    server.child.kill().expect("the process is killed");
    server.child.wait().expect("an exit status");
    let readiness_text = process.wait_for_readiness("503");
    let server = RunningServer::start_with_kubeconfig("replaced-server.kubeconfig", &["--port", &port]);
    assert_eq!(process.wait_for_readiness("200"), "ok\n", "after {readiness_text}");
    let metrics = Exposition::parse(&process.get("/metrics").1).expect("a valid scrape");
    let object_count = metrics.sum("steadfast_informer_objects", &[("resource", "configmaps")]);
    assert_eq!(object_count, (0.0, 1), "ready with no object in the cache");
    let error_output = process.error_output.lock().clone();
    assert!(
        error_output.contains("stale: the server's history was replaced: the server is at version "),
        "{error_output}"
    );
    drop(server);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_merged_during_blocked_output_are_marked() {
    /// Number of changes, above the limit of pending events.
    const CHANGES: usize = 1100;

    let server = ApiServer::builder().start().await.expect("a server");
    let config_map = |name: &str, value: &str| -> ConfigMap {
        let object = json!({"metadata": {"name": name, "namespace": "default"}, "data": {"value": value}});
        serde_json::from_value(object).expect("a config map")
    };
    // More lines than the pipe and the program can buffer.
    server.create(&config_map("a", "0")).expect("the object is created");
    for number in 0..4000 {
        server.create(&config_map(&format!("m-{number}"), "0")).expect("the object is created");
    }
    let kubeconfig = temp_file("merged-lines.kubeconfig", &server.kubeconfig());
    let arguments = ["watch", "cm", "--kubeconfig", &kubeconfig, "--metrics", "127.0.0.1:0"];
    let (process, stdout) = WatchProcess::start_unread(&arguments);
    assert_eq!(process.wait_for_readiness("200"), "ok\n");
    for value in 1..=CHANGES {
        server.replace(&config_map("a", &value.to_string())).expect("the object is replaced");
    }
    let revision = server.revision() as f64;
    let start_time = Instant::now();
    while Exposition::parse(&process.get("/metrics").1)
        .expect("a valid scrape")
        .sum("steadfast_informer_resource_version", &[])
        .0
        < revision
    {
        assert!(start_time.elapsed() < Duration::from_secs(60), "the metrics never reached {revision}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let (mut changes, mut merged) = (0, 0);
    for line in BufReader::new(stdout).lines() {
        let line = line.expect("a readable line");
        let Some((_, rest)) = line.split_once(" ~ configmaps default/a") else { continue };
        let merged_count =
            rest.split_once(" changes)").and_then(|(prefix, _)| prefix.rsplit_once('(')).map(|(_, count)| count);
        let merged_count: Option<usize> = merged_count.map(|count| count.parse().expect("a number"));
        changes += merged_count.unwrap_or(1);
        merged += usize::from(merged_count.is_some());
        if changes >= CHANGES {
            break;
        }
    }
    assert_eq!((changes, merged), (CHANGES, 1), "all changes are written, several of them in one line");
    let warning = "! configmaps: ";
    let start_time = Instant::now();
    while !process.error_output.lock().contains(warning) {
        assert!(start_time.elapsed() < Duration::from_secs(60), "no warning about merged events");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn missing_kind_prevents_readiness() {
    let process = WatchProcess::start(&["--embedded", "pods", "widgets.example.com", "--wait-for-kind"]);
    let line = "widgets.example.com: the server does not have this kind yet\n";
    let start_time = Instant::now();
    // The pods are synced after a while; the kind never exists.
    while process.wait_for_readiness("503") != line {
        assert!(start_time.elapsed() < Duration::from_secs(60), "{}", process.wait_for_readiness("503"));
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn unreachable_server_prevents_readiness_only() {
    let kubeconfig = crate::bad_input::kubeconfig("unready.kubeconfig", "https://127.0.0.1:1", "");
    let process = WatchProcess::start(&["pods", "--kubeconfig", &kubeconfig]);
    assert!(process.wait_for_readiness("503").starts_with("starting: "));
    assert!(process.get("/healthz").0.starts_with("HTTP/1.1 200"));
}

#[test]
fn oversized_request_head_is_rejected() {
    let process = WatchProcess::start(&["--embedded"]);
    let endless = [b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: ".to_vec(), vec![b'a'; 64 * 1024]].concat();
    let response = process.send(&endless);
    assert!(!response.contains("steadfast_"), "{response}");
    assert!(process.get("/healthz").0.starts_with("HTTP/1.1 200"), "other requests receive responses");
}

#[test]
fn used_metrics_address_is_reported() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound address").to_string();
    let output = steadfast(&["watch", "--embedded", "--metrics", &address]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr_text(&output).contains(&address) && stderr_text(&output).contains("choose another"),
        "{}",
        stderr_text(&output)
    );
    let output = finish(start(&["watch", "--embedded", "--metrics", "nonsense"]));
    assert_eq!(output.status.code(), Some(2));
}
