//! Sink that starts a program for each message.
//!
//! The standard input is the message, one line of JSON. The environment identifies the object. The output is forwarded
//! to standard error. The exit code is the result: 0 for success, 65 for a permanent rejection, any other code for a
//! retry. After the timeout, the process group of the program is killed. A child process in another group survives.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::message_sink::{DeliveryFuture, MessageSink};
use crate::config::secret::SecretFrom;
use crate::config::sinks;
use crate::delivery_outcome::DeliveryOutcome;
use crate::message::Message;
use crate::secret::{ReadingLock, Secret, read_in_time};

/// Exit code of a permanent rejection (`EX_DATAERR` of `sysexits.h`).
pub const REJECTED_EXIT_CODE: i32 = 65;

/// Sink that starts a program for each message.
pub struct Exec {
    settings: sinks::ExecConfig,
    /// Working directory, and base of relative paths.
    folder: PathBuf,
    /// Secrets at the last successful read.
    secrets: Mutex<BTreeMap<String, String>>,
    /// Held during a read of the secrets.
    reading: ReadingLock,
}

impl Exec {
    /// Creates the sink with the content of its secrets. Relative paths start at `folder`.
    pub(super) fn new(
        settings: &sinks::ExecConfig,
        folder: PathBuf,
        secrets: BTreeMap<String, String>,
        reading: ReadingLock,
    ) -> Self {
        Self { settings: settings.clone(), folder, secrets: Mutex::new(secrets), reading }
    }

    /// Returns the secrets for the environment. The files are read each time. If a file cannot be read, the last value
    /// is used: a file may be missing for an instant during replacement.
    async fn secrets(&self) -> BTreeMap<String, String> {
        if !self.settings.secret_env.is_empty() {
            let (secret_env, folder) = (self.settings.secret_env.clone(), self.folder.clone());
            let read = read_in_time(&self.reading, move || read_secrets(&secret_env, &folder)).await;
            self.secrets.lock().extend(read.unwrap_or_default());
        }
        self.secrets.lock().clone()
    }
}

/// Reads the readable secrets. Blocks while reading.
fn read_secrets(secret_env: &BTreeMap<String, SecretFrom>, folder: &Path) -> BTreeMap<String, String> {
    let secret = |(name, from): (&String, &SecretFrom)| Some((name.clone(), read_variable(from, folder).ok()?));
    secret_env.iter().filter_map(secret).collect()
}

/// Reads a secret for an environment variable. Blocks while reading. The error is the reason and the remedy.
pub(super) fn read_variable(from: &SecretFrom, folder: &Path) -> Result<String, (String, &'static str)> {
    let remedy = "store the secret there, or correct the reference";
    let secret = Secret::read(from, folder).map_err(|reason| (reason, remedy))?;
    let text = secret.text().filter(|text| !text.contains('\0')).map(str::to_owned);
    text.ok_or_else(|| (format!("{from:?} is not text"), "environment variables need text without NUL"))
}

impl MessageSink for Exec {
    fn deliver<'a>(&'a self, messages: &'a [Arc<Message>]) -> DeliveryFuture<'a> {
        Box::pin(async move {
            for message in messages {
                let outcome = self.run(message).await;
                // The outcome of the first failure counts. The batch of this sink has one message.
                if outcome != DeliveryOutcome::Delivered {
                    return outcome;
                }
            }
            DeliveryOutcome::Delivered
        })
    }
}

impl Exec {
    async fn run(&self, message: &Message) -> DeliveryOutcome {
        let retry = |reason: String| DeliveryOutcome::Retry { retry_after: None, reason };
        let program = self.settings.command.first().map(String::as_str).unwrap_or_default();
        let secrets = self.secrets().await;
        let mut child_guard = match self.start(program, message, secrets) {
            Ok(child) => ChildGuard(Some(child)),
            Err(error) => return retry(format!("cannot start {program}: {error}")),
        };
        match timeout(self.settings.timeout.0, child_guard.write_and_wait(message.line() + "\n")).await {
            Ok(Ok(status)) => exit_outcome(program, status),
            Ok(Err(error)) => retry(format!("cannot wait for {program}: {error}")),
            // Dropping `child_guard` kills the process group.
            Err(_) => retry(format!("{program} took longer than {:?} and was killed", self.settings.timeout.0)),
        }
    }

    fn start(&self, program: &str, message: &Message, secrets: BTreeMap<String, String>) -> std::io::Result<Child> {
        let mut command = Command::new(program);
        command
            .args(&self.settings.command[1..])
            .envs(&self.settings.env)
            .envs(secrets)
            .env("STEADFAST_ID", &message.id)
            .env("STEADFAST_RULE", &message.rule)
            .env("STEADFAST_TYPE", &message.kind)
            .env("STEADFAST_CLUSTER", &message.cluster)
            .env("STEADFAST_RESOURCE", &message.resource)
            .env("STEADFAST_NAMESPACE", &message.namespace)
            .env("STEADFAST_NAME", &message.name)
            .env("STEADFAST_UID", &message.uid)
            .stdin(Stdio::piped())
            // Standard output is reserved for messages of other sinks.
            .stdout(Stdio::from(std::io::stderr()))
            .kill_on_drop(true);
        if !self.folder.as_os_str().is_empty() {
            command.current_dir(&self.folder);
        }
        // A separate process group, so that child processes in the group are killed too.
        #[cfg(unix)]
        command.process_group(0);
        command.spawn()
    }
}

fn exit_outcome(program: &str, status: ExitStatus) -> DeliveryOutcome {
    match status.code() {
        Some(0) => DeliveryOutcome::Delivered,
        Some(REJECTED_EXIT_CODE) => DeliveryOutcome::Rejected {
            reason: format!("{program} exited with {REJECTED_EXIT_CODE}, a permanent rejection"),
        },
        Some(code) => DeliveryOutcome::Retry { retry_after: None, reason: format!("{program} exited with {code}") },
        None => DeliveryOutcome::Retry { retry_after: None, reason: format!("{program} was killed by a signal") },
    }
}

/// A running program. Dropping the value kills the process group of the program.
struct ChildGuard(Option<Child>);

impl ChildGuard {
    /// Writes `input` to the standard input, and waits for the exit.
    async fn write_and_wait(&mut self, input: String) -> std::io::Result<ExitStatus> {
        let Some(child) = &mut self.0 else { return Err(std::io::ErrorKind::NotFound.into()) };
        if let Some(mut stdin) = child.stdin.take() {
            // The program may exit without reading the input, so errors are ignored.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        let status = child.wait().await?;
        // Cleared after the exit, so that the destructor does not kill a reused process group.
        self.0 = None;
        Ok(status)
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // The process ID is not reused before the process was waited for.
        #[cfg(unix)]
        if let Some(child) = &self.0
            && let Some(group) = child.id().and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?))
        {
            // The process may have exited in the meantime, so errors are ignored.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}
