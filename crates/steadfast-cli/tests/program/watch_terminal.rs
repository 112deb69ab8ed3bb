//! `steadfast watch` and `steadfast top` on a pseudo-terminal.

use std::io::{BufReader, Read, Write};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use steadfast_apiserver::{ApiServer, ResourceDeclaration};

use crate::run::{KillOnDrop, temp_file};

/// The program on a pseudo-terminal, and everything that it wrote.
struct Terminal {
    child: KillOnDrop,
    output: BufReader<std::process::ChildStdout>,
    bytes: Vec<u8>,
    text: String,
}

impl Terminal {
    /// Starts the program in `columns`. `script` of util-linux provides the pseudo-terminal.
    fn start(server: &ApiServer, name: &str, columns: usize, variables: &str, command: &str) -> Self {
        let kubeconfig = temp_file(&format!("watch-terminal-{name}.kubeconfig"), &server.kubeconfig());
        let program = env!("CARGO_BIN_EXE_steadfast");
        let line = format!(
            "stty cols {columns} rows 24; exec env {variables} '{program}' {command} --utc --kubeconfig '{kubeconfig}'"
        );
        let mut script = Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").env_remove("NO_COLOR").env_remove("KUBECONFIG");
        script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child: Child = script.spawn().expect("`script` is installed");
        let output = BufReader::new(child.stdout.take().expect("a piped stdout"));
        Self { child: KillOnDrop(child), output, bytes: Vec::new(), text: String::new() }
    }

    /// Reads until `expected_text` appears after the text that was read before.
    fn read_until(&mut self, expected_text: &str) -> &str {
        let start = self.text.len();
        while !self.text[start..].contains(expected_text) {
            self.read(expected_text);
        }
        &self.text[start..]
    }

    /// Reads until the full screen contains `expected_text`, and returns its rows.
    fn read_until_screen(&mut self, expected_text: &str) -> Vec<String> {
        loop {
            let rows = full_screen(&self.bytes);
            // Rows have no trailing spaces, but `expected_text` may end with one.
            if rows.iter().any(|row| format!("{row} ").contains(expected_text)) {
                return rows;
            }
            self.read(expected_text);
        }
    }

    /// Reads a part of the output.
    fn read(&mut self, expected_text: &str) {
        let mut bytes = [0; 4096];
        let read = self.output.read(&mut bytes).expect("readable output");
        assert!(read > 0, "the program exited before {expected_text:?}: {:?}", self.text);
        self.bytes.extend_from_slice(&bytes[..read]);
        // A multi-byte character that two reads split is replaced, and a text that contains the character is then not
        // found. This is rare, because the program buffers its output.
        self.text.push_str(&String::from_utf8_lossy(&bytes[..read]));
    }

    /// Presses keys.
    fn press(&mut self, keys: &str) {
        let stdin = self.child.0.stdin.as_mut().expect("a piped stdin");
        stdin.write_all(keys.as_bytes()).expect("the terminal accepts input");
        stdin.flush().expect("the terminal accepts input");
    }

    /// Presses Ctrl-C, and returns the rest of the output.
    fn interrupt(mut self) -> String {
        self.press("\x03");
        self.read_to_end()
    }

    /// Sends SIGTERM to the program, and returns the rest of the output.
    fn terminate(self) -> String {
        assert!(self.signal("-TERM"), "the program has ended");
        self.read_to_end()
    }

    /// Returns the IDs of the children of `script`: the program, until it ends.
    fn programs(&self) -> Vec<String> {
        let script = self.child.0.id();
        let children = std::fs::read_to_string(format!("/proc/{script}/task/{script}/children")).unwrap_or_default();
        children.split_whitespace().map(str::to_owned).collect()
    }

    /// Sends a signal to the program. Returns false if the program has ended.
    fn signal(&self, signal: &str) -> bool {
        let programs = self.programs();
        if programs.is_empty() {
            return false;
        }
        let status = Command::new("kill").arg(signal).args(&programs).status();
        status.expect("`kill` is installed").success()
    }

    /// Returns the rest of the output, until the program exits.
    fn read_to_end(mut self) -> String {
        let mut remaining_output = Vec::new();
        self.output.read_to_end(&mut remaining_output).expect("readable output");
        String::from_utf8_lossy(&remaining_output).into_owned()
    }
}

impl Drop for Terminal {
    /// Kills the program. The death of `script` sends only SIGHUP, which the program ignores if it inherited that, for
    /// example from `nohup`.
    fn drop(&mut self) {
        self.signal("-KILL");
    }
}

