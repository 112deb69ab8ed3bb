//! Clusters, sinks and mirrors of `steadfast notify` start, run, fail and end independently of each other.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};
use steadfast_apiserver::ApiServer;
use steadfast_testing::config_map;
use tokio::runtime::Runtime;

use crate::haproxy::eventually;
use crate::run::{KillOnDrop, signal, start, steadfast, temp_path};

/// A kubeconfig of a server at `url`.
fn kubeconfig(url: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: '{url}'}}}}]\n\
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nusers: [{{name: u, user: {{token: t}}}}]\n"
    )
}

/// A rule that sends all objects of `resource` to the sink `log`.
fn rule(name: &str, resource: &str) -> String {
    format!(
        "[[rules]]\nname = \"{name}\"\nresources = [\"{resource}\"]\nnamespaces = [\"default\"]\ninitial = true\nto = [\"log\"]\n"
    )
}

/// A configuration in a folder of its own, with the cluster `east`.
struct Fixture {
    folder: PathBuf,
    east: ApiServer,
    runtime: Runtime,
}

impl Fixture {
    fn new(name: &str) -> Self {
        let folder = PathBuf::from(temp_path(name));
        // Remove files of an earlier test run.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("the folder is writable");
        let runtime = Runtime::new().expect("a runtime");
        let east = runtime.block_on(ApiServer::start()).expect("the server starts");
        let fixture = Self { folder, east, runtime };
        fixture.write("east", &fixture.east.kubeconfig());
        fixture
    }

    fn write(&self, file: &str, text: &str) {
        std::fs::write(self.folder.join(file), text).expect("the folder is writable");
    }

    /// Writes the configuration: the clusters `east` and `west`, then `settings`.
    fn configure(&self, settings: &str) {
        let clusters = "[clusters.east]\nkubeconfig = \"east\"\n[clusters.west]\nkubeconfig = \"west\"\n";
        self.write("notify.toml", &format!("{clusters}[sinks.log.stdout]\n{settings}"));
    }

    fn start(&self, drain: &str) -> NotifyProcess {
        let file = self.folder.join("notify.toml");
        let file = file.to_str().expect("a UTF-8 path");
        let mut child = KillOnDrop(start(&["notify", "-c", file, "--metrics", "127.0.0.1:0", "--drain", drain]));
        let stdout = collect_output(child.0.stdout.take().expect("a piped stdout"));
        let stderr = collect_output(child.0.stderr.take().expect("a piped stderr"));
        let mut process = NotifyProcess { child, stdout, stderr, address: String::new() };
        let mut address = None;
        eventually("the address", || {
            let stderr = process.stderr_text();
            address = stderr
                .split("metrics at http://")
                .nth(1)
                .and_then(|rest| Some(rest.split_once("/metrics")?.0.to_owned()));
            address.is_some()
        });
        process.address = address.unwrap_or_default();
        process
    }
}

/// Reads `source` on another thread, and returns the bytes read so far.
fn collect_output(mut source: impl Read + Send + 'static) -> Arc<Mutex<Vec<u8>>> {
    let output = Arc::<Mutex<Vec<u8>>>::default();
    let output_sink = output.clone();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = source.read(&mut buffer) {
            output_sink.lock().extend_from_slice(&buffer[..read]);
        }
    });
    output
}

/// A running program.
struct NotifyProcess {
    child: KillOnDrop,
    stdout: Arc<Mutex<Vec<u8>>>,
    stderr: Arc<Mutex<Vec<u8>>>,
    address: String,
}

impl NotifyProcess {
    fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr.lock()).into_owned()
    }

    /// Returns the clusters and names of the objects that `rule` has sent.
    fn sent_names(&self, rule: &str) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.stdout.lock()).into_owned();
        // The last line may be incomplete, so lines that are not valid JSON are ignored.
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let sent_lines = lines.filter(|line| line["rule"] == rule);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        sent_lines.map(|line| format!("{}/{}", text(&line["cluster"]), text(&line["name"]))).collect()
    }

    fn wait_until_sent(&self, rule: &str, object: &str) {
        eventually(&format!("{object} by {rule}"), || self.sent_names(rule).iter().any(|name| name == object));
    }

    fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).expect("the endpoint listens");
        stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a read timeout");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").expect("the request is sent");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("a response within five seconds");
        let (head, body) = response.split_once("\r\n\r\n").expect("a head and a body");
        (head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status"), body.to_owned())
    }

    /// Sends SIGTERM. Returns the time until the exit, and standard error.
    fn terminate(mut self) -> (Duration, String) {
        let start_time = Instant::now();
        signal(&self.child.0, "TERM");
        self.child.0.wait().expect("an exit status");
        (start_time.elapsed(), self.stderr_text())
    }
}

