//! `steadfast serve --persist`: the state of the server survives its end, also by `SIGKILL`.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};

use crate::haproxy::eventually;
use crate::run::{RunningServer, stderr_text, steadfast, temp_file, temp_path};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Objects that the server creates at its start.
const MANIFEST: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n\
                        apiVersion: v1\nkind: Secret\nmetadata: {name: key, namespace: shop}\nstringData: {k: v}\n";

/// A server over plain HTTP with a state file.
struct PersistentServer {
    server: RunningServer,
    address: String,
}

impl PersistentServer {
    fn start(state: &str, extra_arguments: &[&str]) -> Self {
        let kubeconfig = format!("{}.kubeconfig", Path::new(state).file_name().expect("a name").display());
        let arguments = [&["--persist", state, "--tls", "false"], extra_arguments].concat();
        let server = RunningServer::start(&kubeconfig, &arguments);
        let address = server.startup_lines[0].rsplit_once("://").expect("a URL").1.to_owned();
        Self { server, address }
    }

    /// Performs a request, and returns the body of its response.
    fn request(&self, method: &str, path: &str, body: &Value) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("the server accepts connections");
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let content_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        // HTTP/1.0: the body ends with the connection, and has no chunks.
        let head = format!("{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Type: {content_type}\r\n");
        write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).expect("the server reads");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("a readable response");
        response.split_once("\r\n\r\n").expect("a response").1.to_owned()
    }

    fn json(&self, method: &str, path: &str, body: &Value) -> Value {
        serde_json::from_str(&self.request(method, path, body)).expect("a JSON response")
    }

    fn get(&self, path: &str) -> Value {
        self.json("GET", path, &Value::Null)
    }

    /// Creates a config map and returns its version.
    fn create(&self, name: &str) -> u64 {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        version(&self.json("POST", CONFIG_MAPS, &object))
    }

    /// Returns the events of a watch that ends after a second.
    fn watch(&self, from: u64) -> Vec<Value> {
        let query = format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=1&resourceVersion={from}");
        let events = self.request("GET", &query, &Value::Null);
        events.lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect()
    }

    fn has_printed(&self, line: &str) -> bool {
        self.server.startup_lines.iter().any(|printed| printed.contains(line))
    }

    fn kill(mut self) {
        self.server.child.kill().expect("the process is killed");
        self.server.child.wait().expect("an exit status");
    }
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).expect("a version")
}

/// Returns the path of a state file that does not exist yet.
fn new_state_file(name: &str) -> String {
    let path = temp_path(name);
    let _ = std::fs::remove_file(&path);
    path
}

/// Waits until the server has saved this text.
fn wait_until_saved(state: &str, text: &str) {
    eventually(&format!("{text} in {state}"), || {
        std::fs::read_to_string(state).is_ok_and(|content| content.contains(text))
    });
}

#[test]
fn stopped_server_continues_with_next_version() {
    let state = new_state_file("stopped.state");
    let manifest = temp_file("persist.yaml", MANIFEST);
    let server = PersistentServer::start(&state, &["-f", &manifest]);
    assert!(server.has_printed("created 2 objects") && server.has_printed("a new file"));
    let first_version = server.create("a");
    let (secret, config_maps) = (server.get("/api/v1/namespaces/shop/secrets/key"), server.get(CONFIG_MAPS));
    server.server.stop();
    let mode = std::fs::metadata(&state).expect("the file exists").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(!Path::new(&format!("{state}.lock")).exists());

    let server = PersistentServer::start(&state, &["-f", &manifest]);
    assert!(server.has_printed("kept 2 objects"), "{:?}", server.server.startup_lines);
    assert!(!server.has_printed("no storage"));
    assert_eq!(server.get("/api/v1/namespaces/shop/secrets/key"), secret);
    assert_eq!(server.get(CONFIG_MAPS), config_maps, "the objects and the version of the list");
    assert_eq!(server.create("b"), first_version + 1);
    // A client with the last version continues, and a client with an older one lists again.
    let events = server.watch(version(&config_maps));
    assert_eq!((events.len(), &events[0]["object"]["metadata"]["name"]), (1, &json!("b")));
    let events = server.watch(version(&config_maps) - 1);
    assert_eq!((events.len(), &events[0]["object"]["code"]), (1, &json!(410)), "{events:?}");
}