fn config_map(value: &str) -> Value {
    let metadata = json!({"name": "settings", "namespace": "default"});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"key": value}})
}

async fn server() -> ApiServer {
    let server = ApiServer::builder().tls(true).start().await.expect("a server");
    server.create(&config_map("1")).expect("a config map");
    server
}

/// Returns the rows that are visible after `output`. A carriage return and an erasure remove the earlier text of a row.
fn rows(output: &str) -> Vec<String> {
    let rows = output.split('\n').map(|row| {
        let visible = row.trim_end_matches('\r').rsplit("\r\x1b[K").next().unwrap_or_default();
        visible.to_owned()
    });
    rows.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn status_line_is_below_lines_and_erased() {
    let server = server().await;
    let mut terminal = Terminal::start(&server, "status", 120, "", "watch cm");
    let status_output = terminal.read_until("fresh since ").to_owned() + terminal.read_until("gaps repaired");
    assert!(
        status_output.contains("\r\x1b[K\x1b[32mfresh since ") && status_output.contains("changes/min"),
        "{status_output:?}"
    );
    server.merge_patch("configmaps", "default", "settings", json!({"data": {"key": "2"}})).expect("a patch");
    terminal.read_until("data.key 1→2");
    // The next update of the status line shows the rate.
    terminal.read_until("1 changes/min");
    let remaining_output = terminal.interrupt();
    let rows = rows(&remaining_output);
    assert!(rows.iter().any(|row| row.starts_with("# watched for ")), "{remaining_output:?}");
    assert!(
        rows.iter().any(|row| row == "# configmaps in default: 0 added, 0 deleted, 1 changed"),
        "{remaining_output:?}"
    );
    assert!(!rows.iter().any(|row| row.contains("fresh since")), "{remaining_output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn status_is_fresh_after_existing_objects() {
    let server = server().await;
    for number in 0..3000 {
        let metadata = json!({"name": format!("map-{number}"), "namespace": "default"});
        server.create(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})).expect("a config map");
    }
    let mut terminal = Terminal::start(&server, "listing", 120, "", "watch cm,secrets");
    let output = terminal.read_until("fresh since ");
    assert_eq!(output.matches("+ configmaps default/").count(), 3001);
    for resource in ["configmaps", "secrets"] {
        assert!(output.contains(&format!("= {resource} synced")), "{resource}");
    }
    terminal.interrupt();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_color_and_width_are_respected() {
    let server = server().await;
    let mut terminal = Terminal::start(&server, "plain", 70, "NO_COLOR=1", "watch cm");
    let status_output = terminal.read_until("fresh since ").to_owned() + terminal.read_until("…");
    assert!(!status_output.contains("\x1b[3") && !status_output.contains("\x1b[2m"), "{status_output:?}");
    for row in rows(&status_output) {
        assert!(row.chars().count() <= 70, "{row:?}");
    }
    let mut dumb_terminal = Terminal::start(&server, "dumb", 120, "TERM=dumb", "watch cm");
    let output = dumb_terminal.read_until(" synced ").to_owned() + &dumb_terminal.interrupt();
    assert!(!output.contains('\x1b') && !output.contains("fresh since"), "{output:?}");
}

/// Start and end of the line of a pod that becomes ready, on a terminal of 200 columns.
const POD_LINE: (&str, &str) = (
    "~ pods default/checkout-7d9f8c6b5d-x2x4z phase Pending→Running on node-with-a-long-name.europe-west.example.com",
    ", Ready False→True",
);

#[tokio::test(flavor = "multi_thread")]
async fn lines_fit_80_120_and_200_columns() {
    let server = ApiServer::builder().tls(true).start().await.expect("a server");
    let status = |phase: &str, ready: &str| json!({"phase": phase, "conditions": [{"type": "Ready", "status": ready}]});
    let pending = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "checkout-7d9f8c6b5d-x2x4z", "namespace": "default"},
        "spec": {"nodeName": "node-with-a-long-name.europe-west.example.com"}, "status": status("Pending", "False"),
    });
    for columns in [200, 120, 80] {
        server.create(&pending).expect("a pod");
        let mut terminal = Terminal::start(&server, &format!("width-{columns}"), columns, "NO_COLOR=1", "watch pods");
        terminal.read_until(" synced ");
        let running = json!({"status": status("Running", "True")});
        server.merge_patch("pods", "default", "checkout-7d9f8c6b5d-x2x4z", running).expect("a patch");
        let output = terminal.read_until("~ pods").to_owned() + &terminal.interrupt();
        server.delete_named("pods", "default", "checkout-7d9f8c6b5d-x2x4z").expect("a deletion");
        let rows = rows(&output);
        let row = rows.iter().find(|row| row.contains("~ pods")).unwrap_or_else(|| panic!("no line in {output:?}"));
        let (time, text) = row.split_once(' ').expect("a time");
        assert!(time.ends_with('Z') && row.chars().count() <= columns, "{columns} columns: {row:?}");
        let full_text = [POD_LINE.0, POD_LINE.1].concat();
        if columns == 200 {
            assert_eq!(text, full_text);
        } else {
            let start = text.strip_suffix('…').unwrap_or_else(|| panic!("{columns} columns: {row:?}"));
            assert!(full_text.starts_with(start) && row.chars().count() == columns, "{columns} columns: {row:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn doubt_is_shown_with_its_reason() {
    let server = server().await;
    let mut terminal = Terminal::start(&server, "doubt", 200, "", "watch cm");
    terminal.read_until("fresh since ");
    server.faults().cut();
    let doubt = terminal.read_until(" ! configmaps: ").to_owned();
    assert!(doubt.contains("\r\x1b[K"), "{doubt:?}");
    terminal.read_until("\x1b[31mconfigmaps ");
    server
        .create(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new", "namespace": "default"}}))
        .expect("a config map");
    server.faults().heal();
    terminal.read_until("while disconnected: 1 added, 0 deleted, 0 changed");
    terminal.read_until("fresh since ");
}

/// Returns the rows of a full screen, from the positions and texts of `output`.
fn full_screen(output: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(output);
    let (mut rows, mut row, mut column) = (vec![vec![' '; 200]; 24], 0, 0);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character != '\x1b' {
            if let Some(cell) = rows.get_mut(row).and_then(|cells| cells.get_mut(column)) {
                *cell = character;
            }
            column += 1;
            continue;
        }
        // A control sequence has parameters, and ends with a letter.
        let mut sequence = String::new();
        for character in characters.by_ref().skip_while(|character| *character == '[') {
            sequence.push(character);
            if character.is_ascii_alphabetic() {
                break;
            }
        }
        if let Some(position) = sequence.strip_suffix('H') {
            let (line, number) = position.split_once(';').unwrap_or(("1", "1"));
            row = line.parse::<usize>().unwrap_or(1) - 1;
            column = number.parse::<usize>().unwrap_or(1) - 1;
        } else if sequence.ends_with('J') {
            rows = vec![vec![' '; 200]; 24];
        }
    }
    rows.into_iter().map(|cells| cells.into_iter().collect::<String>().trim_end().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn top_shows_changes_and_restores_terminal() {
    let server = server().await;
    let mut terminal = Terminal::start(&server, "top", 120, "NO_COLOR=1", "top cm,secrets");
    let rows = terminal.read_until_screen(">settings ");
    assert!(rows[0].starts_with(" configmaps  secrets"), "{rows:?}");
    assert!(rows[1].trim_start().starts_with("NAME↑") && rows[2].starts_with(" >settings "), "{rows:?}");
    terminal.read_until_screen("configmaps │ fresh │ proof ");
    terminal.press("\r");
    terminal.read_until_screen("no changes since this table was opened");
    server.merge_patch("configmaps", "default", "settings", json!({"data": {"key": "2"}})).expect("a patch");
    terminal.read_until_screen("~ data.key 1→2");
    terminal.press("y");
    terminal.read_until_screen("kind: ConfigMap");
    terminal.press("e");
    terminal.read_until_screen("no events");
    terminal.press("q");
    let remaining_output = terminal.read_to_end();
    // The previous screen and the cursor return.
    assert!(remaining_output.contains("\x1b[?1049l") && remaining_output.contains("\x1b[?25h"), "{remaining_output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn top_opens_kinds_and_hides_secrets() {
    let server = server().await;
    let metadata = json!({"name": "login", "namespace": "default"});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"key": "aHVudGVyMg=="}});
    server.create(&secret).expect("a secret");
    let mut terminal = Terminal::start(&server, "top-kinds", 80, "NO_COLOR=1", "top cm");
    terminal.read_until_screen(">settings ");
    terminal.press(":nonsense\r");
    terminal.read_until_screen("no resource");
    terminal.press(":secret\r");
    let rows = terminal.read_until_screen(">login ");
    assert!(rows[0].starts_with(" configmaps  secrets"), "{rows:?}");
    terminal.press("y");
    terminal.read_until_screen("kind: Secret");
    let remaining_output = terminal.interrupt();
    assert!(remaining_output.contains("\x1b[?1049l"), "{remaining_output:?}");
    assert!(!remaining_output.contains("aHVudGVyMg"), "{remaining_output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn top_shows_processor_and_memory() {
    let metrics = ResourceDeclaration::namespaced("metrics.k8s.io", "v1beta1", "PodMetrics", "pods");
    let server = ApiServer::builder().resource(metrics).start().await.expect("a server");
    let metadata = json!({"name": "web", "namespace": "default"});
    let containers = json!([{"name": "main", "image": "app:1"}]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}});
    server.create(&pod).expect("a pod");
    let containers = json!([{"name": "main", "usage": {"cpu": "1250u", "memory": "524288Ki"}}]);
    let usage = json!({
        "apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics", "metadata": metadata, "containers": containers,
    });
    server.create(&usage).expect("the usage of the pod");

    let mut terminal = Terminal::start(&server, "top-usage", 120, "NO_COLOR=1", "top pods");
    let rows = terminal.read_until_screen(" 512Mi ");
    assert!(rows[1].contains("CPU") && rows[1].contains("MEMORY"), "{rows:?}");
    assert!(rows[2].contains("web") && rows[2].contains(" 2m "), "{rows:?}");
    terminal.interrupt();
}

#[tokio::test(flavor = "multi_thread")]
async fn top_shows_owners_and_children() {
    let server = ApiServer::start().await.expect("a server");
    let metadata = |name: &str, owner: Option<(&str, &Value)>| {
        let references = owner.iter().map(|(kind, owner)| {
            json!({"apiVersion": "apps/v1", "kind": kind, "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]})
        });
        json!({"name": name, "namespace": "default", "ownerReferences": references.collect::<Vec<_>>()})
    };
    let template =
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "app:1"}]}});
    let spec = json!({"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template});
    let workload = |kind: &str, name: &str, owner: Option<(&str, &Value)>| {
        let object = json!({"apiVersion": "apps/v1", "kind": kind, "metadata": metadata(name, owner), "spec": spec});
        server.create(&object).expect("a workload")
    };
    let deployment = workload("Deployment", "web", None);
    let replica_set = workload("ReplicaSet", "web-7d9f", Some(("Deployment", &deployment)));
    let spec = json!({"containers": [{"name": "main", "image": "app:1"}]});
    let owned = metadata("web-7d9f-x", Some(("ReplicaSet", &replica_set)));
    server.create(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": owned, "spec": spec})).expect("a pod");

    let mut terminal = Terminal::start(&server, "top-related", 120, "NO_COLOR=1", "top pods");
    terminal.read_until_screen(">web-7d9f-x ");
    terminal.press("o");
    let rows = terminal.read_until_screen("   └─ ✗ pods default/web-7d9f-x ");
    assert!(rows.iter().any(|row| row.contains("✗ deployments.apps default/web ")), "{rows:?}");
    // The tree follows changes.
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    server.merge_patch("pods", "default", "web-7d9f-x", ready).expect("a patch");
    terminal.read_until_screen("   └─ ✓ pods default/web-7d9f-x ");
    terminal.interrupt();
}

#[tokio::test(flavor = "multi_thread")]
async fn top_restores_terminal_after_sigterm() {
    let server = server().await;
    let mut terminal = Terminal::start(&server, "top-sigterm", 80, "NO_COLOR=1", "top cm");
    terminal.read_until_screen(">settings ");
    let remaining_output = terminal.terminate();
    assert!(remaining_output.contains("\x1b[?1049l") && remaining_output.contains("\x1b[?25h"), "{remaining_output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_terminal_ends_program_without_sighup() {
    let server = server().await;
    let mut terminal = Terminal::start(&server, "hangup", 120, "--ignore-signal=HUP", "watch cm");
    terminal.read_until("fresh since ");
    let programs = terminal.programs();
    assert_eq!(programs.len(), 1, "{programs:?}");
    drop(terminal);
    // A killed process without a parent stays in the table until the init process reads its status, without a command.
    let is_running =
        || std::fs::read(format!("/proc/{}/cmdline", programs[0])).is_ok_and(|command| !command.is_empty());
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
    while is_running() {
        assert!(std::time::Instant::now() < deadline, "the program still runs");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn top_without_terminal_is_rejected() {
    let output = Command::new(env!("CARGO_BIN_EXE_steadfast")).args(["top", "pods"]).output().expect("the program");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("top needs a terminal") && message.contains("steadfast watch"), "{message}");
    assert!(output.stdout.is_empty());
}
