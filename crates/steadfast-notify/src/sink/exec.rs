//! A program that is started for each message.
//!
//! It gets the message on its standard input, one line of JSON and then the end, and who it is about in its environment.
//! What it writes goes to standard error. By its exit code it says what came of it: 0, it is done; 65, it never will be;
//! anything else, another time. One that takes too long is killed, with all that it has started.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::stream::{Delivering, Stream};
use crate::config::sinks;
use crate::message::Message;
use crate::outcome::Outcome;
use crate::secret::Secret;

/// The exit code by which a program says that it will never take this message (`EX_DATAERR` of `sysexits.h`).
pub const REFUSES: i32 = 65;

/// A program that is started for each message.
pub struct Exec {
    settings: sinks::Exec,
    /// Where it is started, and where relative paths begin.
    folder: PathBuf,
    /// The secrets as they were read last.
    secrets: Mutex<BTreeMap<String, String>>,
}

impl Exec {
    /// Prepares it. Relative paths begin at `folder`.
    pub(super) fn new(settings: &sinks::Exec, folder: PathBuf) -> Self {
        let exec = Self { settings: settings.clone(), folder, secrets: Mutex::default() };
        exec.secrets();
        exec
    }

    /// Returns the secrets of its environment as the files have them now. A secret that cannot be read is used as it was: a file
    /// may be missing for an instant while it is replaced.
    fn secrets(&self) -> BTreeMap<String, String> {
        let mut known = self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, from) in &self.settings.secret_env {
            let read = Secret::read(from, &self.folder).ok();
            if let Some(text) = read.as_ref().and_then(Secret::text).filter(|text| !text.contains('\0')) {
                known.insert(name.clone(), text.to_owned());
            }
        }
        known.clone()
    }
}

impl Stream for Exec {
    fn deliver<'a>(&'a self, messages: &'a [Arc<Message>]) -> Delivering<'a> {
        Box::pin(async move {
            for message in messages {
                let outcome = self.run(message).await;
                if outcome != Outcome::Delivered {
                    return outcome;
                }
            }
            Outcome::Delivered
        })
    }
}

impl Exec {
    async fn run(&self, message: &Message) -> Outcome {
        let again = |why: String| Outcome::Retry { after: None, why };
        let program = self.settings.command.first().map(String::as_str).unwrap_or_default();
        let mut running = match self.start(program, message) {
            Ok(child) => Running(Some(child)),
            Err(error) => return again(format!("{program} cannot be started: {error}")),
        };
        match timeout(self.settings.timeout.0, running.fed(message.line() + "\n")).await {
            Ok(Ok(status)) => outcome(program, status),
            Ok(Err(error)) => again(format!("{program} cannot be waited for: {error}")),
            // Dropped here, and killed with it.
            Err(_) => again(format!("{program} took longer than {:?} and was killed", self.settings.timeout.0)),
        }
    }

    fn start(&self, program: &str, message: &Message) -> std::io::Result<Child> {
        let mut command = Command::new(program);
        command
            .args(&self.settings.command[1..])
            .envs(&self.settings.env)
            .envs(self.secrets())
            .env("STEADFAST_ID", &message.id)
            .env("STEADFAST_RULE", &message.rule)
            .env("STEADFAST_TYPE", &message.kind)
            .env("STEADFAST_CLUSTER", &message.cluster)
            .env("STEADFAST_RESOURCE", &message.resource)
            .env("STEADFAST_NAMESPACE", &message.namespace)
            .env("STEADFAST_NAME", &message.name)
            .env("STEADFAST_UID", &message.uid)
            .stdin(Stdio::piped())
            // Lines of other sinks are on standard output, and nothing else.
            .stdout(Stdio::from(std::io::stderr()))
            .kill_on_drop(true);
        if !self.folder.as_os_str().is_empty() {
            command.current_dir(&self.folder);
        }
        #[cfg(unix)]
        command.process_group(0);
        command.spawn()
    }
}

fn outcome(program: &str, status: ExitStatus) -> Outcome {
    match status.code() {
        Some(0) => Outcome::Delivered,
        Some(REFUSES) => Outcome::Refused { why: format!("{program} ended with {REFUSES}: it will never take this") },
        Some(code) => Outcome::Retry { after: None, why: format!("{program} ended with {code}") },
        None => Outcome::Retry { after: None, why: format!("{program} was ended by a signal") },
    }
}

/// A program that runs; it ends with this, and all that it has started ends with it, unless it has ended by itself.
struct Running(Option<Child>);

impl Running {
    /// Gives it `input`, and waits for its end.
    async fn fed(&mut self, input: String) -> std::io::Result<ExitStatus> {
        let Some(child) = &mut self.0 else { return Err(std::io::ErrorKind::NotFound.into()) };
        if let Some(mut stdin) = child.stdin.take() {
            // It need not read.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        let status = child.wait().await?;
        self.0 = None;
        Ok(status)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Not waited for yet, so that its number is nobody else's.
        #[cfg(unix)]
        if let Some(child) = &self.0
            && let Some(group) = child.id().and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?))
        {
            // One that has ended meanwhile is not there to be killed.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}
