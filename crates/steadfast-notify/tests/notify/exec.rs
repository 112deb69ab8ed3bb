//! Sink `exec`: starts programs.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use steadfast_notify::Plan;
use steadfast_notify::delivery_outcome::DeliveryOutcome;
use steadfast_notify::message::Message;
use steadfast_notify::sink::MessageSink;
use steadfast_notify::sink::stdout::JsonLines;
use tokio::time::advance;

use crate::folder::Folder;

async fn open_sink(folder: &Path, sink: &str) -> Result<Arc<dyn MessageSink>, String> {
    let text = format!("[[rules]]\nname = \"r\"\nresources = [\"pods\"]\nto = [\"s\"]\n[sinks.s]\n{sink}\n");
    let plan = Plan::read(&folder.join("x.toml").display().to_string(), &text).map_err(|error| error.to_string())?;
    let stdout: Arc<dyn MessageSink> = Arc::new(JsonLines::new(std::io::sink(), |_| {}));
    let streams = plan.open(&stdout).await.map_err(|error| error.to_string())?;
    Ok(streams["s"].clone())
}

/// Returns a sink that runs `script` in a shell.
async fn shell_sink(folder: &Path, script: &str, more: &str) -> Arc<dyn MessageSink> {
    let sink = format!("[sinks.s.exec]\ncommand = [\"sh\", \"-c\", '''{script}''']\n{more}");
    open_sink(folder, &sink).await.expect("a valid configuration")
}

fn message(data: &Value) -> Arc<Message> {
    let message = json!({
        "id": "u@7/r", "time": "2026-01-02T03:04:05Z", "type": "Added", "rule": "r", "cluster": "here",
        "resource": "pods", "namespace": "shop", "name": "web-0", "uid": "u", "data": data,
    });
    Arc::new(serde_json::from_value(message).expect("a message"))
}

#[tokio::test]
async fn program_receives_message_and_environment() {
    let folder = Folder::new("exec-gets");
    std::fs::write(folder.join("key"), "hunter2\n").expect("enough space");
    let script = "cat >line; env | grep -E \"^(STEADFAST_|COLOUR|KEY)\" | sort >env; echo not for standard output";
    let more = "env = {COLOUR = \"red\"}\nsecret_env = {KEY = {file = \"key\"}}";
    let stream = shell_sink(&folder, script, more).await;
    let sent = message(&json!({"a": "line\nbreak"}));
    assert_eq!(stream.deliver(std::slice::from_ref(&sent)).await, DeliveryOutcome::Delivered);
    let line = std::fs::read_to_string(folder.join("line")).expect("the script has written the file");
    assert_eq!(line, sent.line() + "\n");
    let read: Message = serde_json::from_str(&line).expect("valid JSON");
    assert_eq!(read, *sent);
    let env = std::fs::read_to_string(folder.join("env")).expect("the script has written the file");
    // The environment of the tests may have some of these names too.
    let test_environment: Vec<_> = std::env::vars().map(|(name, value)| format!("{name}={value}")).collect();
    let env: Vec<_> = env.lines().filter(|line| !test_environment.iter().any(|variable| variable == line)).collect();
    let expected = "COLOUR=red\nKEY=hunter2\nSTEADFAST_CLUSTER=here\nSTEADFAST_ID=u@7/r\nSTEADFAST_NAME=web-0\n\
                    STEADFAST_NAMESPACE=shop\nSTEADFAST_RESOURCE=pods\nSTEADFAST_RULE=r\nSTEADFAST_TYPE=Added\n\
                    STEADFAST_UID=u\n";
    assert_eq!(env, expected.lines().collect::<Vec<_>>());
}

#[tokio::test]
async fn exit_code_determines_the_outcome() {
    let folder = Folder::new("exec-codes");
    for (script, expected) in [
        ("exit 0", DeliveryOutcome::Delivered),
        ("exit 65", DeliveryOutcome::Rejected { reason: "sh exited with 65, a permanent rejection".to_owned() }),
        ("exit 75", DeliveryOutcome::Retry { retry_after: None, reason: "sh exited with 75".to_owned() }),
        ("exit 1", DeliveryOutcome::Retry { retry_after: None, reason: "sh exited with 1".to_owned() }),
        ("kill -9 $$", DeliveryOutcome::Retry { retry_after: None, reason: "sh was killed by a signal".to_owned() }),
    ] {
        // The message exceeds the capacity of a pipe, and some scripts do not read it.
        let sent = message(&json!("x".repeat(1 << 20)));
        assert_eq!(shell_sink(&folder, script, "").await.deliver(&[sent]).await, expected, "{script}");
    }
    let sink_without_program =
        open_sink(&folder, "[sinks.s.exec]\ncommand = [\"./there-is-none\"]").await.expect("a valid configuration");
    let DeliveryOutcome::Retry { reason, .. } = sink_without_program.deliver(&[message(&json!(1))]).await else {
        panic!("expected a retry")
    };
    assert!(reason.contains("cannot start ./there-is-none"), "{reason}");
}

