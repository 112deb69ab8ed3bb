//! Mirrors of `steadfast notify`, with a real `HAProxy`: its traffic is the oracle.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Output};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};
use steadfast_apiserver::{ApiServer, InjectedResponse, RequestRule};
use tokio::runtime::Runtime;

use crate::haproxy::{Haproxy, eventually, start_backend, throughout};
use crate::run::{finish, signal, start, stderr_text, steadfast};

/// A cluster, a `HAProxy` that follows it, and the configuration.
struct Fixture {
    runtime: Runtime,
    server: ApiServer,
    haproxy: Haproxy,
    configuration: String,
}

impl Fixture {
    fn start(name: &str) -> Option<Self> {
        let haproxy = Haproxy::start(name)?;
        let runtime = Runtime::new().expect("a runtime");
        let server = runtime.block_on(ApiServer::builder().tls(true).start()).expect("the server starts");
        let kubeconfig = haproxy.folder.join("kubeconfig");
        std::fs::write(kubeconfig, server.kubeconfig()).expect("the folder is writable");
        let configuration = haproxy.folder.join("notify.toml").display().to_string();
        let fixture = Self { runtime, server, haproxy, configuration };
        fixture.configure("object.metadata.name", "");
        Some(fixture)
    }

    /// Writes the configuration with the expression `key` and further settings of the mirror.
    fn configure(&self, key: &str, settings: &str) {
        let text = format!(
            "[clusters.here]\nkubeconfig = \"kubeconfig\"\n\
             [sinks.web]\nhaproxy = {{socket = \"admin.sock\", backend = \"web\"}}\ndrain = \"1s\"\n{settings}\n\
             [[rules]]\nname = \"web\"\nresources = [\"pods\"]\nlabels = \"app=web\"\nwhen = \"has(object.status.podIP)\"\n\
             send = '''{{'key': {key}, 'address': object.status.podIP, 'port': int(object.metadata.annotations.port)}}'''\n\
             to = [\"web\"]\n"
        );
        std::fs::write(&self.configuration, text).expect("the folder is writable");
    }

    /// Removes the label selector of the rule. The program checks selectors at its start, and would wait for an
    /// unreachable server.
    fn configure_without_selectors(&self) {
        let text = std::fs::read_to_string(&self.configuration).expect("the file exists");
        std::fs::write(&self.configuration, text.replace("labels = \"app=web\"\n", ""))
            .expect("the folder is writable");
    }

    /// Creates a pod with a backend that responds with the name of the pod.
    fn create_pod(&self, name: &str, is_ready: bool) {
        let port = start_backend(name).to_string();
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": "default", "name": name, "labels": {"app": "web"}, "annotations": {"port": port}},
            "spec": {"containers": [{"name": "main", "image": "example.test/web"}]},
            "status": status(is_ready),
        });
        self.server.create(&pod).expect("the pod is created");
    }

    fn set_ready(&self, name: &str, is_ready: bool) {
        let status = json!({"status": status(is_ready)});
        self.server.merge_patch("pods", "default", name, status).expect("the object exists");
    }

    fn delete(&self, name: &str) {
        self.server.delete_named("pods", "default", name).expect("the object exists");
    }

    fn start_program(&self) -> RunningProgram {
        let mut child = start(&["notify", "-c", &self.configuration]);
        let (line_sender, lines) = channel();
        let stderr = BufReader::new(child.stderr.take().expect("a piped stderr"));
        std::thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| line_sender.send(line)));
        RunningProgram { child, lines, error_output: String::new() }
    }

    fn notify(&self, arguments: &[&str]) -> Output {
        steadfast(&[&["notify"], arguments, &["-c", &self.configuration]].concat())
    }

    fn wait_for_traffic_to(&self, names: &[&str]) {
        let names: BTreeSet<String> = names.iter().map(|&name| name.to_owned()).collect();
        eventually(&format!("{names:?} in traffic"), || self.haproxy.servers_in_service() == names);
        assert_eq!(self.haproxy.responding_backends(2 * names.len()), names);
    }
}