#[test]
fn dead_clusters_delay_no_other_cluster() {
    let fixture = Fixture::new("independent-clusters");
    fixture.configure(&rule("maps", "cm"));
    fixture.east.create(&config_map("a", "1")).expect("the object is created");
    // The kubeconfig of west does not exist yet.
    let process = fixture.start("2");
    process.wait_until_sent("maps", "east/a");
    let (status, text) = process.get("/readyz");
    assert_eq!(status, 503);
    assert!(text.contains("cluster west: unreachable for ") && text.contains("the kubeconfig"), "{text}");
    assert_eq!(process.get("/livez"), (200, "ok\n".to_owned()), "a restart would not help");

    // First an address without a server, then a running server.
    fixture.write("west", &kubeconfig("http://127.0.0.1:1"));
    eventually("the failed connection", || process.get("/readyz").1.contains("Connection refused"));
    let stderr = process.stderr_text();
    assert!(
        stderr.contains("cluster west: unreachable: ") && stderr.contains("other clusters are not affected"),
        "{stderr}"
    );
    let file = fixture.folder.join("notify.toml");
    let output = steadfast(&["notify", "status", "-c", file.to_str().expect("a UTF-8 path"), "-o", "json"]);
    let status: Value = serde_json::from_slice(&output.stdout).expect("valid JSON");
    let clusters = &status["now"]["clusters"];
    assert_eq!((&clusters[0]["state"], &clusters[1]["state"]), (&json!("watching"), &json!("unreachable")), "{status}");
    let (_, metrics) = process.get("/metrics");
    assert!(metrics.contains("steadfast_notify_cluster_attached{cluster=\"east\"} 1.0"), "{metrics}");
    assert!(metrics.contains("steadfast_notify_cluster_attached{cluster=\"west\"} 0.0"), "{metrics}");
}

#[test]
fn later_kubeconfig_is_used() {
    let fixture = Fixture::new("independent-kubeconfig");
    fixture.configure(&rule("maps", "cm"));
    let west = fixture.runtime.block_on(ApiServer::start()).expect("the server starts");
    west.create(&config_map("b", "1")).expect("the object is created");
    let process = fixture.start("2");
    eventually("the report", || process.stderr_text().contains("cluster west: unreachable: "));
    fixture.write("west", &west.kubeconfig());
    process.wait_until_sent("maps", "west/b");
    eventually("readiness", || process.get("/readyz").0 == 200);
    assert!(process.stderr_text().contains("cluster west: reached after "), "{}", process.stderr_text());
}

#[test]
fn resource_served_later_is_watched() {
    let fixture = Fixture::new("independent-kinds");
    let rules = rule("maps", "cm") + &rule("widgets", "widgets.example.com");
    fixture.configure(&rules.replace("initial", "clusters = [\"east\"]\ninitial"));
    fixture.east.create(&config_map("a", "1")).expect("the object is created");
    let process = fixture.start("2");
    process.wait_until_sent("maps", "east/a");
    let (status, text) = process.get("/readyz");
    assert_eq!(status, 503);
    assert!(text.contains("rule widgets: widgets.example.com of east: missing: "), "{text}");
    eventually("the report", || process.stderr_text().contains("notify.toml:15:14: east: the server has no resource"));
    assert!(process.get("/metrics").1.contains("steadfast_notify_missing_resources{cluster=\"east\"} 1.0"));
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    });
    fixture.east.create(&definition).expect("the object is created");
    let widget =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "default"}});
    eventually("the kind", || fixture.east.create(&widget).is_ok());
    process.wait_until_sent("widgets", "east/w");
    eventually("readiness", || process.get("/readyz").0 == 200);
    let stderr = process.stderr_text();
    assert_eq!(stderr.matches("the server has no resource").count(), 1, "reported once: {stderr}");
    assert!(stderr.contains("cluster east: rule widgets watches widgets.example.com now"), "{stderr}");
}