/// Returns true if the process has ended, including zombies.
fn has_ended(pid: &str) -> bool {
    let state = std::process::Command::new("ps").args(["-o", "stat=", "-p", pid]).output().expect("ps runs");
    let state = String::from_utf8_lossy(&state.stdout).trim().to_owned();
    state.is_empty() || state.starts_with('Z')
}

fn wait_until(description: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "{description}: not within a minute");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Script that starts nested processes and records the process IDs.
const PROCESS_FAMILY_SCRIPT: &str = "sh -c \"sleep 1000 & echo \\$! >grandchild; wait\" & echo $! >child; wait";

fn family_pids(folder: &Path) -> Vec<String> {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default().trim().to_owned();
    ["child", "grandchild"].map(read).to_vec()
}

#[tokio::test]
async fn timeout_kills_the_process_group() {
    let folder = Folder::new("exec-timeout");
    let stream = shell_sink(&folder, PROCESS_FAMILY_SCRIPT, "timeout = \"3s\"").await;
    let outcome = stream.deliver(&[message(&json!(1))]).await;
    assert_eq!(
        outcome,
        DeliveryOutcome::Retry { retry_after: None, reason: "sh took longer than 3s and was killed".to_owned() }
    );
    let family_pids = family_pids(&folder);
    assert!(family_pids.iter().all(|pid| !pid.is_empty()), "{family_pids:?}");
    wait_until("the end of the family", || family_pids.iter().all(|pid| has_ended(pid)));
}

#[tokio::test]
async fn cancelled_attempt_kills_the_process_group() {
    let folder = Folder::new("exec-dropped");
    let stream = shell_sink(&folder, PROCESS_FAMILY_SCRIPT, "").await;
    let attempt = tokio::spawn(async move { stream.deliver(&[message(&json!(1))]).await });
    let watched_folder = folder.to_owned();
    let waited = tokio::task::spawn_blocking(move || {
        wait_until("the family", || family_pids(&watched_folder).iter().all(|pid| !pid.is_empty()));
    });
    waited.await.expect("the family starts");
    attempt.abort();
    assert!(attempt.await.is_err_and(|error| error.is_cancelled()));
    let family_pids = family_pids(&folder);
    wait_until("the end of the family", || family_pids.iter().all(|pid| has_ended(pid)));
}

#[tokio::test]
async fn missing_secret_is_reported_before_start() {
    let folder = Folder::new("exec-secrets");
    std::fs::write(folder.join("empty"), "\n").expect("enough space");
    for (from, description) in [
        ("{file = \"none\"}", "the file none: "),
        ("{env = \"STEADFAST_NO_SUCH_VARIABLE\"}", "$STEADFAST_NO_SUCH_VARIABLE is not set"),
        ("{file = \"empty\"}", "the file empty is empty"),
    ] {
        let sink = format!("[sinks.s.exec]\ncommand = [\"x\"]\nsecret_env.KEY = {from}");
        let reported = open_sink(&folder, &sink).await.map(drop).expect_err("a missing file");
        assert!(
            reported.contains("x.toml:8:18: ")
                && reported.contains(description)
                && reported.contains("store the secret there"),
            "{reported}"
        );
    }
}

/// The read of a pipe without a writer never ends, like that of a file on a file system without a response.
#[tokio::test(start_paused = true)]
async fn hanging_secret_file_blocks_no_runtime_thread() {
    let folder = Folder::new("exec-hanging");
    let pipe = folder.join("pipe");
    let created = std::process::Command::new("mkfifo").arg(&pipe).status().expect("a POSIX system");
    assert!(created.success());
    let sinks = [
        "[sinks.s.exec]\ncommand = [\"x\"]\nsecret_env.KEY = {file = \"pipe\"}",
        "[sinks.s.webhook]\nurl = {file = \"pipe\"}",
    ];
    for sink in sinks {
        let (opened, ()) = tokio::join!(open_sink(&folder, sink), advance(Duration::from_secs(60)));
        let reported = opened.map(drop).expect_err("a hanging file");
        assert!(reported.contains("the file system of the secrets does not respond"), "{reported}");
        // Ends the read.
        std::fs::write(&pipe, "x").expect("a reader");
    }
}
