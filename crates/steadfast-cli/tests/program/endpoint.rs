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
struct Watching {
    child: Child,
    address: String,
    /// Lines of standard error.
    error_output: Arc<Mutex<String>>,
}

impl Watching {
    fn start(arguments: &[&str]) -> Self {
        let (watching, mut stdout) = Self::unread(&[&["watch", "--metrics", "127.0.0.1:0"], arguments].concat());
        // Both pipes need a reader, or the program blocks.
        std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
        watching
    }

    /// Starts the program and returns its standard output, which the caller must read.
    fn unread(arguments: &[&str]) -> (Self, std::process::ChildStdout) {
        let mut child = start(arguments);
        let mut stderr = BufReader::new(child.stderr.take().expect("a piped stderr"));
        let mut line = String::new();
        stderr.read_line(&mut line).expect("a readable line");
        let address = line.trim().strip_prefix("metrics at http://").and_then(|rest| rest.strip_suffix("/metrics"));
        let address = address.unwrap_or_else(|| panic!("{line:?}")).to_owned();
        let error_output = Arc::new(Mutex::new(String::new()));
        let received = error_output.clone();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                received.lock().push_str(&(line + "\n"));
            }
        });
        let stdout = child.stdout.take().expect("a piped stdout");
        (Self { child, address, error_output }, stdout)
    }

    /// Sends `request` and returns the response verbatim.
    fn raw(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("the endpoint listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a read timeout");
        // The server may respond to an oversized request before its end, and reset the connection.
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn get(&self, path: &str) -> (String, String) {
        let answer = self.raw(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes());
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
        (head.to_owned(), body.to_owned())
    }

    /// Waits until `/readyz` responds with `status`, and returns the body.
    fn ready(&self, status: &str) -> String {
        let started = Instant::now();
        loop {
            let (head, body) = self.get("/readyz");
            if head.starts_with(&format!("HTTP/1.1 {status}")) {
                return body;
            }
            assert!(started.elapsed() < Duration::from_secs(60), "{head}\n{body}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn endpoint_serves_metrics_health_and_readiness() {
    let watching = Watching::start(&["--embedded"]);
    assert_eq!(watching.ready("200"), "ok\n");
    let (head, body) = watching.get("/metrics");
    let head = head.to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"), "{head}");
    let scraped = Exposition::parse(&body).unwrap_or_else(|error| panic!("{error}\n{body}"));
    assert_eq!(scraped.sum("steadfast_informer_freshness", &[("state", "fresh")]), (2.0, 2));
    let deployments = [("resource", "deployments"), ("group", "apps")];
    assert_eq!(scraped.sum("steadfast_informer_objects", &deployments), (3.0, 1));
    assert!(watching.get("/healthz").0.starts_with("HTTP/1.1 200"));
    assert!(watching.get("/other").0.starts_with("HTTP/1.1 404"));
    let posted = watching.raw(b"POST /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    assert!(posted.starts_with("HTTP/1.1 405"), "{posted}");
}

#[test]
fn readiness_names_failing_resource_and_cause() {
    let mut server = RunningServer::start("readiness.kubeconfig", &[]);
    let watching = Watching::start(&["configmaps", "-A", "--kubeconfig", &server.kubeconfig]);
    assert_eq!(watching.ready("200"), "ok\n");
    server.child.kill().expect("the process is killed");
    server.child.wait().expect("an exit status");
    let printed = watching.ready("503");
    assert!(printed.starts_with("configmaps in all namespaces: ") && printed.contains(" for "), "{printed}");
    assert!(watching.get("/healthz").0.starts_with("HTTP/1.1 200"), "alive, though not ready");
}

#[test]
fn replaced_server_is_reported_and_relisted() {
    let manifests: Vec<_> = (0..8)
        .map(|number| {
            format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m-{number}, namespace: default}}\n")
        })
        .collect();
    let manifests = temp_file("anew.yaml", &manifests.concat());
    let mut server = RunningServer::start("anew.kubeconfig", &["-f", &manifests]);
    let kubeconfig = std::fs::read_to_string(&server.kubeconfig).expect("the file exists");
    let port = kubeconfig.split("127.0.0.1:").nth(1).expect("the address of the server");
    let port: String = port.chars().take_while(char::is_ascii_digit).collect();
    let watching = Watching::start(&["configmaps", "-n", "default", "--kubeconfig", &server.kubeconfig]);
    assert_eq!(watching.ready("200"), "ok\n");
    server.child.kill().expect("the process is killed");
    server.child.wait().expect("an exit status");
    let printed = watching.ready("503");
    let server = RunningServer::start_with_kubeconfig("anew.kubeconfig", &["--port", &port]);
    assert_eq!(watching.ready("200"), "ok\n", "after {printed}");
    let scraped = Exposition::parse(&watching.get("/metrics").1).expect("a valid scrape");
    let held = scraped.sum("steadfast_informer_objects", &[("resource", "configmaps")]);
    assert_eq!(held, (0.0, 1), "ready with no object in the cache");
    let error_output = watching.error_output.lock().clone();
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
    let (watching, stdout) = Watching::unread(&arguments);
    assert_eq!(watching.ready("200"), "ok\n");
    for value in 1..=CHANGES {
        server.replace(&config_map("a", &value.to_string())).expect("the object is replaced");
    }
    let revision = server.revision() as f64;
    let started = Instant::now();
    while Exposition::parse(&watching.get("/metrics").1)
        .expect("a valid scrape")
        .sum("steadfast_informer_resource_version", &[])
        .0
        < revision
    {
        assert!(started.elapsed() < Duration::from_secs(60), "the metrics never reached {revision}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let (mut changes, mut merged) = (0, 0);
    for line in BufReader::new(stdout).lines() {
        let line = line.expect("a readable line");
        let Some((_, more)) = line.split_once(" ~ configmaps default/a") else { continue };
        let several =
            more.split_once(" changes)").and_then(|(before, _)| before.rsplit_once('(')).map(|(_, count)| count);
        let several: Option<usize> = several.map(|count| count.parse().expect("a number"));
        changes += several.unwrap_or(1);
        merged += usize::from(several.is_some());
        if changes >= CHANGES {
            break;
        }
    }
    assert_eq!((changes, merged), (CHANGES, 1), "all changes are written, several of them in one line");
    let aside = "! configmaps: ";
    let started = Instant::now();
    while !watching.error_output.lock().contains(aside) {
        assert!(started.elapsed() < Duration::from_secs(60), "no warning about merged events");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn missing_kind_prevents_readiness() {
    let watching = Watching::start(&["--embedded", "pods", "widgets.example.com", "--wait-for-kind"]);
    let line = "widgets.example.com: the server does not have this kind yet\n";
    let started = Instant::now();
    // The pods are synced after a while; the kind never exists.
    while watching.ready("503") != line {
        assert!(started.elapsed() < Duration::from_secs(60), "{}", watching.ready("503"));
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn unreachable_server_prevents_readiness_only() {
    let kubeconfig = crate::bad_input::kubeconfig("unready.kubeconfig", "https://127.0.0.1:1", "");
    let watching = Watching::start(&["pods", "--kubeconfig", &kubeconfig]);
    assert!(watching.ready("503").starts_with("starting: "));
    assert!(watching.get("/healthz").0.starts_with("HTTP/1.1 200"));
}

#[test]
fn oversized_request_head_is_rejected() {
    let watching = Watching::start(&["--embedded"]);
    let endless = [b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: ".to_vec(), vec![b'a'; 64 * 1024]].concat();
    let answer = watching.raw(&endless);
    assert!(!answer.contains("steadfast_"), "{answer}");
    assert!(watching.get("/healthz").0.starts_with("HTTP/1.1 200"), "other requests receive responses");
}

#[test]
fn used_metrics_address_is_reported() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("a bound address").to_string();
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