#[test]
fn reload_does_not_wait_for_clusters() {
    let fixture = Fixture::new("independent-reload");
    // Accepts connections and never responds.
    let silent_server = TcpListener::bind("127.0.0.1:0").expect("a port");
    fixture.write("west", &kubeconfig(&format!("http://{}", silent_server.local_addr().expect("an address"))));
    fixture.configure(&rule("maps", "cm"));
    fixture.east.create(&config_map("a", "1")).expect("the object is created");
    let process = fixture.start("2");
    process.wait_until_sent("maps", "east/a");
    fixture.configure(&(rule("maps", "cm") + &rule("again", "cm")));
    let start_time = Instant::now();
    signal(&process.child.0, "HUP");
    process.wait_until_sent("again", "east/a");
    assert!(start_time.elapsed() < Duration::from_secs(10), "{:?}", start_time.elapsed());
    assert_eq!(process.sent_names("maps"), ["east/a"], "an unchanged rule does not start again");
    // A reload also applies while the other cluster is unreachable.
    fixture.east.faults().cut();
    fixture.configure(&(rule("maps", "cm") + &rule("third", "cm")));
    signal(&process.child.0, "HUP");
    eventually("the reload", || process.stderr_text().matches(", reloaded: 2 rules").count() == 2);
    fixture.east.faults().heal();
    process.wait_until_sent("third", "east/a");
}

#[test]
fn unreadable_secret_affects_its_sink_alone() {
    let fixture = Fixture::new("independent-secrets");
    fixture.write("west", &fixture.east.kubeconfig());
    let received_file = fixture.folder.join("received");
    let settings = format!(
        "[sinks.hook]\nexec = {{command = [\"sh\", \"-c\", \"cat >> {}\"], secret_env = {{KEY = {{file = \"key\"}}}}}}\n\
         retry = {{first = \"100ms\", longest = \"200ms\"}}\n\
         [sinks.names]\ndns = {{server = \"127.0.0.1:1\", zone = \"example.test\", mark = \"m\", secret = {{file = \"none\"}}}}\n{}\
         [[rules]]\nname = \"names\"\nresources = [\"pods\"]\nto = [\"names\"]\n\
         send = \"{{'key': object.metadata.name, 'name': 'a.example.test', 'type': 'A', 'data': '10.0.0.1'}}\"\n",
        received_file.display(),
        rule("maps", "cm").replace("[\"log\"]", "[\"log\", \"hook\"]"),
    );
    fixture.configure(&settings);
    fixture.east.create(&config_map("a", "1")).expect("the object is created");
    let process = fixture.start("2");
    process.wait_until_sent("maps", "east/a");
    let stderr = process.stderr_text();
    assert!(stderr.contains("sink hook: cannot be opened: ") && stderr.contains("key"), "{stderr}");
    eventually("the mirror's report", || process.stderr_text().contains("sink names: cannot be opened: "));
    fixture.write("key", "k");
    eventually("the delivery", || {
        std::fs::read_to_string(&received_file).is_ok_and(|text| text.contains("\"name\":\"a\""))
    });
    eventually("the report", || process.stderr_text().contains("sink hook: opened"));
}

#[test]
fn configuration_errors_stay_fatal() {
    let fixture = Fixture::new("independent-fatal");
    let web = "[sinks.web]\nhaproxy = {socket = \"s\", backend = \"no name\"}\n[[rules]]\nname = \"web\"\nresources = [\"pods\"]\n\
        to = [\"web\"]\nsend = \"{'key': 'a', 'address': '10.0.0.1', 'port': 1}\"\n";
    let unknown = "[[rules]]\nname = \"x\"\nresources = [\"cm\"]\nto = [\"unknown\"]\n";
    for (settings, expected_text) in [
        (web, "notify.toml:7:36: \"no name\" is not a valid name in HAProxy"),
        (unknown, "notify.toml:9:7: unknown sink \"unknown\""),
        ("[sinks.other\n", "notify.toml:6:"),
    ] {
        fixture.configure(&format!("{settings}{}", rule("maps", "cm")));
        let file = fixture.folder.join("notify.toml");
        let output = steadfast(&["notify", "-c", file.to_str().expect("a UTF-8 path")]);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{stderr}");
        assert!(stderr.contains(expected_text), "{expected_text}: {stderr}");
    }
}

/// Accepts connections on a Unix socket and never responds.
fn hanging_socket(path: &Path) -> UnixListener {
    UnixListener::bind(path).expect("a socket")
}