fn status(is_ready: bool) -> Value {
    let ready_status = if is_ready { "True" } else { "False" };
    json!({"phase": "Running", "podIP": "127.0.0.1", "conditions": [{"type": "Ready", "status": ready_status}]})
}

/// A running program; killed when dropped, like in a machine failure.
struct RunningProgram {
    child: Child,
    lines: Receiver<String>,
    error_output: String,
}

impl RunningProgram {
    fn wait_for_output(&mut self, text: &str) {
        while !self.error_output.contains(text) {
            let line = self.lines.recv_timeout(Duration::from_secs(60));
            let line = line.unwrap_or_else(|_| panic!("{text:?} is missing in the output: {}", self.error_output));
            self.error_output.push_str(&line);
            self.error_output.push('\n');
        }
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn only_ready_pods_receive_traffic() {
    let Some(fixture) = Fixture::start("ready") else { return };
    fixture.create_pod("web-0", false);
    fixture.create_pod("web-1", true);

    // The dry run changes nothing.
    let output = fixture.notify(&["--dry-run"]);
    let dry_run_output = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", stderr_text(&output));
    assert!(
        dry_run_output.contains("mirror web: 2 steps")
            && dry_run_output.contains("echo 'add server web/sf-web-1 127.0.0.1:"),
        "{dry_run_output}"
    );
    assert!(fixture.haproxy.servers().is_empty());

    let mut program = fixture.start_program();
    program.wait_for_output("running /");
    fixture.wait_for_traffic_to(&["web-1"]);
    assert_eq!(fixture.haproxy.servers().get("web-0"), Some(&0), "the server waits to become ready");
    fixture.set_ready("web-0", true);
    fixture.wait_for_traffic_to(&["web-0", "web-1"]);
    fixture.set_ready("web-0", false);
    fixture.wait_for_traffic_to(&["web-1"]);
    fixture.delete("web-0");
    eventually("the removal of the server", || !fixture.haproxy.servers().contains_key("web-0"));
    fixture.create_pod("web-2", true);
    fixture.wait_for_traffic_to(&["web-1", "web-2"]);

    // A second program with this configuration is rejected.
    let output = fixture.notify(&[]);
    assert_eq!(output.status.code(), Some(1));
    let holder = format!("process {} already uses the folder", program.child.id());
    assert!(stderr_text(&output).contains(&holder), "{}", stderr_text(&output));

    // Renamed entries are added before the old ones are removed, so no approval is needed.
    fixture.configure("'new-' + object.metadata.name", "");
    signal(&program.child, "HUP");
    program.wait_for_output(", reloaded: ");
    eventually("only the renamed entries", || {
        let servers = fixture.haproxy.servers_in_service();
        assert!(servers.len() >= 2, "{servers:?}");
        servers.len() == 2 && servers.iter().all(|name| name.starts_with("new-web-"))
    });
    fixture.configure("", "");
    signal(&program.child, "HUP");
    program.wait_for_output("the configuration is unchanged");
    drop(program);

    let output = fixture.notify(&["--dry-run"]);
    assert_eq!(output.status.code(), Some(3), "the dry run reports the same error: {}", stderr_text(&output));
    drop(fixture.runtime);
}

#[test]
fn pending_approval_and_doubt_survive_a_restart() {
    let Some(fixture) = Fixture::start("doubt") else { return };
    let names = ["web-0", "web-1", "web-2", "web-3", "web-4", "web-5"];
    for name in names {
        fixture.create_pod(name, true);
    }
    let mut program = fixture.start_program();
    fixture.wait_for_traffic_to(&names);

    // Deletions during an outage take effect when the server is reachable again, and not before.
    fixture.server.faults().cut();
    program.wait_for_output("! pods of here");
    fixture.delete("web-0");
    throughout(Duration::from_secs(2), || assert_eq!(fixture.haproxy.servers_in_service().len(), 6));
    drop(program);
    let program = fixture.start_program();
    throughout(Duration::from_secs(2), || assert_eq!(fixture.haproxy.servers_in_service().len(), 6));
    fixture.server.compact();
    fixture.server.faults().heal();
    fixture.wait_for_traffic_to(&names[1..]);
    drop(program);

    // Most pods become unready at once, while no process runs.
    for name in &names[1..5] {
        fixture.set_ready(name, false);
    }
    let mut program = fixture.start_program();
    program.wait_for_output(
        "mirror web: removing 4 of 5 entries of the group here/default needs approval (web-1, web-2, web-3, web-4)",
    );
    assert_eq!(fixture.haproxy.servers_in_service().len(), 5);
    drop(program);
    let mut program = fixture.start_program();
    program.wait_for_output("removing 4 of 5 entries of the group here/default needs approval");
    throughout(Duration::from_secs(1), || assert_eq!(fixture.haproxy.servers_in_service().len(), 5));
    let output = fixture.notify(&["approve", "other"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr_text(&output).contains("unknown mirror \"other\"; configured mirrors: web"),
        "{}",
        stderr_text(&output)
    );
    drop(program);

    // An approval without a running program applies at the next start.
    let output = fixture.notify(&["approve"]);
    assert!(output.status.success(), "{}", stderr_text(&output));
    assert!(stderr_text(&output).contains("the approval applies when one starts"), "{}", stderr_text(&output));
    let mut program = fixture.start_program();
    program.wait_for_output("approved the removal of 4 entries");
    fixture.wait_for_traffic_to(&names[5..]);
    let output = fixture.notify(&["approve"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr_text(&output).contains("no removal needs approval"), "{}", stderr_text(&output));
    signal(&program.child, "TERM");
    assert!(program.child.wait().expect("an exit status").success());
    assert_eq!(fixture.haproxy.servers_in_service().len(), 1, "a shutdown removes no entry");
    drop(fixture.runtime);
}

#[test]
fn uncertain_cache_or_object_keeps_its_entries() {
    let Some(fixture) = Fixture::start("unsynced") else { return };
    // Disables the guard, so that only the doubt prevents removals.
    fixture.configure("object.metadata.name", "guard = {share = 1.0, allow_empty = true}");
    fixture.configure_without_selectors();
    for name in ["web-0", "web-1", "web-2"] {
        fixture.create_pod(name, true);
    }
    let program = fixture.start_program();
    fixture.wait_for_traffic_to(&["web-0", "web-1", "web-2"]);
    drop(program);

    fixture.delete("web-0");
    fixture.server.faults().respond(RequestRule::any().resource("pods"), InjectedResponse::code(503));
    let mut program = fixture.start_program();
    program.wait_for_output("running /");
    throughout(Duration::from_secs(3), || assert_eq!(fixture.haproxy.servers_in_service().len(), 3));
    fixture.server.faults().clear_rules();
    fixture.wait_for_traffic_to(&["web-1", "web-2"]);

    // Without the annotation the address of `web-2` is unknown: the entry stays, and other entries follow their
    // objects.
    fixture
        .server
        .merge_patch("pods", "default", "web-2", json!({"metadata": {"annotations": null}}))
        .expect("the object exists");
    program.wait_for_output(
        "mirror web: the entries of an object stay unchanged: default/web-2 of here (rule web): `send`",
    );
    fixture.delete("web-1");
    fixture.wait_for_traffic_to(&["web-2"]);
    throughout(Duration::from_secs(1), || assert_eq!(fixture.haproxy.servers_in_service().len(), 1));
    fixture.delete("web-2");
    program.wait_for_output("mirror web: the entries of all objects are valid again");
    eventually("an empty mirror", || fixture.haproxy.servers_in_service().is_empty());
    drop(program);
    drop(fixture.runtime);
}

#[test]
fn approval_waits_for_slow_mirror() {
    let folder = std::env::temp_dir().join(format!("steadfast-approval-{}", std::process::id()));
    let state = folder.join("steadfast-state");
    std::fs::create_dir_all(&state).expect("the folder is writable");
    let configuration = folder.join("notify.toml");
    let text = "[sinks.web]\nhaproxy = {socket = \"admin.sock\", backend = \"web\"}\n\
                [[rules]]\nname = \"web\"\nresources = [\"pods\"]\nto = [\"web\"]\n\
                send = \"{'key': object.metadata.name, 'address': '127.0.0.1', 'port': 80}\"\n";
    std::fs::write(&configuration, text).expect("the folder is writable");
    let write_guard = |ask: Value| {
        let asks = if ask.is_null() { json!({}) } else { json!({"": {"ask": ask, "texts": {}}}) };
        let guard = json!({"guard": {"mirror": "web", "guard": {"asks": asks}}});
        let text = format!("{}\n{guard}\n", r#"{"format":"steadfast-mirrors","version":2}"#);
        std::fs::write(state.join("new"), text).expect("the folder is writable");
        std::fs::rename(state.join("new"), state.join("mirrors.json")).expect("the folder is writable");
    };
    write_guard(json!({"id": "0123abcd", "names": ["a", "b"], "of": 3}));

    // Simulates a slow program: the approval file is removed before its state is recorded.
    let approve_command = start(&["notify", "approve", "-c", &configuration.display().to_string()]);
    let approval = state.join("approved-web");
    eventually("an approval", || approval.exists());
    std::fs::remove_file(&approval).expect("the file exists");
    std::thread::sleep(Duration::from_millis(300));
    write_guard(Value::Null);
    let output = finish(approve_command);
    assert!(output.status.success(), "{}", stderr_text(&output));
    std::fs::remove_dir_all(&folder).expect("the folder exists");
}

#[test]
fn unconfirmed_checkpoint_removes_no_entry() {
    let Some(fixture) = Fixture::start("kept") else { return };
    fixture.configure_without_selectors();
    let terminate = |program: &mut RunningProgram| {
        signal(&program.child, "TERM");
        assert!(program.child.wait().expect("an exit status").success());
    };
    fixture.create_pod("web-0", true);
    let mut program = fixture.start_program();
    fixture.wait_for_traffic_to(&["web-0"]);
    terminate(&mut program);
    let folder = fixture.haproxy.folder.join("steadfast-state");
    let is_checkpoint = |path: &std::path::PathBuf| path.extension().is_some_and(|ending| ending == "checkpoint");
    let mut files =
        std::fs::read_dir(folder).expect("the folder exists").map(|file| file.expect("a readable folder").path());
    let checkpoint = files.find(is_checkpoint).expect("the cache is kept");
    let checkpoint_before = std::fs::read(&checkpoint).expect("a readable file");

    fixture.create_pod("web-1", true);
    let mut program = fixture.start_program();
    fixture.wait_for_traffic_to(&["web-0", "web-1"]);
    terminate(&mut program);

    // Simulates a crash before the checkpoint of `web-1`: the old checkpoint lacks the pod, and the guard allows one
    // removal without approval.
    std::fs::write(&checkpoint, checkpoint_before).expect("the folder is writable");
    fixture.server.faults().respond(RequestRule::any().resource("pods"), InjectedResponse::code(503));
    let mut program = fixture.start_program();
    program.wait_for_output("running /");
    throughout(Duration::from_secs(3), || assert_eq!(fixture.haproxy.servers_in_service().len(), 2));
    fixture.server.faults().clear_rules();
    fixture.create_pod("web-2", true);
    fixture.wait_for_traffic_to(&["web-0", "web-1", "web-2"]);
}
