//! `steadfast watch` on a pseudo-terminal.

use std::io::{BufReader, Read};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use steadfast_apiserver::ApiServer;

use crate::run::{KillOnDrop, temp_file};

/// The program on a pseudo-terminal, and everything that it wrote.
struct Terminal {
    child: KillOnDrop,
    output: BufReader<std::process::ChildStdout>,
    text: String,
}

impl Terminal {
    /// Starts the program in `columns`. `script` of util-linux provides the pseudo-terminal.
    fn start(server: &ApiServer, name: &str, columns: usize, variables: &str, arguments: &str) -> Self {
        let kubeconfig = temp_file(&format!("watch-terminal-{name}.kubeconfig"), &server.kubeconfig());
        let program = env!("CARGO_BIN_EXE_steadfast");
        let line = format!(
            "stty cols {columns} rows 24; exec env {variables} '{program}' watch {arguments} --utc --kubeconfig '{kubeconfig}'"
        );
        let mut command = Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").env_remove("NO_COLOR").env_remove("KUBECONFIG");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child: Child = command.spawn().expect("`script` is installed");
        let output = BufReader::new(child.stdout.take().expect("a piped stdout"));
        Self { child: KillOnDrop(child), output, text: String::new() }
    }

    /// Reads until `expected_text` appears after the text that was read before.
    fn read_until(&mut self, expected_text: &str) -> &str {
        let start = self.text.len();
        while !self.text[start..].contains(expected_text) {
            let mut bytes = [0; 4096];
            let read = self.output.read(&mut bytes).expect("readable output");
            assert!(read > 0, "the program exited before {expected_text:?}: {:?}", self.text);
            // A character can be split between two reads, and is then replaced. The assertions contain no such
            // characters.
            self.text.push_str(&String::from_utf8_lossy(&bytes[..read]));
        }
        &self.text[start..]
    }

    /// Presses Ctrl-C, and returns the rest of the output.
    fn interrupt(mut self) -> String {
        let mut stdin = self.child.0.stdin.take().expect("a piped stdin");
        std::io::Write::write_all(&mut stdin, b"\x03").expect("the terminal accepts input");
        let mut remaining_output = Vec::new();
        self.output.read_to_end(&mut remaining_output).expect("readable output");
        String::from_utf8_lossy(&remaining_output).into_owned()
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

/// Returns the rows of the terminal after `output`: a carriage return and an erased row remove a text.
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
    let mut terminal = Terminal::start(&server, "status", 120, "", "cm");
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
async fn no_color_and_width_are_respected() {
    let server = server().await;
    let mut terminal = Terminal::start(&server, "plain", 70, "NO_COLOR=1", "cm");
    let status_output = terminal.read_until("fresh since ").to_owned() + terminal.read_until("…");
    assert!(!status_output.contains("\x1b[3") && !status_output.contains("\x1b[2m"), "{status_output:?}");
    for row in rows(&status_output) {
        assert!(row.chars().count() <= 70, "{row:?}");
    }
    let mut dumb_terminal = Terminal::start(&server, "dumb", 120, "TERM=dumb", "cm");
    let output = dumb_terminal.read_until(" synced ").to_owned() + &dumb_terminal.interrupt();
    assert!(!output.contains('\x1b') && !output.contains("fresh since"), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn doubt_is_shown_with_its_reason() {
    let server = server().await;
    let mut terminal = Terminal::start(&server, "doubt", 200, "", "cm");
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
