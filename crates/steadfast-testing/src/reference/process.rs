//! Process of the reference. It ends when its handle is dropped, or when this program ends.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fs, io, thread};

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time;

use crate::TestkitError;

/// Maximum number of error lines in a report.
const MAX_REPORTED_LINES: usize = 20;

/// Process of the reference. Dropping it kills the process with `SIGKILL`.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    /// Lines of its standard output. Closed when the process has ended.
    lines: UnboundedReceiver<String>,
    name: String,
    log: PathBuf,
}

impl Process {
    /// Starts `program`, with its standard error in `log`. The process also ends when this program ends, for any
    /// reason.
    pub(super) fn start(program: &Path, arguments: &[&str], log: PathBuf) -> io::Result<Self> {
        let mut child = Command::new(program)
            // The child watches its standard input. If this process is killed, the kernel closes the pipe and the child
            // exits.
            .arg("-while-stdin")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::options().create(true).append(true).open(&log)?)
            .spawn()?;
        let output = child.stdout.take();
        let (sender, lines) = unbounded_channel();
        // A thread reads the output instead of a task, because the runtime of a test may be paused or blocked.
        thread::spawn(move || {
            // The output is read to its end even without a receiver: a full pipe would block the process.
            for line in output.into_iter().flat_map(|output| BufReader::new(output).lines()) {
                let Ok(line) = line else { return };
                let _ = sender.send(line);
            }
        });
        Ok(Self { child, lines, name: arguments.join(" "), log })
    }

    /// Returns the address that the process reports when it is ready.
    pub(super) async fn wait_until_ready(&mut self, timeout: Duration) -> Result<String, TestkitError> {
        let ready_address = async {
            while let Some(line) = self.lines.recv().await {
                if let Some(address) = line.strip_prefix("ready ") {
                    return Some(address.to_owned());
                }
            }
            None
        };
        match time::timeout(timeout, ready_address).await {
            Ok(Some(address)) => Ok(address),
            Ok(None) => Err(self.error_with_output("ended before it was ready").into()),
            Err(_) => Err(self.error_with_output(&format!("was not ready after {timeout:?}")).into()),
        }
    }

    /// Freezes the process, or resumes it, with `SIGSTOP` and `SIGCONT`. Its sockets stay open.
    pub(super) fn set_frozen(&self, is_frozen: bool) -> io::Result<()> {
        let kill = format!("kill -{} {}", if is_frozen { "STOP" } else { "CONT" }, self.child.id());
        // The command is the `kill` of the shell, because not every machine has a program of this name.
        let status = Command::new("sh").args(["-c", &kill]).status()?;
        if status.success() { Ok(()) } else { Err(io::Error::other(format!("{kill} ended with {status}"))) }
    }

    /// Closes its standard input, which makes the process exit.
    pub(super) fn close_input(&mut self) {
        self.child.stdin = None;
    }

    /// Kills the process with `SIGKILL`.
    pub(super) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits until the process has exited successfully.
    pub(super) async fn until_ended(&mut self, timeout: Duration) -> Result<(), TestkitError> {
        // The channel ends when the output is closed. A wait for the child itself would block the runtime.
        let ended = async { while self.lines.recv().await.is_some() {} };
        if time::timeout(timeout, ended).await.is_err() {
            return Err(self.error_with_output(&format!("had not ended after {timeout:?}")).into());
        }
        // The output is closed, so the process has exited or is about to exit. `Child::wait` closes the standard input
        // first, which would make a running process exit. The input stays open during the wait, so that a success means
        // that the process ended on its own.
        let input = self.child.stdin.take();
        let status = self.child.wait()?;
        drop(input);
        if status.success() { Ok(()) } else { Err(self.error_with_output(&format!("ended with {status}")).into()) }
    }

    fn error_with_output(&self, problem: &str) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last_lines = lines[lines.len().saturating_sub(MAX_REPORTED_LINES)..].join("\n");
        format!("the reference ({}) {problem}:\n{last_lines}", self.name)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