/// A configuration whose targets all hang: a load balancer, etcd, a stream and a cluster.
fn fixture_with_hanging_targets(name: &str) -> (Fixture, (UnixListener, TcpListener, TcpListener)) {
    let fixture = Fixture::new(name);
    let socket = hanging_socket(&fixture.folder.join("socket"));
    let [etcd, cluster] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
    fixture.write("west", &kubeconfig(&format!("http://{}", cluster.local_addr().expect("an address"))));
    let etcd_address = etcd.local_addr().expect("an address");
    let settings = format!(
        "[sinks.slow]\nexec = {{command = [\"sleep\", \"100\"]}}\n[sinks.web]\nhaproxy = {{socket = \"socket\", backend = \"web\"}}\n\
         [sinks.keys]\netcd = {{endpoints = [\"http://{etcd_address}\"], prefix = \"/x/\", mark = \"m\"}}\n{}\
         [[rules]]\nname = \"web\"\nresources = [\"cm\"]\nto = [\"web\"]\nsend = \"{{'key': object.metadata.name, 'address': '10.0.0.1', 'port': 1}}\"\n\
         [[rules]]\nname = \"keys\"\nresources = [\"cm\"]\nto = [\"keys\"]\nsend = \"{{'key': object.metadata.name, 'value': 'x'}}\"\n",
        rule("maps", "cm").replace("[\"log\"]", "[\"log\", \"slow\"]"),
    );
    fixture.configure(&settings);
    fixture.east.create(&config_map("a", "1")).expect("the object is created");
    (fixture, (socket, etcd, cluster))
}

#[test]
fn shutdown_keeps_its_deadline_whatever_hangs() {
    let (fixture, _hanging) = fixture_with_hanging_targets("independent-shutdown");
    let process = fixture.start("2");
    process.wait_until_sent("maps", "east/a");
    let (took, stderr) = process.terminate();
    assert!(took < Duration::from_secs(3), "{took:?}: {stderr}");
    assert!(took > Duration::from_millis(1500), "pending messages are retried for two seconds: {took:?}");
    assert!(stderr.contains("messages were not delivered within 2 s"), "{stderr}");

    // A second signal ends the program at once.
    let process = fixture.start("30");
    eventually("work", || process.stderr_text().contains("running /"));
    let start_time = Instant::now();
    signal(&process.child.0, "TERM");
    std::thread::sleep(Duration::from_millis(300));
    let (took, stderr) = process.terminate();
    assert!(start_time.elapsed() < Duration::from_secs(2), "{took:?}: {stderr}");
}

#[test]
fn shutdown_is_immediate_if_sinks_are_down() {
    let fixture = Fixture::new("independent-down");
    fixture.write("west", &fixture.east.kubeconfig());
    let failing_sink = "[sinks.down]\nexec = {command = [\"false\"]}\nretry = {first = \"200ms\", longest = \"1s\"}\n";
    fixture.configure(&[failing_sink, &rule("maps", "cm").replace("[\"log\"]", "[\"log\", \"down\"]")].concat());
    fixture.east.create(&config_map("a", "1")).expect("the object is created");
    let process = fixture.start("600");
    process.wait_until_sent("maps", "east/a");
    let (_, stderr) = process.terminate();
    assert!(
        stderr.contains(
            "2 messages were not delivered, because these sinks cannot be reached: `down`; the next start sends them"
        ),
        "{stderr}"
    );
    // The next start sends the undelivered messages.
    fixture.configure(
        &[&failing_sink.replace("false", "true"), &*rule("maps", "cm").replace("[\"log\"]", "[\"log\", \"down\"]")]
            .concat(),
    );
    let process = fixture.start("2");
    let delivered_metric = "steadfast_notify_delivered_total{sink=\"down\"} 2";
    eventually("the message", || process.get("/metrics").1.contains(delivered_metric));
}

#[test]
fn silent_clients_do_not_block_health_endpoints() {
    let fixture = Fixture::new("independent-health");
    fixture.write("west", &fixture.east.kubeconfig());
    fixture.configure(&rule("maps", "cm"));
    let process = fixture.start("2");
    eventually("readiness", || process.get("/readyz").0 == 200);
    for count in [16, 100] {
        for request in ["", "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "GET /metrics HTTP/1.1\r\n"] {
            let clients: Vec<TcpStream> = (0..count)
                .map(|_| {
                    let mut client = TcpStream::connect(&process.address).expect("the endpoint listens");
                    // Fails if the endpoint has already closed this connection in favour of a newer client.
                    let _ = client.write_all(request.as_bytes());
                    client
                })
                .collect();
            let start_time = Instant::now();
            assert_eq!(process.get("/livez"), (200, "ok\n".to_owned()), "{count} of {request:?}");
            assert!(
                start_time.elapsed() < Duration::from_secs(2),
                "{count} of {request:?}: {:?}",
                start_time.elapsed()
            );
            // Requests for metrics may still be in flight.
            eventually("readiness", || process.get("/readyz").0 == 200);
            assert!(
                start_time.elapsed() < Duration::from_secs(6),
                "{count} of {request:?}: {:?}",
                start_time.elapsed()
            );
            drop(clients);
        }
    }
}