#[test]
fn killed_server_reuses_no_version() {
    let state = new_state_file("killed.state");
    let mut highest_version = 0;
    for run in 0..3 {
        let server = PersistentServer::start(&state, &[]);
        let saved = format!("saved-{run}");
        let saved_version = server.create(&saved);
        assert!(saved_version > highest_version, "{saved_version} after {highest_version}");
        let object = server.get(&format!("{CONFIG_MAPS}/{saved}"));
        wait_until_saved(&state, &saved);
        for number in 0..20 {
            highest_version = server.create(&format!("lost-{run}-{number}"));
        }
        server.kill();

        let server = PersistentServer::start(&state, &[]);
        assert_eq!(server.get(&format!("{CONFIG_MAPS}/{saved}")), object);
        assert!(version(&server.get(CONFIG_MAPS)) > highest_version);
        let events = server.watch(highest_version);
        assert_eq!((events.len(), &events[0]["object"]["code"]), (1, &json!(410)), "{events:?}");
        server.kill();
    }
}

#[test]
fn second_server_with_file_is_rejected() {
    let state = new_state_file("shared.state");
    let server = PersistentServer::start(&state, &[]);
    let output = steadfast(&["serve", "--persist", &state]);
    let message = stderr_text(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    let process = format!("(process {})", server.server.child.id());
    assert!(message.contains("in use by another `steadfast serve`") && message.contains(&process), "{message}");
    assert_eq!(server.create("a"), version(&server.get(CONFIG_MAPS)));
}

#[test]
fn damaged_file_is_rejected_with_line() {
    let state = new_state_file("damaged.state");
    let server = PersistentServer::start(&state, &[]);
    server.create("a");
    server.server.stop();
    let content = std::fs::read_to_string(&state).expect("the file exists");
    let damaged = content.replacen("kube-public", "kube-publik", 1);
    std::fs::write(&state, &damaged).expect("the file is writable");
    let output = steadfast(&["serve", "--persist", &state]);
    let message = stderr_text(&output);
    assert_eq!(output.status.code(), Some(3), "{message}");
    assert!(message.contains("corrupt at line 5") && message.contains("checksum"), "{message}");
    assert_eq!(std::fs::read_to_string(&state).expect("the file exists"), damaged);
}

fn deployment(replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "main", "image": "web:1"}]},
            },
        },
    })
}

/// Returns the UIDs of the ready pods by name, with their addresses.
fn ready_pods(server: &PersistentServer) -> BTreeMap<String, (String, String)> {
    let pods = server.get("/api/v1/namespaces/default/pods");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let ready = pods["items"].as_array().expect("a list").iter().filter(|pod| {
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        conditions.clone().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    });
    let metadata = |pod: &Value| (text(&pod["metadata"]["name"]), text(&pod["metadata"]["uid"]));
    ready.map(|pod| (metadata(pod).0, (metadata(pod).1, text(&pod["status"]["podIP"])))).collect()
}

#[test]
fn simulated_cluster_continues_after_kill() {
    let state = new_state_file("world.state");
    let server = PersistentServer::start(&state, &["--world", "--nodes", "2"]);
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    server.json("POST", deployments, &deployment(2));
    eventually("two ready pods", || ready_pods(&server).len() == 2);
    let pods = ready_pods(&server);
    wait_until_saved(&state, "\"readyReplicas\":2");
    server.kill();

    let server = PersistentServer::start(&state, &["--world", "--nodes", "2"]);
    assert_eq!(ready_pods(&server), pods);
    server.json("PATCH", &format!("{deployments}/web"), &json!({"spec": {"replicas": 4}}));
    eventually("four ready pods", || ready_pods(&server).len() == 4);
    let all_pods = ready_pods(&server);
    assert!(pods.iter().all(|(name, pod)| all_pods.get(name) == Some(pod)), "{pods:?} in {all_pods:?}");
    let mut addresses: Vec<_> = all_pods.values().map(|(_, address)| address).collect();
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), 4, "each pod has its own address");
}
