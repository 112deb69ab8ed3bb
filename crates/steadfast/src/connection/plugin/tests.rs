#![cfg(unix)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::json;

use super::*;

/// Folder of one test, removed when the value is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("steadfast-plugin-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

const LONG: Duration = Duration::from_secs(60);

fn exec(script: &str) -> ExecConfig {
    let exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script],
        "interactiveMode": "Never", "env": [{"name": "STEADFAST_ONE", "value": "1"}],
    });
    serde_json::from_value(exec).expect("an exec configuration")
}

fn returning(status: &serde_json::Value) -> String {
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status,
    });
    format!("echo '{credential}'")
}

fn error(script: &str) -> String {
    Plugin::of(&exec(script), LONG).obtain(None).map(drop).expect_err("an error")
}

/// Returns true if the process whose number is in `file` runs. A zombie does not count as running.
fn runs(file: &Path) -> bool {
    let number = fs::read_to_string(file).expect("the script has written its PID");
    let state = fs::read_to_string(format!("/proc/{}/stat", number.trim())).unwrap_or_default();
    let state = state.rsplit_once(')').and_then(|(_, rest)| rest.trim().chars().next());
    state.is_some_and(|state| state != 'Z')
}

#[test]
fn hanging_plugin_is_killed_at_its_deadline() {
    let plugin = Plugin::of(&exec("exec sleep 1000"), Duration::from_millis(300));
    let error = plugin.obtain(None).map(drop).expect_err("a hanging plugin");
    assert!(error.contains("\"sh\" returned nothing within 0.3 s, and was killed"), "{error}");
}

#[test]
fn output_is_kept_if_a_daemon_holds_the_pipe() {
    let script = format!("sleep 5 & {}", returning(&json!({"token": "secret"})));
    assert!(Plugin::of(&exec(&script), LONG).obtain(None).is_ok());
    let error = error("sleep 5 & echo expired >&2; exit 1");
    assert!(error.contains("expired"), "{error}");
}

#[test]
fn exit_before_the_deadline_is_no_timeout() {
    let script = format!("sleep 5 & {}", returning(&json!({"token": "secret"})));
    assert!(Plugin::of(&exec(&script), Duration::from_millis(800)).obtain(None).is_ok());
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "needs /proc")]
fn abandoned_plugin_is_killed_with_its_children() {
    let folder = Folder::new();
    let (own, child) = (folder.file("own"), folder.file("child"));
    let script = format!("sleep 1000 & echo $! > {}; echo $$ > {}; wait", child.display(), own.display());
    let plugin = Plugin::of(&exec(&script), LONG);
    let has_started = || fs::read_to_string(&own).is_ok_and(|number| number.ends_with('\n'));
    let outcome = plugin.core.obtain(None, &has_started);
    assert_eq!(outcome.map(drop), Err(ABANDONED.to_owned()));
    // The kernel delivers signals asynchronously, so the processes may run a little longer.
    while runs(&own) || runs(&child) {
        thread::yield_now();
    }
}

#[test]
fn one_process_serves_all_callers() {
    let folder = Folder::new();
    let calls = folder.file("calls");
    let script = format!("echo x >> {}; sleep 0.2; {}", calls.display(), returning(&json!({"token": "abc"})));
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let exec = exec(&script);
            // Each thread requests a plugin of an equal configuration, as several connections do.
            thread::spawn(move || {
                let plugin = Plugin::of(&exec, LONG);
                let token = plugin.obtain(None).map(|credentials| credentials.token.clone());
                (plugin, token)
            })
        })
        .collect();
    let outcomes: Vec<_> = callers.into_iter().map(|caller| caller.join().expect("no panic")).collect();
    assert!(outcomes.iter().all(|(_, token)| *token == Ok(bearer("abc"))));
    assert_eq!(fs::read_to_string(&calls).expect("a file"), "x\n");
    let (plugin, _) = &outcomes[0];
    assert_eq!(plugin.obtain(Some(1)).map(|credentials| credentials.generation), Ok(2), "a rejected token is replaced");
    assert_eq!(fs::read_to_string(&calls).expect("a file"), "x\nx\n");
}

#[test]
fn missing_plugin_is_named_with_its_hint() {
    let exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "command": "steadfast-no-such-login",
        "installHint": "get it from\n\u{1b}[1mhttps://login.example.test", "interactiveMode": "Never",
    });
    let exec = serde_json::from_value(exec).expect("an exec configuration");
    let error = Plugin::of(&exec, LONG).obtain(None).map(drop).expect_err("a missing program");
    assert!(
        error.contains("the credential plugin \"steadfast-no-such-login\" cannot be started: No such file"),
        "{error}"
    );
    assert!(error.ends_with("; get it from [1mhttps://login.example.test"), "{error}");
}

#[test]
fn failed_plugin_is_quoted_without_secrets() {
    let message = error("echo my-own-token-1; echo 'login failed for my-own-token-1: expired' >&2; exit 3");
    assert!(
        message.contains("\"sh\" failed (exit status: 3): the plugin printed: login failed for [redacted] expired"),
        "{message}"
    );
    let message = error("exit 4");
    assert!(message.contains("the plugin printed nothing on standard error"), "{message}");
}

#[test]
fn incomplete_credentials_are_named() {
    for (status, expected) in [
        (json!({}), "returned neither a token nor a client certificate"),
        (json!({"token": ""}), "returned neither a token nor a client certificate"),
        (json!(null), "without a status"),
        (json!({"clientCertificateData": "x"}), "returned a client certificate without its key"),
        (json!({"clientKeyData": "x"}), "returned a client key without its certificate"),
        (json!({"clientKeyData": "x", "clientCertificateData": "x"}), "holds no certificate in PEM"),
        (json!({"token": "a", "expirationTimestamp": "soon"}), "not an RFC 3339 time"),
        (json!({"token": ["a"]}), "is not an ExecCredential"),
    ] {
        let message = error(&returning(&status));
        assert!(message.contains(expected) && message.contains("\"sh\""), "{status}: {message}");
    }
}

#[test]
fn endless_output_is_cut() {
    let message = error("yes");
    assert!(message.contains("printed more than 1024 KiB, and was killed"), "{message}");
}

#[test]
fn expiring_credentials_are_renewed_early() {
    let now = Timestamp::now();
    let seconds = |seconds: i64| now.checked_add(Duration::from_secs(seconds.unsigned_abs())).expect("in range");
    let early = |lifetime: i64| {
        let at = renew_at(seconds(lifetime));
        (seconds(lifetime).duration_since(at).as_millis() + 500) / 1000
    };
    assert_eq!(early(3600), 60);
    assert_eq!(early(40), 10);
    let past = now.checked_sub(Duration::from_secs(60)).expect("in range");
    assert_eq!(renew_at(past), past);
}
