//! A process that ends with what holds it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fs, io, thread};

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use crate::Error;

/// How much of what a process complained of is reported.
const TOLD: usize = 20;

/// A process of the reference, ended by `SIGKILL` when this is dropped.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    /// What it prints; closed when it has ended.
    lines: UnboundedReceiver<String>,
    name: String,
    log: PathBuf,
}

impl Process {
    /// Starts `program`, whose complaints go to `log`. It also ends when this program does, however that ends.
    pub(super) fn start(program: &Path, arguments: &[&str], log: PathBuf) -> io::Result<Self> {
        let mut child = Command::new(program)
            .arg("-while-stdin")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::options().create(true).append(true).open(&log)?)
            .spawn()?;
        let output = child.stdout.take();
        let (told, lines) = unbounded_channel();
        thread::spawn(move || {
            // Read to its end, whoever listens: a full pipe would hold up the process.
            for line in output.into_iter().flat_map(|output| BufReader::new(output).lines()) {
                let Ok(line) = line else { return };
                let _ = told.send(line);
            }
        });
        Ok(Self { child, lines, name: arguments.join(" "), log })
    }

    /// What the process says that it is ready at.
    pub(super) async fn ready(&mut self, deadline: Duration) -> Result<String, Error> {
        let ready = async {
            while let Some(line) = self.lines.recv().await {
                if let Some(place) = line.strip_prefix("ready ") {
                    return Some(place.to_owned());
                }
            }
            None
        };
        match timeout(deadline, ready).await {
            Ok(Some(place)) => Ok(place),
            Ok(None) => Err(self.complaint("ended before it was ready").into()),
            Err(_) => Err(self.complaint(&format!("was not ready after {deadline:?}")).into()),
        }
    }

    /// Stops it where it is, or lets it go on, as `SIGSTOP` and `SIGCONT` do; its sockets stay open.
    pub(super) fn freeze(&self, on: bool) -> io::Result<()> {
        let kill = format!("kill -{} {}", if on { "STOP" } else { "CONT" }, self.child.id());
        // The shell's own: not every machine has a program of that name.
        let status = Command::new("sh").args(["-c", &kill]).status()?;
        if status.success() { Ok(()) } else { Err(io::Error::other(format!("{kill} ended with {status}"))) }
    }

    /// Ends its input, which asks it to end.
    pub(super) fn close_input(&mut self) {
        self.child.stdin = None;
    }

    /// Ends it by `SIGKILL`.
    pub(super) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits until it has ended, and well.
    pub(super) async fn until_ended(&mut self, deadline: Duration) -> Result<(), Error> {
        let ended = async { while self.lines.recv().await.is_some() {} };
        if timeout(deadline, ended).await.is_err() {
            return Err(self.complaint(&format!("had not ended after {deadline:?}")).into());
        }
        // Its output is closed, so it has ended or is about to.
        let input = self.child.stdin.take();
        let status = self.child.wait()?;
        drop(input);
        if status.success() { Ok(()) } else { Err(self.complaint(&format!("ended with {status}")).into()) }
    }

    fn complaint(&self, what: &str) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(TOLD)..].join("\n");
        format!("the reference ({}) {what}:\n{last}", self.name)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
