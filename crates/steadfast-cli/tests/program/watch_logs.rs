//! `steadfast watch --logs`, on the embedded server behind a proxy that serves the logs of pods.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::ChildStdout;
use std::sync::Arc;

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use steadfast_apiserver::ApiServer;
use tokio::net::{TcpListener, TcpStream};

use crate::run::{KillOnDrop, start, stderr_text, steadfast, temp_file};

type ProxyError = Box<dyn std::error::Error + Send + Sync>;

/// Returns the log for a path and query; `None` for a request that is not for a log.
type Log = dyn Fn(&str, &str) -> Option<(u16, String)> + Send + Sync;

async fn respond(
    upstream: SocketAddr,
    log: Arc<Log>,
    request: Request<Incoming>,
) -> Result<Response<BoxBody<Bytes, hyper::Error>>, ProxyError> {
    let uri = request.uri();
    if let Some((status, text)) = log(uri.path(), uri.query().unwrap_or_default()) {
        let body = Full::new(Bytes::from(text)).map_err(|never| match never {});
        return Ok(Response::builder().status(status).body(body.boxed())?);
    }
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(TcpStream::connect(upstream).await?)).await?;
    tokio::spawn(connection);
    Ok(sender.send_request(request).await?.map(BodyExt::boxed))
}

/// Starts the proxy, which runs until the end of the test. Returns a kubeconfig for its address.
async fn proxy(server: &ApiServer, name: &str, log: Arc<Log>) -> String {
    let (listener, upstream) =
        (TcpListener::bind("127.0.0.1:0").await.expect("a free port"), server.address(0).expect("an address"));
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let log = log.clone();
            let service = service_fn(move |request| respond(upstream, log.clone(), request));
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service));
        }
    });
    let url = server.url(0);
    let text = server.kubeconfig().replace(&url, &format!("http://{address}"));
    assert!(text.contains(&format!("http://{address}")), "{url} is not in {text}");
    temp_file(&format!("watch-logs-{name}.kubeconfig"), &text)
}

fn running(containers: &[&str]) -> Value {
    let status = |name: &&str| json!({"name": name, "restartCount": 0, "ready": true, "state": {"running": {}}});
    json!({"status": {"phase": "Running", "containerStatuses": containers.iter().map(status).collect::<Vec<_>>()}})
}

fn create_pod(server: &ApiServer, name: &str, owner: Option<&Value>) {
    let references: Vec<Value> = owner
        .iter()
        .map(|owner| json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": owner["metadata"]["uid"]}))
        .collect();
    let metadata = json!({"name": name, "namespace": "default", "ownerReferences": references});
    let containers = json!([{"name": "app", "image": "a"}, {"name": "sidecar", "image": "b"}]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}});
    server.create(&pod).expect("a pod");
    server.merge_patch("pods", "default", name, running(&["app", "sidecar"])).expect("a status");
}

/// Returns a log that repeats its lines with each response, as a server does within a second.
fn log_of_two_lines() -> Arc<Log> {
    let start = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(60);
    Arc::new(move |path, query| {
        let pod = path.strip_prefix("/api/v1/namespaces/default/pods/")?.strip_suffix("/log")?;
        assert!(query.contains("timestamps=true"), "{query}");
        let container = query.split('&').find_map(|part| part.strip_prefix("container="))?;
        if query.contains("previous=true") {
            let status = json!({"kind": "Status", "apiVersion": "v1", "code": 400, "message": "not found"});
            return Some((400, status.to_string()));
        }
        Some((200, format!("{start} {pod} {container} \u{1b}[31mred\u{1b}[0m\n{start} {pod} {container} \u{1b}[2J\n")))
    })
}

struct Output {
    _child: KillOnDrop,
    lines: BufReader<ChildStdout>,
}

impl Output {
    fn start(kubeconfig: &str, arguments: &[&str]) -> Self {
        let all = [&["watch", "--utc", "--logs", "--kubeconfig", kubeconfig], arguments].concat();
        let mut child = KillOnDrop(start(&all));
        let lines = BufReader::new(child.0.stdout.take().expect("a piped stdout"));
        Self { _child: child, lines }
    }

    /// Returns the lines until a line with `part`.
    fn until(&mut self, part: &str) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        while !lines.last().is_some_and(|line| line.contains(part)) {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).expect("a readable line") > 0, "no {part:?} in {lines:#?}");
            lines.push(line.trim_end().to_owned());
        }
        lines
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn log_lines_are_printed_once() {
    let server = ApiServer::start().await.expect("a server");
    let kubeconfig = proxy(&server, "once", log_of_two_lines()).await;
    create_pod(&server, "web-0", None);
    let mut output = Output::start(&kubeconfig, &["pods", "-c", "^app$"]);
    let mut lines = output.until("web-0 app │ web-0 app \\u{1b}[2J");
    assert!(lines.iter().any(|line| line.ends_with("│ pods default/web-0 app │ web-0 app red")), "{lines:#?}");
    // The program has requested the log again by then: each response ends at once.
    create_pod(&server, "web-1", None);
    lines.extend(output.until("web-1 app │ web-1 app \\u{1b}[2J"));
    server.merge_patch("pods", "default", "web-0", json!({"metadata": {"labels": {"a": "b"}}})).expect("a patch");
    lines.extend(output.until("label +a=b"));
    let logs = lines.iter().filter(|line| line.contains("│ pods")).count();
    assert_eq!(logs, 4, "{lines:#?}");
    assert!(!lines.iter().any(|line| line.contains("sidecar")), "{lines:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_of_related_pods_follow_tree() {
    let server = ApiServer::start().await.expect("a server");
    let kubeconfig = proxy(&server, "related", log_of_two_lines()).await;
    let template =
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "app", "image": "a"}]}});
    let spec = json!({"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template});
    let metadata = json!({"name": "web", "namespace": "default"});
    let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": spec});
    let set = server.create(&set).expect("a replica set");
    create_pod(&server, "web-0", Some(&set));
    create_pod(&server, "stranger", None);
    let mut output = Output::start(&kubeconfig, &["rs/web", "--related", "--max-log-requests", "1"]);
    let first = output.until("app │ web-0 app \\u{1b}[2J");
    assert!(first[0].starts_with("✗ replicasets.apps default/web"), "{first:#?}");
    assert!(!first.iter().any(|line| line.contains("stranger")), "{first:#?}");
    create_pod(&server, "web-1", Some(&set));
    let later = output.until("sidecar │ web-1 sidecar \\u{1b}[2J");
    assert!(later.iter().any(|line| line.contains("+ pods default rs/web › web-1")), "{later:#?}");
}

#[test]
fn logs_need_pods_and_lines() {
    for (arguments, part) in [
        (&["deploy", "--embedded", "--logs"][..], "--logs needs pods; add pods to the resources"),
        (&["pods", "--logs", "-o", "yaml"], "--logs needs -o text, wide or json"),
        (&["pods", "-c", "app"], "--logs"),
        (&["pods", "--logs", "-c", "("], "regex parse error"),
        (&["pods", "--logs", "--max-log-requests", "0"], "--max-log-requests"),
    ] {
        let output = steadfast(&[&["watch"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{}", stderr_text(&output));
        assert!(stderr_text(&output).contains(part), "{}", stderr_text(&output));
    }
}
